"""Find the external functions that exported functions call, and the prototypes that C++ has for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._link import declarations, manifests
from numba_ptxlink._link.declarations import contradicted, declaration, declarations_of
from numba_ptxlink._link.read import Input
from numba_ptxlink.errors import AbiError, ExportError

from .signatures import map_collecting_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numba_ptxlink._formats.ptx import Module, Prototype
    from numba_ptxlink._front_end.protocol import LinkFile, LoweredFunction

# Not beyond a line: a string of the IR may end in "@", which is no name.
_NAMED = re.compile(r'@"([^"\n]+)"')
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


def calls(
    declared: Iterable[tuple[str, tuple[Any, ...], Any]], modules: Sequence[str], own: str
) -> tuple[tuple[str, Signature | None], ...]:
    """
    Return the functions that the LLVM IR *modules* may call, with their C signatures, None where C has none.

    Args:
        declared: What `cuda.declare_device` declared: symbol, types of the parameters, type of the result. A
            front end may know of all that the process has declared, several of one symbol among them.
        modules: The LLVM IR of a function and of all that it calls.
        own: The symbol of that function.
    """
    mentioned = {name for text in modules for name in _NAMED.findall(text)} - {own}
    named = dict.fromkeys(
        (name, _plain(name, args, result)) for name, args, result in declared if name in mentioned
    )
    known = {plain: declaration(plain, "") for _, plain in named if plain is not None}
    others = contradicted(llvm_ir.declared("\n".join(modules)) if known else {}, known.values())
    return tuple(each for each in named if each[1] is None or known[each[1]] not in others)


def _plain(name: str, args: Sequence[Any], result: Any) -> Signature | None:
    """Return the signature of a `cuda.declare_device` function in C++; None where C has not its types."""
    try:
        return abi.c_signature(
            name, result, [abi.Parameter(f"arg{number}", ty) for number, ty in enumerate(args)]
        )
    except AbiError:
        return None


def callers(functions: Sequence[LoweredFunction]) -> dict[str, str]:
    """Return "name (file.py:line)" of the first caller of each that `cuda.declare_device` declares."""
    return {name: each.title for each in reversed(functions) for name, _ in each.calls}


def with_signatures(
    missing: Mapping[str, Prototype], functions: Sequence[LoweredFunction]
) -> dict[str, tuple[Prototype, Signature | None]]:
    """Return the functions *missing* with the C signatures by which they are declared."""
    known = {
        name: signature
        for each in reversed(functions)
        for name, plain in each.calls
        if plain and name in missing and (signature := _matching(plain, missing[name]))
    }
    return {name: (prototype, known.get(name)) for name, prototype in missing.items()}


def check_declarations(functions: Sequence[LoweredFunction], files: Iterable[LinkFile]) -> None:
    """
    Refuse functions that call one declared function by two prototypes, of which PTX keeps the first.

    Refuse calls with other types than the function has, which PTX may spell alike, too.

    Args:
        functions: The functions of the export.
        files: The link files, which may be artifacts with a manifest beside them.

    Raises:
        ExportError: Two have other prototypes. Names both and the cure.
        LinkError: One is called with other types. Names both sides and the cure.
    """
    found: dict[str, tuple[str, tuple[str, ...]]] = {}
    known = [declaration(each.signature, "this export") for each in functions if not each.signature.kernel]
    for file in files:
        manifest = manifests.of(Input(file.kind, file.name, file.content, path=file.path))
        known += declarations_of(manifest) if manifest else []

    def check(each: LoweredFunction) -> None:
        names = {name for name, _ in each.calls}
        declared = llvm_ir.declared("\n".join(each.modules)) if names else {}
        for name in declared.keys() & names:
            other, types = found.setdefault(name, (each.title, declared[name]))
            if types != declared[name]:
                raise ExportError(
                    f"{name} has two prototypes: ({', '.join(types)}) in {other}, and "
                    f"({', '.join(declared[name])}) in {each.title}, the result first. Declare it alike."
                )
        declarations.check(each.title, declared, known)

    map_collecting_errors(check, functions)


def _matching(plain: Signature, prototype: Prototype) -> Signature | None:
    """Return the signature of a declared function that has *prototype*: *plain*, Numba's of it, or None."""
    # Numba's calling convention returns a status, and the result through an address.
    address = c.pointer(plain.result)
    status = c.number("int32_t")
    own = Signature(prototype.name, status, (("result", address), *plain.params))
    for signature in (plain, own):
        if prototype in map(signature.prototype_for, llvm_ir.NvvmDialect):
            return signature
    return None
