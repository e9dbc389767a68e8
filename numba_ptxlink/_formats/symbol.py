"""A symbol of PTX or LLVM IR, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .ptx import Prototype


@dataclass(frozen=True)
class Symbol:
    """
    A function or variable that other code can see.

    Args:
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether the code defines it, rather than only declares it.
        weak: Whether another definition may replace this one.
        prototype: A device function's prototype, None where it is not known.
        line: 1-based line of the text, 0 where nobody has the text.
        size: A variable's size in bytes, 0 where it is not known.
        common: Whether it is a common symbol, which linkers merge.
        space: Where a variable lies: "global", "managed", "const", "shared", or the type of a texture,
            surface or sampler; "" for functions.
    """

    name: str
    kind: str
    defined: bool
    weak: bool = False
    prototype: Prototype | None = None
    line: int = 0
    size: int = 0
    common: bool = False
    space: str = ""
