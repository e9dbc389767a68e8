"""
Implement `printf` for code on the CPU: format as C does, and write to Python's standard output.

Generated code passes the address of the format string, and that of the arguments, which PTX stores one after
the other, each at a multiple of its size. The C library formats one conversion, such as "%5.2f", at a time.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

# A conversion has flags, width, precision, length and letter: "%-8.3f". Group 1 is a length that means 64
# bits, as "ll" in "%lld", and group 2 the letter, "d".
_CONVERSION = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]*)?(?:hh?|(ll?|[jzt]))?([diouxXeEfFgGaAcsp%])")
_snprintf = ctypes.CDLL(None).snprintf
_snprintf.argtypes = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p


class _Arguments:
    """
    Arguments of `printf` in memory, read one after the other.

    Args:
        address: The address of the first argument.

    Attributes:
        address: The address after the last argument that was read.
        count: The number of arguments that were read.
    """

    def __init__(self, address: int) -> None:
        self.address, self.count = address, 0

    def read(self, ctype: type[Any]) -> Any:
        """Return the next argument, which has the type *ctype*."""
        size = ctypes.sizeof(ctype)
        start = -(-self.address // size) * size
        self.address, self.count = start + size, self.count + 1
        return ctype.from_address(start)

    def format(self, conversion: re.Match[str]) -> str:
        """Return the text for a conversion such as "%5.2f", with the arguments that belong to it."""
        specification, (long_length, letter) = conversion[0].encode(), conversion.groups()
        # A "*" stands for a width or precision that is an argument.
        values = [self.read(ctypes.c_int32) for _ in range(conversion[0].count("*"))]
        if letter in "aAeEfFgG":
            values.append(self.read(ctypes.c_double))
        elif letter != "%":
            # Strings (s) and pointers (p) are addresses of 64 bits.
            values.append(self.read(ctypes.c_int64 if long_length or letter in "sp" else ctypes.c_int32))
        # Without a buffer, snprintf returns the size of the text.
        size = _snprintf(None, 0, specification, *values)
        buffer = ctypes.create_string_buffer(size + 1)
        _snprintf(buffer, size + 1, specification, *values)
        return buffer.raw[:size].decode(errors="replace")


def print_formatted(template: int, arguments: int) -> int:
    """
    Print as CUDA's `vprintf` does, which returns the number of arguments.

    Args:
        template: The address of the format string.
        arguments: The address of the first argument.
    """
    reader = _Arguments(arguments)
    print(_CONVERSION.sub(reader.format, c_string_at(template)), end="")  # noqa: T201 - output of the program
    return reader.count


def c_string_at(address: int) -> str:
    """Return the C string at an address of this process, "" for a null pointer."""
    return ctypes.string_at(address).decode(errors="replace") if address else ""
