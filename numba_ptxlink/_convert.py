"""LLVM IR of C values: the type each has in a prototype, and the way to and from Numba's own values."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types

from . import _cmodel as c

_I8 = ir.IntType(8)
_I64 = ir.IntType(64)


def ir_type(ctype: c.CType) -> ir.Type:
    """
    Return the IR type whose PTX form, as a parameter and as a return value, is that of *ctype*.

    It is also laid out in memory as *ctype* is.
    """
    if isinstance(ctype, c.Scalar):
        if ctype.kind == "float":
            return ir.FloatType() if ctype.size == 4 else ir.DoubleType()
        return ir.IntType(ctype.size * 8)
    if isinstance(ctype, c.Pointer):
        return _I8.as_pointer()
    if isinstance(ctype, c.Half):
        # A bare i16 or half would travel in a register.
        return ir.LiteralStructType([ir.IntType(16)])
    if isinstance(ctype, c.Complex):
        vector = ir.VectorType(ir_type(ctype.element), 2)
        return vector if ctype.size == 8 else ir.LiteralStructType([vector])
    if isinstance(ctype, c.Vector):
        return _vector(ctype)
    if isinstance(ctype, c.View):
        return ir.LiteralStructType(
            [_I8.as_pointer(), *[ir.ArrayType(_I64, ctype.ndim)] * (2 if ctype.ndim else 0)]
        )
    if isinstance(ctype, c.Array):
        return ir.ArrayType(ir_type(ctype.element), ctype.count)
    if isinstance(ctype, c.Struct):
        if ctype.packed:
            # Only memory has such a layout; words of the right alignment travel like it.
            word = ir.IntType(ctype.align * 8)
            return ir.LiteralStructType([ir.ArrayType(word, ctype.size // ctype.align)])
        return ir.LiteralStructType([ir_type(member.type) for member in ctype.members])
    raise NotImplementedError(ctype)


def _vector(ctype: c.Vector) -> ir.Type:
    element = ir_type(ctype.element)
    lanes = ctype.align // ctype.element.size
    if lanes == 1:
        return ir.LiteralStructType([element] * ctype.count)
    return ir.LiteralStructType([ir.VectorType(element, lanes)] * (ctype.count // lanes))


def from_c(context: Any, builder: ir.IRBuilder, ctype: c.CType, ty: Any, value: Any) -> Any:
    """Turn *value*, of the IR type of *ctype*, into Numba's value of type *ty*."""
    if isinstance(ty, types.Boolean):
        return builder.icmp_unsigned("!=", value, ir.Constant(value.type, 0))
    if isinstance(ctype, c.Pointer):
        return builder.bitcast(value, context.get_value_type(ty))
    if isinstance(ctype, c.Half):
        return builder.extract_value(value, 0)
    if isinstance(ctype, (c.Complex, c.Vector)):
        return _assemble(builder, context.get_value_type(ty), _lanes(builder, value))
    if isinstance(ctype, c.View):
        return _array_from_view(context, builder, ctype, ty, value)
    if isinstance(ty, types.Record):
        return _spill(builder, value, context.get_value_type(ty))
    if isinstance(ty, types.Optional):
        optional = cgutils.create_struct_proxy(ty)(context, builder)
        inner = ctype.members[0].type  # type: ignore[attr-defined]
        optional.data = from_c(context, builder, inner, ty.type, builder.extract_value(value, 0))
        optional.valid = builder.icmp_unsigned("!=", builder.extract_value(value, 1), ir.Constant(_I8, 0))
        return optional._getvalue()
    if isinstance(ty, types.BaseTuple):
        members = ctype.members  # type: ignore[attr-defined]
        return context.make_tuple(
            builder,
            ty,
            [
                from_c(context, builder, member.type, inner, builder.extract_value(value, number))
                for number, (member, inner) in enumerate(zip(members, ty.types, strict=True))
            ],
        )
    return value


def to_c(context: Any, builder: ir.IRBuilder, ctype: c.CType, ty: Any, value: Any) -> Any:
    """Turn Numba's *value* of type *ty* into the IR type of *ctype*."""
    if isinstance(ty, types.Boolean):
        return builder.zext(value, _I8)
    if isinstance(ctype, c.Pointer):
        return builder.bitcast(value, _I8.as_pointer())
    if isinstance(ctype, c.Half):
        return _assemble(builder, ir_type(ctype), [value])
    if isinstance(ctype, (c.Complex, c.Vector)):
        count = 2 if isinstance(ctype, c.Complex) else ctype.count
        lanes = [builder.extract_value(value, lane) for lane in range(count)]
        return _with_lanes(builder, ir_type(ctype), lanes)
    if isinstance(ctype, c.View):
        array = cgutils.create_struct_proxy(ty)(context, builder, value=value)
        parts = [builder.bitcast(array.data, _I8.as_pointer())]
        return _assemble(builder, ir_type(ctype), parts + [array.shape, array.strides] * bool(ctype.ndim))
    if isinstance(ty, types.Record):
        pointer = builder.bitcast(value, ir_type(ctype).as_pointer())
        return builder.load(pointer, align=1)
    if isinstance(ty, types.Optional):
        optional = cgutils.create_struct_proxy(ty)(context, builder, value=value)
        inner = ctype.members[0].type  # type: ignore[attr-defined]
        valid = builder.zext(optional.valid, _I8)
        data = _unless_none(context, builder, inner, ty.type, optional)
        return _assemble(builder, ir_type(ctype), [data, valid])
    if isinstance(ty, types.BaseTuple):
        members = ctype.members  # type: ignore[attr-defined]
        parts = [
            to_c(context, builder, member.type, inner, builder.extract_value(value, number))
            for number, (member, inner) in enumerate(zip(members, ty.types, strict=True))
        ]
        return _assemble(builder, ir_type(ctype), parts)
    return value


