"""
Operations that numba-cuda-mlir computes otherwise than Python.

It is imported once numba-cuda-mlir is.
"""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir._mlir.dialects import arith, memref
from numba_cuda_mlir._mlir.dialects import math as math_dialect
from numba_cuda_mlir._mlir.extras import types as mlir_types
from numba_cuda_mlir.lowering_utilities import convert, index_of
from numba_cuda_mlir.numba_cuda import types

from .numbers import variables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_FLOATS = (types.Float, type(types.bfloat16))
_NUMBERS = (types.Integer, *_FLOATS)
_ROUNDED = {math.floor, math.ceil, math.trunc}


def builder(fn: Any, args: Sequence[Any]) -> Callable[..., None] | None:
    """Return what lowers *fn* of the types *args*; None for what numba-cuda-mlir computes as Python does."""
    first = args[0]
    if isinstance(first, types.BaseTuple):
        integer = len(args) > 1 and isinstance(args[1], types.Integer)
        return {operator.contains: _contains, operator.getitem: _member if integer else None}.get(fn)
    if isinstance(first, types.Array):
        return _length if fn is len else None
    if len(args) == 1 and isinstance(first, _NUMBERS):
        floats = isinstance(first, _FLOATS)
        of_one = {round: _round, operator.not_: _not if floats else None, operator.invert: _invert}
        return _cast if fn in _ROUNDED and not floats else of_one.get(fn)
    numbers = all(isinstance(arg, _NUMBERS) for arg in args)
    floats = any(isinstance(arg, _FLOATS) for arg in args)
    return _unequal if fn is operator.ne and numbers and floats else None


def _member(lower: Any, target: Any, args: Any, kws: Any) -> None:
    """Store the member of a tuple by an index that may count from the end."""
    members, index = args
    have = lower.get_numba_type(members.name)
    ty = types.int64 if isinstance(index, int) else lower.get_numba_type(index.name)
    values = {}
    if not isinstance(index, int) and not isinstance(ty, types.Literal):
        number = lower.lower_cast(ty, types.int64, lower.load_var(index))
        zero, count = (arith.constant(mlir_types.i64(), value) for value in (0, len(have)))
        negative = arith.cmpi(arith.CmpIPredicate.slt, number, zero)
        place = arith.select(negative, arith.addi(number, count), number) if ty.signed else number
        values, ty = {0: (types.int64, place)}, types.int64
    plain = lower.builder_of(operator.getitem, lower.get_numba_type(target.name)(have, ty))
    with variables(lower, members, values) as made:
        plain(lower, target, [members, made.get(0, index)], kws)


def _contains(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    """Store whether a tuple has a number; numba-cuda-mlir asks for memory to look among floats."""
    members, sought = (lower.get_numba_type(arg.name) for arg in args)
    found = arith.constant(mlir_types.bool(), value=False)
    for ty, member in zip(members.types, lower.load_var(args[0]), strict=True):
        equal = lower.get_registered_builder(operator.eq, types.boolean(ty, sought))
        with variables(lower, args[0], {0: (types.boolean, None), 1: (ty, member)}) as made:
            del lower.varmap[made[0].name]
            equal(lower, made[0], [made[1], args[1]], [])
            found = arith.ori(found, lower.load_var(made[0]))
    lower.store_var(target, found)


def _length(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    """Store the length of an array's first axis."""
    ty, wanted = (lower.get_numba_type(each.name) for each in (*args, target))
    if isinstance(ty, types.NestedArray):
        length = arith.constant(mlir_types.i64(), ty.shape[0])
    else:
        length = convert(memref.dim(lower.load_var(*args), index_of(0)), mlir_types.i64())
    lower.store_var(target, lower.lower_cast(types.int64, wanted, length))


def _unequal(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    """Store whether two numbers differ: NaN differs from all, itself included."""
    have = [lower.get_numba_type(arg.name) for arg in args]
    wider = types.float32 if {*have} <= {types.float32, types.float16, types.bfloat16} else types.float64
    values = [
        lower.lower_cast(ty, wider, value) for ty, value in zip(have, lower.load_vars(args), strict=True)
    ]
    lower.store_var(target, arith.cmpf(arith.CmpFPredicate.UNE, *values))


def _not(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    """Store whether a float is zero, which NaN is not."""
    value = lower.load_var(*args)
    zero = arith.constant(value.type, 0.0)
    lower.store_var(target, arith.cmpf(arith.CmpFPredicate.OEQ, value, zero))


def _invert(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    """Store the complement of an integer in its own bits: of the `uint8` 5 it is 250."""
    have, wanted = (lower.get_numba_type(each.name) for each in (*args, target))
    value = lower.load_var(*args)
    inverted = arith.xori(value, arith.constant(value.type, -1))
    lower.store_var(target, lower.lower_cast(have, wanted, inverted))


def _cast(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    """Store a number as one of another type."""
    have, wanted = (lower.get_numba_type(each.name) for each in (*args, target))
    lower.store_var(target, lower.lower_cast(have, wanted, lower.load_var(*args)))


def _round(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    """Store the nearest integer, and the even one of two that are as near."""
    have, wanted = (lower.get_numba_type(each.name) for each in (*args, target))
    value = lower.load_var(*args)
    rounded = math_dialect.roundeven(value) if isinstance(have, types.Float) else value
    lower.store_var(target, lower.lower_cast(have, wanted, rounded))
