"""
Numbers as Numba types them: numba-cuda-mlir computes and stores some in the width and sign of the operands.

Its integers have no sign once they are values. An operation whose operands have the types that it needs does
what Numba says, so they are converted while their types are known.

It is imported once numba-cuda-mlir is.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import math
import operator
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir._mlir.dialects import arith
from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.numba_cuda.core import ir as numba_ir

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

_NUMBERS = (types.Integer, types.Float)
_COMPARISONS = {operator.lt, operator.le, operator.gt, operator.ge, operator.eq}
_POWERS = {operator.pow, operator.ipow, pow}
# Of unsigned integers, signed ones and floats.
_EXTREMES = {
    max: (arith.maxui, arith.maxsi, arith.maxnumf),
    min: (arith.minui, arith.minsi, arith.minnumf),
}
_BITS = {operator.and_, operator.or_, operator.xor, operator.iand, operator.ior, operator.ixor}
_ARITHMETIC = {operator.neg, range, *_BITS, *_COMPARISONS, *_POWERS, *_EXTREMES}
_MOVES = {operator.add, operator.iadd, operator.sub, operator.isub}
_ACCESSES = {operator.getitem, operator.setitem}
# The functions of `math` that take integers for what they are.
_OF_INTEGERS = {math.floor, math.ceil, math.trunc, math.ldexp, math.gcd}


def builder(fn: Any, args: Sequence[Any]) -> Callable[..., None] | None:
    """Return what lowers *fn* of the types *args* with operands of other types; None for what needs none."""
    operands = None
    if any(isinstance(arg, types.IntEnumMember) for arg in args) and _is_operator(fn):
        return functools.partial(_of_integers, fn)
    if isinstance(args[0], types.CPointer):
        operands = _of_pointer if fn in _MOVES | _ACCESSES else None
    elif isinstance(args[0], types.Array):
        operands = _of_array if fn in _ACCESSES else None
    elif isinstance(args[0], types.Record):
        operands = _of_record if fn is operator.setitem else None
    elif all(isinstance(arg, (*_NUMBERS, types.Boolean) if fn in _BITS else _NUMBERS) for arg in args) and (
        fn in _ARITHMETIC or (_is_of_math(fn) and fn not in _OF_INTEGERS)
    ):
        operands = functools.partial(_of_numbers, fn)
    return operands and functools.partial(_converted, fn, operands)


def operand_types(fn: Any, args: Sequence[Any]) -> Sequence[Any]:
    """
    Return the types of operands by which a call or operation *fn* of *args* is typed.

    numba-cuda-mlir types `math.sqrt` of an int32 as an int32, `math.pow` as its first number, and `&` of a
    uint8 and an int8 as an int8, none of which holds the result.
    """
    fn, plain = getattr(fn, "typing_key", fn), [types.unliteral(arg) for arg in args]
    if _is_of_math(fn) and fn not in _OF_INTEGERS:
        numbers = all(isinstance(ty, _NUMBERS) for ty in plain)
        convert = numbers and (len({*plain}) > 1 or any(map(_is_whole, plain)))
        return [types.float64] * len(args) if convert else args
    if not plain or not all(map(_is_whole, plain)):
        return args
    signs = {isinstance(ty, types.Boolean) or ty.signed for ty in plain}
    mixed = len(signs) > 1 and types.uint64 not in plain
    return [types.int64] * len(args) if mixed and any(fn is each for each in _BITS) else args


@contextlib.contextmanager
def of_member(lower: Any, inst: Any) -> Iterator[Any]:
    """Give the statement *inst*, `record.member = number`, with the number as the member's type."""
    record, have = lower.get_numba_type(inst.target.name), lower.get_numba_type(inst.value.name)
    known = isinstance(record, types.Record) and inst.attr in record.fields
    wanted = _stored(have, record.typeof(inst.attr)) if known else have
    with _as(lower, [inst.value], [have], [wanted]) as (value,):
        converted = copy.copy(inst)
        converted.value = value
        yield converted


@contextlib.contextmanager
def variables(lower: Any, like: Any, values: Mapping[int, tuple[Any, Any]]) -> Iterator[dict[int, Any]]:
    """Give variables of types and *values*, in the scope of the variable *like*."""
    kinds, varmap = lower.fndesc.typemap, lower.varmap
    made = {at: numba_ir.Var(like.scope, f"{like.name}.converted.{at}", like.loc) for at in values}
    for at, (ty, value) in values.items():
        kinds[made[at].name], varmap[made[at].name] = ty, value
    try:
        yield made
    finally:
        for var in made.values():
            del kinds[var.name], varmap[var.name]


