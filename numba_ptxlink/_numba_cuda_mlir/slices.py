"""
Slices of arrays with Python's bounds: numba-cuda-mlir's neither count from the end nor stop at it.

It is imported once numba-cuda-mlir is.
"""

from __future__ import annotations

import functools
import operator
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir._mlir import ir
from numba_cuda_mlir._mlir.dialects import arith, memref
from numba_cuda_mlir._mlir.extras import types as mlir_types
from numba_cuda_mlir.lowering.numpy import Slice
from numba_cuda_mlir.lowering_utilities import (
    array_element_value_store,
    convert,
    index_of,
    llvm_ptr_add_bytes,
    memref_data_pointer,
)
from numba_cuda_mlir.mlir.dialect_exts import scf
from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.numba_cuda.core import ir as numba_ir

from numba_ptxlink.errors import ExportError

from .checks import error_if
from .pointers import copy_record

if TYPE_CHECKING:
    from collections.abc import Callable

_LESS = arith.CmpIPredicate.slt


class _Slice(Slice):  # type: ignore[misc]
    """A slice that knows what was left out; numba-cuda-mlir's own has a start of 0 then."""

    def __init__(self, start: Any, stop: Any, step: Any = None) -> None:
        super().__init__(start, stop, step)
        self.given = (start, stop, step)


def make(lower: Any, target: Any, args: Any) -> None:
    """Lower a call of `slice`, with two or three *args*."""
    given = []
    for arg in args:
        value, ty = lower.load_var(arg), lower.get_numba_type(arg.name)
        given.append(None if isinstance(ty, types.NoneType) else _index(value, ty))
    lower.store_var(target, _Slice(*given))


def builder(lower: Any, fn: Any, signature: Any) -> Callable[..., None] | None:
    """
    Return what lowers *fn* of *signature* where the first parameter is an array; None for what is stock.

    Raises:
        ExportError: It is a slice that has no code here.
    """
    args = getattr(signature, "args", signature)
    if fn not in (operator.getitem, operator.setitem) or not isinstance(args[0], types.Array):
        return None
    array, index = args[:2]
    parts = index.types if isinstance(index, types.BaseTuple) else (index,)
    slices = [part for part in parts if isinstance(part, types.SliceType)]
    if fn is operator.setitem and isinstance(args[2], types.Array):
        raise ExportError(
            "neither numba-cuda-mlir nor numba-cuda copies one array into another; write a loop over "
            "its elements"
        )
    nested, records = isinstance(array, types.NestedArray), isinstance(array.dtype, types.Record)
    if not slices:
        numbers = all(isinstance(part, types.Integer) for part in parts)
        if numbers and (nested or records) and array.ndim > 1:
            return _of_several(fn, array, parts, lower.stock_builder(fn, signature) if nested else None)
        stock = lower.stock_builder(fn, signature) if numbers and (nested or records) else None
        return stock and functools.partial(_counted_from_the_end, stock)
    strided = len(parts) > 1 or slices[0].has_step
    if nested or (records and (strided or fn is operator.setitem)):
        what = (
            "array members of records"
            if nested
            else "arrays of records with a step, in a tuple, or written to"
        )
        raise ExportError(
            f"numba-cuda-mlir has no slices of {what}; add to the index instead, "
            'or choose front_end="numba-cuda"'
        )
    if fn is operator.getitem:
        return _read
    if isinstance(args[2], types.BaseTuple):
        raise ExportError(
            "numba-cuda-mlir writes no tuple into a part of an array; write each element, or choose "
            'front_end="numba-cuda"'
        )
    return _fill


def _of_several(fn: Any, array: Any, parts: Any, stock: Any) -> Callable[..., None] | None:
    """Return what lowers *fn* of an *array* of several dimensions, of records or in one."""
    whole = len(parts) == array.ndim
    if stock is not None and whole:
        return functools.partial(_counted_from_the_end, stock)
    if not whole or array.layout != "C":
        what = "rows of arrays of records, or in records" if not whole else "arrays of records with strides"
        raise ExportError(
            f"numba-cuda-mlir has no {what}; give an index for each dimension at once, a[i, j] for a[i][j], "
            'or choose front_end="numba-cuda"'
        )
    return _read_record if fn is operator.getitem else _write_record


def _record(lower: Any, array: Any, index: Any) -> Any:
    """Return the address of an element of *array*, whose records are in C order."""
    source, place = lower.load_var(array), index_of(0)
    for axis, (part, value) in enumerate(zip(*_parts(lower, index), strict=True)):
        length = memref.dim(source, index_of(axis))
        place = arith.addi(arith.muli(place, length), _place(_index(value, part), length, part))
    size = index_of(lower.get_numba_type(array.name).dtype.size)
    return llvm_ptr_add_bytes(memref_data_pointer(source), arith.muli(place, size))


