"""
Convert values between C and the calling convention of a front end's compiler.

In all of these conventions, each member of a tuple is a parameter of its own, and a record, which is Numba's
type of a struct, is passed by its address.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi import types as c
from numba_ptxlink._formats.llvm_types import PointerType, Type, members

from .builder import I1, I8, I64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .builder import Callee, FunctionBuilder, TypedValue


class Convention(abc.ABC):
    """
    The calling convention of a compiler's functions.

    Each value has two types: a C type *ctype*, for which nvcc uses the LLVM type *c_llvm_type*, and a Numba
    type *ty*, for which the compiler uses the LLVM type *numba_llvm_type*. A value itself is text: the name
    or the constant in LLVM IR.

    Args:
        builder: The builder of the wrapper that calls a function.
    """

    types: Any
    """The compiler's module of types."""
    spreads_structs: bool
    """Whether complex numbers, vectors and optional values are passed as a parameter for each member."""

    def __init__(self, builder: FunctionBuilder) -> None:
        self.builder = builder

    @abc.abstractmethod
    def call(self, callee: Callee, arguments: list[TypedValue], ty: Any) -> tuple[str, Iterator[TypedValue]]:
        """
        Call *callee*, whose result has the Numba type *ty*.

        Returns:
            The name of an `i1` that is true if an error occurred, "" if *callee* cannot fail; and the results
            of the call, as `results` yields them.
        """

    @abc.abstractmethod
    def results(self, ty: Any, numba_llvm_type: Type, value: str) -> Iterator[TypedValue]:
        """Yield *value*, which *callee* returned; for a tuple, its members, with nested tuples flattened."""

    @abc.abstractmethod
    def stride_unit(self, ctype: c.View, ty: Any) -> int:
        """Return the unit in which the compiler counts strides of the array type *ty*, in bytes."""

    @abc.abstractmethod
    def leading_array_arguments(self, data: TypedValue, itemsize: int, shape: list[str]) -> list[TypedValue]:
        """
        Return the arguments that the compiler's functions take for an array before its shape and strides.

        Args:
            data: The address of the first element.
            itemsize: The size of an element in bytes.
            shape: The number of elements in each dimension, as values in LLVM IR.
        """

    @abc.abstractmethod
    def locate_array_parts(self, numba_llvm_type: Type, value: str, unit: int) -> tuple[TypedValue, int]:
        """
        Return the address of the first element of the array *value*, and the index of its member "shape".

        The strides are the member after the shape. The compiler counts them in units of *unit* bytes, like
        the offset of the first element, which numba-cuda-mlir's arrays have as a member.
        """

    @classmethod
    def holds_record(cls, ty: Any) -> bool:
        """Return whether a value of the Numba type *ty* is or contains a record, and so its address."""
        if isinstance(ty, cls.types.BaseTuple):
            return any(map(cls.holds_record, ty.types))
        if isinstance(ty, cls.types.Optional):
            return cls.holds_record(ty.type)
        return isinstance(ty, cls.types.Record)

    def from_c(self, ctype: c.CType, ty: Any, value: str) -> list[TypedValue]:
        """Return *value*, of the C type *ctype*, as arguments of the Numba type *ty*."""
        builder, c_llvm_type = self.builder, self.builder.c_type(ctype)
        if isinstance(ty, self.types.BaseTuple):
            arguments: list[TypedValue] = []
            for (index, member), member_ty in zip(builder.indexed_members(ctype), ty.types, strict=True):
                member_value = builder.extract(c_llvm_type, value, index)
                arguments += self.from_c(member.type, member_ty, member_value)
            return arguments
        if isinstance(ty, self.types.Record):
            # The compilers assume that a record is aligned to 16 bytes: they load a field at a multiple of
            # its natural alignment by an aligned instruction, even in a packed record.
            return [builder.allocate(c_llvm_type, 16, value)]
        if isinstance(ctype, c.View):
            return self._array_from_c(ctype, ty, value)
        if isinstance(ty, self.types.Optional):
            (value_index, member), (flag_index, _) = builder.indexed_members(ctype)
            value_arguments = self.from_c(
                member.type, ty.type, builder.extract(c_llvm_type, value, value_index)
            )
            arguments = [*value_arguments, (I8, builder.extract(c_llvm_type, value, flag_index))]
            return arguments if self.spreads_structs else [builder.struct(arguments)]
        if isinstance(ctype, c.Compound) and self.spreads_structs:
            return [
                (member_type, builder.extract(c_llvm_type, value, index))
                for index, member_type in enumerate(members(c_llvm_type))
            ]
        return [(c_llvm_type, value)]

    def to_c(self, ctype: c.CType, ty: Any, results: Iterator[TypedValue]) -> str:
        """
        Return the result of a call as a value of the C type *ctype*; "" for void.

        Args:
            ctype: The C type of the result.
            ty: The Numba type of the result.
            results: The values that `results` yields. A tuple takes those of its members from the iterator.
        """
        builder, c_llvm_type = self.builder, self.builder.c_type(ctype)
        if isinstance(ctype, c.Void):
            return ""
        if isinstance(ty, self.types.BaseTuple):
            typed_members = zip(builder.indexed_members(ctype), ty.types, strict=True)
            return builder.aggregate(
                c_llvm_type,
                (
                    (index, self.to_c(member.type, member_ty, results))
                    for (index, member), member_ty in typed_members
                ),
            )
        numba_llvm_type, value = next(results)
        # Only in a tuple of different types, numba-cuda returns a record by value, as an array of bytes.
        if isinstance(ty, self.types.Record) and isinstance(numba_llvm_type, PointerType):
            # The address may have any alignment: a record may be an element of an array of packed records.
            address = builder.convert(numba_llvm_type, value, builder.pointer(c_llvm_type))
            return builder.emit_value(
                f"load {c_llvm_type}, {builder.pointer(c_llvm_type)} {address}, align 1"
            )
        if isinstance(ctype, c.View):
            return self._array_to_c(ctype, ty, numba_llvm_type, value)
        if isinstance(ty, self.types.Optional):
            return self._optional_to_c(ctype, ty, numba_llvm_type, value)
        return builder.convert(numba_llvm_type, value, c_llvm_type)

    def _array_from_c(self, ctype: c.View, ty: Any, value: str) -> list[TypedValue]:
        """Return C's struct *value*, of an address, a shape and strides, as the arguments of an array."""
        builder, c_llvm_type, unit = self.builder, self.builder.c_type(ctype), self.stride_unit(ctype, ty)
        data = members(c_llvm_type)[0], builder.extract(c_llvm_type, value, 0)
        shape = [builder.extract(c_llvm_type, value, 1, axis) for axis in range(ctype.ndim)]
        if ty.layout in "CF":
            # Compute the strides of a contiguous array from the shape: this saves loads, and lets NVVM
            # optimise. The innermost dimension is the last in C order, and the first in Fortran order.
            strides, stride = [], str(ctype.element.size // unit)
            for extent in shape[::-1] if ty.layout == "C" else shape:
                strides.append(stride)
                stride = builder.emit_value(f"mul i64 {stride}, {extent}")
            strides = strides[::-1] if ty.layout == "C" else strides
        else:
            # C's strides are in bytes. They are multiples of the unit: a front end refuses other arrays.
            strides = [builder.extract(c_llvm_type, value, 2, axis) for axis in range(ctype.ndim)]
            if unit > 1:
                strides = [builder.emit_value(f"sdiv exact i64 {stride}, {unit}") for stride in strides]
        shape_and_strides = [(I64, extent) for extent in (*shape, *strides)]
        return [*self.leading_array_arguments(data, ctype.element.size, shape), *shape_and_strides]

    def _array_to_c(self, ctype: c.View, ty: Any, numba_llvm_type: Type, value: str) -> str:
        """Return the array *value* as C's struct of an address, a shape, and strides in bytes."""
        builder, c_llvm_type, unit = self.builder, self.builder.c_type(ctype), self.stride_unit(ctype, ty)
        typed_address, shape_index = self.locate_array_parts(numba_llvm_type, value, unit)
        address_type, *extent_types = members(c_llvm_type)
        shape, strides = (
            [builder.extract(numba_llvm_type, value, index, axis) for axis in range(ctype.ndim)]
            for index in (shape_index, shape_index + 1)
        )
        strides = [builder.emit_value(f"mul i64 {stride}, {unit}") for stride in strides]
        # Without dimensions, C's struct has neither shape nor strides, and `extent_types` is empty.
        extents = (
            builder.aggregate(array_type, enumerate(values))
            for array_type, values in zip(extent_types, (shape, strides), strict=False)
        )
        return builder.aggregate(
            c_llvm_type, enumerate([builder.convert(*typed_address, address_type), *extents])
        )

    def _optional_to_c(self, ctype: c.CType, ty: Any, numba_llvm_type: Type, value: str) -> str:
        """Return an optional *value* as C's struct of the value and a flag; for None, both are zero."""
        builder, c_llvm_type = self.builder, self.builder.c_type(ctype)
        data_type, flag_type = members(numba_llvm_type)
        (value_index, member), (flag_index, _) = builder.indexed_members(ctype)
        has_value = builder.extract(numba_llvm_type, value, 1)
        condition = builder.convert(flag_type, has_value, I1)
        flag = flag_index, builder.convert(flag_type, has_value, I8)
        parts = self.results(ty.type, data_type, builder.extract(numba_llvm_type, value, 0))
        if not self.holds_record(ty.type):
            selected = ((part_type, builder.select(condition, part_type, part)) for part_type, part in parts)
            return builder.aggregate(
                c_llvm_type, [(value_index, self.to_c(member.type, ty.type, selected)), flag]
            )
        # The address of a record is null for None: load the record only in a block that runs for a value.
        slot_type = members(c_llvm_type)[value_index]
        pointer_type, slot = builder.allocate(slot_type, 16, "zeroinitializer")
        after = builder.branch(condition)
        field_value = self.to_c(member.type, ty.type, parts)
        builder.emit(f"store {slot_type} {field_value}, {pointer_type} {slot}, align 16")
        builder.join(after)
        field_value = builder.emit_value(f"load {slot_type}, {pointer_type} {slot}, align 16")
        return builder.aggregate(c_llvm_type, [(value_index, field_value), flag])