def _converted(fn: Any, operands: Any, lower: Any, target: Any, args: Any, kws: Any) -> None:  # noqa: PLR0917 - as builders are called
    """Lower *fn* with operands of the types that *operands* returns."""
    result = types.none if target is None else lower.get_numba_type(target.name)
    have = [types.int64 if isinstance(arg, int) else lower.get_numba_type(arg.name) for arg in args]
    wanted = operands(result, have)
    with _as(lower, args, have, wanted) as given:
        if fn in _EXTREMES:
            unsigned, signed, floating = _EXTREMES[fn]
            choose = floating if isinstance(result, types.Float) else signed if result.signed else unsigned
            lower.store_var(target, functools.reduce(choose, lower.load_vars(given)))
        else:
            lower.builder_of(fn, result(*wanted))(lower, target, given, kws)


def _of_integers(fn: Any, lower: Any, target: Any, args: Any, kws: Any) -> None:
    """Lower *fn* with the integers that members of an IntEnum are."""
    result, have = lower.get_numba_type(target.name), [lower.get_numba_type(arg.name) for arg in args]
    wanted = [ty.dtype if isinstance(ty, types.IntEnumMember) else ty for ty in have]
    with _as(lower, args, have, wanted) as given:
        lower.get_registered_builder(fn, result(*wanted))(lower, target, given, kws)


@contextlib.contextmanager
def _as(lower: Any, args: Sequence[Any], have: Sequence[Any], wanted: Sequence[Any]) -> Iterator[list[Any]]:
    """Give *args*, with others in place of those variables whose type is not the wanted one."""
    values = {
        at: (new, lower.lower_cast(old, new, lower.load_var(args[at])))
        for at, (old, new) in enumerate(zip(have, wanted, strict=True))
        if old != new
    }
    with variables(lower, args[0], values) as made:
        yield [made.get(at, arg) for at, arg in enumerate(args)]


def _of_numbers(fn: Any, result: Any, have: Sequence[Any]) -> list[Any]:
    if fn in _COMPARISONS:
        mixed = any(isinstance(ty, types.Float) for ty in have)
        return [types.float64 if mixed and isinstance(ty, types.Integer) else ty for ty in have]
    if fn is range:
        return [ty if ty.signed or ty.bitwidth == types.int64.bitwidth else types.int64 for ty in have]
    if fn in _POWERS and isinstance(have[0], types.Float):
        return [*have]
    if isinstance(result, types.Float) or fn in _ARITHMETIC:
        return [ty if isinstance(ty, types.Float) and fn not in _EXTREMES else result for ty in have]
    return [*have]


def _of_pointer(_result: Any, have: Sequence[Any]) -> list[Any]:
    pointer, index, *values = have
    return [pointer, _index(index), *(_stored(ty, pointer.dtype) for ty in values)]


def _of_array(_result: Any, have: Sequence[Any]) -> list[Any]:
    array, index, *values = have
    return [array, _index(index), *(_stored(ty, array.dtype) for ty in values)]


def _of_record(_result: Any, have: Sequence[Any]) -> list[Any]:
    record, member, value = have
    return [record, member, _stored(value, record.typeof(member.literal_value))]


def _index(ty: Any) -> Any:
    """Return the type to count with in place of *ty*, an index or a tuple of them."""
    if isinstance(ty, types.BaseTuple):
        return types.Tuple([_index(part) for part in ty.types])
    narrow = isinstance(ty, types.Integer) and not isinstance(ty, types.Literal)
    return types.int64 if narrow and ty.bitwidth < types.int64.bitwidth else ty


def _stored(ty: Any, place: Any) -> Any:
    """Return the type to store a value of the type *ty* as where a *place* is."""
    return place if isinstance(ty, _NUMBERS) and isinstance(place, _NUMBERS) else ty


def _is_operator(fn: Any) -> bool:
    return getattr(operator, getattr(fn, "__name__", ""), None) is fn and fn not in (
        operator.is_,
        operator.is_not,
    )


def _is_whole(ty: Any) -> bool:
    return isinstance(ty, (types.Integer, types.Boolean))


def _is_of_math(fn: Any) -> bool:
    return getattr(fn, "__module__", "") == "math"
