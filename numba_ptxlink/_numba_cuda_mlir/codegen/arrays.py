"""Refuse arrays that numba-cuda-mlir reads in another way than C++ lays them out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.type_defs.vector_types import VectorType

from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numba_ptxlink._cabi.signatures import Signature


def check(signature: Signature, args: Sequence[Any], result: Any) -> None:
    """
    Check the arrays of records among the types *args* and *result* of the function of *signature*.

    Raises:
        AbiError: One of records need not be in C order, and its strides would be ignored; or the elements of
            one are vectors of three.
    """
    labeled = [(f"parameter {name!r}", ty) for (name, _), ty in zip(signature.params, args, strict=True)]
    for where, ty in (*labeled, ("the return value", result)):
        if any(_is_of_three(array) for array in _arrays(ty)):
            raise AbiError(
                f"Function {signature.name}: {where}, of Numba type {ty}, is an array of vectors of three, "
                "which numba-cuda-mlir lays out as vectors of four; take a CPointer of them, or choose "
                'front_end="numba-cuda".'
            )
        if any(map(_is_strided, _arrays(ty))):
            raise AbiError(
                f"Function {signature.name}: {where}, of Numba type {ty}, is an array of records with "
                "strides, which numba-cuda-mlir ignores; declare it in C order and with one dimension, "
                'record[::1], or choose front_end="numba-cuda".'
            )


def _arrays(ty: Any) -> Iterator[Any]:
    """Yield the types of arrays among what values of the Numba type *ty* hold."""
    if isinstance(ty, types.BaseTuple):
        for member in ty.types:
            yield from _arrays(member)
    elif isinstance(ty, types.Optional):
        yield from _arrays(ty.type)
    elif isinstance(ty, types.Array):
        yield ty


def _is_of_three(array: Any) -> bool:
    return isinstance(array.dtype, VectorType) and array.dtype.length == 3


def _is_strided(array: Any) -> bool:
    """Return whether *array* is one of records that need not be in C order."""
    # In one dimension both contiguous orders are one.
    return (
        isinstance(array.dtype, types.Record)
        and array.ndim > 0
        and array.layout != "C"
        and not (array.layout == "F" and array.ndim == 1)
    )
