"""
Resolve external functions that exported functions call, and merge them into the artifacts.

Numba implements half and bfloat16 arithmetic in CUDA C++, and `cuda.declare_device` can add more of it. What
NVRTC compiles to LTO-IR is merged by nvJitLink; other symbols stay undefined, for the C++ side to define.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi, cache
from numba_ptxlink._cabi import types as c
from numba_ptxlink._formats.kinds import CU, LTOIR, PTX
from numba_ptxlink._formats.ptx import Prototype, parse
from numba_ptxlink._numba_cuda import stable_names
from numba_ptxlink._tools import nvjitlink, nvrtc
from numba_ptxlink.errors import AbiError, ExportError, LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._arch import Arch

# Symbols that ptxas and the device runtime define.
_SUPPLIED = frozenset({"vprintf", "malloc", "free", "__assertfail", "__nvvm_reflect"})
# The definitions that numba-cuda's bindings generator writes: shims of functions end in _nbst, those of
# constructors and conversions begin with the class.
_SHIM = re.compile(r'extern "C" __device__ int\s+(?=(\w+_nbst|____nv_\w+)\()')
_SHIM_NAME = re.compile(r"\b(?:\w+_nbst|____nv_\w+|NRT_\w+)\b")
_FUNCTION = re.compile(r'extern "C"\s+__device__\s+\w+\s+\w+\s*\(')
# Symbols of numba-cuda's memory manager for device code: two exports must not both define them.
_NRT_NAME = re.compile(r"\b(?:NRT_\w+(?=\()|TheMSys)")
_KEEP = "numba_ptxlink_keep"


def undefined(ptx: str) -> dict[str, Prototype]:
    """Return the functions that *ptx* references but does not define, by name."""
    functions = parse(ptx).functions
    defined = {function.prototype.name for function in functions if function.defined}
    return {
        function.prototype.name: function.prototype
        for function in functions
        if function.linkage == "extern" and function.prototype.name not in defined | _SUPPLIED
    }


def private_shims(modules: Iterable[str], tag: str) -> list[str]:
    """Return the LLVM IR *modules* with *tag*, one per export, appended to the names of Numba's shims."""
    parsed = [stable_names.Module(module) for module in modules]
    # A function of the export can have such a name too, and keeps it.
    defined = {name for module in parsed for name in module.defined}
    shims = {name for module in parsed for name in module.used if _SHIM_NAME.fullmatch(name)} - defined
    return [module.renamed({name: f"{name}_{tag}" for name in shims}) for module in parsed]


def linkable(
    libraries: Iterable[Any], missing: Iterable[str], arch: Arch, tag: str
) -> list[tuple[str, bytes]]:
    """
    Return name and LTO-IR of the files that *libraries* link, if they can be compiled to it.

    Args:
        libraries: Numba's code libraries.
        missing: The undefined symbols; of Numba's shims, only these are compiled.
        arch: The GPU to generate code for.
        tag: The suffix of the names of Numba's shims.

    Raises:
        ExportError: NVRTC could not compile a file.
    """
    from numba.cuda.cudadrv.linkable_code import LinkableCode

    missing = set(missing)
    if not missing:
        return []
    files = dict.fromkeys(file for library in libraries for file in library._linking_files)
    compiled: dict[tuple[str, bytes], None] = {}
    for file in files:
        code = LinkableCode.from_path_or_obj(file)
        if code.name == "nrt.cu":
            continue  # added below, with this export's names
        text = code.data if isinstance(code.data, bytes) else code.data.encode()
        if code.kind == LTOIR:
            compiled[code.name, text] = None
        elif code.kind == CU:
            folder = [Path(file).parent] if isinstance(file, (str, Path)) else []
            compiled[code.name, _compile(_only(text.decode(), missing, tag), code.name, arch, folder)] = None
    if any(name.startswith("NRT_") for name in missing):
        compiled["nrt.cu", _memory_manager(arch, tag)] = None
    return sorted(compiled)


def _memory_manager(arch: Arch, tag: str) -> bytes:
    """Compile numba-cuda's memory manager for device code to LTO-IR, with *tag* appended to its names."""
    from numba.cuda.memory_management import nrt

    path = Path(nrt.__file__).with_name("nrt.cu")
    source = path.read_text()
    names = sorted({match[0] for match in _NRT_NAME.finditer(source)})
    renamed = "".join(f"#define {name} {name}_{tag}\n" for name in names)
    # Its kernels serve numba-cuda's statistics; as device functions the linker drops them if they are unused.
    return _compile(f"{renamed}#define __global__ __device__\n{source}", path.name, arch, [path.parent])


def needed_shims(source: str, modules: Iterable[str]) -> str:
    """
    Return *source* with only the shims of Numba that the LLVM IR *modules* call, sorted by name.

    Numba-cuda accumulates the shims of all functions that the process has compiled.
    """
    head, shims = _split(source)
    wanted = {name for module in modules for name in _SHIM_NAME.findall(module)}
    if not shims:
        return source
    return "\n".join([head.rstrip(), *(shims[name].strip() for name in sorted(wanted & shims.keys())), ""])


