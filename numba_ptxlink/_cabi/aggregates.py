"""Lay out the C structs of tuples, optional values and records, and name structs that have no name."""

from __future__ import annotations

import dataclasses
import itertools
import zlib
from typing import TYPE_CHECKING

from numba_ptxlink.errors import AbiError

from . import names as cnames
from .signatures import words
from .types import Array, Compound, CType, Member, Pointer, Scalar, Struct, number, round_up, struct

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .options import ExistingStruct

# Longer generated names are cut off and end in a checksum.
_MAX_NAME_CHARS = 48


def legal_names(fields: Iterable[str], types: Iterable[CType], *reserved: str) -> list[str]:
    """
    Return legal, distinct names for *fields* in a declaration that uses *types*.

    A parameter hides a type of its name from the next parameters, and a member must not have the name of its
    struct or of a type in the struct. So no name is one of the words in *types* or one of *reserved*.
    """
    taken = words(types) | {*reserved}
    c_names: list[str] = []
    for field in fields:
        c_names.append(cnames.legal_name(field, taken))
        taken.add(c_names[-1])
    return c_names


def optional_struct(value_type: CType, python_type: str) -> Struct:
    """Return the struct of a value that may be missing."""
    members = [("value", value_type), ("has_value", number("bool"))]
    return struct(f"optional_{value_type.code}", members, python_kind="optional", python_type=python_type)


def tuple_struct(
    fields: Sequence[str], types: Sequence[CType], name: str | None, python_kind: str, python_type: str
) -> Struct:
    """
    Return the struct of a tuple.

    Args:
        fields: The names of the members in Python.
        types: The types of the members.
        name: The name of the struct; None to derive it from *types*.
        python_kind: "tuple" or "namedtuple".
        python_type: The Python type, for a comment in the header.
    """
    # The counts distinguish nested tuples: tuple2_tuple1_i32_i32 is ((i32,), i32), and
    # tuple1_tuple2_i32_i32 is ((i32, i32),).
    name = name or _shorten(f"tuple{len(types)}_" + "_".join(ctype.code for ctype in types))
    members_in_c = zip(legal_names(fields, types, name), types, strict=True)
    layout = struct(name, members_in_c, python_kind=python_kind, python_type=python_type)
    pairs = zip(layout.members, fields, strict=True)
    members = tuple(dataclasses.replace(member, python=field) for member, field in pairs)
    return dataclasses.replace(layout, members=members, is_numba_layout=all(map(_has_same_offset, types)))


def _has_same_offset(ctype: CType) -> bool:
    """Return whether Numba and C place a member of this type at the same offset in a tuple in memory."""
    # Numba aligns aggregates such as complex64 like their members, and records to 1 byte; C may align them to
    # more.
    if isinstance(ctype, Struct):
        return ctype.is_numba_layout and ctype.python_kind != "record"
    return isinstance(ctype, (Scalar, Pointer)) or (isinstance(ctype, Compound) and ctype.element is None)


def record_struct(name: str, fields: Iterable[Member], size: int, python_type: str) -> Struct:
    """
    Return the struct of a NumPy record: with C's layout if that matches the record's, else packed.

    Args:
        name: The name; "" to have `complete_record` derive one from the members.
        fields: The members, with their names in Python, in the order of their offsets.
        size: The size in bytes.
        python_type: The Python type, for a comment in the header.

    Raises:
        AbiError: C has no such struct, since it would be empty or fields overlap.
    """
    fields = list(fields)
    if not fields or not all(field.type.size for field in fields):
        raise AbiError("C has no empty struct and no members without size; leave them out of the dtype.")
    for previous, field in itertools.pairwise(fields):
        if field.offset < previous.offset + previous.type.size:
            raise AbiError(
                f"Its field {field.name!r} overlaps its field {previous.name!r}, and C has no such struct; "
                "leave one of them out of the dtype, and reinterpret the other by .view() in Python."
            )
    types = [field.type for field in fields]
    c_names = legal_names([field.name for field in fields], types, name)
    pairs = zip(fields, c_names, strict=True)
    members = tuple(dataclasses.replace(field, name=c_name, python=field.name) for field, c_name in pairs)
    # Members are equal if their names, types and offsets are.
    c_layout = struct("", [(member.name, member.type) for member in members])
    is_packed = c_layout.members != members or c_layout.size != size
    align = 1 if is_packed else c_layout.align
    return Struct(
        name,
        size,
        align,
        members,
        is_packed,
        is_numba_layout=True,
        python_kind="record",
        python_type=python_type,
    )


