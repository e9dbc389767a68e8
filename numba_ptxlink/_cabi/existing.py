"""Render what a header says of structs that C++ defines: where they are, and how Python lays them out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import types as c
from .signatures import walk_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_KINDS = """\
#if defined(__cplusplus) && !defined(NUMBA_PTXLINK_NUMBER_KIND)
#define NUMBA_PTXLINK_NUMBER_KIND(...) numba_ptxlink::number_kind<decltype(__VA_ARGS__)>::value
namespace numba_ptxlink {
template <char c> struct number_letter { enum : char { value = c }; };
template <class T, bool = __is_enum(T), class = void> struct number_kind : number_letter<'?'> {};
template <class T> struct number_kind<T, true, decltype(void(T{0}))> : number_kind<__underlying_type(T)> {};
template <class T> struct number_kind<const T, false> : number_kind<T> {};
template <class T> struct number_kind<volatile T, false> : number_kind<T> {};
template <class T> struct number_kind<const volatile T, false> : number_kind<T> {};
template <class T> struct number_kind<T&, false> : number_letter<'&'> {};
template <class T, decltype(sizeof(0)) n> struct number_kind<T[n], false> : number_kind<T> {};
template <class T, decltype(sizeof(0)) n> struct number_kind<const T[n], false> : number_kind<T> {};
template <> struct number_kind<float> : number_letter<'f'> {};
template <> struct number_kind<double> : number_letter<'f'> {};
template <> struct number_kind<signed char> : number_letter<'i'> {};
template <> struct number_kind<short> : number_letter<'i'> {};
template <> struct number_kind<int> : number_letter<'i'> {};
template <> struct number_kind<long> : number_letter<'i'> {};
template <> struct number_kind<long long> : number_letter<'i'> {};
template <> struct number_kind<unsigned char> : number_letter<'u'> {};
template <> struct number_kind<unsigned short> : number_letter<'u'> {};
template <> struct number_kind<unsigned int> : number_letter<'u'> {};
template <> struct number_kind<unsigned long> : number_letter<'u'> {};
template <> struct number_kind<unsigned long long> : number_letter<'u'> {};
}
#endif
"""
# C++ leaves offsetof in classes with bases or private members to its compilers, which have it and warn.
_QUIET = """\
#if defined(__cplusplus) && defined(__GNUC__) && !defined(__CUDACC_RTC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
#endif
#if defined(__CUDACC__) && defined(__NVCC_DIAG_PRAGMA_SUPPORT__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1427
#endif
"""
_LOUD = """\
#if defined(__CUDACC__) && defined(__NVCC_DIAG_PRAGMA_SUPPORT__)
#pragma nv_diagnostic pop
#endif
#if defined(__cplusplus) && defined(__GNUC__) && !defined(__CUDACC_RTC__)
#pragma GCC diagnostic pop
#endif
"""
MARK = ', as in Python");'
"""How the lines of `assertions` end."""

_FAILED = re.compile(r'static assertion failed with "([^"\n]*), as in Python"')
# What the kind of a number in C++ must not be. Each compiler chooses the sign of char, and the type of an
# enum that says none: they are no numbers here, and neither are bool, unions and classes.
_OTHERS = {"int": "uf&", "uint": "if&"}


def includes(structs: Iterable[c.Struct]) -> tuple[str, ...]:
    """Return the headers that define *structs*, in order, each in its quotes or angle brackets."""
    found = (each.existing.includes for each in structs if each.existing)
    return tuple(dict.fromkeys(name for names in found for name in names))


def preamble(structs: Sequence[c.Struct]) -> list[str]:
    """Return what a header has before the assertions about *structs*."""
    if not any(each.existing for each in structs):
        return []
    lines = "".join(f"#include {name}\n" for name in includes(structs))
    # Where one is in a namespace, C cannot read the headers.
    for_c = not any(each.cxx_only for each in structs if each.existing)
    included = lines if for_c else f"#if defined(__cplusplus)\n{lines}#endif\n"
    return [included, _KINDS] if lines else [_KINDS]


def is_in(header: str) -> bool:
    """Return whether the text of a generated header includes headers that define structs."""
    return _KINDS in header


def assertions(struct: c.Struct) -> str:
    """Return that *struct*, which C++ defines, is laid out as in Python."""
    name = struct.name
    copied = [(f"__is_trivially_copyable({name})", f"{name} is not trivially copyable")]
    sizes = [
        (f"sizeof({name}) == {struct.size}", f"the size of {name} is not {struct.size}"),
        (f"alignof({name}) == {struct.align}", f"the alignment of {name} is not {struct.align}"),
    ]
    kinds: list[tuple[str, str]] = []
    for path, offset, ctype in walk_members(struct):
        # A class may stand for an array of bytes.
        if path.endswith("]") and ctype.size == 1:
            continue
        member, there = f"{name}::{path}", f"(({name}*)0)->{path}"
        place = f"NUMBA_PTXLINK_OFFSETOF({name}, {path})"
        sizes.append((f"{place} == {offset}", f"the offset of {member} is not {offset}"))
        sizes.append((f"sizeof({there}) == {ctype.size}", f"the size of {member} is not {ctype.size}"))
        if not path.endswith("]"):
            kinds += _kinds(member, f"NUMBA_PTXLINK_NUMBER_KIND({there})", ctype)
    value, sized, numbers = (
        "".join(f'static_assert({condition}, "{what}{MARK}\n' for condition, what in checks)
        for checks in (copied, sizes, kinds)
    )
    # What is no plain value comes first: the rest would be told of what follows from that.
    return f"#if defined(__cplusplus)\n{value}{numbers}#endif\n{_QUIET}{sized}{_LOUD}"


def _kinds(member: str, kind: str, ctype: c.CType) -> Iterator[tuple[str, str]]:
    """Yield what holds of the *kind* of number that C++ has in a *member*, with what is so otherwise."""
    while isinstance(ctype, c.Array):
        ctype = ctype.element
    if isinstance(ctype, c.Scalar) and ctype.row.is_float:
        yield f"{kind} == 'f'", f"{member} is not floating point"
    elif isinstance(ctype, (c.Scalar, c.Pointer)):
        number = ctype.row.kind if isinstance(ctype, c.Scalar) else "pointer"
        condition = " && ".join(f"{kind} != '{letter}'" for letter in _OTHERS.get(number, "f&"))
        yield condition, f"{member} is not of the kind {number}"


def failures(log: str) -> list[str]:
    """Return what does not hold by a compiler's *log*."""
    return list(dict.fromkeys(_FAILED.findall(log)))
