"""What `printf` on a device writes: its format, and values as `vprintf` gets them, each at its alignment."""

from __future__ import annotations

import ctypes
import re
import struct

from .faults import text_at

_CONVERSION = re.compile(r"%([-+ #0]*)(\d+|\*)?(?:\.(\d+|\*))?(hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGaAcsp%])")


class _Values:
    """The values at an address, one after the other."""

    def __init__(self, address: int) -> None:
        self._place = address

    def take(self, code: str) -> int | float:
        """Return the next value of a type of `struct`."""
        size = struct.calcsize(code)
        self._place = -(-self._place // size) * size
        (value,) = struct.unpack(f"<{code}", ctypes.string_at(self._place, size))
        self._place += size
        return value  # type: ignore[no-any-return]


def formatted(form: int, values: int) -> str:
    """Return the text that the format at an address makes of values at another."""
    given = _Values(values)

    def one(match: re.Match[str]) -> str:
        flags, width, precision, length, letter = match.groups()
        if letter == "%":
            return "%"
        width, precision = (str(given.take("i")) if each == "*" else each for each in (width, precision))
        spelled = f"%{flags}{width or ''}{'' if precision is None else f'.{precision}'}"
        if letter == "s":
            return f"{spelled}s" % text_at(int(given.take("Q")))
        if letter == "p":
            return f"{spelled}s" % hex(int(given.take("Q")))
        if letter == "c":
            return f"{spelled}c" % (int(given.take("i")) & 255)
        if letter in "eEfFgGaA":
            value = given.take("d")
            return float(value).hex() if letter in "aA" else f"{spelled}{letter}" % value
        long = length in ("l", "ll", "j", "z", "t")
        code = ("q" if long else "i") if letter in "di" else ("Q" if long else "I")
        return f"{spelled}{'d' if letter in 'diu' else letter}" % int(given.take(code))

    return _CONVERSION.sub(one, text_at(form))
