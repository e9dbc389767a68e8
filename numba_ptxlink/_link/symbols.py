"""
Find the symbols of PTX inputs, and refuse inputs whose declarations and definitions contradict each other.

nvJitLink links PTX with two prototypes of a function, two definitions of a symbol, or a variable of two
sizes. At most it prints a line to stderr, and the cubin computes wrong results.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numba_ptxlink._formats.ptx import Param, Prototype

    from .read import Input

_MAX_LISTED_CONFLICTS = 5
_WEAK_LINKAGES = ("weak", "common")
# For each width in bits, the C types that PTX passes alike. nvcc passes narrower integers in 32 bits.
_C_TYPES = {16: "half", 32: "int or float", 64: "double, int64_t or a pointer"}
_FLOATS = {"f32": "float", "f64": "double"}


class Symbol(NamedTuple):
    """
    A function or variable of PTX that other code can see.

    Args:
        origin: The name of the input that contains the symbol.
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether the input defines the symbol, rather than only declares it.
        linkage: "visible", "extern", "weak" or "common"; "" for a kernel that is not declared .visible.
        prototype: The prototype of a device function; None for other symbols.
        line: The 1-based line in the input; 0 if the user has no such text, since a compiler wrote it.
        size: The size of a variable in bytes; 0 if it is not known.
        memory: The memory of a variable: "global", "managed", "const", "shared", or the type of a texture,
            surface or sampler; "" for functions.
    """

    origin: str
    name: str
    kind: str
    defined: bool
    linkage: str = ""
    prototype: Prototype | None = None
    line: int = 0
    size: int = 0
    memory: str = ""

    @property
    def is_strong(self) -> bool:
        """Whether the symbol is defined, and no other definition may replace the definition."""
        return self.defined and self.linkage not in _WEAK_LINKAGES

    @property
    def location(self) -> str:
        """The input and the line for messages, such as "defined in a.ptx:4"."""
        line = f":{self.line}" if self.line else ""
        return f"{'defined' if self.defined else 'declared'} in {self.origin}{line}"

    @property
    def description(self) -> str:
        """The kind for messages, such as "a function (.func)" or "a variable (.global)"."""
        return f"a variable (.{self.memory})" if self.memory else f"a function (.{self.kind})"


def symbols(source: Input) -> list[Symbol]:
    """Return the symbols of PTX, each once: its definition or, if there is none, its first declaration."""
    # The name of an alias is also declared as a function: the alias is its definition.
    aliases = {alias.name for alias in source.module.aliases}
    occurrences = []
    for function in source.module.functions:
        is_alias = function.name in aliases
        if function.linkage or function.kind == "entry" or is_alias:
            defined, linkage = (True, "visible") if is_alias else (function.defined, function.linkage)
            prototype = function.prototype if function.kind == "func" else None
            symbol = Symbol(source.name, function.name, function.kind, defined, linkage, prototype)
            occurrences.append(symbol._replace(line=function.line))
    for variable in source.module.variables:
        if variable.linkage:
            symbol = Symbol(source.name, variable.name, "variable", variable.defined, variable.linkage)
            symbol = symbol._replace(line=variable.line, size=variable.size, memory=variable.memory)
            occurrences.append(symbol)
    unique: dict[tuple[str, str], Symbol] = {}
    for symbol in occurrences:
        key = symbol.name, symbol.kind
        if symbol.defined or key not in unique:
            unique[key] = symbol._replace(line=0) if source.compiled else symbol
    return list(unique.values())


def check_declarations_agree(all_symbols: Iterable[Symbol]) -> None:
    """
    Refuse a symbol whose declarations differ; `check_duplicates` refuses two definitions.

    Raises:
        LinkError: Kinds, prototypes or sizes of a symbol differ. The message names them, the
            inputs and the cure.
    """
    conflicts = []
    input_names: list[str] = []
    for occurrences in _repeated_symbols(all_symbols):
        conflict = (
            _kind_conflict(occurrences) or _prototype_conflict(occurrences) or _size_conflict(occurrences)
        )
        if conflict:
            conflicts.append(conflict)
            input_names += [symbol.origin for symbol in occurrences]
    if conflicts:
        raise LinkError(
            "\n".join(conflicts[:_MAX_LISTED_CONFLICTS]), inputs=tuple(dict.fromkeys(input_names))
        )


def check_duplicates(all_symbols: Iterable[Symbol]) -> None:
    """
    Refuse a symbol with several definitions, unless all but one are weak.

    nvJitLink accepts two definitions of a function and links one of them, so that `link(a, b)` and
    `link(b, a)` may compute different results.

    Raises:
        LinkError: A symbol has several strong definitions. The message names the symbol, the inputs and
            the cure.
    """
    for occurrences in _repeated_symbols(all_symbols):
        strong = [symbol for symbol in occurrences if symbol.is_strong]
        if len(strong) > 1:
            raise LinkError(
                f"{strong[0].name} is defined {len(strong)} times: "
                f"{', '.join(symbol.location for symbol in strong)}; rename one (in Python: name= of udf, "
                "abi_info={'abi_name': ...} of cuda.compile), leave one out, make it static, or mark it weak "
                "(inline in C++).",
                inputs=tuple(symbol.origin for symbol in strong),
            )


def _repeated_symbols(all_symbols: Iterable[Symbol]) -> list[list[Symbol]]:
    """Return a list for each name that several symbols have, with these symbols."""
    symbols_of: dict[str, list[Symbol]] = defaultdict(list)
    for symbol in all_symbols:
        symbols_of[symbol.name].append(symbol)
    return [occurrences for occurrences in symbols_of.values() if len(occurrences) > 1]


def _kind_conflict(occurrences: Sequence[Symbol]) -> str:
    """Return the error for a symbol of several kinds, such as function and variable; "" if all agree."""
    # The first symbol of each kind: in reversed order, earlier ones replace later ones.
    kinds = {(symbol.kind, symbol.memory): symbol for symbol in reversed(occurrences)}
    if len(kinds) < 2:
        return ""
    # In the message, a declaration precedes the definition.
    first, second = (
        f"{symbol.location} as {symbol.description}"
        for symbol in sorted(kinds.values(), key=lambda symbol: symbol.defined)[:2]
    )
    return (
        f"{occurrences[0].name} is {first}, and {second}; declare the symbol as it is defined, or rename one "
        "of the two."
    )


def _prototype_conflict(occurrences: Sequence[Symbol]) -> str:
    """Return the error for a function with two prototypes; "" if all inputs agree."""
    # Sort definitions first, so that declarations are compared with the definition.
    definitions_first = sorted(occurrences, key=lambda symbol: not symbol.defined)
    prototypes = [(symbol, symbol.prototype) for symbol in definitions_first if symbol.prototype is not None]
    for symbol, other_prototype in prototypes[1:]:
        first, first_prototype = prototypes[0]
        if not _are_compatible(first_prototype, other_prototype):
            difference = _describe_difference(first_prototype, other_prototype, first.origin, symbol.origin)
            return (
                f"{first.name} has two prototypes, and a call would pass wrong values:\n"
                f"    {first_prototype}  {first.location}\n    {other_prototype}  {symbol.location}\n"
                f"In C types: {difference}.\n"
                "Make the declaration agree with the definition: the types and their order, the result, and "
                "for structs the size and alignment. If one input passes a half as a number (.b16), and the "
                "other as the struct __half, link with lto=True."
            )
    return ""


def _describe_difference(first: Prototype, second: Prototype, first_origin: str, second_origin: str) -> str:
    """Return the differences of two prototypes in C types, with the names of their inputs."""
    if len(first.params) != len(second.params):
        counts = (
            f"{len(first.params)} parameter(s) in {first_origin}, {len(second.params)} in {second_origin}"
        )
        has_status = second.result is not None and second.result.bits == 32
        if has_status and len(second.params) == len(first.params) + 1 and second.params[0].bits == 64:
            # In Numba's calling convention, the first parameter is the address of the result, and a status is
            # returned.
            counts += (
                f"; the first parameter in {second_origin} may be the address of the result, which "
                'declare_device(..., abi="c") leaves out'
            )
        return counts
    pairs = [("the result", first.result, second.result)]
    pairs += [
        (f"parameter {index}", *params)
        for index, params in enumerate(zip(first.params, second.params, strict=True), 1)
    ]
    return "; ".join(
        f"{subject} is {_c_type(a)} in {first_origin}, and {_c_type(b)} in {second_origin}"
        for subject, a, b in pairs
        if a != b
    )


def _c_type(param: Param | None) -> str:
    """Return the C type of a parameter or result for messages, such as "a struct of 8 bytes"."""
    if param is None:
        return "void"
    if not param.bits:
        alignment = f" with an alignment of {param.align}" if param.align else ""
        return f"a struct of {param.size} bytes{alignment}"
    return _FLOATS.get(param.type) or _C_TYPES.get(param.bits, f"an integer of {param.bits} bits")


def _are_compatible(first: Prototype, second: Prototype) -> bool:
    """Return whether a call by one prototype passes values of the widths that the other expects."""
    if (first.result is None) != (second.result is None) or len(first.params) != len(second.params):
        return False
    pairs = list(zip(first.params, second.params, strict=True))
    results = [(first.result, second.result)] if first.result and second.result else []
    if not all((a.bits, a.size) == (b.bits, b.size) for a, b in (*pairs, *results)):
        return False
    # The alignment of a struct decides in which register the struct begins. A prototype without an alignment,
    # 0, agrees with all.
    return all(a.align == b.align or not a.align or not b.align for a, b in pairs)


def _size_conflict(occurrences: Sequence[Symbol]) -> str:
    """Return the error for a variable of two sizes; "" if all inputs agree."""
    sized = sorted((symbol for symbol in occurrences if symbol.size), key=lambda symbol: symbol.size)
    # Linkers give common symbols of several sizes the largest one. All other symbols keep their size, so the
    # smallest of them is the limit.
    smallest = next((symbol for symbol in sized if symbol.linkage != "common"), None)
    if smallest is None or smallest.size == sized[-1].size:
        return ""
    largest = sized[-1]
    return (
        f"{largest.name} has {largest.size} bytes, {largest.location}, and {smallest.size} bytes, "
        f"{smallest.location}, so that code could write past its end; declare it with the same type and "
        "length in all inputs."
    )