def _read_record(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    lower.store_var(target, _record(lower, *args))


def _write_record(lower: Any, _target: Any, args: Any, _kws: Any) -> None:
    array, index, value = args
    copy_record(lower, lower.get_numba_type(array.name).dtype, _record(lower, array, index), value)


def _counted_from_the_end(stock: Any, lower: Any, target: Any, args: Any, kws: Any) -> None:
    """Lower by *stock*, whose index never counts from the end, with one that does not have to."""
    array, index, *others = args
    ty, source = lower.get_numba_type(array.name), lower.load_var(array)
    places = []
    for axis, (part, value) in enumerate(zip(*_parts(lower, index), strict=True)):
        length = ty.shape[axis] if isinstance(ty, types.NestedArray) else memref.dim(source, index_of(axis))
        places.append(convert(_place(_index(value, part), index_of(length), part), mlir_types.i64()))
    if isinstance(index, int):
        given = numba_ir.Var(array.scope, f"{array.name}.at.{index}", array.loc)
    else:
        given = numba_ir.Var(index.scope, f"{index.name}.of.{array.name}", index.loc)
    in_tuple = not isinstance(index, int) and isinstance(lower.get_numba_type(index.name), types.BaseTuple)
    kinds, varmap = lower.fndesc.typemap, lower.varmap
    kinds[given.name] = types.UniTuple(types.int64, len(places)) if in_tuple else types.int64
    varmap[given.name] = tuple(places) if in_tuple else places[0]
    try:
        stock(lower, target, [array, given, *others], kws)
    finally:
        del kinds[given.name], varmap[given.name]


def _parts(lower: Any, index: Any) -> tuple[list[Any], list[Any]]:
    """Return the types of the parts of an index, and their values."""
    if isinstance(index, int):
        return [types.int64], [index]
    ty, value = lower.get_numba_type(index.name), lower.load_var(index)
    return (list(ty.types), list(value)) if isinstance(ty, types.BaseTuple) else ([ty], [value])


def _read(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    lower.store_var(target, _view(lower, *args))


def _fill(lower: Any, _target: Any, args: Any, _kws: Any) -> None:
    array, index, given = args
    view, ty = _view(lower, array, index), lower.get_numba_type(array.name)
    value, signed = lower.load_var(given), getattr(lower.get_numba_type(given.name), "signed", True)
    rank = view.type.rank

    @scf.forall_([0] * rank, [memref.dim(view, index_of(axis)) for axis in range(rank)], [1] * rank)  # type: ignore[untyped-decorator]
    def _(*indices: Any) -> None:
        array_element_value_store(ty, view, list(indices), value, signed=signed)


def _view(lower: Any, array: Any, index: Any) -> Any:
    """Return the part of *array* that *index* stands for."""
    source, (parts, values) = lower.load_var(array), _parts(lower, index)
    rank = source.type.rank
    _, offset, *extents = memref.extract_strided_metadata(source)
    lengths, distances = extents[:rank], extents[rank:]
    sizes, strides = [], []
    for axis, (part, value) in enumerate(zip(parts, values, strict=True)):
        if isinstance(part, types.SliceType):
            first, size, step = _normalised(lower, value, lengths[axis])
            sizes.append(size)
            strides.append(arith.muli(distances[axis], step))
        else:
            first = _place(_index(value, part), lengths[axis], part)
        offset = arith.addi(offset, arith.muli(first, distances[axis]))
    sizes += lengths[len(parts) :]
    strides += distances[len(parts) :]
    dynamic, unknown = ir.ShapedType.get_dynamic_size(), ir.ShapedType.get_dynamic_stride_or_offset()
    kept = len(sizes)
    kind = ir.MemRefType.get(
        shape=[dynamic] * kept,
        element_type=source.type.element_type,
        layout=ir.StridedLayoutAttr.get(unknown, [unknown] * kept),
        memory_space=source.type.memory_space,
    )
    places = {
        "static_offsets": [unknown],
        "static_sizes": [dynamic] * kept,
        "static_strides": [unknown] * kept,
    }
    return memref.reinterpret_cast(kind, source, offsets=[offset], sizes=sizes, strides=strides, **places)


def _normalised(lower: Any, value: Any, length: Any) -> tuple[Any, Any, Any]:
    """Return the first index, number and distance of a slice's elements, as `slice.indices` does."""
    given = value if isinstance(value, slice) else slice(*value.given)
    start, stop, step = (_index(each) for each in (given.start, given.stop, given.step))
    zero, one = index_of(0), index_of(1)
    if step is None:
        first = zero if start is None else _bounded(start, length, zero, length)
        last = length if stop is None else _bounded(stop, length, zero, length)
        return first, arith.maxsi(arith.subi(last, first), zero), one
    error_if(lower, arith.cmpi(arith.CmpIPredicate.eq, step, zero))
    back = arith.cmpi(_LESS, step, zero)
    low = arith.select(back, index_of(-1), zero)
    high = arith.select(back, arith.subi(length, one), length)
    first = arith.select(back, high, low) if start is None else _bounded(start, length, low, high)
    last = arith.select(back, low, high) if stop is None else _bounded(stop, length, low, high)
    span = arith.select(back, arith.subi(first, last), arith.subi(last, first))
    stride = arith.select(back, arith.subi(zero, step), step)
    count = arith.addi(arith.divui(arith.subi(span, one), stride), one)
    return first, arith.select(arith.cmpi(_LESS, zero, span), count, zero), step


def _bounded(number: Any, length: Any, low: Any, high: Any) -> Any:
    return arith.minsi(arith.maxsi(_place(number, length), low), high)


def _place(number: Any, length: Any, ty: Any = None) -> Any:
    """Return the place of an index of the type *ty*, which counts from the end where it is negative."""
    if not getattr(ty, "signed", True):
        return number
    return arith.select(arith.cmpi(_LESS, number, index_of(0)), arith.addi(number, length), number)


def _index(value: Any, ty: Any = None) -> Any:
    """Return *value* of the type *ty* as a value of MLIR that counts elements; None for None."""
    if value is None:
        return None
    if isinstance(value, int):
        return index_of(value)
    if value.type == mlir_types.index():
        return value
    return index_of(convert(value, mlir_types.i64(), signed=getattr(ty, "signed", True)))
