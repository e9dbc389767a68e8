"""
The calling convention of numba-cuda: `MinimalCallConv` of `numba.cuda.core.callconv`.

A function returns a status and writes its result through its first parameter. The result has Numba's memory
layout, except that tuples of equal types and records have the type of values. Structs are spread over
parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba.cuda import types

from numba_ptxlink._formats.llvm_types import Type, members, pointee
from numba_ptxlink._front_end.codegen.builder import I1, I8, I64
from numba_ptxlink._front_end.codegen.convention import Convention

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numba_ptxlink._cabi import types as c
    from numba_ptxlink._front_end.codegen.builder import Callee, Leaf

# The status RETCODE_NONE means that the result is None, and is not an error.
_RETCODE_NONE = -2


class StatusConvention(Convention):
    """See `Convention`, where each member is described."""

    types = types
    spreads_structs = True

    def call(self, callee: Callee, arguments: list[Leaf], ty: Any) -> tuple[str, Iterator[Leaf]]:
        builder, numba_llvm_type = self.builder, pointee(callee.params[0])
        pointer, slot = builder.allocate(numba_llvm_type, 8, "zeroinitializer")
        status = builder.call(callee, [(pointer, slot), *arguments])
        is_none = builder.emit_value(f"icmp eq i32 {status}, {_RETCODE_NONE}")
        succeeded = builder.emit_value(f"or i1 {is_none}, {builder.emit_value(f'icmp eq i32 {status}, 0')}")
        failed = builder.emit_value(f"xor i1 {succeeded}, true")
        returned = numba_llvm_type, builder.emit_value(f"load {numba_llvm_type}, {pointer} {slot}, align 8")
        if isinstance(ty, types.Optional):
            # The status says whether there is a value.
            has_value = builder.emit_value(f"xor i1 {is_none}, true")
            return failed, iter([builder.struct([returned, (I1, has_value)])])
        return failed, self.results(ty, *returned)

    def results(self, ty: Any, numba_llvm_type: Type, value: str) -> Iterator[Leaf]:
        if not isinstance(ty, types.BaseTuple):
            yield numba_llvm_type, value
            return
        for at, (inner, part) in enumerate(zip(ty.types, members(numba_llvm_type), strict=True)):
            yield from self.results(inner, part, self.builder.extract(numba_llvm_type, value, at))

    def stride_unit(self, ctype: c.View, ty: Any) -> int:
        return 1

    def leading_array_arguments(self, data: Leaf, itemsize: int, shape: list[str]) -> list[Leaf]:
        items = "1"
        for extent in shape:
            items = self.builder.emit_value(f"mul i64 {items}, {extent}")
        # No memory manager and no Python object own the array's memory.
        owner = self.builder.pointer(I8), "null"
        return [owner, owner, (I64, items), (I64, str(itemsize)), data]

    def locate_array_parts(self, numba_llvm_type: Type, value: str, unit: int) -> tuple[Leaf, int]:
        return (members(numba_llvm_type)[4], self.builder.extract(numba_llvm_type, value, 4)), 5
