"""
The calling convention of numba-cuda-mlir, and checks for types whose values it misreads.

Each member of a tuple is a parameter or a result of its own, records are passed and returned by address, and
arrays are memrefs of MLIR. A memref has the address of the allocated memory, an aligned address in that
memory, the offset of the first element from the aligned address, the shape, and the strides. Offset and
strides count elements; those of an array of records count bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.type_defs.vector_types import VectorType

from numba_ptxlink import abi
from numba_ptxlink._cabi.signatures import unaligned_member
from numba_ptxlink._formats.llvm_types import Type, members
from numba_ptxlink._front_end.codegen.builder import I8, I64
from numba_ptxlink._front_end.codegen.convention import Convention
from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numba_ptxlink._cabi import types as c
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._front_end.codegen.builder import Callee, TypedValue


# The indices of a memref's members.
_ALIGNED_ADDRESS_INDEX, _OFFSET_INDEX, _SHAPE_INDEX = 1, 2, 3


class MemrefConvention(Convention):
    """The calling convention of numba-cuda-mlir; see the base class, where each member is described."""

    types = types
    spreads_structs = False

    def call(self, callee: Callee, arguments: list[TypedValue], ty: Any) -> tuple[str, Iterator[TypedValue]]:
        builder, failure_flag = self.builder, ""
        has_error_param = len(callee.params) > len(arguments)
        if has_error_param:
            # `errors` has added a parameter: the address of a byte, which the function sets to 1 at an error.
            arguments = [*arguments, builder.allocate(I8, 1, "0")]
        value = builder.call(callee, arguments)
        if has_error_param:
            pointer, slot = arguments[-1]
            error_byte = builder.emit_value(f"load i8, {pointer} {slot}")
            failure_flag = builder.emit_value(f"icmp ne i8 {error_byte}, 0")
        return failure_flag, self.results(ty, callee.result, value)

    def results(self, ty: Any, numba_llvm_type: Type, value: str) -> Iterator[TypedValue]:
        if _result_count(ty) == 1:
            yield numba_llvm_type, value
            return
        for index, member_type in enumerate(members(numba_llvm_type)):
            yield member_type, self.builder.extract(numba_llvm_type, value, index)

    def stride_unit(self, ctype: c.View, ty: Any) -> int:
        # Arrays of records have strides in bytes.
        return 1 if isinstance(ty.dtype, types.Record) else ctype.element.size

    def leading_array_arguments(self, data: TypedValue, itemsize: int, shape: list[str]) -> list[TypedValue]:
        # The allocated address, the aligned address, and the offset.
        return [data, data, (I64, "0")]

    def locate_array_parts(self, numba_llvm_type: Type, value: str, unit: int) -> tuple[TypedValue, int]:
        builder, byte_pointer = self.builder, self.builder.pointer(I8)
        # The type of the address depends on the dialect: a pointer to bytes, to elements, or opaque.
        address_type = members(numba_llvm_type)[_ALIGNED_ADDRESS_INDEX]
        aligned_address = builder.extract(numba_llvm_type, value, _ALIGNED_ADDRESS_INDEX)
        base = builder.convert(address_type, aligned_address, byte_pointer)
        offset = builder.extract(numba_llvm_type, value, _OFFSET_INDEX)
        byte_offset = builder.emit_value(f"mul i64 {offset}, {unit}")
        address = builder.emit_value(f"getelementptr i8, {byte_pointer} {base}, i64 {byte_offset}")
        return (byte_pointer, address), _SHAPE_INDEX


def _result_count(ty: Any) -> int:
    """Return how many values a function returns for the Numba type *ty*; a tuple has several."""
    return sum(map(_result_count, ty.types)) if isinstance(ty, types.BaseTuple) else 1


def check_types(signature: Signature, args: Sequence[Any], result: Any) -> None:
    """
    Check the Numba types *args* and *result* of the function of *signature*.

    Raises:
        AbiError: numba-cuda-mlir would misread values of a type. The message names the function, the
            parameter and the type.
    """
    labelled_types = [
        (f"parameter {name!r}", ty) for (name, _), ty in zip(signature.params, args, strict=True)
    ]
    reason = misread_type_reason((*labelled_types, ("the return value", result)))
    if reason:
        raise AbiError(f"Function {signature.name}: {reason}.")


def misread_type_reason(labelled_types: Iterable[tuple[str, Any]]) -> str:
    """
    Return why numba-cuda-mlir would misread values of a type, with the cure; "" if it misreads none.

    Args:
        labelled_types: Pairs of a text for messages, such as "parameter 'x'", and a Numba type.
    """
    for label, ty in labelled_types:
        reason = _misread_reason(ty)
        if reason is not None:
            return f'{label}, of Numba type {ty}, {reason}, or choose front_end="numba-cuda"'
    return ""


def _misread_reason(ty: Any) -> str | None:
    """Return why values of the Numba type *ty* would be misread, with the cure; None if they would not."""
    if isinstance(ty, types.BaseTuple):
        return next(filter(None, map(_misread_reason, ty.types)), None)
    if isinstance(ty, types.Optional):
        return (
            "is an Optional of a record; pass a flag beside it"
            if MemrefConvention.holds_record(ty.type)
            else _misread_reason(ty.type)
        )
    if isinstance(ty, types.Record) and unaligned_member(abi.c_type(ty)) is not None:
        return (
            "is laid out otherwise than in C++, and numba-cuda-mlir assumes the layout of C++; "
            "create its dtype with align=True or, if it has complex numbers, with C++'s offsets and size: "
            "np.dtype({'names': ['n', 'z'], 'formats': ['i4', 'c16'], 'offsets': [0, 16], 'itemsize': 32})"
        )
    if not isinstance(ty, (types.CPointer, types.Array)):
        return None
    element = ty.dtype
    if isinstance(element, VectorType) and element.length == 3:
        return (
            "refers to vectors of three elements, which numba-cuda-mlir lays out as vectors of four; take a "
            "pointer to the elements"
        )
    return _misread_array_reason(ty) if isinstance(ty, types.Array) else _misread_pointee_reason(element)


def _misread_array_reason(array: Any) -> str | None:
    """Return why an array of the Numba type *array* would be misread, with the cure; None if it would not."""
    element = array.dtype
    # In C order, the wrapper computes the strides itself; in one dimension, both orders are the same. Fortran
    # order in several dimensions is checked like other strides, since numba-cuda-mlir ignores the strides of
    # an array of records in this order.
    if array.ndim == 0 or array.layout == "C" or (array.layout == "F" and array.ndim == 1):
        return _misread_reason(element) if isinstance(element, types.Record) else None
    ctype = abi.c_type(element)
    # The wrapper divides C's strides, in bytes, by the size of an element. Strides are multiples of the
    # element's alignment, so that the division is exact if size and alignment are equal. NumPy aligns complex
    # numbers like their members, so that their strides need not be multiples of their size.
    if ctype.size == ctype.align and not isinstance(element, (types.Complex, types.Record)):
        return None
    return (
        "is an array with strides, of records, complex numbers or long vectors, for which numba-cuda-mlir "
        "counts strides in elements; declare it in C order, such as complex64[::1]"
    )


def _misread_pointee_reason(target: Any) -> str | None:
    """Return why pointers to the Numba type *target* are misread, with the cure; None if they are not."""
    if isinstance(target, (types.Record, types.BaseTuple)):
        return (
            "points to records or tuples, for which numba-cuda-mlir reads addresses; take an array, "
            "record[::1]"
        )
    return _misread_reason(target) if isinstance(target, types.CPointer) else None
