"""nvcc's prototype of a C function, in LLVM IR."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature, is_large

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Builder
    from .llvm import Type


class Prototype(NamedTuple):
    """
    A C function in LLVM IR.

    Args:
        head: What follows `define` or `declare`: result, symbol and parameters.
        symbol: The symbol with its type, as metadata names it.
        values: Each parameter: its name, and the type of its address where it is passed by address.
        notes: Its annotations.
    """

    head: str
    symbol: str
    values: tuple[tuple[str, Type | None], ...]
    notes: tuple[str, ...]


def of(builder: Builder, signature: Signature) -> Prototype:
    """Return the prototype of *signature*, with the types of *builder*."""
    returned = builder.c_type(signature.result)
    params, bare, alignments = [], [], []
    values: list[tuple[str, Type | None]] = []
    if signature.result.align != signature.result.natural_align:
        alignments.append(signature.result.align)
    for number, (_, ctype) in enumerate(signature.params):
        kind, value = builder.c_type(ctype), f"%p{number}"
        if is_large(ctype) and not signature.kernel:
            address = builder.pointer(kind)
            params.append(argument(builder, ctype, value))
            bare.append(str(address))
            values.append((value, address))
            continue
        restrict = "noalias " if isinstance(ctype, c.Pointer) and ctype.restrict else ""
        by_kernel = f"{kind} {restrict}{value}"
        params.append(by_kernel if signature.kernel else argument(builder, ctype, f"{restrict}{value}"))
        bare.append(str(kind))
        values.append((value, None))
        if ctype.align != ctype.natural_align:
            # NVVM IR Specification, "Global Property Annotation": the position is in the upper 16 bits.
            alignments.append((number + 1) << 16 | ctype.align)
    modern = builder.pointer(returned).target is None
    result = f"{'' if signature.kernel else extension(signature.result)}{returned}"
    return Prototype(
        f"{result} @{signature.name}({', '.join(params)})",
        f"ptr @{signature.name}" if modern else f"{returned} ({', '.join(bare)})* @{signature.name}",
        tuple(values),
        tuple(f'!"align", i32 {alignment}' for alignment in alignments),
    )


def argument(builder: Builder, ctype: c.CType, value: str) -> str:
    """Return *value* as an argument or a parameter of a device function, by address if it is large."""
    kind = builder.c_type(ctype)
    if not is_large(ctype):
        return f"{kind} {extension(ctype)}{value}"
    address = builder.pointer(kind)
    byval = f"byval({kind})" if address.target is None else "byval"
    return f"{address} {byval} align {ctype.align} {value}"


def extension(ctype: c.CType) -> str:
    """Return how a device function extends a narrow integer, in front of what it stands before."""
    return f"{ctype.extension} " if isinstance(ctype, c.Scalar) and ctype.extension else ""


def metadata(first: int, symbol: str, notes: Sequence[str]) -> list[str]:
    """Return the metadata that gives *notes* to *symbol*, in nodes from number *first* on."""
    if not notes:
        return []
    numbers = ", ".join(f"!{number}" for number in range(first, first + len(notes)))
    nodes = [f"!{number} = !{{{symbol}, {note}}}" for number, note in enumerate(notes, first)]
    return [*nodes, f"!nvvm.annotations = !{{{numbers}}}"]
