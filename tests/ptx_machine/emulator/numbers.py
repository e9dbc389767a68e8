"""Types, and the arithmetic that NumPy has not: fused multiply-add and directed roundings."""

from __future__ import annotations

import ctypes
import functools
import math
import re
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from .memory import RAW

_LIBM = ctypes.CDLL("libm.so.6")
for _name, _type in (("fma", ctypes.c_double), ("fmaf", ctypes.c_float)):
    getattr(_LIBM, _name).argtypes = [_type] * 3
    getattr(_LIBM, _name).restype = _type

MODES = {"rn": "n", "rz": "z", "rm": "m", "rp": "p", "rni": "n", "rzi": "z", "rmi": "m", "rpi": "p"}
"""How the modifiers round: to the nearest, to zero, down or up."""


@dataclass(frozen=True)
class Type:
    """
    A type.

    Args:
        name: Its name, such as "u32".
        kind: The letters of it.
        bits: Its width.
        raw: The dtype of its bits.
        dtype: The dtype that is computed with, float32 for bf16.
    """

    name: str
    kind: str
    bits: int
    raw: type
    dtype: np.dtype

    @property
    def floating(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind in ("f", "bf")

    def unpack(self, raw: np.ndarray) -> np.ndarray:
        """Return the values in registers, which may be wider."""
        if raw.dtype != self.raw:
            raw = raw.astype(self.raw)
        if self.kind == "bf":
            return (raw.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return raw.view(self.dtype)

    def pack(self, values: np.ndarray, raw: type) -> np.ndarray:
        """Return what registers of the dtype *raw* hold, extended by the sign or by zeros."""
        if self.kind == "bf":
            values = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        if self.kind == "s" and raw != self.raw:
            return values.astype(f"i{raw().itemsize}").view(raw)
        values = values.view(self.raw)
        return values if raw == self.raw else values.astype(raw)


@functools.cache
def type_of(word: str) -> Type | None:
    """Return the type that a modifier is, None if it is none."""
    if word == "pred":
        return Type(word, "pred", 1, np.bool_, np.dtype(np.bool_))
    match = re.fullmatch(r"(b|u|s|f|bf)(8|16|32|64)", word)
    if not match:
        return None
    bits, letter = int(match[2]), {"b": "u", "s": "i", "bf": "f"}.get(match[1], match[1])
    size = 4 if match[1] == "bf" else bits // 8
    return Type(word, match[1], bits, RAW[bits], np.dtype(f"{letter}{size}"))


# The precision of a format, and the exponent of its smallest normal number.
_FORMATS = {"f16": (11, -14), "bf16": (8, -126), "f32": (24, -126), "f64": (53, -1022)}


def rounded(exact: Fraction, kind: Type, mode: str) -> float:
    """Return a number rounded to a floating-point type."""
    precision, least = _FORMATS[kind.name]
    size = abs(exact)
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= size < Fraction(2) ** exponent
    unit = Fraction(2) ** (max(exponent, least) - precision + 1)
    count, rest = divmod(size / unit, 1)
    away = {"n": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and count % 2), "z": False}
    count += away.get(mode, bool(rest) and (mode == "p") == (exact > 0))
    top = (2**precision - 1) * Fraction(2) ** (2 - least - precision)
    result = float(count * unit) if count * unit <= top else np.inf
    if result == np.inf and (mode == "z" or (mode in "mp" and (mode == "p") != (exact > 0))):
        result = float(top)
    return -result if exact < 0 else result


EXACT = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "rcp": lambda a: 1 / a,
    "fma": lambda a, b, c: a * b + c,
    "cvt": lambda a: a,
}
ADDENDS = {"add": lambda a, b: (a, b), "sub": lambda a, b: (a, -b), "fma": lambda a, b, c: (a * b, c)}


def directed(
    name: str, near: np.ndarray, values: tuple[np.ndarray, ...], kind: Type, mode: str
) -> np.ndarray:
    """Return *near*, the results of an operation, rounded by *mode* instead; slowly."""
    *values, near = np.broadcast_arrays(*values, near)
    result = near.copy()
    for lane in range(near.size):
        operands = [value[lane].item() for value in values]
        if not np.isfinite(operands).all() or np.isnan(near[lane]):
            continue
        fractions = list(map(Fraction, operands))
        if name in ("div", "rcp") and not fractions[-1]:
            continue
        exact = EXACT[name](*fractions)
        if exact:
            result[lane] = rounded(exact, kind, mode)
        elif mode == "m" and name in ADDENDS:
            # A sum that is zero is so from below, but for that of positive zeros.
            positive = all(math.copysign(1, each) > 0 and not each for each in ADDENDS[name](*operands))
            result[lane] = 0.0 if positive else -0.0
    return result


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray, kind: Type) -> np.ndarray:
    """Return a * b + c, rounded once to the nearest."""
    if kind.kind == "bf":
        return directed("fma", a * b + c, (a, b, c), kind, "n")
    # Of halves, all that matters to their rounding is in a double.
    function = _LIBM.fmaf if kind.bits == 32 else _LIBM.fma
    a, b, c = np.broadcast_arrays(a, b, c)
    return np.array(list(map(function, a.tolist(), b.tolist(), c.tolist()))).astype(kind.dtype)


def narrowed(values: np.ndarray, kind: Type, mode: str = "n") -> np.ndarray:
    """Return floating-point values as those of a narrower type."""
    if kind.kind == "bf":
        bits = values.astype(np.float32).view(np.uint32)
        near = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
        near = np.where(np.isnan(values), np.float32(np.nan), near.view(np.float32))
        return (
            near
            if mode == "n" and values.dtype.itemsize < 8
            else directed("cvt", near, (values,), kind, mode)
        )
    near = values.astype(kind.dtype)
    return near if mode == "n" else directed("cvt", near, (values,), kind, mode)


def flushed(values: np.ndarray) -> np.ndarray:
    """Return subnormal numbers as zeros of their sign."""
    small = np.abs(values) < np.finfo(values.dtype).tiny
    return np.where(small, np.copysign(values.dtype.type(0), values), values)
