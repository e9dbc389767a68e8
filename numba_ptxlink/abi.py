"""
Map Numba types to C types.

The classes of types have the same names in all front ends; `_front_end.registry` tells which one a type
belongs to. The layouts and prototypes of the C types are in `_cabi.types`; each front end generates the
conversion of values.
"""

from __future__ import annotations

import dataclasses
import re
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ._cabi import names as cnames
from ._cabi.cxx import Existing
from ._cabi.numbers import NUMBERS
from ._cabi.options import AbiOptions
from ._cabi.types import (
    Array,
    Compound,
    CType,
    Member,
    Pointer,
    Scalar,
    Signature,
    Struct,
    View,
    Void,
    number,
    pointer,
    struct,
    structs,
    unaligned_member,
    vector,
    view,
)
from ._front_end.registry import of_type
from .errors import AbiError

__all__ = [
    "AbiOptions",
    "Array",
    "CType",
    "Compound",
    "Member",
    "Pointer",
    "Scalar",
    "Signature",
    "Struct",
    "View",
    "Void",
    "c_signature",
    "c_type",
    "check_ptx",
]

# The longest generated name of a struct; a longer one is cut off and ends in a checksum.
_LONGEST_NAME = 48


# By the names of Numba types, which are the same in all front ends.
_NUMBERS = {
    "float16": "__half",
    "__nv_bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "cuFloatComplex",
    "complex128": "cuDoubleComplex",
}
_LAYOUTS = {"C": "c", "F": "f", "A": "any"}
_WORD = re.compile(r"[A-Za-z_]\w*", re.ASCII)

Names = Mapping[Any, str | Existing]
"""Names for records, by their Numba types: a record has no name itself; and the structs that C++ has."""


def c_signature(
    name: str,
    result: Any,
    params: Iterable[tuple[str, Any]],
    *,
    kernel: bool = False,
    names: Names | None = None,
    const: Collection[str] = (),
    restrict: Collection[str] = (),
) -> Signature:
    """
    Return the C signature of a function with the given Numba types.

    Args:
        name: The symbol.
        result: The Numba type of the return value.
        params: Name and Numba type of each parameter.
        kernel: Whether it is a `__global__` function.
        names: Names for records, by their Numba types.
        const: The parameters, by name, through which the function only reads.
        restrict: Those that nothing else leads to.

    Raises:
        AbiError: A type has no counterpart in C, two types would be structs of one name, or a parameter that
            is to be const or restrict is no address. The message names the function and the types.
    """

    def translate(ty: Any, where: str) -> CType:
        try:
            ctype = c_type(ty, names)
        except AbiError as error:
            raise AbiError(f"Function {name}: {where} has no C type. {error}") from error
        if isinstance(ctype, Void) and not where.startswith("the return"):
            raise AbiError(f"Function {name}: {where} has no C type. Leave the parameter out.")
        return ctype

    def pointing(ctype: CType, where: str, **promises: bool) -> CType:
        try:
            return _pointing(ctype, **promises)
        except AbiError as error:
            raise AbiError(f"Function {name}: {where} {error}") from error

    # An inferred result may be a constant's type, which C does not tell from the type of its value.
    returned = translate(
        of_type(result).types.unliteral(result), f"the return value, of Numba type {result},"
    )
    typed = [
        (param, pointing(translate(ty, where), where, const=param in const, restrict=param in restrict))
        for param, ty in params
        for where in [f"parameter {param!r}, of Numba type {ty},"]
    ]
    labels = _labels([param for param, _ in typed], [returned, *(ctype for _, ctype in typed)])
    signature = Signature(
        name=name,
        result=returned,
        params=tuple((label, ctype) for label, (_, ctype) in zip(labels, typed, strict=True)),
        kernel=kernel,
    )
    if kernel and not isinstance(signature.result, Void):
        raise AbiError(f"Kernel {name} returns {result}; a kernel returns nothing: write void(...).")
    try:
        structs([signature])
    except AbiError as error:
        raise AbiError(f"Function {name}: {str(error)[0].lower()}{str(error)[1:]}") from error
    return signature


