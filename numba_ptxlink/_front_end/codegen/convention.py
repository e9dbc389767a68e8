"""
Convert values between C and the calling convention of a compiler.

Conventions have in common that tuples are spread over parameters and that records are passed by address.
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
    What is a compiler's own in how its functions take and return values.

    Args:
        builder: The function that calls one.
    """

    types: Any
    """The compiler's module of types."""
    spreads_structs: bool
    """Whether it spreads complex numbers, vectors and optional values over parameters, as tuples."""

    def __init__(self, builder: FunctionBuilder) -> None:
        self.builder = builder

    @abc.abstractmethod
    def call(self, callee: Callee, arguments: list[Leaf], ty: Any) -> tuple[str, Iterator[Leaf]]:
        """
        Call *callee*, whose result has the Numba type *ty*.

        Returns:
            Whether it met an error, as an `i1`, "" where it meets none; and its results, as of `results`.
        """

    @abc.abstractmethod
    def results(self, ty: Any, have: Type, value: str) -> Iterator[Leaf]:
        """Yield what it returns for the Numba type *ty*: the members of tuples, or *value* itself."""

    @abc.abstractmethod
    def stride_unit(self, ctype: c.View, ty: Any) -> int:
        """Return what the strides of the array type *ty* count in, in bytes."""

    @abc.abstractmethod
    def array(self, data: Leaf, itemsize: int, shape: list[str]) -> list[Leaf]:
        """Return the arguments that an array becomes, as far as the extents of its shape."""

    @abc.abstractmethod
    def first_element(self, have: Type, value: str, unit: int) -> tuple[Leaf, int]:
        """
        Return the address of the first element of the array *value*, and which member its shape is.

        Its strides, which count in *unit* bytes, are the next member.
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
        """Return the arguments that *value*, of the C type *ctype* and the Numba type *ty*, becomes."""
        builder, kind = self.builder, self.builder.c_type(ctype)
        if isinstance(ty, self.types.BaseTuple):
            return [
                argument
                for (at, member), inner in zip(builder.places(ctype), ty.types, strict=True)
                for argument in self.from_c(member.type, inner, builder.extract(kind, value, at))
            ]
        if isinstance(ty, self.types.Record):
            # A field is loaded with its natural alignment if the offset allows it, even of a packed record.
            return [builder.slot(kind, 16, value)]
        if isinstance(ctype, c.View):
            return self._array(ctype, ty, value)
        if isinstance(ty, self.types.Optional):
            (first, member), (second, _) = builder.places(ctype)
            held = self.from_c(member.type, ty.type, builder.extract(kind, value, first))
            parts = [*held, (I8, builder.extract(kind, value, second))]
            return parts if self.spreads_structs else [builder.struct(parts)]
        if isinstance(ctype, c.Compound) and self.spreads_structs:
            return [(part, builder.extract(kind, value, at)) for at, part in enumerate(members(kind))]
        return [(kind, value)]

    def to_c(self, ctype: c.CType, ty: Any, leaves: Iterator[Leaf]) -> str:
        """Return the C value that *leaves*, the results of a function of the Numba type *ty*, stand for."""
        builder, kind = self.builder, self.builder.c_type(ctype)
        if isinstance(ctype, c.Void):
            return ""
        if isinstance(ty, self.types.BaseTuple):
            members_of = zip(builder.places(ctype), ty.types, strict=True)
            return builder.aggregate(
                kind, ((at, self.to_c(member.type, inner, leaves)) for (at, member), inner in members_of)
            )
        have, value = next(leaves)
        if isinstance(ty, self.types.Record) and isinstance(have, PointerType):
            address = builder.convert(have, value, builder.pointer(kind))
            return builder.value(f"load {kind}, {builder.pointer(kind)} {address}, align 1")
        if isinstance(ctype, c.View):
            return self._view(ctype, ty, have, value)
        if isinstance(ty, self.types.Optional):
            return self._optional(ctype, ty, have, value)
        return builder.convert(have, value, kind)

    def _array(self, ctype: c.View, ty: Any, value: str) -> list[Leaf]:
        builder, kind, unit = self.builder, self.builder.c_type(ctype), self.stride_unit(ctype, ty)
        data = members(kind)[0], builder.extract(kind, value, 0)
        shape = [builder.extract(kind, value, 1, axis) for axis in range(ctype.ndim)]
        if ty.layout in "CF":
            # The strides follow from the type, which saves loads and lets NVVM optimise with them.
            strides, stride = [], str(ctype.element.size // unit)
            for extent in shape[::-1] if ty.layout == "C" else shape:
                strides.append(stride)
                stride = builder.value(f"mul i64 {stride}, {extent}")
            strides = strides[::-1] if ty.layout == "C" else strides
        else:
            strides = [builder.extract(kind, value, 2, axis) for axis in range(ctype.ndim)]
            if unit > 1:
                strides = [builder.value(f"sdiv exact i64 {stride}, {unit}") for stride in strides]
        extents = [(I64, number) for number in (*shape, *strides)]
        return [*self.array(data, ctype.element.size, shape), *extents]

    def _view(self, ctype: c.View, ty: Any, have: Type, value: str) -> str:
        builder, kind, unit = self.builder, self.builder.c_type(ctype), self.stride_unit(ctype, ty)
        first, at = self.first_element(have, value, unit)
        address, *extents = members(kind)
        shape, strides = (
            [builder.extract(have, value, place, axis) for axis in range(ctype.ndim)]
            for place in (at, at + 1)
        )
        strides = [builder.value(f"mul i64 {stride}, {unit}") for stride in strides]
        # Without dimensions, C has neither.
        numbers = (
            builder.aggregate(each, enumerate(numbers))
            for each, numbers in zip(extents, (shape, strides), strict=False)
        )
        return builder.aggregate(kind, enumerate([builder.convert(*first, address), *numbers]))

    def _optional(self, ctype: c.CType, ty: Any, have: Type, value: str) -> str:
        """Return the optional *value*, its value and whether there is one, as C's; zero if it is None."""
        builder, kind, (data, valid) = self.builder, self.builder.c_type(ctype), members(have)
        (first, member), (second, _) = builder.places(ctype)
        there = builder.extract(have, value, 1)
        condition, flag = builder.convert(valid, there, I1), (second, builder.convert(valid, there, I8))
        leaves = self.results(ty.type, data, builder.extract(have, value, 0))
        if not self.holds_record(ty.type):
            chosen = ((part, builder.select(condition, part, value)) for part, value in leaves)
            return builder.aggregate(kind, [(first, self.to_c(member.type, ty.type, chosen)), flag])
        # The address of a record is null for None, and must not be loaded.
        part = members(kind)[first]
        pointer, slot = builder.slot(part, 16, "zeroinitializer")
        after = builder.branch(condition)
        held = self.to_c(member.type, ty.type, leaves)
        builder.do(f"store {part} {held}, {pointer} {slot}, align 16")
        builder.join(after)
        held = builder.value(f"load {part}, {pointer} {slot}, align 16")
        return builder.aggregate(kind, [(first, held), flag])
