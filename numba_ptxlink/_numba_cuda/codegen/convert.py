"""Generate LLVM IR types of C types, and conversions between C values and Numba's values."""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import cgutils, types

from numba_ptxlink._cabi import types as c

_I8 = ir.IntType(8)
_I64 = ir.IntType(64)


class Structs(ir.Context):  # type: ignore[misc]
    """
    The identified types of one module.

    In the global context they would appear in every module that Numba creates later.
    """

    def struct(self, name: str, elements: tuple[ir.Type, ...], *, packed: bool, opaque: bool) -> ir.Type:
        """Return the struct *name*, which has no body while it was only asked for as *opaque*."""
        named = self.get_identified_type(name)
        if named.is_opaque and not opaque:
            named.packed = packed
            named.set_body(*elements)
        return named


def ir_type(module: ir.Module, ctype: c.CType, *, behind_pointer: bool = False) -> ir.Type:
    """
    Return the IR type that nvcc uses for *ctype*, as a parameter, as a return value and in memory.

    Structs are identified types: link-time optimisation inlines a call only if the types of caller and callee
    are equal, and a literal struct never equals an identified one. It makes one of two equal structs of
    different modules, which C++ keeps apart, but for opaque ones: *behind_pointer*, structs are opaque.
    Alignment beyond that of the IR type has to be declared on the function.
    """
    if isinstance(ctype, c.Scalar):
        return _number(ctype.row.ir)
    if isinstance(ctype, c.Pointer):
        return _pointer_to(module, ctype.target)
    if isinstance(ctype, c.Array):
        return ir.ArrayType(ir_type(module, ctype.element, behind_pointer=behind_pointer), ctype.count)
    elements = _elements(module, ctype, behind_pointer=behind_pointer)
    packed = isinstance(ctype, c.Struct) and ctype.packed
    return module.context.struct(f"struct.{ctype.name}", elements, packed=packed, opaque=behind_pointer)


def _number(name: str) -> ir.Type:
    floats = {"half": ir.HalfType, "float": ir.FloatType, "double": ir.DoubleType}
    return floats[name]() if name in floats else ir.IntType(int(name.removeprefix("i")))


def _pointer_to(module: ir.Module, target: c.CType) -> ir.Type:
    if isinstance(target, c.Void):
        return _I8.as_pointer()
    # An array has no opaque elements.
    return ir_type(module, target, behind_pointer=not isinstance(target, c.Array)).as_pointer()


def _elements(module: ir.Module, ctype: Any, *, behind_pointer: bool) -> tuple[ir.Type, ...]:
    if isinstance(ctype, c.Compound):
        return (_number(ctype.row.ir),) * ctype.row.lanes
    if isinstance(ctype, c.View):
        extents = (ir.ArrayType(_I64, ctype.ndim),) * (2 if ctype.ndim else 0)
        return (_pointer_to(module, ctype.element), *extents)
    return tuple(ir_type(module, part, behind_pointer=behind_pointer) for part, _ in ctype.slots)


def from_c(context: Any, builder: ir.IRBuilder, ctype: c.CType, ty: Any, value: Any) -> Any:
    """Convert *value*, of the IR type of *ctype*, to Numba's value of type *ty*."""
    if isinstance(ty, types.Boolean):
        return builder.icmp_unsigned("!=", value, ir.Constant(value.type, 0))
    if isinstance(ctype, c.Pointer):
        return builder.bitcast(value, context.get_value_type(ty))
    if isinstance(ctype, c.Compound):
        own = context.get_value_type(ty)
        if isinstance(own, ir.Aggregate):
            return _copied(builder, own, value)
        return builder.bitcast(builder.extract_value(value, 0), own)
    if isinstance(ctype, c.View):
        return _array_from_view(context, builder, ctype, ty, value)
    if isinstance(ty, types.Record):
        return _spill(builder, value, context.get_value_type(ty))
    if isinstance(ty, types.Optional):
        optional = cgutils.create_struct_proxy(ty)(context, builder)
        (value_place, member), (valid_place, _) = _places(ctype)
        data = builder.extract_value(value, value_place)
        optional.data = from_c(context, builder, member.type, ty.type, data)
        valid = builder.extract_value(value, valid_place)
        optional.valid = builder.icmp_unsigned("!=", valid, ir.Constant(_I8, 0))
        return optional._getvalue()
    if isinstance(ty, types.BaseTuple):
        parts = [
            from_c(context, builder, member.type, inner, builder.extract_value(value, number))
            for (number, member), inner in zip(_places(ctype), ty.types, strict=True)
        ]
        return context.make_tuple(builder, ty, parts)
    return value


