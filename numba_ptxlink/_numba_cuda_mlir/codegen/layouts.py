"""Refuse types whose values numba-cuda-mlir reads in another way than C++ lays them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.type_defs.vector_types import VectorType

from numba_ptxlink import abi
from numba_ptxlink._cabi.signatures import unaligned_member
from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._cabi.signatures import Signature


def check(signature: Signature, args: Sequence[Any], result: Any) -> None:
    """
    Check the Numba types *args* and *result* of the function of *signature*.

    Raises:
        AbiError: Values of one would be misread. Names the function, the parameter and the type.
    """
    labeled = [(f"parameter {name!r}", ty) for (name, _), ty in zip(signature.params, args, strict=True)]
    for where, ty in (*labeled, ("the return value", result)):
        reason = _misread(ty)
        if reason is not None:
            raise AbiError(
                f"Function {signature.name}: {where}, of Numba type {ty}, {reason}, or choose "
                'front_end="numba-cuda".'
            )


def _misread(ty: Any) -> str | None:
    """Return why values of the Numba type *ty* would be misread, with the cure; None if they are not."""
    reason = None
    if isinstance(ty, types.BaseTuple):
        reason = next(filter(None, map(_misread, ty.types)), None)
    elif isinstance(ty, types.Optional):
        reason = _misread(ty.type)
    elif isinstance(ty, types.Record):
        reason = _misread_record(ty)
    elif isinstance(ty, types.CPointer):
        reason = _misread_pointee(ty.dtype)
    elif isinstance(ty, types.Array):
        reason = _misread_array(ty)
    return reason


def _misread_array(array: Any) -> str | None:
    if _is_of_three(array.dtype):
        return (
            "is an array of vectors of three, which numba-cuda-mlir lays out as vectors of four; take a "
            "CPointer of their elements"
        )
    if not isinstance(array.dtype, types.Record):
        return None
    # In one dimension both contiguous orders are one.
    contiguous = array.ndim == 0 or array.layout == "C" or (array.layout == "F" and array.ndim == 1)
    if not contiguous:
        return (
            "is an array of records with strides, which numba-cuda-mlir ignores; declare it in C order and "
            "with one dimension, record[::1]"
        )
    return _misread_record(array.dtype)


def _misread_record(record: Any) -> str | None:
    if unaligned_member(abi.c_type(record)) is None:
        return None
    return (
        "has members that are not aligned, which numba-cuda-mlir takes for aligned ones; create its dtype "
        "with align=True"
    )


def _misread_pointee(target: Any) -> str | None:
    if isinstance(target, types.CPointer):
        return _misread_pointee(target.dtype)
    if isinstance(target, types.Record):
        return "leads to records, which numba-cuda-mlir takes for their addresses; take an array, record[::1]"
    if isinstance(target, types.BaseTuple):
        return "leads to tuples, which numba-cuda-mlir has not in memory; take an array of records"
    if _is_of_three(target):
        return (
            "leads to vectors of three, which numba-cuda-mlir lays out as vectors of four; take a pointer to "
            "their elements"
        )
    return None


def _is_of_three(ty: Any) -> bool:
    return isinstance(ty, VectorType) and ty.length == 3
