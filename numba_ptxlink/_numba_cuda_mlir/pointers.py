"""
Records, tuples and vectors behind pointers, and pointers that are moved.

numba-cuda-mlir takes a record behind a pointer for the address of one, has no tuples there, lays vectors of
three out as if they were of four, and moves pointers to vectors and pointers by another distance.

It is imported once numba-cuda-mlir is.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir._mlir.dialects import arith, llvm, vector
from numba_cuda_mlir._mlir.extras import types as mlir_types
from numba_cuda_mlir.lowering_utilities import convert
from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.type_defs.vector_types import VectorType

from numba_ptxlink import abi

if TYPE_CHECKING:
    from collections.abc import Callable

# In place of an index that is not constant, as LLVM's dialect of MLIR has it.
_DYNAMIC = -(1 << 31)


def builder(fn: Any, args: Any) -> Callable[..., None] | None:
    """Return what lowers *fn* of the types *args* where the first is a pointer; None for what is stock."""
    if not args or not isinstance(args[0], types.CPointer):
        return None
    target = args[0].dtype
    if isinstance(target, types.Record):
        if fn is operator.getitem:
            return _read_record
        if fn is operator.setitem and isinstance(args[2], types.Record):
            return _write_record
    elif isinstance(target, types.BaseTuple) or (isinstance(target, VectorType) and target.length == 3):
        return _ACCESSES.get(fn) or _MOVES.get(fn)
    elif isinstance(target, (VectorType, types.CPointer)):
        return _MOVES.get(fn)
    return None


def _address(lower: Any, pointer: Any, index: Any, sign: int = 1) -> Any:
    """Return the address of an element behind *pointer*, or before it where *sign* is -1."""
    ty = lower.get_numba_type(pointer.name).dtype
    size = (ty.size if isinstance(ty, types.Record) else abi.c_type(ty).size) * sign
    if isinstance(index, int):
        number = arith.constant(result=mlir_types.i64(), value=index)
    else:
        signed = getattr(lower.get_numba_type(index.name), "signed", True)
        number = convert(lower.load_var(index), mlir_types.i64(), signed=signed)
    offset = arith.muli(number, arith.constant(result=mlir_types.i64(), value=size))
    return _moved(lower.load_var(pointer), [offset], [_DYNAMIC])


def _moved(address: Any, offsets: list[Any], constants: list[int]) -> Any:
    """Return *address* so many bytes on."""
    return llvm.getelementptr(llvm.PointerType.get(), address, offsets, constants, mlir_types.i8(), None)


def _read_record(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    lower.store_var(target, _address(lower, *args))


def _write_record(lower: Any, _target: Any, args: Any, _kws: Any) -> None:
    pointer, index, value = args
    copy_record(lower, lower.get_numba_type(pointer.name).dtype, _address(lower, pointer, index), value)


def copy_record(lower: Any, record: Any, address: Any, value: Any) -> None:
    """Write the variable *value*, of the type *record*, to *address*."""
    size = arith.constant(result=mlir_types.i64(), value=record.size)
    llvm.intr_memcpy(address, lower.load_var(value), size, False)


def _move(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    lower.store_var(target, _address(lower, *args))


def _move_back(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    pointer, count = args
    lower.store_var(target, _address(lower, pointer, count, sign=-1))


def _read(lower: Any, target: Any, args: Any, _kws: Any) -> None:
    ty = lower.get_numba_type(args[0].name).dtype
    lower.store_var(target, _loaded(lower, ty, abi.c_type(ty), _address(lower, *args)))


def _write(lower: Any, _target: Any, args: Any, _kws: Any) -> None:
    pointer, index, given = args
    ty, have = lower.get_numba_type(pointer.name).dtype, lower.get_numba_type(given.name)
    value = lower.load_var(given)
    value = value if have == ty else lower.lower_cast(have, ty, value)
    _store(lower, ty, abi.c_type(ty), _address(lower, pointer, index), value)


def _loaded(lower: Any, ty: Any, ctype: Any, address: Any) -> Any:
    """Return the value at *address*, as it is in registers: a tuple for a tuple."""
    if isinstance(ty, types.BaseTuple):
        return tuple(
            _loaded(lower, part, member.type, _moved(address, [], [member.offset]))
            for part, member in zip(ty.types, ctype.members, strict=True)
        )
    if isinstance(ty, VectorType):
        size = ctype.size // ty.length
        parts = [_loaded(lower, ty.dtype, None, _moved(address, [], [size * at])) for at in range(ty.length)]
        return vector.from_elements(lower.get_mlir_type(ty), parts)
    return lower.from_storage(ty, llvm.load(lower.get_storage_type(ty), address))


def _store(lower: Any, ty: Any, ctype: Any, address: Any, value: Any) -> None:
    if isinstance(ty, types.BaseTuple):
        for part, member, each in zip(ty.types, ctype.members, value, strict=True):
            _store(lower, part, member.type, _moved(address, [], [member.offset]), each)
        return
    if isinstance(ty, VectorType):
        for at in range(ty.length):
            place = _moved(address, [], [ctype.size // ty.length * at])
            _store(lower, ty.dtype, None, place, vector.extract(value, [], [at]))
        return
    value = convert(value, lower.get_mlir_type(ty))
    llvm.store(lower.as_storage(ty, value), address)


_Builders = dict[Any, "Callable[..., None]"]
_MOVES: _Builders = {
    operator.add: _move,
    operator.iadd: _move,
    operator.sub: _move_back,
    operator.isub: _move_back,
}
_ACCESSES: _Builders = {operator.getitem: _read, operator.setitem: _write}
