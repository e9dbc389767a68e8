"""Render the includes of structs that C++ defines, and assertions that their layouts match Python's."""

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
# offsetof in classes with bases or private members is optional in C++; compilers support it with a warning.
_DISABLE_WARNINGS = """\
#if defined(__cplusplus) && defined(__GNUC__) && !defined(__CUDACC_RTC__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Winvalid-offsetof"
#endif
#if defined(__CUDACC__) && defined(__NVCC_DIAG_PRAGMA_SUPPORT__)
#pragma nv_diagnostic push
#pragma nv_diag_suppress 1427
#endif
"""
_RESTORE_WARNINGS = """\
#if defined(__CUDACC__) && defined(__NVCC_DIAG_PRAGMA_SUPPORT__)
#pragma nv_diagnostic pop
#endif
#if defined(__cplusplus) && defined(__GNUC__) && !defined(__CUDACC_RTC__)
#pragma GCC diagnostic pop
#endif
"""
MARK = ', as in Python");'
"""The end of the lines of `assertions`."""

_FAILED = re.compile(r'static assertion failed with "([^"\n]*), as in Python"')
# For each kind of number in Python, the kinds in C++ that contradict it. The sign of char and the underlying
# type of an enum depend on the compiler, so that these have no kind, like bool, unions and classes.
_EXCLUDED_KINDS = {"int": "uf&", "uint": "if&"}


def includes(structs: Iterable[c.Struct]) -> tuple[str, ...]:
    """Return the headers that define *structs*, in order, each in its quotes or angle brackets."""
    headers = (layout.existing.includes for layout in structs if layout.existing)
    return tuple(dict.fromkeys(name for names in headers for name in names))


def preamble(structs: Sequence[c.Struct]) -> list[str]:
    """Return the lines of a header before the assertions about *structs*."""
    if not any(layout.existing for layout in structs):
        return []
    lines = "".join(f"#include {name}\n" for name in includes(structs))
    # If a struct is in a namespace, its header is C++.
    for_c = not any(layout.cxx_only for layout in structs if layout.existing)
    included = lines if for_c else f"#if defined(__cplusplus)\n{lines}#endif\n"
    return [included, _KINDS] if lines else [_KINDS]


def includes_existing_structs(header: str) -> bool:
    """Return whether the text of a generated header includes headers that define structs."""
    return _KINDS in header


def assertions(struct: c.Struct) -> str:
    """Return assertions that *struct*, which C++ defines, has the layout that it has in Python."""
    name = struct.name
    copy_conditions = [(f"__is_trivially_copyable({name})", f"{name} is not trivially copyable")]
    size_conditions = [
        (f"sizeof({name}) == {struct.size}", f"the size of {name} is not {struct.size}"),
        (f"alignof({name}) == {struct.align}", f"the alignment of {name} is not {struct.align}"),
    ]
    kind_conditions: list[tuple[str, str]] = []
    for path, offset, ctype in walk_members(struct):
        # C++ may have a class instead of an array of bytes.
        if path.endswith("]") and ctype.size == 1:
            continue
        member, expression = f"{name}::{path}", f"(({name}*)0)->{path}"
        actual_offset = f"NUMBA_PTXLINK_OFFSETOF({name}, {path})"
        size_conditions.append((f"{actual_offset} == {offset}", f"the offset of {member} is not {offset}"))
        size_conditions.append(
            (f"sizeof({expression}) == {ctype.size}", f"the size of {member} is not {ctype.size}")
        )
        if not path.endswith("]"):
            kind_conditions += _kinds(member, f"NUMBA_PTXLINK_NUMBER_KIND({expression})", ctype)
    copy_checks, size_checks, kind_checks = (
        "".join(f'static_assert({condition}, "{message}{MARK}\n' for condition, message in checks)
        for checks in (copy_conditions, size_conditions, kind_conditions)
    )
    # Assert first that the class is trivially copyable: otherwise the log shows only failures that follow.
    cxx_checks = f"#if defined(__cplusplus)\n{copy_checks}{kind_checks}#endif\n"
    return f"{cxx_checks}{_DISABLE_WARNINGS}{size_checks}{_RESTORE_WARNINGS}"


def _kinds(member: str, kind: str, ctype: c.CType) -> Iterator[tuple[str, str]]:
    """Yield conditions on the *kind* of number of a *member* in C++, each with a message if it fails."""
    while isinstance(ctype, c.Array):
        ctype = ctype.element
    if isinstance(ctype, c.Scalar) and ctype.row.is_float:
        yield f"{kind} == 'f'", f"{member} is not floating point"
    elif isinstance(ctype, (c.Scalar, c.Pointer)):
        number = ctype.row.kind if isinstance(ctype, c.Scalar) else "pointer"
        condition = " && ".join(f"{kind} != '{letter}'" for letter in _EXCLUDED_KINDS.get(number, "f&"))
        yield condition, f"{member} is not of the kind {number}"


def failures(log: str) -> list[str]:
    """Return the messages of failed assertions in a compiler's *log*."""
    return list(dict.fromkeys(_FAILED.findall(log)))
