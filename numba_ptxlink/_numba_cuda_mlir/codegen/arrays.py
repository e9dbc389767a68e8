"""Refuse arrays that numba-cuda-mlir reads in another way than C++ lays them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.numba_cuda import types

from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._cabi.signatures import Signature


def check(signature: Signature, args: Sequence[Any], result: Any) -> None:
    """
    Check the arrays of records among the types *args* and *result* of the function of *signature*.

    Raises:
        AbiError: One need not be in C order, and its strides would be ignored.
    """
    labeled = [(f"parameter {name!r}", ty) for (name, _), ty in zip(signature.params, args, strict=True)]
    for where, ty in (*labeled, ("the return value", result)):
        if _has_strided_records(ty):
            raise AbiError(
                f"Function {signature.name}: {where}, of Numba type {ty}, is an array of records with "
                "strides, which numba-cuda-mlir ignores; declare it in C order, such as record[::1] or "
                'record[:, ::1], or choose front_end="numba-cuda".'
            )


def _has_strided_records(ty: Any) -> bool:
    if isinstance(ty, types.BaseTuple):
        return any(map(_has_strided_records, ty.types))
    if isinstance(ty, types.Optional):
        return _has_strided_records(ty.type)
    # In one dimension both contiguous orders are one.
    return (
        isinstance(ty, types.Array)
        and isinstance(ty.dtype, types.Record)
        and ty.ndim > 0
        and ty.layout != "C"
        and not (ty.layout == "F" and ty.ndim == 1)
    )
