"""Render what a header says of structs that C++ defines: where they are, and how Python lays them out."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from typing import TYPE_CHECKING, NamedTuple

from . import alignment
from . import types as c

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_KINDS = """\
#if defined(__cplusplus) && !defined(NUMBA_PTXLINK_KIND)
#define NUMBA_PTXLINK_KIND(...) numba_ptxlink::kind<decltype(__VA_ARGS__)>
#define NUMBA_PTXLINK_TARGET(...) numba_ptxlink::target<numba_ptxlink::bare<decltype(__VA_ARGS__)>::type>
#define NUMBA_PTXLINK_PART(...) numba_ptxlink::part<numba_ptxlink::kind<decltype(__VA_ARGS__)>::type>
#define NUMBA_PTXLINK_IS_REFERENCE(...) numba_ptxlink::reference<decltype(__VA_ARGS__)>::is_one
#define NUMBA_PTXLINK_SHAPE(member, ...) numba_ptxlink::shape<decltype(member), __VA_ARGS__>::is_kept
namespace numba_ptxlink {
template <class T> struct bare { typedef T type; };
template <class T> struct bare<const T> { typedef T type; };
template <class T> struct bare<volatile T> { typedef T type; };
template <class T> struct bare<const volatile T> { typedef T type; };
template <class T> struct reference { enum : bool { is_one = false }; };
template <class T> struct reference<T&> { enum : bool { is_one = true }; };
template <class T> struct reference<T&&> { enum : bool { is_one = true }; };
template <char c, int n> struct digits {
  enum { is_float = c == 'f', is_signed = c == 'i', is_unsigned = c == 'u', width = n };
};
template <class T, bool = __is_enum(T), class = void> struct number : digits<0, 0> {};
template <class T> struct number<T, true, decltype(void(T{0}))> : number<__underlying_type(T)> {};
template <> struct number<float> : digits<'f', sizeof(float)> {};
template <> struct number<double> : digits<'f', sizeof(double)> {};
template <> struct number<signed char> : digits<'i', sizeof(char)> {};
template <> struct number<short> : digits<'i', sizeof(short)> {};
template <> struct number<int> : digits<'i', sizeof(int)> {};
template <> struct number<long> : digits<'i', sizeof(long)> {};
template <> struct number<long long> : digits<'i', sizeof(long long)> {};
template <> struct number<unsigned char> : digits<'u', sizeof(char)> {};
template <> struct number<unsigned short> : digits<'u', sizeof(short)> {};
template <> struct number<unsigned int> : digits<'u', sizeof(int)> {};
template <> struct number<unsigned long> : digits<'u', sizeof(long)> {};
template <> struct number<unsigned long long> : digits<'u', sizeof(long long)> {};
template <class T> struct kind : number<typename bare<T>::type> {
  typedef typename bare<T>::type type;
  enum { is_class = __is_class(T), size = sizeof(T) };
};
template <class T, decltype(sizeof(0)) n> struct kind<T[n]> : kind<T> {};
template <class T> struct target : digits<0, 0> {};
template <class T> struct target<T*> : number<typename bare<T>::type> {};
template <class T> struct member : digits<0, 0> {};
template <class T, class M> struct member<M T::*> : number<typename bare<M>::type> {};
template <class T, bool = __is_class(T), class = void> struct part : number<T> {};
template <class T> struct part<T, true, decltype(void(&T::x))> : member<decltype(&T::x)> {};
template <class T, decltype(sizeof(0))... ns> struct extents { enum : bool { are = sizeof...(ns) == 0 }; };
template <class T, decltype(sizeof(0)) n, decltype(sizeof(0))... ns>
struct extents<T[n], n, ns...> : extents<T, ns...> {};
template <class T, decltype(sizeof(0))... ns> struct shape { enum : bool { is_kept = true }; };
template <class T, decltype(sizeof(0)) n, decltype(sizeof(0)) m, decltype(sizeof(0))... ns>
struct shape<T[n][m], ns...> { enum : bool { is_kept = extents<T[n][m], ns...>::are }; };
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
# Each compiler chooses the sign of char, and the type of an enum that says none: they are no numbers here,
# and neither are bool, unions and classes.
_SIGNS = {"int": "is_signed", "uint": "is_unsigned", "float": "is_float"}
# By NVRTC's words.
_CURES = {
    "is inaccessible": "Make the member public, or leave it out of the dtype, which may have gaps",
    "bit field": "Leave the bit field out of the dtype, which may have gaps, or make it a member of its own",
    "incomplete": "Name the header that defines the struct in include=, not one that only declares it",
    "pointer-to-class": "Name a struct or a class in structs=, which this is not",
    "argument list for class template": "Give the template a name by `using`, with its arguments",
}
_SUBJECT = re.compile(r', "(?:the \w+ of )?((?:struct )?\S+) ')
_FAILED = re.compile(r'static assertion failed with "([^"\n]*), as in Python"')


class _Check(NamedTuple):
    """What a header asserts: a condition, what is so where it does not hold, and the cure."""