def _split(source: str) -> tuple[str, dict[str, str]]:
    """Split *source* into its head and Numba's shims by name; no shims if it defines other functions too."""
    starts = list(_SHIM.finditer(source))
    if not starts or len(starts) != len(_FUNCTION.findall(source)):
        return source, {}
    ends = [start.start() for start in starts[1:]] + [len(source)]
    return source[: starts[0].start()], {
        start[1]: source[start.start() : end] for start, end in zip(starts, ends, strict=True)
    }


def _only(source: str, missing: set[str], tag: str) -> str:
    """Return *source*, reduced to the *missing* shims if it is a file of shims, otherwise unchanged."""
    head, shims = _split(source)
    wanted = [name for name in sorted(shims) if f"{name}_{tag}" in missing]
    return head + "".join(_SHIM_NAME.sub(rf"\g<0>_{tag}", shims[name]) for name in wanted)


def _compile(source: str, name: str, arch: Arch, folders: Sequence[Path]) -> bytes:
    try:
        return nvrtc.compile_source(
            source,
            name,
            arch,
            output=LTOIR,
            flags=["-std=c++17"],
            include_dirs=[*folders, *nvrtc.toolkit_include_dirs()],
        ).code
    except LinkError as error:
        raise ExportError(str(error), flags=error.flags, inputs=error.inputs, log=error.log) from error


def merge_ltoir(ltoir: bytes, linked: Sequence[tuple[str, bytes]], arch: Arch) -> bytes:
    """Merge the functions and the code they call into one LTO-IR module."""
    return _link(ltoir, linked, ["-lto", "-r"], arch, LTOIR)


def merge_ptx(
    ltoir: bytes,
    linked: Sequence[tuple[str, bytes]],
    arch: Arch,
    symbols: Iterable[str],
    *,
    lineinfo: bool,
    opt: bool,
) -> str:
    """
    Return PTX of the functions *symbols* after link-time optimisation with the code they call.

    Link-time optimisation drops functions that no kernel uses, so a temporary kernel uses them; it is removed
    from the PTX.
    """
    symbols = sorted(symbols)
    uses = "".join(f'extern "C" __device__ int {name}();\n' for name in symbols)
    body = "".join(f"{_KEEP}_p[{number}] = (void*)&{name};\n" for number, name in enumerate(symbols))
    kernel = f'extern "C" __global__ void {_KEEP}(void** {_KEEP}_p) {{\n{body}}}\n'
    keep = _compile(uses + kernel, f"{_KEEP}.cu", arch, [])
    flags = ["-lto", "-ptx", *(["-lineinfo"] if lineinfo else []), *([] if opt else ["-O0"])]
    text = _link(ltoir, [*linked, (_KEEP, keep)], flags, arch, PTX).decode().rstrip("\0").strip() + "\n"
    module = parse(text)
    kept = module.definition(_KEEP)
    if kept is None:
        raise ExportError("nvJitLink's PTX is not laid out as expected; please report this with its version.")
    module = parse(module.without([kept]))
    local = {each.linkage_span for each in module.functions if each.name in symbols and not each.linkage}
    return module.replace(dict.fromkeys(local, ".visible "))


def _link(
    ltoir: bytes, linked: Sequence[tuple[str, bytes]], flags: list[str], arch: Arch, output: str
) -> bytes:
    vector = [f"-arch={arch.sm}", *flags]
    inputs = [(LTOIR, "<functions>", ltoir), *((LTOIR, name, code) for name, code in linked)]
    try:
        return cache.cached(
            nvjitlink.key(inputs, vector, output),
            lambda: cache.Entry({}, nvjitlink.link(inputs, vector, output=output).code),
        ).code
    except LinkError as error:
        raise ExportError(str(error), flags=error.flags, inputs=error.inputs, log=error.log) from error


def declared(context: Any, prototype: Prototype) -> c.Signature | None:
    """
    Return the C signature of the `cuda.declare_device` function with *prototype*.

    None if no function was declared by that name, or its C types are unknown.
    """
    for key in context._defns:
        if getattr(key, "name", None) != prototype.name or not hasattr(key, "sig"):
            continue
        params = [(f"arg{number}", ty) for number, ty in enumerate(key.sig.args)]
        try:
            plain = abi.c_signature(prototype.name, key.sig.return_type, params)
        except AbiError:
            continue
        # Numba's calling convention returns a status, and the result through an address.
        result = c.Pointer(f"{plain.result.name}*", 8, 8, plain.result)
        status = c.Scalar("int32_t", 4, 4, "int")
        own = c.Signature(prototype.name, status, (("result", result), *plain.params))
        for candidate in (plain, own):
            if candidate.prototype == prototype:
                return candidate
    return None
