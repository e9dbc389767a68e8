"""
The calling convention of numba-cuda: `MinimalCallConv` of `numba.cuda.core.callconv`.

A function returns a status, an i32, and writes its result through its first parameter. Each member of a
struct is an argument of its own. For many types, Numba has one LLVM type for memory, such as i8 for a
boolean, and another for registers, i1. Results have the type for memory, except tuples of equal types and
records, which have the type for registers.
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
    from numba_ptxlink._front_end.codegen.builder import Callee, TypedValue

# A function returns the status 0 after success with a value, RETCODE_NONE after success with the result None,
# and any other status after an error.
_RETCODE_NONE = -2
# Numba's struct of an array has the members meminfo, parent, nitems, itemsize, data, shape and strides.
_DATA_INDEX, _SHAPE_INDEX = 4, 5


class StatusConvention(Convention):
    """The calling convention of numba-cuda; see the base class, where each member is described."""

    types = types
    spreads_structs = True

    def call(self, callee: Callee, arguments: list[TypedValue], ty: Any) -> tuple[str, Iterator[TypedValue]]:
        # No result type of numba-cuda needs an alignment of more than 8 bytes.
        builder, numba_llvm_type = self.builder, pointee(callee.params[0])
        pointer_type, address = builder.allocate(numba_llvm_type, 8, "zeroinitializer")
        status = builder.call(callee, [(pointer_type, address), *arguments])
        is_none = builder.emit_value(f"icmp eq i32 {status}, {_RETCODE_NONE}")
        is_value = builder.emit_value(f"icmp eq i32 {status}, 0")
        succeeded = builder.emit_value(f"or i1 {is_none}, {is_value}")
        failure_flag = builder.emit_value(f"xor i1 {succeeded}, true")
        value = builder.emit_value(f"load {numba_llvm_type}, {pointer_type} {address}, align 8")
        if isinstance(ty, types.Optional):
            # Numba returns only the value of an optional result; the status says whether it is None.
            has_value = builder.emit_value(f"xor i1 {is_none}, true")
            return failure_flag, iter([builder.struct([(numba_llvm_type, value), (I1, has_value)])])
        return failure_flag, self.results(ty, numba_llvm_type, value)

    def results(self, ty: Any, numba_llvm_type: Type, value: str) -> Iterator[TypedValue]:
        if not isinstance(ty, types.BaseTuple):
            yield numba_llvm_type, value
            return
        member_types = zip(ty.types, members(numba_llvm_type), strict=True)
        for index, (member_ty, member_llvm_type) in enumerate(member_types):
            member = self.builder.extract(numba_llvm_type, value, index)
            yield from self.results(member_ty, member_llvm_type, member)

    def stride_unit(self, ctype: c.View, ty: Any) -> int:
        return 1

    def leading_array_arguments(self, data: TypedValue, itemsize: int, shape: list[str]) -> list[TypedValue]:
        item_count = "1"
        for extent in shape:
            item_count = self.builder.emit_value(f"mul i64 {item_count}, {extent}")
        # The members "meminfo" and "parent" are null: neither Numba's runtime nor a Python object owns the
        # memory.
        no_owner = self.builder.pointer(I8), "null"
        return [no_owner, no_owner, (I64, item_count), (I64, str(itemsize)), data]

    def locate_array_parts(self, numba_llvm_type: Type, value: str, unit: int) -> tuple[TypedValue, int]:
        address = self.builder.extract(numba_llvm_type, value, _DATA_INDEX)
        return (members(numba_llvm_type)[_DATA_INDEX], address), _SHAPE_INDEX