def to_c(context: Any, builder: ir.IRBuilder, ctype: c.CType, ty: Any, value: Any) -> Any:
    """Convert Numba's *value* of type *ty* to the IR type of *ctype*."""
    if isinstance(ty, types.Boolean):
        return builder.zext(value, _I8)
    if isinstance(ctype, c.Pointer):
        return builder.bitcast(value, ir_type(builder.module, ctype))
    target = ir_type(builder.module, ctype)
    if isinstance(ctype, c.Compound):
        if isinstance(value.type, ir.Aggregate):
            return _copied(builder, target, value)
        return _assemble(builder, target, {0: builder.bitcast(value, target.elements[0])})
    if isinstance(ctype, c.View):
        array = cgutils.create_struct_proxy(ty)(context, builder, value=value)
        parts = {0: builder.bitcast(array.data, target.elements[0])}
        if ctype.ndim:
            parts |= {1: array.shape, 2: array.strides}
        return _assemble(builder, target, parts)
    if isinstance(ty, types.Record):
        return builder.load(builder.bitcast(value, target.as_pointer()), align=1)
    if isinstance(ty, types.Optional):
        optional = cgutils.create_struct_proxy(ty)(context, builder, value=value)
        (value_place, member), (valid_place, _) = _places(ctype)
        data = _unless_none(context, builder, member.type, ty.type, optional)
        return _assemble(builder, target, {value_place: data, valid_place: builder.zext(optional.valid, _I8)})
    if isinstance(ty, types.BaseTuple):
        return _assemble(
            builder,
            target,
            {
                place: to_c(context, builder, member.type, inner, builder.extract_value(value, number))
                for number, ((place, member), inner) in enumerate(zip(_places(ctype), ty.types, strict=True))
            },
        )
    return value


def from_return(context: Any, builder: ir.IRBuilder, ty: Any, value: Any) -> Any:
    """Convert *value*, as returned by a function with Numba's ABI, to Numba's value of type *ty*."""
    if isinstance(ty, (types.Tuple, types.NamedTuple)):
        return _from_stored(context, builder, ty, value)
    return context.get_returned_value(builder, ty, value)


def _from_stored(context: Any, builder: ir.IRBuilder, ty: Any, value: Any) -> Any:
    # Numba's own conversion rejects a tuple that holds a record, which lies in it by value.
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
        optional.valid = _from_stored(context, builder, types.boolean, builder.extract_value(value, 1))
        return optional._getvalue()
    return context.data_model_manager[ty].from_data(builder, value)


def _unless_none(context: Any, builder: ir.IRBuilder, ctype: c.CType, ty: Any, optional: Any) -> Any:
    """Return the value of *optional* as a C value, zero if it is None."""
    # A record is an address, which is null for None and must not be loaded.
    slot = cgutils.alloca_once_value(builder, ir.Constant(ir_type(builder.module, ctype), None))
    with builder.if_then(optional.valid):
        builder.store(to_c(context, builder, ctype, ty, optional.data), slot)
    return builder.load(slot)


def holds_record(ty: Any) -> bool:
    """Return whether values of the Numba type *ty* contain addresses of records."""
    if isinstance(ty, types.BaseTuple):
        return any(map(holds_record, ty.types))
    return isinstance(ty, types.Record) or (isinstance(ty, types.Optional) and holds_record(ty.type))


def _array_from_view(context: Any, builder: ir.IRBuilder, ctype: c.View, ty: Any, value: Any) -> Any:
    array = cgutils.create_struct_proxy(ty)(context, builder)
    itemsize = ctype.element.size
    shape = [builder.extract_value(value, [1, axis]) for axis in range(ctype.ndim)]
    strides = [builder.extract_value(value, [2, axis]) for axis in range(ctype.ndim)]
    if ty.layout in "CF":
        # The strides follow from the type, which saves loads and lets NVVM optimise with them.
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


def _places(ctype: Any) -> list[tuple[int, c.Member]]:
    """Return the members of a struct, each with its index in the IR struct."""
    return [(number, member) for number, (_, member) in enumerate(ctype.slots) if member is not None]


def _copied(builder: ir.IRBuilder, target: ir.Type, value: Any) -> Any:
    """Copy the members of *value* to a value of the struct type *target*."""
    count = len(target.elements)
    return _assemble(
        builder, target, {number: builder.extract_value(value, number) for number in range(count)}
    )


def _assemble(builder: ir.IRBuilder, target: ir.Type, parts: dict[int, Any]) -> Any:
    value: Any = ir.Constant(target, ir.Undefined)
    for number, part in parts.items():
        value = builder.insert_value(value, part, number)
    return value


def _spill(builder: ir.IRBuilder, value: Any, pointer: ir.Type) -> Any:
    """Store *value* and return its address, of type *pointer*."""
    slot = cgutils.alloca_once(builder, value.type)
    # Numba loads a field with its natural alignment if the offset allows it, even of a packed record.
    slot.align = 16
    builder.store(value, slot)
    return builder.bitcast(slot, pointer)
