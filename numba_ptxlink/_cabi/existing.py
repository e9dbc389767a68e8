"""Render the includes of structs that C++ defines, and assertions that their layouts match Python's."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from . import types as c
from .signatures import walk_members

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

# C++ that gives the kind of a number: 'f' floating point, 'i' signed, 'u' unsigned, '&' a reference, '?'
# unknown. An enum has the kind of its underlying type if that is fixed, as only then C++ accepts T{0}.
_KIND_TEMPLATES = """\
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
# offsetof in classes with bases or private members is optional in C++; compilers support it with a warning,
# which has the number 1427 in nvcc.
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
ASSERTION_END = ', as in Python");'
"""The end of each assertion about a struct, by which a failed one is recognised in a compiler's log."""

# A line of NVRTC's log: error: static assertion failed with "the size of P is not 8, as in Python".
_FAILED_ASSERTION = re.compile(r'static assertion failed with "([^"\n]*), as in Python"')
# The kinds in C++ that contradict each kind of integer in Python; then the kinds that contradict pointers,
# booleans and characters. The sign of char and of an enum without a fixed underlying type depends on the
# compiler, so their kind is '?'.
_EXCLUDED_KINDS = {"int": "uf&", "uint": "if&"}
_EXCLUDED_KINDS_DEFAULT = "f&"


def includes(structs: Iterable[c.Struct]) -> tuple[str, ...]:
    """Return the names of the headers that define *structs*, each in its quotes or angle brackets."""
    headers = (struct.existing.includes for struct in structs if struct.existing)
    return tuple(dict.fromkeys(name for names in headers for name in names))


def preamble(structs: Sequence[c.Struct]) -> list[str]:
    """Return the lines of a header before the assertions about *structs*."""
    if not any(struct.existing for struct in structs):
        return []
    lines = "".join(f"#include {name}\n" for name in includes(structs))
    # A header that defines a struct in a namespace cannot be included in C.
    is_c = not any(struct.cxx_only for struct in structs if struct.existing)
    include_lines = lines if is_c else f"#if defined(__cplusplus)\n{lines}#endif\n"
    return [include_lines, _KIND_TEMPLATES] if lines else [_KIND_TEMPLATES]


def includes_existing_structs(header: str) -> bool:
    """Return whether the text of a generated header uses structs that C++ defines."""
    return _KIND_TEMPLATES in header


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
        # The path of an array's element ends with its index: "name[0]". An array of bytes may be a class in
        # C++, such as a string type, which has no elements to compare.
        if path.endswith("]") and ctype.size == 1:
            continue
        member, expression = f"{name}::{path}", f"(({name}*)0)->{path}"
        actual_offset = f"NUMBA_PTXLINK_OFFSETOF({name}, {path})"
        size_conditions.append((f"{actual_offset} == {offset}", f"the offset of {member} is not {offset}"))
        size_conditions.append(
            (f"sizeof({expression}) == {ctype.size}", f"the size of {member} is not {ctype.size}")
        )
        # Compare the kind once for an array and its elements: C++ gives the array the kind of its elements.
        if not path.endswith("]"):
            kind_conditions += _conditions_on_kind(member, f"NUMBA_PTXLINK_NUMBER_KIND({expression})", ctype)
    copy_checks, size_checks, kind_checks = (
        "".join(f'static_assert({condition}, "{message}{ASSERTION_END}\n' for condition, message in checks)
        for checks in (copy_conditions, size_conditions, kind_conditions)
    )
    # Assert first that the class is trivially copyable, so that the log begins with the cause of the other
    # failures.
    cxx_checks = f"#if defined(__cplusplus)\n{copy_checks}{kind_checks}#endif\n"
    return f"{cxx_checks}{_DISABLE_WARNINGS}{size_checks}{_RESTORE_WARNINGS}"


def _conditions_on_kind(member: str, kind_expression: str, ctype: c.CType) -> Iterator[tuple[str, str]]:
    """
    Yield C++ conditions on the kind of number of a member, each with the message if it is false.

    Args:
        member: The name of the member for messages, such as "P::x".
        kind_expression: The C++ expression of its kind, a letter as in `_KIND_TEMPLATES`.
        ctype: The type of the member in Python's layout.
    """
    while isinstance(ctype, c.Array):
        ctype = ctype.element
    if isinstance(ctype, c.Scalar) and ctype.row.is_float:
        yield f"{kind_expression} == 'f'", f"{member} is not floating point"
    elif isinstance(ctype, (c.Scalar, c.Pointer)):
        kind_name = ctype.row.kind if isinstance(ctype, c.Scalar) else "pointer"
        excluded_letters = _EXCLUDED_KINDS.get(kind_name, _EXCLUDED_KINDS_DEFAULT)
        condition = " && ".join(f"{kind_expression} != '{letter}'" for letter in excluded_letters)
        yield condition, f"{member} is not of the kind {kind_name}"


def failures(log: str) -> list[str]:
    """Return the messages of failed assertions in a compiler's *log*."""
    return list(dict.fromkeys(_FAILED_ASSERTION.findall(log)))
