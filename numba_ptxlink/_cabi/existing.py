"""Render what a header says of structs that C++ defines: where they are, and how Python lays them out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import types as c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_KINDS = """\
#if defined(__cplusplus) && !defined(NUMBA_PTXLINK_KIND)
#define NUMBA_PTXLINK_KIND(...) numba_ptxlink::kind<__VA_ARGS__>
#define NUMBA_PTXLINK_SHAPE(member, ...) numba_ptxlink::shape<decltype(member), __VA_ARGS__>::is_kept
namespace numba_ptxlink {
template <class T> struct kind { enum { is_float = 0, is_class = __is_class(T), size = sizeof(T) }; };
template <> struct kind<float> { enum { is_float = 1, is_class = 0, size = sizeof(float) }; };
template <> struct kind<double> { enum { is_float = 1, is_class = 0, size = sizeof(double) }; };
template <class T> struct kind<const T> : kind<T> {};
template <class T> struct kind<volatile T> : kind<T> {};
template <class T, decltype(sizeof(0)) n> struct kind<T[n]> : kind<T> {};
template <class T, decltype(sizeof(0))... ns> struct extents { enum : bool { are = sizeof...(ns) == 0 }; };
template <class T, decltype(sizeof(0)) n, decltype(sizeof(0))... ns>
struct extents<T[n], n, ns...> : extents<T, ns...> {};
template <class T, decltype(sizeof(0))... ns> struct shape { enum : bool { is_kept = true }; };
template <class T, decltype(sizeof(0)) n, decltype(sizeof(0)) m, decltype(sizeof(0))... ns>
struct shape<T[n][m], ns...> { enum : bool { is_kept = extents<T[n][m], ns...>::are }; };
}
#endif
"""
INTEGERS = """\
typedef signed char int8_t;
typedef unsigned char uint8_t;
typedef short int16_t;
typedef unsigned short uint16_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef long long int64_t;
typedef unsigned long long uint64_t;
"""
"""What stdint.h defines of the numbers in generated headers, for NVRTC, which has no standard headers."""

SHIMS = {
    "stdint.h": f"#pragma once\n{INTEGERS}",
    "cstdint": "#pragma once\n#include <stdint.h>\nnamespace std {\n"
    + re.sub(r"typedef .* (\w+;)", r"using ::\1", INTEGERS)
    + "}\n",
    "stddef.h": "#pragma once\ntypedef decltype(sizeof(0)) size_t;\n",
    "cstddef": "#pragma once\n#include <stddef.h>\nnamespace std {\nusing ::size_t;\n}\n",
    "stdbool.h": "#pragma once\n",
}
"""The standard headers that define no more than names of integers, which headers of structs include."""

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
    return [*blocks, _KINDS] if any(each.existing for each in structs) else []


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
        element, counts = _element(ctype)
        if len(counts) > 1:
            shape = ", ".join(map(str, counts))
            kinds.append(
                line(f"NUMBA_PTXLINK_SHAPE({there}, {shape})", f"the shape of {member} is not ({shape})")
            )
        kind = f"NUMBA_PTXLINK_KIND(decltype({there}))"
        if isinstance(element, c.Scalar):
            is_float = element.row.format is not None
            condition = f"{kind}::is_float"
            what = "floating point" if is_float else "an integer"
            kinds.append(line(condition if is_float else f"!{condition}", f"{member} is not {what}"))
            if counts:
                # An array of bytes may stand for a class.
                sized = f"{kind}::is_class || {kind}::size == {element.size}"
                kinds.append(line(sized, f"the elements of {member} do not have the size {element.size}"))
        elif isinstance(element, c.Compound) and element.element is None:
            kinds.append(line(f"{kind}::is_class", f"{member} is not a class such as {element.name}"))
    return f"{''.join(layout)}#if defined(__cplusplus)\n{''.join(kinds)}#endif\n"


def _element(ctype: c.CType) -> tuple[c.CType, tuple[int, ...]]:
    """Return what *ctype*, an array of arrays or none, holds in the end, and how many in each dimension."""
    counts = []
    while isinstance(ctype, c.Array):
        counts.append(ctype.count)
        ctype = ctype.element
    return ctype, tuple(counts)


def _places(struct: c.Struct, path: str, start: int) -> Iterator[tuple[str, int, c.CType]]:
    for member in struct.members:
        inner = f"{path}.{member.name}" if path else member.name
        yield inner, start + member.offset, member.type
        element, counts = _element(member.type)
        # A struct that C++ has too asserts its own, and the member may be of another type.
        if isinstance(element, c.Struct):
            if counts:
                inner += "[0]" * len(counts)
                yield inner, start + member.offset, element
            yield from _places(element, inner, start + member.offset)


def is_assertion(line: str) -> bool:
    """Return whether *line* of a header is one of `assertions`."""
    return line.startswith("static_assert(") and line.endswith(', as in Python");')


def failures(log: str) -> list[str]:
    """Return what the assertions in a compiler's *log* say that do not hold."""
    return list(dict.fromkeys(_FAILED.findall(log)))
