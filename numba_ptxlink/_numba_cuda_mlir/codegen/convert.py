"""
Convert values between C and the ABI of numba-cuda-mlir, and refuse types that it would misread.

In that ABI, tuples are spread over parameters, records are passed and returned by address, and arrays are
memrefs: two addresses, an offset, and shape and strides in elements.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.numba_cuda import types
from numba_cuda_mlir.type_defs.vector_types import VectorType

from numba_ptxlink import abi
from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import unaligned_member
from numba_ptxlink.errors import AbiError

from .builder import I8, I64
from .llvm import ScalarType, StructType, Type, members

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numba_ptxlink._cabi.signatures import Signature

    from .builder import FunctionBuilder

Leaf = tuple[Type, str]
"""A value with its type in LLVM IR."""


def from_c(builder: FunctionBuilder, ctype: c.CType, ty: Any, value: str) -> list[Leaf]:
    """Return the arguments that *value*, of the C type *ctype* and the Numba type *ty*, becomes."""
    kind = builder.c_type(ctype)
    if isinstance(ty, types.BaseTuple):
        return [
            argument
            for (at, member), inner in zip(builder.places(ctype), ty.types, strict=True)
            for argument in from_c(builder, member.type, inner, builder.extract(kind, value, at))
        ]
    if isinstance(ty, types.Record):
        slot = builder.value(f"alloca {kind}, align 16")
        # A field is loaded with its natural alignment if the offset allows it, even of a packed record.
        builder.do(f"store {kind} {value}, {builder.pointer(kind)} {slot}, align 16")
        return [(builder.pointer(kind), slot)]
    if isinstance(ctype, c.View):
        return _memref(builder, ctype, ty, value)
    if isinstance(ty, types.Optional):
        (first, member), (second, _) = builder.places(ctype)
        ((part, data),) = from_c(builder, member.type, ty.type, builder.extract(kind, value, first))
        return [_pair(builder, part, data, builder.extract(kind, value, second))]
    return [(kind, value)]


def _pair(builder: FunctionBuilder, part: Type, value: str, valid: str) -> Leaf:
    pair = StructType((part, I8))
    data = builder.insert(pair, "undef", part, value, 0)
    return pair, builder.insert(pair, data, I8, valid, 1)


def _unit(ctype: c.View, ty: Any) -> int:
    """Return the size of what a memref of the array type *ty* counts in: bytes for an array of records."""
    return 1 if isinstance(ty.dtype, types.Record) else ctype.element.size


def _memref(builder: FunctionBuilder, ctype: c.View, ty: Any, value: str) -> list[Leaf]:
    kind, unit = builder.c_type(ctype), _unit(ctype, ty)
    address = members(kind)[0]
    data = builder.extract(kind, value, 0)
    shape = [builder.extract(kind, value, 1, axis) for axis in range(ctype.ndim)]
    if ty.layout in "CF":
        # The strides follow from the type, which saves loads and lets NVVM optimise with them.
        inward = shape[::-1] if ty.layout == "C" else shape
        strides, stride = [], str(ctype.element.size // unit)
        for extent in inward:
            strides.append(stride)
            stride = builder.value(f"mul i64 {stride}, {extent}")
        strides = strides[::-1] if ty.layout == "C" else strides
    else:
        strides = [builder.extract(kind, value, 2, axis) for axis in range(ctype.ndim)]
        if unit > 1:
            strides = [builder.value(f"sdiv exact i64 {stride}, {unit}") for stride in strides]
    return [(address, data), (address, data), (I64, "0"), *((I64, number) for number in (*shape, *strides))]


def to_c(builder: FunctionBuilder, ctype: c.CType, ty: Any, leaves: Iterator[Leaf]) -> str:
    """Return the C value that *leaves*, the results of a function of the Numba type *ty*, stand for."""
    kind = builder.c_type(ctype)
    if isinstance(ty, types.BaseTuple):
        out = "undef"
        for (at, member), inner in zip(builder.places(ctype), ty.types, strict=True):
            part = to_c(builder, member.type, inner, leaves)
            out = builder.insert(kind, out, builder.c_type(member.type), part, at)
        return out
    have, value = next(leaves)
    if isinstance(ty, types.Record):
        address = builder.convert(have, value, builder.pointer(kind))
        return builder.value(f"load {kind}, {builder.pointer(kind)} {address}, align 1")
    if isinstance(ctype, c.View):
        return _view(builder, ctype, ty, have, value)
    if isinstance(ty, types.Optional):
        return _optional(builder, ctype, have, value)
    return builder.convert(have, value, kind)


def count(ty: Any) -> int:
    """Return how many results a function of the Numba type *ty* has."""
    return sum(map(count, ty.types)) if isinstance(ty, types.BaseTuple) else 1


def holds_record(ty: Any) -> bool:
    """Return whether values of the Numba type *ty* contain addresses of records."""
    if isinstance(ty, types.BaseTuple):
        return any(map(holds_record, ty.types))
    return isinstance(ty, types.Record)


def _view(builder: FunctionBuilder, ctype: c.View, ty: Any, have: Type, value: str) -> str:
    kind, unit, byte = builder.c_type(ctype), _unit(ctype, ty), builder.pointer(I8)
    address = members(kind)[0]
    # The dialects have pointers to bytes, to elements and to nothing.
    data = builder.convert(members(have)[1], builder.extract(have, value, 1), byte)
    offset = builder.value(f"mul i64 {builder.extract(have, value, 2)}, {unit}")
    data = builder.value(f"getelementptr i8, {byte} {data}, i64 {offset}")
    out = builder.insert(kind, "undef", address, builder.convert(byte, data, address), 0)
    for axis in range(ctype.ndim):
        stride = builder.value(f"mul i64 {builder.extract(have, value, 4, axis)}, {unit}")
        out = builder.insert(kind, out, I64, builder.extract(have, value, 3, axis), 1, axis)
        out = builder.insert(kind, out, I64, stride, 2, axis)
    return out


def _optional(builder: FunctionBuilder, ctype: c.CType, have: Type, value: str) -> str:
    kind, (data, valid) = builder.c_type(ctype), members(have)
    (first, _), (second, _) = builder.places(ctype)
    part = members(kind)[first]
    held, there = builder.extract(have, value, 0), builder.extract(have, value, 1)
    condition = builder.convert(valid, there, ScalarType("i1"))
    held = builder.value(f"select i1 {condition}, {data} {held}, {data} zeroinitializer")
    out = builder.insert(kind, "undef", part, builder.convert(data, held, part), first)
    return builder.insert(kind, out, I8, builder.convert(valid, there, I8), second)


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
    if isinstance(ty, types.BaseTuple):
        return next(filter(None, map(_misread, ty.types)), None)
    if isinstance(ty, types.Optional):
        return (
            "is an Optional of a record; pass a flag beside it"
            if holds_record(ty.type)
            else _misread(ty.type)
        )
    if isinstance(ty, types.Record) and unaligned_member(abi.c_type(ty)) is not None:
        return (
            "has members or a size that C++ aligns otherwise, and numba-cuda-mlir takes them for C++'s; "
            "create its dtype with align=True or, where it has complex numbers, with C++'s offsets and size: "
            "np.dtype({'names': ['n', 'z'], 'formats': ['i4', 'c16'], 'offsets': [0, 16], 'itemsize': 32})"
        )
    if not isinstance(ty, (types.CPointer, types.Array)):
        return None
    element = ty.dtype
    if isinstance(element, VectorType) and element.length == 3:
        return (
            "leads to vectors of three, which numba-cuda-mlir lays out as vectors of four; take a pointer to "
            "their elements"
        )
    return _misread_array(ty) if isinstance(ty, types.Array) else _misread_pointee(element)


def _misread_array(array: Any) -> str | None:
    element = array.dtype
    # In one dimension both contiguous orders are one.
    if array.ndim == 0 or array.layout == "C" or (array.layout == "F" and array.ndim == 1):
        return _misread(element) if isinstance(element, types.Record) else None
    ctype = abi.c_type(element)
    # Only where an element is aligned as a whole, each stride is a multiple of its size.
    if ctype.size == ctype.align and not isinstance(element, (types.Complex, types.Record)):
        return None
    return (
        "is an array with strides of records, complex numbers or long vectors, which numba-cuda-mlir counts "
        "in elements; declare it in C order, such as complex64[::1]"
    )


def _misread_pointee(target: Any) -> str | None:
    if isinstance(target, (types.Record, types.BaseTuple)):
        return (
            "leads to records or tuples, which numba-cuda-mlir takes for their addresses; take an array, "
            "record[::1]"
        )
    return _misread(target) if isinstance(target, types.CPointer) else None
