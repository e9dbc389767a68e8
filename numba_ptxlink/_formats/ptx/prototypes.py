"""Prototypes of PTX functions, on which callers and callees must agree."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Param:
    """
    One parameter or return value of a PTX function.

    Args:
        bits: Width of a scalar, 0 for a byte array.
        align: Alignment of a byte array in bytes, 0 for a scalar.
        size: Size of a byte array in bytes, 0 for a scalar.
        type: The type as it is spelled, such as "f32"; two spellings of one width are equal.
    """

    bits: int = 0
    align: int = 0
    size: int = 0
    type: str = field(default="", compare=False)

    def __str__(self) -> str:
        if not self.bits:
            return f".align {self.align} .b8[{self.size}]" if self.align else f".b8[{self.size}]"
        return f".{self.type}" if self.floating else f".b{self.bits}"

    @property
    def floating(self) -> bool:
        """Whether it is a floating-point scalar, which a linker distinguishes from integers."""
        return self.type in ("f32", "f64")


@dataclass(frozen=True)
class Prototype:
    """
    A PTX function's interface, which a caller and a callee must agree on.

    Args:
        name: The symbol.
        result: The return value, None for void.
        params: The parameters, in order.
        entry: Whether it is a kernel.
    """

    name: str
    result: Param | None
    params: tuple[Param, ...]
    entry: bool = False

    def __str__(self) -> str:
        kind = ".entry" if self.entry else ".func"
        result = f" ({self.result})" if self.result else ""
        return f"{kind}{result} {self.name}({', '.join(map(str, self.params))})"