    condition: str
    what: str
    cure: str = ""


def includes(structs: Iterable[c.Struct]) -> tuple[str, ...]:
    """Return the headers that define *structs*, in order, each in its quotes or angle brackets."""
    found = (each.existing.includes for each in structs if each.existing)
    return tuple(dict.fromkeys(name for names in found for name in names))


def with_includes_of(struct: c.Struct, other: c.Struct) -> c.Struct:
    """Return *struct* as what the headers of both, which stand for one struct of C++, define."""
    if struct.existing is None:
        return struct
    has = dataclasses.replace(struct.existing, includes=includes([struct, other]))
    return dataclasses.replace(struct, existing=has)


def difference(one: c.Struct, other: c.Struct) -> tuple[str, str] | None:
    """Return what is laid out otherwise in *one* than in *other*, whatever what is in them is named."""
    pairs = itertools.zip_longest(_laid_out(one), _laid_out(other), fillvalue="no more members")
    return next((pair for pair in pairs if pair[0] != pair[1]), None)


def _laid_out(struct: c.Struct) -> Iterator[str]:
    yield f"{struct.size} bytes aligned to {struct.align}"
    for path, offset, ctype in _places(struct, "", 0):
        element, _ = _element(ctype)
        unnamed = isinstance(element.target if isinstance(element, c.Pointer) else element, c.Struct)
        what = f"{ctype.size} bytes" if unnamed else ctype.declare("").strip()
        yield f"{path} at offset {offset}, {what}"


def preamble(structs: Sequence[c.Struct]) -> list[str]:
    """Return what a header has before the assertions about *structs*."""
    for_c = includes(each for each in structs if not each.cxx_only)
    for_cxx = [name for name in includes(structs) if name not in for_c]
    blocks = ["".join(f"#include {name}\n" for name in for_c)] if for_c else []
    if for_cxx:
        lines = "".join(f"#include {name}\n" for name in for_cxx)
        blocks.append(f"#if defined(__cplusplus)\n{lines}#endif\n")
    return [*blocks, _KINDS] if any(each.existing for each in structs) else []


def is_in(header: str) -> bool:
    """Return whether the text of a generated header includes headers that define structs."""
    return _KINDS in header


def assertions(struct: c.Struct) -> str:
    """Return that *struct*, which C++ defines, is laid out as in Python."""
    value, layout, kinds = (
        "".join(f'static_assert({check.condition}, "{check.what}, as in Python");\n' for check in checks)
        for checks in (_value_checks(struct), _layout_checks(struct), _kind_checks(struct))
    )
    # What is no plain value comes first: the rest would be told of what follows from that.
    return f"#if defined(__cplusplus)\n{value}{kinds}#endif\n{_QUIET}{layout}{_LOUD}"


def _layout_checks(struct: c.Struct) -> Iterator[_Check]:
    name = struct.name
    like_c = alignment.dtype_like_c(struct)
    cure = f"if {name} has no other members, replace its dtype d by {like_c}" if like_c else ""
    aligned = not cure or alignment.is_only_padded(struct)
    said = cure if not aligned else f'if C++ aligns it to N bytes, write "alignas(N) {name}" in structs'
    yield _Check(f"sizeof({name}) == {struct.size}", f"the size of {name} is not {struct.size}", cure)
    yield _Check(f"alignof({name}) == {struct.align}", f"the alignment of {name} is not {struct.align}", said)
    for path, offset, ctype in _places(struct, "", 0):
        member, size = f"{name}::{path}", ctype.size
        place = f"NUMBA_PTXLINK_OFFSETOF({name}, {path}) == {offset}"
        yield _Check(place, f"the offset of {member} is not {offset}", cure)
        yield _Check(f"sizeof((({name}*)0)->{path}) == {size}", f"the size of {member} is not {size}")


def _value_checks(struct: c.Struct) -> Iterator[_Check]:
    """Yield what holds of each struct that a dtype can be like."""
    name = struct.name
    cure = (
        f"take virtual functions and bases out of {name} and what it holds, and destructors and copy "
        "constructors that are not defaulted, or name another struct in structs"
    )
    yield _Check(f"__is_trivially_copyable({name})", f"{name} is not trivially copyable", cure)
    for path, _, _ in _places(struct, "", 0):
        # An element is no reference, and its expression would be one.
        if not path.endswith("]"):
            cure = f"make {name}::{path} a pointer, or leave it out of the dtype"
            condition = f"!NUMBA_PTXLINK_IS_REFERENCE((({name}*)0)->{path})"
            yield _Check(condition, f"{name}::{path} is a reference and not a value", cure)


def _kind_checks(struct: c.Struct) -> Iterator[_Check]:
    name = struct.name
    for path, _, ctype in _places(struct, "", 0):
        member, there = f"{name}::{path}", f"(({name}*)0)->{path}"
        element, counts = _element(ctype)
        kind = f"NUMBA_PTXLINK_KIND({there})"
        if len(counts) > 1:
            shape = ", ".join(map(str, counts))
            yield _Check(f"NUMBA_PTXLINK_SHAPE({there}, {shape})", f"the shape of {member} is not ({shape})")
        if isinstance(element, c.Scalar):
            yield from _number_checks(member, there, element, counts)
        elif isinstance(element, c.Compound) and element.element is None:
            yield _Check(f"{kind}::is_class", f"{member} is not a class such as {element.name}")
        elif isinstance(element, c.Pointer):
            yield _Check(f"!{kind}::is_float", f"{member} is not an address")
            if isinstance(element.target, c.Scalar) and element.target.row.kind in _SIGNS:
                what = f"{member} does not point to {_in_python(element.target)}"
                yield _Check(_is_known(f"NUMBA_PTXLINK_TARGET({there})", element.target), what)
        elif isinstance(element, c.Compound) and isinstance(element.element, c.Scalar):
            what = f"{member} is not made of {_in_python(element.element)}"
            yield _Check(_is_known(f"NUMBA_PTXLINK_PART({there})", element.element), what)


def _is_known(number: str, expected: c.Scalar) -> str:
    """Return the condition that *number* is as *expected*, if it is known."""
    same = f"{number}::{_SIGNS[expected.row.kind]} && {number}::width == {expected.size}"
    return f"{number}::width == 0 || ({same})"


def _number_checks(member: str, there: str, element: c.Scalar, counts: tuple[int, ...]) -> Iterator[_Check]:
    python, kind = _in_python(element), f"NUMBA_PTXLINK_KIND({there})"
    if element.row.format:
        shape = counts[0] if len(counts) == 1 else counts
        given = f"{shape} times {python}" if counts else python
        cure = f"give {member} a dtype of its members{_like_vector(element, counts)}"
        yield _Check(f"!{kind}::is_class", f"{member} is a class and not {given}", cure)
        yield _Check(f"{kind}::is_class || {kind}::is_float", f"{member} is not floating point")
    else:
        # One number, or an array of bytes, may stand for a class.
        part = f"NUMBA_PTXLINK_PART({there})" if counts and element.size > 1 else kind
        yield _Check(f"!{part}::is_float", f"{member} is not an integer")
    if element.row.kind == "int":
        what, cure = f"{member} is unsigned and not {python}", f"give {member} the type u{python}"
        yield _Check(f"!{kind}::is_unsigned", what, cure)
    if element.row.kind == "uint":
        what, cure = f"{member} is signed and not {python}", f"give {member} the type {python[1:]}"
        yield _Check(f"!{kind}::is_signed", what, cure)
    if counts:
        sized = f"{kind}::is_class || {kind}::size == {element.size}"
        yield _Check(sized, f"the elements of {member} do not have the size {element.size}")


def _in_python(ctype: c.Scalar) -> str:
    """Return NumPy's name, which is Numba's too, of a number that is an integer or floating point."""
    return f"{ctype.row.kind}{ctype.size * 8}"


def _like_vector(element: c.Scalar, counts: tuple[int, ...]) -> str:
    """Return the dtype of the vector of CUDA that an array in Python may be meant for."""
    vector = c.vector(element, math.prod(counts)) if counts else None
    if vector is None:
        return ""
    fields = ", ".join(f'("{name}", "{_in_python(element)}")' for name in "xyzw"[: math.prod(counts)])
    return f", for {vector.code} [{fields}]"


def _element(ctype: c.CType) -> tuple[c.CType, tuple[int, ...]]:
    """Return what *ctype*, an array of arrays or none, holds in the end, and how many in each dimension."""
    counts = []
    while isinstance(ctype, c.Array):
        counts.append(ctype.count)
        ctype = ctype.element
    return ctype, tuple(counts)


def _places(struct: c.Struct, path: str, start: int) -> Iterator[tuple[str, int, c.CType]]:
    for member in struct.members:
        # C++'s names need not keep clear of what a generated header has.
        name = member.field if member.field.isidentifier() else member.name
        inner = f"{path}.{name}" if path else name
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


def failures(log: str, structs: Iterable[c.Struct]) -> tuple[list[str], list[str]]:
    """Return what does not hold of *structs* by a compiler's *log*, and the cures."""
    found = dict.fromkeys(_FAILED.findall(log))
    cures: dict[str, str] = {}
    values: set[str] = set()
    for each in structs:
        checks = (*_value_checks(each), *_layout_checks(each), *_kind_checks(each))
        cures.update({check.what: check.cure for check in checks})
        values.update(check.what for check in _value_checks(each))
    # No dtype is like what is no plain value, whatever else differs.
    failed = [what for what in found if what in values] or list(found)
    return failed, list(dict.fromkeys(cure for what in failed if (cure := cures.get(what))))


def uncompared(line: str, reason: str) -> tuple[str, str]:
    """Return the struct or member that an assertion is about, and the cure for the *reason* of a compiler."""
    about = _SUBJECT.search(line)
    cures = (cure for words, cure in _CURES.items() if words in reason)
    wrong = "Correct the name in structs=, the fields' names, or the header of include="
    return about[1] if about else line, next(cures, wrong)
