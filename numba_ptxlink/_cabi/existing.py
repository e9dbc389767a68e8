"""Render what a header says of structs that C++ defines: where they are, and how Python lays them out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import types as c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_FLOATS = """\
#if defined(__cplusplus) && !defined(NUMBA_PTXLINK_IS_FLOAT)
#define NUMBA_PTXLINK_IS_FLOAT(...) numba_ptxlink::is_float<__VA_ARGS__>::value
namespace numba_ptxlink {
template <class T> struct is_float { static constexpr bool value = false; };
template <> struct is_float<float> { static constexpr bool value = true; };
template <> struct is_float<double> { static constexpr bool value = true; };
template <class T> struct is_float<const T> : is_float<T> {};
template <class T> struct is_float<volatile T> : is_float<T> {};
template <class T, decltype(sizeof(0)) n> struct is_float<T[n]> : is_float<T> {};
}
#endif
"""
_INTEGERS = ("int8_t", "int16_t", "int32_t", "int64_t", "uint8_t", "uint16_t", "uint32_t", "uint64_t")
# NVRTC has none of the standard headers, and headers of structs have these.
SHIMS = {
    "stdint.h": """\
#pragma once
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
""",
    "cstdint": "#pragma once\n#include <stdint.h>\nnamespace std {\n"
    + "".join(f"using ::{name};\n" for name in _INTEGERS)
    + "}\n",
    "stddef.h": "#pragma once\ntypedef decltype(sizeof(0)) size_t;\n",
    "cstddef": "#pragma once\n#include <stddef.h>\nnamespace std {\nusing ::size_t;\n}\n",
    "stdbool.h": "#pragma once\n",
}
"""The standard headers that define no more than names of integers, for compilers without any."""

_FAILED = re.compile(r'static assertion failed with "([^"\n]*), as in Python"')


def includes(structs: Iterable[c.Struct]) -> tuple[str, ...]:
    """Return the headers that define *structs*, in order, each in its quotes or angle brackets."""
    found = (each.existing.includes for each in structs if each.existing)
    return tuple(dict.fromkeys(name for names in found for name in names))


def preamble(structs: Sequence[c.Struct]) -> list[str]:
    """Return what a header has before the assertions about *structs*."""
    for_c = includes(each for each in structs if not each.cxx_only)
    for_cxx = [name for name in includes(structs) if name not in for_c]
    blocks = ["".join(f"#include {name}\n" for name in for_c)] if for_c else []
    if for_cxx:
        lines = "".join(f"#include {name}\n" for name in for_cxx)
        blocks.append(f"#if defined(__cplusplus)\n{lines}#endif\n")
    return [*blocks, _FLOATS] if any(each.existing for each in structs) else []


def assertions(struct: c.Struct) -> str:
    """Return that *struct*, which C++ defines, is laid out as in Python."""
    name = struct.name

    def line(condition: str, what: str) -> str:
        return f'static_assert({condition}, "{what}, as in Python");\n'

    layout = [
        line(f"sizeof({name}) == {struct.size}", f"the size of {name} is not {struct.size}"),
        line(f"alignof({name}) == {struct.align}", f"the alignment of {name} is not {struct.align}"),
    ]
    kinds = [line(f"__is_trivially_copyable({name})", f"{name} is not copied byte by byte")]
    for path, offset, ctype in _places(struct, "", 0):
        member, there = f"{name}::{path}", f"(({name}*)0)->{path}"
        layout += [
            line(
                f"NUMBA_PTXLINK_OFFSETOF({name}, {path}) == {offset}",
                f"the offset of {member} is not {offset}",
            ),
            line(f"sizeof({there}) == {ctype.size}", f"the size of {member} is not {ctype.size}"),
        ]
        element = ctype
        while isinstance(element, c.Array):
            element = element.element
        if isinstance(element, c.Scalar):
            is_float = element.row.format is not None
            condition = f"NUMBA_PTXLINK_IS_FLOAT(decltype({there}))"
            what = "floating point" if is_float else "an integer"
            kinds.append(line(condition if is_float else f"!{condition}", f"{member} is not {what}"))
    return f"{''.join(layout)}#if defined(__cplusplus)\n{''.join(kinds)}#endif\n"


def _places(struct: c.Struct, path: str, start: int) -> Iterator[tuple[str, int, c.CType]]:
    for member in struct.members:
        inner = f"{path}.{member.name}" if path else member.name
        yield inner, start + member.offset, member.type
        # A struct that C++ has too asserts its own.
        if isinstance(member.type, c.Struct) and not member.type.existing:
            yield from _places(member.type, inner, start + member.offset)


def is_assertion(line: str) -> bool:
    """Return whether *line* of a header is one of `assertions`."""
    return line.startswith("static_assert(") and line.endswith(', as in Python");')


def failures(log: str) -> list[str]:
    """Return what the assertions in a compiler's *log* say that do not hold."""
    return list(dict.fromkeys(_FAILED.findall(log)))
