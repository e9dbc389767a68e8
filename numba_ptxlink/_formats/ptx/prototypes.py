"""Prototypes of PTX functions, on which callers and callees must agree."""

from __future__ import annotations

from dataclasses import dataclass, field

_REGISTERS = 12
_WORD = 4


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

    def registers(self) -> tuple[int, ...] | None:
        """
        Return in which register each parameter starts, the first being 0; None where the stack is needed.

        The ABI has no document. This is what nvPTXCompiler 13.5 does for sm_75 and sm_90: a parameter takes
        the lowest registers that are free, in a row and aligned as it is, also before those of former ones.
        """
        if self.result and self.result.size > _REGISTERS * _WORD:
            return None
        free = [True] * _REGISTERS
        starts = []
        for param in self.params:
            size, align = (param.bits // 8,) * 2 if param.bits else (param.size, param.align)
            count, step = -(-size // _WORD), max(1, align // _WORD)
            fits = (at for at in range(0, _REGISTERS - count + 1, step) if all(free[at : at + count]))
            start = next(fits, None)
            if start is None:
                return None
            free[start : start + count] = [False] * count
            starts.append(start)
        return tuple(starts)

    def __str__(self) -> str:
        kind = ".entry" if self.entry else ".func"
        result = f" ({self.result})" if self.result else ""
        return f"{kind}{result} {self.name}({', '.join(map(str, self.params))})"
