"""
LLVM IR for the C ABI: a function with nvcc's prototype around a function compiled with Numba's own ABI.

A wrapper, and not a calling convention inside the function, because Numba's ABI has what C lacks: a status
for `raise` and for None. The wrapper decides what becomes of them, and NVVM inlines the function into it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.core.callconv import CUDACallConv

from . import abi

_I8 = ir.IntType(8)


def emit(compiled: Any, signature: abi.Signature, options: abi.AbiOptions, *, inline: bool) -> ir.Function:
    """
    Add the C function of *signature* to the module of *compiled*, which it calls.

    Args:
        compiled: The CUDACompileResult of the Python function, compiled with Numba's ABI.
        signature: What the symbol is to look like from C.
        options: What to do about errors.
        inline: Whether NVVM may dissolve the Python function into the wrapper.
    """
    context = compiled.target_context
    inner = compiled.library.get_function(compiled.fndesc.llvm_func_name)
    inner.linkage = "internal"
    if inline:
        inner.attributes.discard("noinline")
        inner.attributes.add("alwaysinline")

    result = ir.VoidType() if isinstance(signature.result, abi.Void) else ir_type(signature.result)
    function_type = ir.FunctionType(result, [ir_type(ctype) for _, ctype in signature.params])
    outer = ir.Function(inner.module, function_type, signature.name)
    _extend(outer.return_value, signature.result)
    for argument, (name, ctype) in zip(outer.args, signature.params, strict=True):
        argument.name = name
        _extend(argument, ctype)

    builder = ir.IRBuilder(outer.append_basic_block("entry"))
    arguments = [
        from_c(context, builder, ctype, ty, value)
        for (_, ctype), ty, value in zip(signature.params, compiled.signature.args, outer.args, strict=True)
    ]
    status, value = CUDACallConv(context).call_function(
        builder, inner, compiled.signature.return_type, compiled.signature.args, arguments
    )
    with builder.if_then(status.is_error, likely=False):
        if options.on_error == "trap":
            trap = inner.module.declare_intrinsic("llvm.trap", (), ir.FunctionType(ir.VoidType(), ()))
            builder.call(trap, ())
        if isinstance(signature.result, abi.Void):
            builder.ret_void()
        else:
            builder.ret(ir.Constant(result, None))
    if isinstance(signature.result, abi.Void):
        builder.ret_void()
    else:
        builder.ret(to_c(context, builder, signature.result, compiled.signature.return_type, value))
    return outer


def ir_type(ctype: abi.CType) -> ir.Type:
    """Return the IR type whose PTX form, as a parameter and as a return value, is that of *ctype*."""
    if isinstance(ctype, abi.Scalar):
        if ctype.kind == "float":
            return ir.FloatType() if ctype.size == 4 else ir.DoubleType()
        return ir.IntType(ctype.size * 8)
    if isinstance(ctype, abi.Pointer):
        return _I8.as_pointer()
    raise NotImplementedError(ctype)


def _extend(value: Any, ctype: abi.CType) -> None:
    # nvcc's callers and callees rely on the other side having widened a narrow integer to 32 bits.
    if isinstance(ctype, abi.Scalar) and ctype.kind != "float" and ctype.size < 4:
        value.add_attribute("signext" if ctype.kind == "int" else "zeroext")


def from_c(context: Any, builder: ir.IRBuilder, ctype: abi.CType, ty: Any, value: Any) -> Any:
    """Turn *value*, of the IR type of *ctype*, into Numba's value of type *ty*."""
    if isinstance(ty, types.Boolean):
        return builder.icmp_unsigned("!=", value, ir.Constant(value.type, 0))
    if isinstance(ctype, abi.Pointer):
        return builder.bitcast(value, context.get_value_type(ty))
    return value


def to_c(_context: Any, builder: ir.IRBuilder, ctype: abi.CType, ty: Any, value: Any) -> Any:
    """Turn Numba's *value* of type *ty* into the IR type of *ctype*."""
    if isinstance(ty, types.Boolean):
        return builder.zext(value, _I8)
    if isinstance(ctype, abi.Pointer):
        return builder.bitcast(value, _I8.as_pointer())
    return value