def from_return(context: Any, builder: ir.IRBuilder, ty: Any, value: Any) -> Any:
    """Turn *value*, as a function of Numba's ABI returns it, into Numba's value of type *ty*."""
    if isinstance(ty, (types.Tuple, types.NamedTuple)):
        return _from_stored(context, builder, ty, value)
    return context.get_returned_value(builder, ty, value)


def _from_stored(context: Any, builder: ir.IRBuilder, ty: Any, value: Any) -> Any:
    # Numba's own way back refuses a tuple that holds a record.
    if isinstance(ty, types.Record):
        return _spill(builder, value, context.get_value_type(ty))
    if isinstance(ty, types.BaseTuple):
        members = [
            _from_stored(context, builder, inner, builder.extract_value(value, number))
            for number, inner in enumerate(ty.types)
        ]
        return context.make_tuple(builder, ty, members)
    if isinstance(ty, types.Optional):
        optional = cgutils.create_struct_proxy(ty)(context, builder)
        optional.data = _from_stored(context, builder, ty.type, builder.extract_value(value, 0))
        optional.valid = context.data_model_manager[types.boolean].from_data(
            builder, builder.extract_value(value, 1)
        )
        return optional._getvalue()
    return context.data_model_manager[ty].from_data(builder, value)


def _unless_none(context: Any, builder: ir.IRBuilder, ctype: c.CType, ty: Any, optional: Any) -> Any:
    """Return the value of *optional* as C has it, zero where it is None: a record's address is then null."""
    slot = cgutils.alloca_once_value(builder, ir.Constant(ir_type(ctype), None))
    with builder.if_then(optional.valid):
        builder.store(to_c(context, builder, ctype, ty, optional.data), slot)
    return builder.load(slot)


def _array_from_view(context: Any, builder: ir.IRBuilder, ctype: c.View, ty: Any, value: Any) -> Any:
    array = cgutils.create_struct_proxy(ty)(context, builder)
    itemsize = ctype.element.size
    shape = [builder.extract_value(value, [1, axis]) for axis in range(ctype.ndim)]
    strides = [builder.extract_value(value, [2, axis]) for axis in range(ctype.ndim)]
    if ty.layout in "CF":
        # What the type promises need not be read, and NVVM can rely on it.
        strides = _contiguous(builder, shape if ty.layout == "C" else shape[::-1], itemsize)
        strides = strides if ty.layout == "C" else strides[::-1]
    items: Any = ir.Constant(_I64, 1)
    for extent in shape:
        items = builder.mul(items, extent)
    context.populate_array(
        array,
        data=builder.bitcast(builder.extract_value(value, 0), array.data.type),
        shape=shape,
        strides=strides,
        itemsize=ir.Constant(_I64, itemsize),
        meminfo=None,
    )
    return array._getvalue()


def _contiguous(builder: ir.IRBuilder, shape: list[Any], itemsize: int) -> list[Any]:
    strides = []
    stride: Any = ir.Constant(_I64, itemsize)
    for extent in reversed(shape):
        strides.append(stride)
        stride = builder.mul(stride, extent)
    return strides[::-1]


def _lanes(builder: ir.IRBuilder, value: Any) -> list[Any]:
    """Return the numbers that a vector, or a struct of vectors or of numbers, holds."""
    if isinstance(value.type, ir.VectorType):
        lanes = range(value.type.count)
        return [builder.extract_element(value, ir.Constant(ir.IntType(32), lane)) for lane in lanes]
    if not isinstance(value.type, ir.LiteralStructType):
        return [value]
    parts = [builder.extract_value(value, number) for number in range(len(value.type.elements))]
    return [lane for part in parts for lane in _lanes(builder, part)]


def _with_lanes(builder: ir.IRBuilder, target: ir.Type, lanes: list[Any]) -> Any:
    """Return a value of type *target*, of one of the shapes that `_lanes` reads; takes from *lanes*."""
    if isinstance(target, ir.VectorType):
        value: Any = ir.Constant(target, ir.Undefined)
        for number in range(target.count):
            value = builder.insert_element(value, lanes.pop(0), ir.Constant(ir.IntType(32), number))
        return value
    if isinstance(target, ir.LiteralStructType):
        return _assemble(builder, target, [_with_lanes(builder, part, lanes) for part in target.elements])
    return lanes.pop(0)


def _assemble(builder: ir.IRBuilder, target: ir.Type, parts: list[Any]) -> Any:
    value: Any = ir.Constant(target, ir.Undefined)
    for number, part in enumerate(parts):
        value = builder.insert_value(value, part, number)
    return value


def _spill(builder: ir.IRBuilder, value: Any, pointer: ir.Type) -> Any:
    """Store *value* and return its address, of type *pointer*."""
    slot = cgutils.alloca_once(builder, value.type)
    builder.store(value, slot)
    return builder.bitcast(slot, pointer)
