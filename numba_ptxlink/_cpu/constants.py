"""What variables of a module hold at first, as constants of LLVM."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING

from numba_ptxlink.errors import LaunchError

from .builder import Unknown
from .code import number

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba_ptxlink._formats import ptx

_ADDRESS = re.compile(r"(?:generic\()?\s*([\w$%]+)\s*\)?\s*(?:\+\s*(\d+))?")


def content(variable: ptx.Variable, address: Callable[[str], str]) -> str:
    """
    Return the type and the value of a variable.

    Args:
        variable: The variable.
        address: What returns the address of a variable or function as a constant.

    Raises:
        LaunchError: A part of it is nothing that is known.
    """
    text, bits = variable.initial.strip(), variable.bits // variable.lanes
    if not text:
        return f"[{variable.size} x i8] zeroinitializer"
    leaves = [each.strip() for each in text.replace("{", " ").replace("}", " ").split(",") if each.strip()]
    count = math.prod(extent or 0 for extent in variable.extents) * variable.lanes
    if text.count("{") > 1 and len(leaves) != count:
        raise LaunchError(
            f"The variable {variable.name} has rows that are not complete; write out all {count} values."
        )
    fields = [(f"i{bits}", _value(variable, each, bits, address)) for each in leaves]
    rest = variable.size - len(fields) * bits // 8
    if rest > 0:
        fields.append((f"[{rest} x i8]", "zeroinitializer"))
    kinds, values = ", ".join(kind for kind, _ in fields), ", ".join(map(" ".join, fields))
    return f"<{{{kinds}}}> <{{{values}}}>"


def _value(variable: ptx.Variable, spelled: str, bits: int, address: Callable[[str], str]) -> str:
    """Return one value: a number, or an address with an offset."""
    value = number(spelled, bits)
    if value is not None:
        return str(value)
    match = _ADDRESS.fullmatch(spelled)
    try:
        if match:
            return f"add (i{bits} {address(match[1])}, i{bits} {match[2] or 0})"
    except Unknown:
        pass
    raise LaunchError(
        f"The variable {variable.name} begins with {spelled}, which nothing here defines; link what does."
    )