def complete_record(layout: Struct) -> Struct:
    """
    Return *layout*, a result of `record_struct`, with a name derived from its members if it has none.

    In a packed struct, C structs of the same bits replace the classes `__half` and `__nv_bfloat16`, which C++
    compilers refuse to pack.
    """
    if layout.packed:
        layout = dataclasses.replace(layout, members=_members_without_classes(layout))
    if layout.name:
        return layout
    fields = "_".join(f"{member.name}_{member.type.code}" for member in layout.members)
    name = f"{len(layout.members)}_{fields}"
    # Packed records with equal members can differ in offsets, size and alignment.
    name = f"packed{name}{_gaps(layout)}_{layout.size}_{layout.align}" if layout.packed else f"record{name}"
    return dataclasses.replace(layout, name=cnames.legal_struct_name(_shorten(name)))


def _gaps(layout: Struct) -> str:
    """Return a part of a record's name: "_1at8" for member 1 at offset 8, if a gap is in front of it."""
    # The end of the previous member, for each member; after these, the end of the last one, which is not
    # used.
    ends = (0, *(member.offset + member.type.size for member in layout.members))
    indexed = enumerate(zip(layout.members, ends, strict=False))
    return "".join(f"_{index}at{member.offset}" for index, (member, end) in indexed if member.offset != end)


def _members_without_classes(layout: Struct) -> tuple[Member, ...]:
    return tuple(dataclasses.replace(member, type=_without_classes(member.type)) for member in layout.members)


def _without_classes(ctype: CType) -> CType:
    """Return *ctype* with `__half_raw` in place of the class `__half`; packed structs stay."""
    if isinstance(ctype, Compound):
        return number(ctype.row.raw) if ctype.row.raw else ctype
    if isinstance(ctype, Array):
        return dataclasses.replace(ctype, element=_without_classes(ctype.element))
    # `complete_record` has replaced the classes of a packed struct already, unless C++ defines the struct.
    if isinstance(ctype, Struct) and not ctype.packed:
        members = _members_without_classes(ctype)
        if members != ctype.members:
            if ctype.existing:
                raise AbiError(
                    f"C++ aligns {ctype.name}, which has a class such as __half, in a packed record, too; "
                    "pass align=True to the record's dtype."
                )
            return dataclasses.replace(ctype, name=f"{ctype.name}_raw", members=members)
    return ctype


def as_existing(layout: Struct, existing: ExistingStruct) -> Struct:
    """
    Return *layout* with the name, alignment and size of *existing*, a struct that C++ defines.

    Members keep their offsets. The alignment is that of the `alignas` of *existing*; without one, that of the
    members, or 1 if their offsets do not fit C's layout. The size is rounded up to the alignment.

    Raises:
        AbiError: The size of a record is impossible for such a struct in C++.
    """
    natural_align = max(member.type.align for member in layout.members)
    is_packed = layout.size % natural_align != 0 or any(
        member.offset % member.type.align for member in layout.members
    )
    align = existing.align or (1 if is_packed else natural_align)
    size = round_up(layout.size, align)
    if layout.python_kind == "record" and size != layout.size:
        raise AbiError(
            f"{existing.name} is aligned to {align} bytes, so that its size is a multiple of that, and its "
            f"dtype has an itemsize of {layout.size}; set itemsize to {size}."
        )
    return dataclasses.replace(
        layout,
        name=existing.name,
        size=size,
        align=align,
        packed=is_packed,
        is_numba_layout=layout.is_numba_layout and size == layout.size,
        existing=existing,
    )


def _shorten(name: str) -> str:
    if len(name) <= _MAX_NAME_CHARS:
        return name
    # The checksum has "_" and 8 digits.
    return f"{name[: _MAX_NAME_CHARS - 9].rstrip('_')}_{zlib.crc32(name.encode()):08x}"
