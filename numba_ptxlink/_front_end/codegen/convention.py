"""
Convert values between C and the calling convention of a compiler.

In all conventions, each member of a tuple is a parameter of its own, and a record is passed by its address.
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

    A value has a C type *ctype* and a Numba type *ty*. *c_llvm_type* is the LLVM type that nvcc uses for the
    C type, *numba_llvm_type* the one that the compiler uses for the Numba type.

    Args:
        builder: The builder of the wrapper that calls a function.
    """

    types: Any
    """The compiler's module of types."""
    spreads_structs: bool
    """Whether complex numbers, vectors and optional values are spread over parameters, like tuples."""

    def __init__(self, builder: FunctionBuilder) -> None:
        self.builder = builder

    @abc.abstractmethod
    def call(self, callee: Callee, arguments: list[TypedValue], ty: Any) -> tuple[str, Iterator[TypedValue]]:
        """
        Call *callee*, whose result has the Numba type *ty*.

        Returns:
            The name of an `i1` that is true if an error occurred, "" if none can occur; and the results, as
            `results` yields them.
        """

    @abc.abstractmethod
    def results(self, ty: Any, numba_llvm_type: Type, value: str) -> Iterator[TypedValue]:
        """Yield the results for the Numba type *ty*: the members of tuples, or *value* itself."""

    @abc.abstractmethod
    def stride_unit(self, ctype: c.View, ty: Any) -> int:
        """Return the unit of the strides of the array type *ty*, in bytes."""

    @abc.abstractmethod
    def leading_array_arguments(self, data: TypedValue, itemsize: int, shape: list[str]) -> list[TypedValue]:
        """
        Return the arguments of an array that precede those of its shape and strides.

        Args:
            data: The address of the first element.
            itemsize: The size of an element in bytes.
            shape: The number of elements in each dimension.
        """

    @abc.abstractmethod
    def locate_array_parts(self, numba_llvm_type: Type, value: str, unit: int) -> tuple[TypedValue, int]:
        """
        Return the address of the first element of the array *value*, and the index of the member "shape".

        The next member contains the strides, in units of *unit* bytes.
        """

    @classmethod
    def holds_record(cls, ty: Any) -> bool:
        """Return whether values of the Numba type *ty* contain addresses of records."""
        if isinstance(ty, cls.types.BaseTuple):
            return any(map(cls.holds_record, ty.types))
        if isinstance(ty, cls.types.Optional):
            return cls.holds_record(ty.type)
        return isinstance(ty, cls.types.Record)

    def from_c(self, ctype: c.CType, ty: Any, value: str) -> list[TypedValue]:
        """Return *value*, of the C type *ctype*, as arguments of the Numba type *ty*."""
        builder, c_llvm_type = self.builder, self.builder.c_type(ctype)
        if isinstance(ty, self.types.BaseTuple):
            return [
                argument
                for (index, member), member_ty in zip(builder.indexed_members(ctype), ty.types, strict=True)
                for argument in self.from_c(
                    member.type, member_ty, builder.extract(c_llvm_type, value, index)
                )
            ]
        if isinstance(ty, self.types.Record):
            # Compilers assume that a record is aligned to 16 bytes, and load a field by its natural alignment
            # if the offset is a multiple of that, even in a packed record.
            return [builder.allocate(c_llvm_type, 16, value)]
        if isinstance(ctype, c.View):
            return self._array_from_c(ctype, ty, value)
        if isinstance(ty, self.types.Optional):
            (value_index, member), (flag_index, _) = builder.indexed_members(ctype)
            parts_of_value = self.from_c(
                member.type, ty.type, builder.extract(c_llvm_type, value, value_index)
            )
            parts = [*parts_of_value, (I8, builder.extract(c_llvm_type, value, flag_index))]
            return parts if self.spreads_structs else [builder.struct(parts)]
        if isinstance(ctype, c.Compound) and self.spreads_structs:
            return [
                (member_type, builder.extract(c_llvm_type, value, index))
                for index, member_type in enumerate(members(c_llvm_type))
            ]
        return [(c_llvm_type, value)]

    def to_c(self, ctype: c.CType, ty: Any, results: Iterator[TypedValue]) -> str:
        """Return *results*, the results of a function of the Numba type *ty*, as one value of the C type."""
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
        if isinstance(ty, self.types.Record) and isinstance(numba_llvm_type, PointerType):
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
        builder, c_llvm_type, unit = self.builder, self.builder.c_type(ctype), self.stride_unit(ctype, ty)
        data = members(c_llvm_type)[0], builder.extract(c_llvm_type, value, 0)
        shape = [builder.extract(c_llvm_type, value, 1, axis) for axis in range(ctype.ndim)]
        if ty.layout in "CF":
            # Compute the strides from the shape: this saves loads, and NVVM can optimise. The innermost
            # dimension is the last in C order, and the first in Fortran order.
            strides, stride = [], str(ctype.element.size // unit)
            for extent in shape[::-1] if ty.layout == "C" else shape:
                strides.append(stride)
                stride = builder.emit_value(f"mul i64 {stride}, {extent}")
            strides = strides[::-1] if ty.layout == "C" else strides
        else:
            strides = [builder.extract(c_llvm_type, value, 2, axis) for axis in range(ctype.ndim)]
            if unit > 1:
                strides = [builder.emit_value(f"sdiv exact i64 {stride}, {unit}") for stride in strides]
        shape_and_strides = [(I64, extent) for extent in (*shape, *strides)]
        return [*self.leading_array_arguments(data, ctype.element.size, shape), *shape_and_strides]

    def _array_to_c(self, ctype: c.View, ty: Any, numba_llvm_type: Type, value: str) -> str:
        builder, c_llvm_type, unit = self.builder, self.builder.c_type(ctype), self.stride_unit(ctype, ty)
        typed_address, shape_index = self.locate_array_parts(numba_llvm_type, value, unit)
        address_type, *extent_types = members(c_llvm_type)
        shape, strides = (
            [builder.extract(numba_llvm_type, value, index, axis) for axis in range(ctype.ndim)]
            for index in (shape_index, shape_index + 1)
        )
        strides = [builder.emit_value(f"mul i64 {stride}, {unit}") for stride in strides]
        # Views without dimensions have neither shape nor strides, so `extent_types` is empty then.
        extents = (
            builder.aggregate(array_type, enumerate(values))
            for array_type, values in zip(extent_types, (shape, strides), strict=False)
        )
        return builder.aggregate(
            c_llvm_type, enumerate([builder.convert(*typed_address, address_type), *extents])
        )

    def _optional_to_c(self, ctype: c.CType, ty: Any, numba_llvm_type: Type, value: str) -> str:
        """Return an optional *value* as C's struct of the value and a flag; the value is zero for None."""
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
        # The address of a record is null for None, and must not be loaded.
        slot_type = members(c_llvm_type)[value_index]
        pointer_type, slot = builder.allocate(slot_type, 16, "zeroinitializer")
        after = builder.branch(condition)
        field_value = self.to_c(member.type, ty.type, parts)
        builder.emit(f"store {slot_type} {field_value}, {pointer_type} {slot}, align 16")
        builder.join(after)
        field_value = builder.emit_value(f"load {slot_type}, {pointer_type} {slot}, align 16")
        return builder.aggregate(c_llvm_type, [(value_index, field_value), flag])
