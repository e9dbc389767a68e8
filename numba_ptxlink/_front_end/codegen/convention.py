"""
Convert values between C and the calling convention of a compiler.

All conventions spread tuples over parameters and pass records by address.
"""

from __future__ import annotations

import abc
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi import types as c
from numba_ptxlink._formats.llvm_types import PointerType, Type, members

from .builder import I1, I8, I64

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .builder import Callee, FunctionBuilder, Leaf


class Convention(abc.ABC):
    """
    The calling convention of a compiler's functions.

    Args:
        builder: The wrapper that calls a function.
    """

    types: Any
    """The compiler's module of types."""
    spreads_structs: bool
    """Whether complex numbers, vectors and optional values are spread over parameters, like tuples."""

    def __init__(self, builder: FunctionBuilder) -> None:
        self.builder = builder

    @abc.abstractmethod
    def call(self, callee: Callee, arguments: list[Leaf], ty: Any) -> tuple[str, Iterator[Leaf]]:
        """
        Call *callee*, whose result has the Numba type *ty*.

        Returns:
            Whether an error occurred, as an `i1`, "" if none can occur; and the results, as `results` yields
            them.
        """

    @abc.abstractmethod
    def results(self, ty: Any, source_type: Type, value: str) -> Iterator[Leaf]:
        """Yield the results for the Numba type *ty*: the members of tuples, or *value* itself."""

    @abc.abstractmethod
    def stride_unit(self, ctype: c.View, ty: Any) -> int:
        """Return the unit of the strides of the array type *ty*, in bytes."""

    @abc.abstractmethod
    def array(self, data: Leaf, itemsize: int, shape: list[str]) -> list[Leaf]:
        """Return the arguments of an array that precede those of its shape and strides."""

    @abc.abstractmethod
    def first_element(self, source_type: Type, value: str, unit: int) -> tuple[Leaf, int]:
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

    def from_c(self, ctype: c.CType, ty: Any, value: str) -> list[Leaf]:
        """Return *value*, of the C type *ctype*, as arguments of the Numba type *ty*."""
        builder, llvm_type = self.builder, self.builder.c_type(ctype)
        if isinstance(ty, self.types.BaseTuple):
            return [
                argument
                for (at, member), inner in zip(builder.indexed_members(ctype), ty.types, strict=True)
                for argument in self.from_c(member.type, inner, builder.extract(llvm_type, value, at))
            ]
        if isinstance(ty, self.types.Record):
            # Compilers load a field with natural alignment if the offset allows it, even of packed records.
            return [builder.allocate(llvm_type, 16, value)]
        if isinstance(ctype, c.View):
            return self._array(ctype, ty, value)
        if isinstance(ty, self.types.Optional):
            (first, member), (second, _) = builder.indexed_members(ctype)
            parts_of_value = self.from_c(member.type, ty.type, builder.extract(llvm_type, value, first))
            parts = [*parts_of_value, (I8, builder.extract(llvm_type, value, second))]
            return parts if self.spreads_structs else [builder.struct(parts)]
        if isinstance(ctype, c.Compound) and self.spreads_structs:
            return [
                (part, builder.extract(llvm_type, value, at)) for at, part in enumerate(members(llvm_type))
            ]
        return [(llvm_type, value)]

    def to_c(self, ctype: c.CType, ty: Any, leaves: Iterator[Leaf]) -> str:
        """Return *leaves*, the results of a function of the Numba type *ty*, as one value of the C type."""
        builder, llvm_type = self.builder, self.builder.c_type(ctype)
        if isinstance(ctype, c.Void):
            return ""
        if isinstance(ty, self.types.BaseTuple):
            members_of = zip(builder.indexed_members(ctype), ty.types, strict=True)
            return builder.aggregate(
                llvm_type, ((at, self.to_c(member.type, inner, leaves)) for (at, member), inner in members_of)
            )
        source_type, value = next(leaves)
        if isinstance(ty, self.types.Record) and isinstance(source_type, PointerType):
            address = builder.convert(source_type, value, builder.pointer(llvm_type))
            return builder.emit_value(f"load {llvm_type}, {builder.pointer(llvm_type)} {address}, align 1")
        if isinstance(ctype, c.View):
            return self._view(ctype, ty, source_type, value)
        if isinstance(ty, self.types.Optional):
            return self._optional(ctype, ty, source_type, value)
        return builder.convert(source_type, value, llvm_type)

    def _array(self, ctype: c.View, ty: Any, value: str) -> list[Leaf]:
        builder, llvm_type, unit = self.builder, self.builder.c_type(ctype), self.stride_unit(ctype, ty)
        data = members(llvm_type)[0], builder.extract(llvm_type, value, 0)
        shape = [builder.extract(llvm_type, value, 1, axis) for axis in range(ctype.ndim)]
        if ty.layout in "CF":
            # The strides follow from the type, which saves loads and lets NVVM optimise with them.
            strides, stride = [], str(ctype.element.size // unit)
            for extent in shape[::-1] if ty.layout == "C" else shape:
                strides.append(stride)
                stride = builder.emit_value(f"mul i64 {stride}, {extent}")
            strides = strides[::-1] if ty.layout == "C" else strides
        else:
            strides = [builder.extract(llvm_type, value, 2, axis) for axis in range(ctype.ndim)]
            if unit > 1:
                strides = [builder.emit_value(f"sdiv exact i64 {stride}, {unit}") for stride in strides]
        extents = [(I64, number) for number in (*shape, *strides)]
        return [*self.array(data, ctype.element.size, shape), *extents]

    def _view(self, ctype: c.View, ty: Any, source_type: Type, value: str) -> str:
        builder, llvm_type, unit = self.builder, self.builder.c_type(ctype), self.stride_unit(ctype, ty)
        first, at = self.first_element(source_type, value, unit)
        address, *extents = members(llvm_type)
        shape, strides = (
            [builder.extract(source_type, value, member, axis) for axis in range(ctype.ndim)]
            for member in (at, at + 1)
        )
        strides = [builder.emit_value(f"mul i64 {stride}, {unit}") for stride in strides]
        # Views without dimensions have neither shape nor strides.
        numbers = (
            builder.aggregate(array_type, enumerate(numbers))
            for array_type, numbers in zip(extents, (shape, strides), strict=False)
        )
        return builder.aggregate(llvm_type, enumerate([builder.convert(*first, address), *numbers]))

    def _optional(self, ctype: c.CType, ty: Any, source_type: Type, value: str) -> str:
        """Return an optional *value* as C's struct of the value and a flag; the value is zero for None."""
        builder, llvm_type, (data, valid) = self.builder, self.builder.c_type(ctype), members(source_type)
        (first, member), (second, _) = builder.indexed_members(ctype)
        has_value = builder.extract(source_type, value, 1)
        condition, flag = (
            builder.convert(valid, has_value, I1),
            (second, builder.convert(valid, has_value, I8)),
        )
        leaves = self.results(ty.type, data, builder.extract(source_type, value, 0))
        if not self.holds_record(ty.type):
            selected = ((part, builder.select(condition, part, value)) for part, value in leaves)
            return builder.aggregate(llvm_type, [(first, self.to_c(member.type, ty.type, selected)), flag])
        # The address of a record is null for None, and must not be loaded.
        part = members(llvm_type)[first]
        pointer, slot = builder.allocate(part, 16, "zeroinitializer")
        after = builder.branch(condition)
        field_value = self.to_c(member.type, ty.type, leaves)
        builder.emit(f"store {part} {field_value}, {pointer} {slot}, align 16")
        builder.join(after)
        field_value = builder.emit_value(f"load {part}, {pointer} {slot}, align 16")
        return builder.aggregate(llvm_type, [(first, field_value), flag])