def _pointing(ctype: CType, *, const: bool, restrict: bool) -> CType:
    """Return *ctype* as a parameter that is only read, or that nothing else leads to."""
    if isinstance(ctype, Pointer):
        return pointer(ctype.target, readonly=const, restrict=restrict)
    if restrict:
        raise AbiError(
            "cannot be __restrict__, which C++ has for pointers alone; take a CPointer, or leave it out of "
            "restrict."
        )
    if const and isinstance(ctype, View):
        return view(ctype.element, ctype.ndim, ctype.layout, readonly=True)
    if const:
        raise AbiError("is a value, and const is for pointers and arrays; leave it out of const.")
    return ctype


def check_ptx(signature: Signature) -> None:
    """
    Check that nvcc passes the arguments and the result of *signature* rightly between functions in PTX.

    A function in LTO-IR is inlined into its callers, which passes nothing.

    Raises:
        AbiError: A struct that is passed by value holds a member that is not aligned.
    """
    if signature.kernel:
        return
    values = [(f"parameter {name!r}", ctype) for name, ctype in signature.params]
    for where, ctype in (("the return value", signature.result), *values):
        member = unaligned_member(ctype)
        if member is not None:
            raise AbiError(
                f"Function {signature.name}: {where}, of C type {ctype.name}, holds the member {member!r}, "
                "which is not aligned, and nvcc passes such structs by value wrongly in PTX. Create the "
                "dtype with align=True, pass a pointer to it or an array of it, or export and link LTO-IR "
                "alone (emit=['ltoir'])."
            )


def c_type(ty: Any, names: Names | None = None) -> CType:
    """
    Return the C type of the Numba type *ty*.

    Args:
        ty: A Numba type.
        names: Names for records, by their Numba types.

    Raises:
        AbiError: The type has no counterpart in C.
    """
    _check_open(ty)
    ctype = _scalar(ty)
    if ctype is None:
        ctype = _composite(ty, names or {})
    if ctype is None:
        raise AbiError(
            "The types that have one: booleans, integers, float16, bfloat16, float32, float64, complex64, "
            "complex128, pointers (CPointer, voidptr), tuples, records, vector types, arrays, Optional, "
            "IntEnum, datetime64 and timedelta64."
        )
    return ctype


def _check_open(ty: Any) -> None:
    types = of_type(ty).types
    if isinstance(ty, types.Literal) and types.unliteral(ty) != ty:
        raise AbiError(f"It fixes the value, whatever the caller passes; use {types.unliteral(ty)}.")


def _scalar(ty: Any) -> CType | None:
    front_end = of_type(ty)
    if isinstance(ty, front_end.types.NoneType):
        return Void()
    shape = front_end.vector(ty)
    if shape is not None:
        base, count = shape
        element = _scalar(base)
        return vector(element, count) if element is not None else None
    name = _number(ty)
    return number(name) if name in NUMBERS else None


def _number(ty: Any) -> str:
    """Return the C name of the number *ty*; "" or a name that C has not for what is none."""
    types = of_type(ty).types
    if isinstance(ty, types.Boolean):
        return "bool"
    if isinstance(ty, (types.NPDatetime, types.NPTimedelta)):
        return "int64_t"
    if isinstance(ty, types.IntEnumMember):
        return _number(ty.dtype)
    if isinstance(ty, types.Integer):
        return f"{'' if ty.signed else 'u'}int{ty.bitwidth}_t"
    return _NUMBERS.get(ty.name, "")


def _composite(ty: Any, names: Names) -> CType | None:
    types = of_type(ty).types
    if ty == types.voidptr:
        return pointer(Void())
    if isinstance(ty, types.CPointer):
        return _pointer(ty, names)
    if isinstance(ty, types.BaseTuple):
        return _tuple(ty, names)
    if isinstance(ty, types.Optional):
        value = _member(ty.type, "its value", names)
        return struct(
            f"optional_{code(value)}", [("value", value), ("has_value", number("bool"))], about=str(ty)
        )
    if isinstance(ty, types.Record):
        return _record(ty, names)
    if isinstance(ty, types.NestedArray):
        return None
    if isinstance(ty, types.Array):
        return _view(ty, names)
    return None


def _pointer(ty: Any, names: Names) -> CType:
    target = c_type(ty.dtype, names)
    _check_in_memory(target)
    return pointer(target)


def _view(ty: Any, names: Names) -> CType:
    element = _member(ty.dtype, "its element", names)
    _check_in_memory(element)
    # Numba has three types of them where all arrays, or all contiguous ones, are laid out alike.
    one_layout = ty.ndim == 0 or (ty.ndim == 1 and ty.layout == "F")
    return view(element, ty.ndim, "c" if one_layout else _LAYOUTS[ty.layout], readonly=not ty.mutable)


