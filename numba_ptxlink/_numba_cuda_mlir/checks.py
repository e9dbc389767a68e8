"""
Check divisions and indices where an export asks for it: numba-cuda-mlir has no such checks.

It is imported once numba-cuda-mlir is.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir._mlir.dialects import arith, memref
from numba_cuda_mlir._mlir.dialects import complex as complexes
from numba_cuda_mlir._mlir.extras import types as mlir_types
from numba_cuda_mlir.lowering_utilities import convert, index_of
from numba_cuda_mlir.mlir.dialect_exts import scf
from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.numba_cuda.core import ir as numba_ir

if TYPE_CHECKING:
    from collections.abc import Iterator
    from collections.abc import Set as AbstractSet

_DIVISIONS = frozenset(
    {
        *(operator.truediv, operator.floordiv, operator.mod),
        *(operator.itruediv, operator.ifloordiv, operator.imod),
        divmod,
    }
)
_POWERS = frozenset({operator.pow, operator.ipow, pow})
_NUMBERS = (types.Integer, types.Float, types.Complex, types.Boolean, type(types.bfloat16))
_WITHOUT_AN_AXIS = (types.NoneType, types.EllipsisType)


def check(lower: Any, inst: Any) -> None:
    """Emit the checks of the Numba IR instruction *inst*, before it is lowered."""
    if isinstance(inst, (numba_ir.SetItem, numba_ir.StaticSetItem)):
        _check_index(lower, inst.target, getattr(inst, "index_var", None) or inst.index)
    value = getattr(inst, "value", None)
    if not isinstance(inst, numba_ir.Assign) or not isinstance(value, numba_ir.Expr):
        return
    if value.op in ("binop", "inplace_binop"):
        _check_operation(lower, {value.fn}, value.lhs, value.rhs)
    elif value.op == "call":
        callee = lower.fndesc.typemap.get(value.func.name)
        keys = {getattr(callee, "typing_key", None)} if isinstance(callee, types.Function) else set()
        if len(value.args) == 2:
            _check_operation(lower, keys, *value.args)
    elif value.op in ("getitem", "static_getitem", "typed_getitem"):
        index = getattr(value, "index_var", None) if value.op == "static_getitem" else value.index
        _check_index(lower, value.value, value.index if index is None else index)


def _check_operation(lower: Any, keys: AbstractSet[Any], left: Any, right: Any) -> None:
    """Check the operation of one of *keys*: no divisor is zero, nor is zero to a negative power computed."""
    kinds = [lower.get_numba_type(each.name) for each in (left, right)]
    if not all(isinstance(kind, _NUMBERS) for kind in kinds):
        return
    if keys & _DIVISIONS:
        error_if(lower, _is_zero(lower.lower_literal_if_needed(lower.load_var(right))))
    # Those of integers are compiled from Python, where a division is checked.
    if keys & _POWERS and isinstance(kinds[1], types.Integer) and not isinstance(kinds[0], types.Integer):
        base, exponent = (lower.lower_literal_if_needed(lower.load_var(each)) for each in (left, right))
        error_if(lower, arith.andi(_is_zero(base), _is_negative(exponent, signed=kinds[1].signed)))


def _is_negative(value: Any, *, signed: bool) -> Any:
    if isinstance(value, int) or not signed:
        return arith.constant(mlir_types.bool(), isinstance(value, int) and value < 0)
    return arith.cmpi(arith.CmpIPredicate.slt, value, arith.constant(value.type, 0))


def _is_zero(value: Any) -> Any:
    if isinstance(value, (bool, int, float, complex)):
        return arith.constant(mlir_types.bool(), not value)
    kind = str(value.type)
    if kind.startswith("complex"):
        parts = (complexes.re(value), complexes.im(value))
        return arith.andi(*map(_is_zero, parts))
    zero = arith.constant(value.type, 0 if kind.startswith("i") else 0.0)
    if kind.startswith("i"):
        return arith.cmpi(arith.CmpIPredicate.eq, value, zero)
    return arith.cmpf(arith.CmpFPredicate.OEQ, value, zero)


def _check_index(lower: Any, array: Any, index: Any) -> None:
    ty = lower.get_numba_type(array.name)
    if not isinstance(ty, types.Array):
        return
    for axis, number, signed in _numbers(lower, index, ty.ndim):
        extent = _extent(lower, array, ty, axis)
        place = number
        if signed:
            zero = arith.constant(mlir_types.i64(), 0)
            negative = arith.cmpi(arith.CmpIPredicate.slt, number, zero)
            place = arith.select(negative, arith.addi(number, extent), number)
        error_if(lower, arith.cmpi(arith.CmpIPredicate.uge, place, extent))


def _numbers(lower: Any, index: Any, ndim: int) -> Iterator[tuple[int, Any, bool]]:
    """Yield the integers in *index*: axis, 64-bit value, and whether it can be negative."""
    if isinstance(index, int):
        yield 0, arith.constant(mlir_types.i64(), index), True
        return
    if not isinstance(index, numba_ir.Var):
        return
    ty, value = lower.get_numba_type(index.name), lower.load_var(index)
    parts = list(ty.types) if isinstance(ty, types.BaseTuple) else [ty]
    values = list(value) if isinstance(ty, types.BaseTuple) else [value]
    axis, axes = 0, sum(not isinstance(part, _WITHOUT_AN_AXIS) for part in parts)
    for part, each in zip(parts, values, strict=True):
        if isinstance(part, types.EllipsisType):
            axis += ndim - axes
        elif isinstance(part, types.Integer):
            number = arith.constant(mlir_types.i64(), int(each)) if isinstance(each, int) else each
            yield axis, convert(number, mlir_types.i64(), signed=part.signed), part.signed
        axis += not isinstance(part, _WITHOUT_AN_AXIS)


def _extent(lower: Any, array: Any, ty: Any, axis: int) -> Any:
    if isinstance(ty, types.NestedArray):
        return arith.constant(mlir_types.i64(), ty.shape[axis])
    return convert(memref.dim(lower.load_var(array), index_of(axis)), mlir_types.i64())


def error_if(lower: Any, condition: Any) -> None:
    """Emit an error of the current line where *condition* holds."""
    with scf.if_ctx_manager(condition):
        lower.error()
        scf.yield_([])
