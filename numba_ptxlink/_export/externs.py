"""Find the external functions that exported functions call, and the prototypes that C++ has for them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._link import declarations, manifests
from numba_ptxlink._link.declarations import contradictions, declarations_of, from_signature
from numba_ptxlink._link.read import Input
from numba_ptxlink.errors import AbiError, ExportError

from .signatures import map_collecting_errors

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numba_ptxlink._formats.ptx import Module, Prototype
    from numba_ptxlink._front_end.lowered import LinkFile, LoweredFunction

# Such as @"saxpy". A match has both quotes on one line: a string constant in LLVM IR may end in "@", as c"x@"
# does, and would otherwise begin a match that ends at the quote of a later line.
_QUOTED_SYMBOL = re.compile(r'@"([^"\n]+)"')
# Symbols that ptxas and the device runtime define.
_PREDEFINED = frozenset({"vprintf", "malloc", "free", "__assertfail", "__nvvm_reflect"})


def undefined_functions(ptx: Module) -> dict[str, Prototype]:
    """Return the functions that *ptx* declares but does not define, by name."""
    defined = {function.name for function in ptx.functions if function.defined} | _PREDEFINED
    return {
        function.name: function.prototype
        for function in ptx.functions
        if function.linkage == "extern" and function.name not in defined
    }


def find_calls(
    declared: Iterable[tuple[str, tuple[Any, ...], Any]], modules: Sequence[str], caller: str
) -> tuple[tuple[str, Signature | None], ...]:
    """
    Return the declared functions that the LLVM IR *modules* may call, each as its symbol and C signature.

    The signature is None if C lacks one of its types.

    Args:
        declared: Functions of `cuda.declare_device`: symbol, types of the parameters, type of the result. A
            front end may list all declarations of the process, several of one symbol among them.
        modules: The LLVM IR of a function and its callees.
        caller: The symbol of that function.
    """
    mentioned_symbols = {name for text in modules for name in _QUOTED_SYMBOL.findall(text)} - {caller}
    declared_calls = dict.fromkeys(
        (name, _declared_signature(name, args, result))
        for name, args, result in declared
        if name in mentioned_symbols
    )
    declaration_by_signature = {
        # Without the name of a caller, since no message names it.
        signature: from_signature(signature, "")
        for _, signature in declared_calls
        if signature is not None
    }
    # Several declarations of a symbol may be listed: drop those with other types than in the LLVM IR.
    types_in_modules = llvm_ir.declared_types("\n".join(modules)) if declaration_by_signature else {}
    conflicts = contradictions(types_in_modules, declaration_by_signature.values())
    return tuple(
        (name, signature)
        for name, signature in declared_calls
        if signature is None or declaration_by_signature[signature] not in conflicts
    )


def _declared_signature(name: str, args: Sequence[Any], result: Any) -> Signature | None:
    """Return the C signature of a `cuda.declare_device` function; None if C lacks one of its types."""
    try:
        return abi.c_signature(
            name, result, [abi.Parameter(f"arg{index}", ty) for index, ty in enumerate(args)]
        )
    except AbiError:
        return None


def callers(functions: Sequence[LoweredFunction]) -> dict[str, str]:
    """Return "name (file.py:line)" of the first caller of each `cuda.declare_device` function, by symbol."""
    return {name: function.title for function in reversed(functions) for name, _ in function.calls}


def with_signatures(
    undefined: Mapping[str, Prototype], functions: Sequence[LoweredFunction]
) -> dict[str, tuple[Prototype, Signature | None]]:
    """Return each undefined function with its prototype and its C signature, None if that is unknown."""
    signatures = {
        name: matching_signature
        for function in reversed(functions)
        for name, signature in function.calls
        if signature
        and name in undefined
        and (matching_signature := _with_prototype(signature, undefined[name]))
    }
    return {name: (prototype, signatures.get(name)) for name, prototype in undefined.items()}


def check_declarations(functions: Sequence[LoweredFunction], files: Iterable[LinkFile]) -> None:
    """
    Refuse two declarations of one external function with different types: PTX would keep only the first.

    Refuse also a declaration whose types differ from those of the definition. PTX may not show the
    difference: float and int are both `.b32`.

    Args:
        functions: The functions of the export.
        files: The link files, which may be artifacts with a manifest beside them.

    Raises:
        ExportError: Two declarations differ. The message names both, and the cure.
        LinkError: A declaration differs from the definition. The message names both, and the cure.
    """
    # For each symbol, the title of its first caller, and the types in that caller's declaration.
    first_declarations: dict[str, tuple[str, tuple[str, ...]]] = {}
    # The device functions that the export and the artifacts among the files define.
    definitions = [
        from_signature(function.signature, "this export")
        for function in functions
        if not function.signature.kernel
    ]
    for file in files:
        manifest = manifests.find(Input(file.kind, file.name, file.content, path=file.path))
        definitions += declarations_of(manifest) if manifest else []

    def check_calls(function: LoweredFunction) -> None:
        names = {name for name, _ in function.calls}
        declared_types = llvm_ir.declared_types("\n".join(function.modules)) if names else {}
        for name in declared_types.keys() & names:
            first_caller, first_types = first_declarations.setdefault(
                name, (function.title, declared_types[name])
            )
            if first_types != declared_types[name]:
                raise ExportError(
                    f"{name} has two prototypes: ({', '.join(first_types)}) in {first_caller}, and "
                    f"({', '.join(declared_types[name])}) in {function.title} (result first); "
                    "declare it with the same types in both."
                )
        declarations.check_declared_types(function.title, declared_types, definitions)

    map_collecting_errors(check_calls, functions)


def _with_prototype(signature: Signature, prototype: Prototype) -> Signature | None:
    """Return *signature* or its form in Numba's calling convention: the one with *prototype*, else None."""
    # Numba's calling convention returns a status, and stores the result through a pointer.
    address = c.pointer(signature.result)
    status = c.number("int32_t")
    numba_signature = Signature(prototype.name, status, (("result", address), *signature.params))
    for candidate in (signature, numba_signature):
        if prototype in map(candidate.prototype_for, llvm_ir.NvvmDialect):
            return candidate
    return None