def _check_in_memory(ctype: CType) -> None:
    """Refuse a pointer's target that Numba and C lay out differently in memory."""
    if isinstance(ctype, View) or (isinstance(ctype, Struct) and not ctype.in_memory):
        what = ctype.about if isinstance(ctype, Struct) else ctype.name
        raise AbiError(
            f"Numba lays out {what} in memory in a way of its own; point to a record instead, or pass it by "
            "value."
        )


def _member(ty: Any, what: str, names: Names) -> CType:
    try:
        ctype = c_type(ty, names)
    except AbiError as error:
        raise AbiError(f"{what[0].upper()}{what[1:]}, of Numba type {ty}, has no C type. {error}") from error
    if isinstance(ctype, Void):
        raise AbiError(f"{what[0].upper()}{what[1:]} is None, which C has no value for; leave it out.")
    return ctype


def _tuple(ty: Any, names: Names) -> CType:
    types = of_type(ty).types
    if not len(ty):
        raise AbiError("C has no empty struct; leave the empty tuple out.")
    fields = getattr(ty, "fields", None) or [f"f{number}" for number in range(len(ty))]
    inner = [
        _member(part, f"its member {field}", names) for field, part in zip(fields, ty.types, strict=True)
    ]
    existing = names.get(ty)
    if isinstance(existing, Existing):
        name = existing.name
    elif isinstance(ty, (types.NamedTuple, types.NamedUniTuple)):
        name = cnames.legal_type(ty.instance_class.__name__)
    else:
        # The count comes first, so that the names of different types differ.
        name = _shortened(f"tuple{len(ty)}_" + "_".join(code(ctype) for ctype in inner))
    members = list(zip(_labels(fields, inner, name), inner, strict=True))
    layout = struct(name, members, about=str(ty))
    # Numba aligns aggregates such as complex64 like their members, C aligns some of them to more.
    in_memory = all(
        isinstance(member, (Scalar, Pointer))
        or (isinstance(member, Compound) and member.element is None)
        or (isinstance(member, Struct) and member.in_memory and not member.record)
        for _, member in members
    )
    layout = dataclasses.replace(layout, in_memory=in_memory)
    return _existing(layout, existing) if isinstance(existing, Existing) else layout


def _record(ty: Any, names: Names) -> CType:
    members: list[Member] = []
    # NumPy's title of a field is a second name of it; and C has no members without size.
    fields = {
        field: place
        for field, place in ty.fields.items()
        if field != place.title and not _is_empty(place.type)
    }
    last, end = "", 0
    given = names.get(ty)
    existing = given if isinstance(given, Existing) else None
    own = given if isinstance(given, str) else None
    inner = [_field(place.type, f"its field {field!r}", names) for field, place in fields.items()]
    labels = _labels(list(fields), inner, *((cnames.legal_type(own),) if own else ()))
    for (field, place), label, ctype in zip(fields.items(), labels, inner, strict=True):
        if place.offset < end:
            raise AbiError(
                f"Its field {field!r} overlaps its field {last!r}, and C has no such struct; leave one of "
                "them out of the dtype, and reinterpret the other by .view() in Python."
            )
        last, end = field, place.offset + ctype.size
        members.append(Member(label, ctype, place.offset))
    if not members:
        raise AbiError("C has no empty struct; leave the empty record out.")
    if existing is not None:
        layout = Struct(
            existing.name, ty.size, 1, tuple(members), in_memory=True, record=True, about=_fields(ty)
        )
        return _existing(layout, existing)
    natural = struct("", [(member.name, member.type) for member in members])
    packed = natural.members != tuple(members) or natural.size != ty.size
    align = natural.align
    if packed:
        align = ty.dtype.alignment if ty.aligned else 1
        members = [dataclasses.replace(member, type=_raw(member.type)) for member in members]
    if own is None:
        name = "packed" if packed else "record"
        name += f"{len(members)}_" + "_".join(f"{member.name}_{code(member.type)}" for member in members)
        # Equal members can have different offsets, sizes and alignments.
        own = _shortened(f"{name}{_gaps(members)}_{ty.size}_{align}" if packed else name)
    return Struct(
        cnames.legal_type(own),
        ty.size,
        align,
        tuple(members),
        packed,
        in_memory=True,
        record=True,
        about=_fields(ty),
    )


