"""Say how a dtype is written that NumPy lays out as C does."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .types import Array, CType, Struct, round_up

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Layout(NamedTuple):
    size: int
    align: int
    offsets: tuple[int, ...] = ()


def dtype_like_c(record: Struct) -> str | None:
    """
    Return Python code for the dtype *d* of *record* as C lays out its members; None where *d* is like that.

    It serves where `align=True` does not: NumPy aligns complex numbers like their parts, C like the whole.
    """
    return _written(record, "d") if _moves(record) else None


def is_only_padded(record: Struct) -> bool:
    """Return whether *record* is as C lays it out, but for bytes at its end, as of a larger alignment."""
    size, _, offsets = _layout(record, numpy=False)
    return record.size > size and tuple(member.offset for member in record.members) == offsets


def is_aligned_by_numpy(ctype: CType) -> bool:
    """Return whether NumPy, with `align=True`, lays out the records in *ctype* as C does."""
    for record in _records(ctype):
        numpy, c = (_layout(record, numpy=which) for which in (True, False))
        inner = (member.type for member in record.members)
        if (numpy.size, numpy.offsets) != (c.size, c.offsets) or not all(map(is_aligned_by_numpy, inner)):
            return False
    return True


def cure(ctype: CType) -> str:
    """Return what to do about *ctype*, a record or a tuple with records, whose members are not aligned."""
    if is_aligned_by_numpy(ctype):
        inside = any(list(_records(member.type)) for record in _records(ctype) for member in record.members)
        return f"Create the dtype{', and those in it,' if inside else ''} with align=True"
    written = [code for record in _records(ctype) if (code := dtype_like_c(record))]
    return (
        "Replace its dtype d, whose complex numbers C aligns to more bytes than NumPy's align=True, by "
        f"{', '.join(written)}"
    )


def _records(ctype: CType) -> Iterator[Struct]:
    """Yield the records in *ctype*, without those that are in others."""
    if isinstance(ctype, Struct) and ctype.record:
        yield ctype
    elif isinstance(ctype, (Array, Struct)):
        for inner in ctype.inner:
            yield from _records(inner)


def _layout(ctype: CType, *, numpy: bool) -> _Layout:
    """Return how C, or NumPy with `align=True`, lays *ctype* out."""
    if isinstance(ctype, Array):
        size, align, _ = _layout(ctype.element, numpy=numpy)
        return _Layout(size * ctype.count, align)
    if not isinstance(ctype, Struct):
        return _Layout(ctype.size, ctype.natural_align if numpy else ctype.align)
    inner = [_layout(member.type, numpy=numpy) for member in ctype.members]
    end, offsets = 0, []
    for each in inner:
        offsets.append(round_up(end, each.align))
        end = offsets[-1] + each.size
    said = ctype.existing.align if ctype.existing else None
    align = max(said or 1, *(each.align for each in inner))
    return _Layout(round_up(end, align), align, tuple(offsets))


def _moves(ctype: CType) -> bool:
    """Return whether C lays *ctype* out otherwise than it is."""
    if isinstance(ctype, Array):
        return _moves(ctype.element)
    if not isinstance(ctype, Struct) or not ctype.record:
        return False
    offsets = tuple(member.offset for member in ctype.members)
    size, _, wanted = _layout(ctype, numpy=False)
    return (size, wanted) != (ctype.size, offsets) or any(_moves(member.type) for member in ctype.members)


def _written(ctype: CType, path: str) -> str:
    """Return Python code for the dtype *path* of *ctype* as C lays it out."""
    if not _moves(ctype):
        return path
    if isinstance(ctype, Array):
        element = ctype.element
        while isinstance(element, Array):
            element = element.element
        return f"({_written(element, f'{path}.base')}, {path}.shape)"
    assert isinstance(ctype, Struct)  # noqa: S101 - nothing else moves
    size, _, offsets = _layout(ctype, numpy=False)
    names = ", ".join(f'"{member.field}"' for member in ctype.members)
    formats = ", ".join(_written(member.type, f'{path}["{member.field}"]') for member in ctype.members)
    return (
        f'np.dtype({{"names": [{names}], "formats": [{formats}], "offsets": {list(offsets)}, '
        f'"itemsize": {size}}})'
    )
