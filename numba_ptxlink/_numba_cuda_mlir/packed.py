"""
Accesses of packed records, which numba-cuda-mlir takes for aligned ones.

Its dialect for NVVM below sm_100 keeps no alignment of a load or a store. A copy of bytes has none in either
dialect, and LLVM makes of it the accesses that need none.

It is imported once numba-cuda-mlir is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir._mlir import ir
from numba_cuda_mlir._mlir.dialects import llvm
from numba_cuda_mlir._mlir.extras import types as mlir_types
from numba_cuda_mlir.numba_cuda import types

from numba_ptxlink import abi
from numba_ptxlink._cabi.signatures import unaligned_member
from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# The place of the address among an operation's operands.
_ADDRESS = {"llvm.load": 0, "llvm.store": 1}


def is_packed(ty: Any, inside: set[Any]) -> bool:
    """
    Return whether values of the Numba type *ty* lead to memory that may be aligned to bytes alone.

    Args:
        ty: A type.
        inside: The types of records and arrays that lie inside packed records; those inside *ty* are added.
    """
    packed = ty in inside or (isinstance(ty, types.Record) and _lacks_alignment(ty))
    if packed:
        inside.update(_parts(ty))
    return packed


def _lacks_alignment(record: Any) -> bool:
    """Return whether the struct that C++ has for *record* does not align all its members."""
    try:
        return unaligned_member(abi.c_type(record)) is not None
    except AbiError:
        return not record.aligned


def _parts(ty: Any) -> Iterator[Any]:
    """Yield the records and arrays inside of *ty*."""
    members = [ty.typeof(name) for name in ty.fields] if isinstance(ty, types.Record) else [ty.dtype]
    for member in members:
        if isinstance(member, (types.Record, types.NestedArray)):
            yield member
            yield from _parts(member)


def copy_accesses(function: Any, addresses: Collection[Any]) -> None:
    """Let the loads and stores of *function* through *addresses*, and at a distance of them, copy bytes."""
    if not addresses:
        return
    for operation in list(_operations(function.operation)):
        place = _ADDRESS.get(operation.name)
        if place is not None and _leads(operation.operands[place], addresses):
            _copy(function, operation, place)


def _operations(operation: Any) -> Iterator[Any]:
    """Yield the operations inside of *operation*."""
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _operations(inner.operation)


def _leads(address: Any, addresses: Collection[Any]) -> bool:
    """Return whether *address* is one of *addresses*, or at a distance of one."""
    while address not in addresses:
        if isinstance(address, ir.BlockArgument) or address.owner.operation.name != "llvm.getelementptr":
            return False
        address = address.owner.operation.operands[0]
    return True


def _copy(function: Any, operation: Any, place: int) -> None:
    """Let *operation* access a variable of the *function*, of which it copies bytes."""
    kind = operation.results[0].type if place == 0 else operation.operands[0].type
    size = _size(kind)
    if size == 1:
        return
    address, pointer = operation.operands[place], llvm.PointerType.get()
    with operation.location:
        with ir.InsertionPoint.at_block_begin(function.body.blocks[0]):
            one = llvm.mlir_constant(ir.IntegerAttr.get(mlir_types.i64(), 1))
            slot = llvm.alloca(pointer, one, kind)
            length = llvm.mlir_constant(ir.IntegerAttr.get(mlir_types.i64(), size))
        if place == 0:
            with ir.InsertionPoint(operation):
                llvm.intr_memcpy(slot, address, length, False)
        else:
            with ir.InsertionPoint.after(operation):
                llvm.intr_memcpy(address, slot, length, False)
    operation.operands[place] = slot


def _size(kind: Any) -> int:
    """Return the size in bytes of a scalar, or of a struct of equal scalars."""
    if isinstance(kind, llvm.StructType):
        return sum(map(_size, kind.body))
    if isinstance(kind, llvm.PointerType):
        return 8
    return int(kind.width) // 8
