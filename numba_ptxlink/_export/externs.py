"""
Find the external functions that exported functions call, and merge their code into the artifacts.

`link_files` compiles that code to LTO-IR, which nvJitLink merges; other symbols stay undefined, for the C++
side to define.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink import cache
from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.kinds import LTOIR, PTX
from numba_ptxlink._formats.ptx import Prototype, Span, parse
from numba_ptxlink._link import declarations, manifests
from numba_ptxlink._link.declarations import declaration, declarations_of
from numba_ptxlink._link.read import Input
from numba_ptxlink._tools import nvjitlink
from numba_ptxlink.errors import ExportError, LinkError

from .link_files import compile_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Module
    from numba_ptxlink._front_end.protocol import LinkFile

    from .groups import Lowering

# Symbols that ptxas and the device runtime define.
_SUPPLIED = frozenset({"vprintf", "malloc", "free", "__assertfail", "__nvvm_reflect"})
_KEEP = "numba_ptxlink_keep"


def undefined(ptx: Module) -> dict[str, Prototype]:
    """Return the functions that *ptx* references but does not define, by name."""
    there = {function.name for function in ptx.functions if function.defined} | _SUPPLIED
    return {
        function.name: function.prototype
        for function in ptx.functions
        if function.linkage == "extern" and function.name not in there
    }


def is_complete(ptx: Module) -> bool:
    """Return whether *ptx* lacks no function or variable, and a driver loads it without a link."""
    return not undefined(ptx) and not ptx.undefined_variables


def merge_ltoir(ltoir: bytes, linked: Sequence[tuple[str, bytes]], arch: Arch) -> bytes:
    """
    Merge the functions and the code they call into one LTO-IR module.

    Raises:
        ExportError: nvJitLink refused the code, or cannot return LTO-IR.
    """
    if not nvjitlink.merges_ltoir():
        names = ", ".join(dict.fromkeys(name for name, _ in linked))
        raise ExportError(
            f"{names} cannot be merged into LTO-IR by nvJitLink "
            f"{'.'.join(map(str, nvjitlink.version()))}: CUDA 13.2 is the first that can. Leave ltoir out: "
            "PTX, cubins and fat binaries hold the same functions."
        )
    return _link(ltoir, linked, ["-lto", "-r"], arch, LTOIR)


def merge_ptx(
    ltoir: bytes,
    linked: Sequence[tuple[str, bytes]],
    arch: Arch,
    symbols: Iterable[str],
    *,
    kernels: Iterable[str],
    lineinfo: bool,
    opt: bool,
) -> str:
    """
    Return PTX of the functions *symbols* and of *kernels* after link-time optimisation with what they call.

    All other symbols are internal. Link-time optimisation drops functions that no kernel uses, so a temporary
    kernel uses them; it is removed from the PTX.
    """
    symbols = sorted(symbols)
    uses = "".join(f'extern "C" __device__ int {name}();\n' for name in symbols)
    body = "".join(f"{_KEEP}_p[{number}] = (void*)&{name};\n" for number, name in enumerate(symbols))
    kernel = f'extern "C" __global__ void {_KEEP}(void** {_KEEP}_p) {{\n{body}}}\n'
    keep = compile_source(uses + kernel, f"{_KEEP}.cu", arch, [])
    # Kernels of the link files would stay otherwise.
    used = [f"-kernels-used={name}" for name in (_KEEP, *sorted(kernels))]
    flags = ["-lto", "-ptx", *used]
    flags += [*(["-lineinfo"] if lineinfo else []), *([] if opt else ["-O0"])]
    text = _link(ltoir, [*linked, (_KEEP, keep)], flags, arch, PTX).decode().rstrip("\0").strip() + "\n"
    module = parse(text)
    kept = module.definition(_KEEP)
    if kept is None:
        raise ExportError("nvJitLink's PTX is not laid out as expected; please report this with its version.")
    module = parse(module.replace({Span(kept.start, kept.end): ""}))
    linkages = {function.name: "visible" for function in module.functions if function.name in symbols}
    linkages |= {variable.name: "" for variable in module.variables if variable.linkage == "visible"}
    return module.relinked(linkages)


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


def check_declarations(lowered: Iterable[Lowering]) -> None:
    """
    Refuse functions that call one declared function by two prototypes, of which PTX keeps the first.

    Raises:
        ExportError: Two do. Names both and the cure.
    """
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    for each in lowered:
        names = {name for name, _ in each.declarations}
        declared = llvm_ir.declared("\n".join(each.modules)) if names else {}
        for name in declared.keys() & names:
            other, types = found.setdefault(name, (each.title, declared[name]))
            if types != declared[name]:
                raise ExportError(
                    f"{name} has two prototypes: ({', '.join(types)}) in {other}, and "
                    f"({', '.join(declared[name])}) in {each.title}, the result first. Declare it alike."
                )


def check_types(lowered: Sequence[Lowering], files: Iterable[LinkFile]) -> None:
    """
    Refuse calls with floating point for an integer or an address, which PTX may spell alike.

    Args:
        lowered: The functions of the export.
        files: The link files, which may be artifacts with a manifest beside them.

    Raises:
        ExportError: One is called so. Names both sides and the cure.
    """
    own = [each.signature for each in lowered if not each.signature.kernel]
    known = [declaration(signature, "this export") for signature in own]
    try:
        for file in files:
            manifest = manifests.of(Input(file.kind, file.name, file.content, path=file.path))
            known += declarations_of(manifest) if manifest else []
        for each in lowered if known else ():
            for extern in (declaration(plain, each.title) for _, plain in each.declarations if plain):
                declarations.check_types(each.title, [(extern.name, extern.types)], known)
    except LinkError as error:
        raise ExportError(str(error), inputs=error.inputs) from error


def matching(plain: Signature | None, prototype: Prototype) -> Signature | None:
    """
    Return the C signature of a declared function with *prototype*, None if its C types are unknown.

    Args:
        plain: Its signature in C, None where C has not its types.
        prototype: What the code calls.
    """
    if plain is None:
        return None
    # Numba's calling convention returns a status, and the result through an address.
    address = c.pointer(plain.result)
    status = c.number("int32_t")
    own = Signature(prototype.name, status, (("result", address), *plain.params))
    for signature in (plain, own):
        if prototype in [signature.prototype_for(modern=modern) for modern in (True, False)]:
            return signature
    return None
