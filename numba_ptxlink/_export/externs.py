"""Find the external functions that exported functions call, and the prototypes that C++ has for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._link import declarations, manifests
from numba_ptxlink._link.declarations import declaration, declarations_of
from numba_ptxlink._link.read import Input
from numba_ptxlink.errors import ExportError

from .signatures import each_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numba_ptxlink._formats.ptx import Module, Prototype
    from numba_ptxlink._front_end.protocol import LinkFile

    from .lower import Lowered

# Symbols that ptxas and the device runtime define.
_SUPPLIED = frozenset({"vprintf", "malloc", "free", "__assertfail", "__nvvm_reflect"})


def undefined(ptx: Module) -> dict[str, Prototype]:
    """Return the functions that *ptx* references but does not define, by name."""
    there = {function.name for function in ptx.functions if function.defined} | _SUPPLIED
    return {
        function.name: function.prototype
        for function in ptx.functions
        if function.linkage == "extern" and function.name not in there
    }


def callers(lowered: Sequence[Lowered]) -> dict[str, str]:
    """Return "name (file.py:line)" of the first caller of each that `cuda.declare_device` declares."""
    return {name: each.title for each in reversed(lowered) for name, _ in each.declared}


def with_signatures(
    missing: Mapping[str, Prototype], lowered: Sequence[Lowered]
) -> dict[str, tuple[Prototype, Signature | None]]:
    """Return the functions *missing* with the C signatures by which they are declared."""
    known = {
        name: signature
        for each in reversed(lowered)
        for name, plain in each.declared
        if name in missing and (signature := _matching(plain, missing[name]))
    }
    return {name: (prototype, known.get(name)) for name, prototype in missing.items()}


def check_declarations(lowered: Sequence[Lowered], files: Iterable[LinkFile]) -> None:
    """
    Refuse functions that call one declared function by two prototypes, of which PTX keeps the first.

    Refuse calls with other types than the function has, which PTX may spell alike, too.

    Args:
        lowered: The functions of the export.
        files: The link files, which may be artifacts with a manifest beside them.

    Raises:
        ExportError: Two have other prototypes. Names both and the cure.
        LinkError: One is called with other types. Names both sides and the cure.
    """
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    known = [declaration(each.signature, "this export") for each in lowered if not each.signature.kernel]
    for file in files:
        manifest = manifests.of(Input(file.kind, file.name, file.content, path=file.path))
        known += declarations_of(manifest) if manifest else []

    def check(each: Lowered) -> None:
        names = {name for name, _ in each.declared}
        declared = llvm_ir.declared("\n".join(each.modules)) if names else {}
        for name in declared.keys() & names:
            other, types = found.setdefault(name, (each.title, declared[name]))
            if types != declared[name]:
                raise ExportError(
                    f"{name} has two prototypes: ({', '.join(types)}) in {other}, and "
                    f"({', '.join(declared[name])}) in {each.title}, the result first. Declare it alike."
                )
        declarations.check(each.title, declared, known)

    each_of(check, lowered)


def _matching(plain: Signature | None, prototype: Prototype) -> Signature | None:
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