def _gaps(members: Sequence[Member]) -> str:
    """Return, for the name of a record, which *members* do not begin where the one before ends, and where."""
    ends = (0, *(member.offset + member.type.size for member in members))
    places = enumerate(zip(members, ends, strict=False))
    return "".join(f"_{index}at{member.offset}" for index, (member, end) in places if member.offset != end)


def _existing(layout: Struct, existing: Existing) -> Struct:
    """Return *layout* as the struct that C++ has: as aligned as its members are, or as it is said to be."""
    natural = max(member.type.align for member in layout.members)
    packed = layout.size % natural != 0 or any(member.offset % member.type.align for member in layout.members)
    align = existing.align or (1 if packed else natural)
    size = -(-layout.size // align) * align
    if layout.record and size != layout.size:
        raise AbiError(
            f"{existing.name} is aligned to {align} bytes, and a multiple of that as large; its dtype has an "
            f"itemsize of {layout.size}: give it {size}."
        )
    alike = layout.in_memory and size == layout.size
    return dataclasses.replace(
        layout, size=size, align=align, packed=packed, in_memory=alike, existing=existing
    )


def _is_empty(ty: Any) -> bool:
    """Return whether a field of type *ty* takes no memory."""
    types = of_type(ty).types
    if isinstance(ty, (types.CharSeq, types.UnicodeCharSeq)):
        return bool(ty.count == 0)
    if isinstance(ty, types.NestedArray):
        return 0 in ty.shape or _is_empty(ty.dtype)
    return isinstance(ty, types.Record) and ty.size == 0


def _raw(ctype: CType) -> CType:
    """Return *ctype* with `__half_raw` in place of `__half`, a class that C++ compilers refuse to pack."""
    if isinstance(ctype, Compound):
        return number(ctype.row.raw) if ctype.row.raw else ctype
    if isinstance(ctype, Array):
        return dataclasses.replace(ctype, element=_raw(ctype.element))
    if isinstance(ctype, Struct) and not ctype.packed:
        members = tuple(dataclasses.replace(member, type=_raw(member.type)) for member in ctype.members)
        if members != ctype.members:
            return dataclasses.replace(ctype, name=f"{ctype.name}_raw", members=members)
    return ctype


def _fields(ty: Any) -> str:
    return f"Record({', '.join(f'{name}: {place.type}' for name, place in ty.fields.items())})"


def _field(ty: Any, what: str, names: Names) -> CType:
    types = of_type(ty).types
    if isinstance(ty, types.NestedArray):
        ctype = _field(ty.dtype, what, names)
        for count in reversed(ty.shape):
            ctype = _array(ctype, count)
        return ctype
    if isinstance(ty, types.CharSeq):
        return _array(number("char"), ty.count)
    if isinstance(ty, types.UnicodeCharSeq):
        return _array(number("uint32_t"), ty.count)
    return _member(ty, what, names)


def _array(element: CType, count: int) -> Array:
    return Array(f"{element.name}[{count}]", element.size * count, element.align, element, count)


def _labels(fields: Sequence[str], types: Sequence[CType], *others: str) -> list[str]:
    """
    Return legal, distinct names for *fields* in a declaration that uses *types*.

    A parameter hides a type of its name from those behind it, and a member may not have the name of its
    struct or of a type in it: *others* and what *types* are spelled with are not used.
    """
    taken = {*others, *(word for ctype in types for word in _WORD.findall(ctype.name))}
    labels: list[str] = []
    for field in fields:
        labels.append(cnames.legal(field, taken))
        taken.add(labels[-1])
    return labels


def code(ctype: CType) -> str:
    """Return the abbreviation of *ctype* in generated names, such as f32 for float."""
    if isinstance(ctype, Void):
        return "void"
    if isinstance(ctype, Pointer):
        return f"{'c' if ctype.readonly else ''}p_{code(ctype.target)}"
    if isinstance(ctype, Array):
        return f"{ctype.count}x_{code(ctype.element)}"
    if isinstance(ctype, View):
        const = "c" if ctype.readonly else ""
        # The layout's initial: c, f or a.
        return f"{const}view{ctype.ndim}{ctype.layout[0]}_{code(ctype.element)}"
    return ctype.row.code if isinstance(ctype, (Scalar, Compound)) else "_".join(_WORD.findall(ctype.name))


def _shortened(name: str) -> str:
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[: _LONGEST_NAME - 9].rstrip('_')}_{zlib.crc32(name.encode()):08x}"
