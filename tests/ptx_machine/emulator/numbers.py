"""Types, and the arithmetic that NumPy has not: fused multiply-add, and sums that are rounded to zero."""

from __future__ import annotations

import ctypes
import functools
import re
from dataclasses import dataclass

import numpy as np

from .memory import RAW

_LIBM = ctypes.CDLL("libm.so.6")
for _name, _type in (("fma", ctypes.c_double), ("fmaf", ctypes.c_float)):
    getattr(_LIBM, _name).argtypes = [_type] * 3
    getattr(_LIBM, _name).restype = _type


@dataclass(frozen=True)
class Type:
    """
    A type.

    Args:
        kind: The letters of its name.
        bits: Its width.
        raw: The dtype of its bits.
        dtype: The dtype that is computed with.
    """

    kind: str
    bits: int
    raw: type
    dtype: np.dtype

    @property
    def floating(self) -> bool:
        """Whether it is a floating-point type."""
        return self.kind == "f"

    def unpack(self, raw: np.ndarray) -> np.ndarray:
        """Return the values in registers, which may be wider."""
        return raw.astype(self.raw, copy=False).view(self.dtype)

    def pack(self, values: np.ndarray, raw: type) -> np.ndarray:
        """Return values as registers of the dtype *raw*, extended by the sign or by zeros."""
        if self.kind == "s":
            return values.astype(f"i{raw().itemsize}", copy=False).view(raw)
        return values.view(self.raw).astype(raw, copy=False)


@functools.cache
def type_of(word: str) -> Type | None:
    """Return the type that a modifier is, None if it is none."""
    if word == "pred":
        return Type(word, 1, np.bool_, np.dtype(np.bool_))
    match = re.fullmatch(r"([busf])(8|16|32|64)", word)
    if not match:
        return None
    bits = int(match[2])
    letter = {"b": "u", "s": "i"}.get(match[1], match[1])
    return Type(match[1], bits, RAW[bits], np.dtype(f"{letter}{bits // 8}"))


def fused(a: np.ndarray, b: np.ndarray, c: np.ndarray) -> np.ndarray:
    """Return a * b + c, rounded once to the nearest."""
    # For halves, a double holds all that matters to the rounding.
    function = _LIBM.fmaf if a.dtype == np.float32 else _LIBM.fma
    a, b, c = np.broadcast_arrays(a, b, c)
    return np.array(list(map(function, a.tolist(), b.tolist(), c.tolist()))).astype(a.dtype)


def toward_zero(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a + b, rounded to zero."""
    near = a + b
    # The amount that rounding to the nearest has added is exact (Knuth, TAOCP 2, 4.2.2, theorem B).
    back = near - a
    missing = (a - (near - back)) + (b - back)
    beyond = (missing * np.sign(near) < 0) | (np.isinf(near) & np.isfinite(a) & np.isfinite(b))
    return np.where(beyond, np.nextafter(near, near.dtype.type(0)), near)
