"""
What exported functions call outside themselves: resolved into the artifacts where that is possible.

Numba's half and bfloat16 arithmetic is CUDA C++, and `cuda.declare_device` can bring more. What NVRTC can
make LTO-IR of is merged by nvJitLink; the rest stays undefined, for the C++ side to supply.
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

# Symbols that ptxas and the device runtime supply themselves.
_SUPPLIED = frozenset({"vprintf", "malloc", "free", "__assertfail", "__nvvm_reflect"})
# Numba-cuda's bindings generator ends the names of its shims so, and starts their definitions so.
# Generated shims of functions end in _nbst; those of constructors and conversions begin with the class.
_SHIM = re.compile(r'extern "C" __device__ int\s+(?=(\w+_nbst|____nv_\w+)\()')
_SHIM_NAME = re.compile(r"\b(?:\w+_nbst|____nv_\w+|NRT_\w+)\b")
_FUNCTION = re.compile(r'extern "C"\s+__device__\s+\w+\s+\w+\s*\(')
# What numba-cuda's memory manager for device code defines, which no other export may define again.
_NRT_NAME = re.compile(r"\b(?:NRT_\w+(?=\()|TheMSys)")
_KEEP = "numba_ptxlink_keep"


def undefined(ptx: str) -> dict[str, Prototype]:
    """Return the functions that *ptx* calls and does not define, by name."""
    found = parse(ptx).functions
    defined = {each.prototype.name for each in found if each.defined}
    return {
        each.prototype.name: each.prototype
        for each in found
        if each.linkage == "extern" and each.prototype.name not in defined | _SUPPLIED
    }


def private_shims(modules: Iterable[str], tag: str) -> list[str]:
    """Return *modules*, LLVM IR, calling Numba's shims by names that end in *tag*, one for each export."""
    parsed = [stable_names.Module(module) for module in modules]
    # Functions of the export may be called so too.
    defined = {name for module in parsed for name in module.defined}
    shims = {name for module in parsed for name in module.used if _SHIM_NAME.fullmatch(name)} - defined
    return [module.renamed({name: f"{name}_{tag}" for name in shims}) for module in parsed]


def linkable(
    libraries: Iterable[Any], missing: Iterable[str], arch: Arch, tag: str
) -> list[tuple[str, bytes]]:
    """
    Return name and LTO-IR of the code that *libraries* ask to be linked, as far as it can become LTO-IR.

    Args:
        libraries: Numba's code libraries.
        missing: What is undefined; of Numba's shims, only these are taken.
        arch: The GPU to generate code for.
        tag: What the names of Numba's shims end in.

    Raises:
        ExportError: NVRTC could not compile it.
    """
    from numba.cuda.cudadrv.linkable_code import LinkableCode

    missing = set(missing)
    if not missing:
        return []
    files = dict.fromkeys(each for library in libraries for each in library._linking_files)
    made: dict[tuple[str, bytes], None] = {}
    for each in files:
        code = LinkableCode.from_path_or_obj(each)
        if code.name == "nrt.cu":
            continue  # comes under names of this export, where it is needed
        text = code.data if isinstance(code.data, bytes) else code.data.encode()
        if code.kind == LTOIR:
            made[code.name, text] = None
        elif code.kind == CU:
            folder = [Path(each).parent] if isinstance(each, (str, Path)) else []
            made[code.name, _compile(_only(text.decode(), missing, tag), code.name, arch, folder)] = None
    if any(name.startswith("NRT_") for name in missing):
        made["nrt.cu", _memory_manager(arch, tag)] = None
    return sorted(made)


def _memory_manager(arch: Arch, tag: str) -> bytes:
    """Return the LTO-IR of numba-cuda's memory manager for device code, under names that end in *tag*."""
    from numba.cuda.memory_management import nrt

    path = Path(nrt.__file__).with_name("nrt.cu")
    source = path.read_text()
    names = sorted({match[0] for match in _NRT_NAME.finditer(source)})
    renamed = "".join(f"#define {name} {name}_{tag}\n" for name in names)
    # Its kernels are for numba-cuda's own statistics; as functions they are dropped where nobody calls them.
    return _compile(f"{renamed}#define __global__ __device__\n{source}", path.name, arch, [path.parent])


def needed_shims(source: str, modules: Iterable[str]) -> str:
    """
    Return *source* with only those of Numba's shims that *modules*, LLVM IR, call, ordered by name.

    Numba-cuda collects the shims of all functions that the process has compiled so far.
    """
    head, shims = _split(source)
    wanted = {name for module in modules for name in _SHIM_NAME.findall(module)}
    if not shims:
        return source
    return "\n".join([head.rstrip(), *(shims[name].strip() for name in sorted(wanted & shims.keys())), ""])


def _split(source: str) -> tuple[str, dict[str, str]]:
    """Return what precedes Numba's shims in *source*, and each by its name; none where it holds more."""
    starts = list(_SHIM.finditer(source))
    if not starts or len(starts) != len(_FUNCTION.findall(source)):
        return source, {}
    ends = [start.start() for start in starts[1:]] + [len(source)]
    return source[: starts[0].start()], {
        start[1]: source[start.start() : end] for start, end in zip(starts, ends, strict=True)
    }


def _only(source: str, missing: set[str], tag: str) -> str:
    """Return *source*, of a file of shims only those that are *missing*; others are returned as they are."""
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
    """Return one piece of LTO-IR of the functions and the code they call."""
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
    Return PTX of the functions *symbols* with the code they call optimised into them.

    Link-time optimisation drops what no kernel uses, so a kernel uses them, which is then taken out again.
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
    Return the C signature of the `cuda.declare_device` function that *prototype* belongs to.

    None where nothing was declared by that name, or its C types cannot be told.
    """
    for key in context._defns:
        if getattr(key, "name", None) != prototype.name or not hasattr(key, "sig"):
            continue
        params = [(f"arg{number}", ty) for number, ty in enumerate(key.sig.args)]
        try:
            plain = abi.c_signature(prototype.name, key.sig.return_type, params)
        except AbiError:
            continue
        # Numba's own convention has a status for a result, and an address for the result.
        result = c.Pointer(f"{plain.result.name}*", 8, 8, plain.result)
        status = c.Scalar("int32_t", 4, 4, "int")
        own = c.Signature(prototype.name, status, (("result", result), *plain.params))
        for candidate in (plain, own):
            if candidate.prototype == prototype:
                return candidate
    return None
