"""
Generate wrappers with the C ABI: functions with nvcc's prototype that call a function with Numba's ABI.

A wrapper is used instead of a calling convention of the function itself, because Numba's ABI has what C
lacks, a status for `raise` and for None. The wrapper handles the status, and NVVM inlines the function into
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba.cuda import cgutils, types
from numba.cuda.core import imputils
from numba.cuda.core.callconv import CUDACallConv
from numba.cuda.cudadrv import nvvm

from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature, is_large, unaligned_member

from .convert import Structs, from_c, from_return, holds_record, ir_type, to_c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._cabi.options import AbiOptions

# In instructions of LLVM IR as Numba emits it; whether to inline a larger function is NVVM's decision.
_SMALL = 1000


def wrap(
    compiled: Any,
    signature: Signature,
    options: AbiOptions,
    *,
    inline: bool,
    launch_bounds: int | tuple[int, ...] | None = None,
) -> None:
    """
    Add the C function of *signature* to the module of *compiled*, which it calls.

    Args:
        compiled: The CUDACompileResult of the Python function, with Numba's ABI.
        signature: The C signature of the new function.
        options: How errors are handled.
        inline: Whether NVVM may inline the Python function into the wrapper.
        launch_bounds: For a kernel, the maximum number of threads in a block, or a tuple as for `cuda.jit`.
    """
    context = compiled.target_context
    inner = _inner(compiled, inline=inline)
    module = inner.module
    module.context = Structs()
    result = ir.VoidType() if isinstance(signature.result, c.Void) else ir_type(module, signature.result)
    kinds = [ir_type(module, ctype) for _, ctype in signature.params]
    large = [is_large(ctype) and not signature.kernel for _, ctype in signature.params]
    kinds = [kind.as_pointer() if by_address else kind for kind, by_address in zip(kinds, large, strict=True)]
    outer = ir.Function(module, ir.FunctionType(result, kinds), signature.name)
    _align(outer, signature)
    small = sum(len(block.instructions) for block in inner.blocks) < _SMALL
    types_passed = (signature.result, *(ctype for _, ctype in signature.params))
    if not signature.kernel and ((inline and small) or any(map(unaligned_member, types_passed))):
        # Unpacking arguments costs instructions that inlining removes, but the inliner's cost model counts.
        # A struct with members that are not aligned must not be passed at all, which inlining prevents.
        outer.attributes.add("alwaysinline")
    if not signature.kernel:
        _extend(outer.return_value, signature.result)
    for argument, (name, ctype) in zip(outer.args, signature.params, strict=True):
        argument.name = name
        if isinstance(ctype, c.Pointer) and ctype.restrict:
            argument.add_attribute("noalias")
        if not signature.kernel:
            _extend(argument, ctype)

    builder = _entry(outer, inner)
    arguments = [
        _received(context, builder, ctype, ty, value, by_address=by_address)
        for (_, ctype), ty, value, by_address in zip(
            signature.params, compiled.signature.args, outer.args, large, strict=True
        )
    ]
    value = _call(compiled, builder, inner, arguments, on_error=options.on_error, result=result)
    if isinstance(signature.result, c.Void):
        builder.ret_void()
    else:
        builder.ret(to_c(context, builder, signature.result, compiled.signature.return_type, value))
    if signature.kernel:
        nvvm.set_cuda_kernel(outer)
        nvvm.set_launch_bounds(outer, launch_bounds)


def _received(
    context: Any, builder: ir.IRBuilder, ctype: c.CType, ty: Any, value: ir.Argument, *, by_address: bool
) -> ir.Value:
    """Return the argument *value* of C, of type *ctype*, as Numba's function takes it, of type *ty*."""
    if not by_address:
        return from_c(context, builder, ctype, ty, value)
    value.add_attribute("byval")
    value.attributes.align = ctype.align
    if isinstance(ty, types.Record) and unaligned_member(ctype) is None:
        # It is the function's own already. NVVM's time for a copy grows with the cube of its size.
        return builder.bitcast(value, context.get_value_type(ty))
    return from_c(context, builder, ctype, ty, builder.load(value, align=ctype.align))


def _inner(compiled: Any, *, inline: bool) -> ir.Function:
    inner = compiled.library.get_function(compiled.fndesc.llvm_func_name)
    inner.linkage = "internal"
    for name, variable in inner.module.globals.items():
        # Only CPU code looks up the environment by this symbol.
        if name.startswith("_ZN08NumbaEnv"):
            variable.linkage = "internal"
    if inline or holds_record(compiled.signature.return_type):
        # A record is returned by address, which may point into the function's frame.
        inner.attributes.discard("noinline")
        inner.attributes.add("alwaysinline")
    return inner


def _entry(outer: ir.Function, inner: ir.Function) -> ir.IRBuilder:
    """Return a builder at the start of *outer*, which gets the debug location of *inner* if that has one."""
    builder = ir.IRBuilder(outer.append_basic_block("entry"))
    subprogram = inner.metadata.get("dbg")
    if subprogram is not None:
        # LLVM drops the lines of a function that it inlines where the call has no line.
        fields = {**dict(subprogram.operands), "name": outer.name, "linkageName": outer.name}
        scope = outer.module.add_debug_info("DISubprogram", fields, is_distinct=True)
        outer.set_metadata("dbg", scope)
        builder.debug_metadata = outer.module.add_debug_info(
            "DILocation", {"line": fields["line"], "column": 1, "scope": scope}
        )
    return builder


def _call(
    compiled: Any,
    builder: ir.IRBuilder,
    inner: ir.Function,
    arguments: Sequence[Any],
    *,
    on_error: str,
    result: ir.Type,
) -> Any:
    """Emit a call of *inner* and a return from the wrapper if it failed; return its value."""
    context = compiled.target_context
    signature = compiled.signature
    convention = _RawResult(context)
    status, raw = convention.call_function(builder, inner, signature.return_type, signature.args, arguments)
    with builder.if_then(status.is_error, likely=False):
        if on_error == "trap":
            trap = inner.module.declare_intrinsic("llvm.trap", (), ir.FunctionType(ir.VoidType(), ()))
            builder.call(trap, ())
        if isinstance(result, ir.VoidType):
            builder.ret_void()
        else:
            builder.ret(ir.Constant(result, None))
    if isinstance(result, ir.VoidType):
        return None
    if isinstance(signature.return_type, types.Optional):
        value = from_return(context, builder, signature.return_type.type, raw)
        return imputils.fix_returning_optional(context, builder, signature, status, value)
    return from_return(context, builder, signature.return_type, raw)


class _RawResult(CUDACallConv):  # type: ignore[misc]
    """Numba's calling convention without its conversion of the result, which fails for some types."""

    class _Context:
        def __init__(self, context: Any) -> None:
            self._context = context

        def __getattr__(self, name: str) -> Any:
            return getattr(self._context, name)

        def get_returned_value(self, _builder: Any, _ty: Any, value: Any) -> Any:
            return value

    def __init__(self, context: Any) -> None:
        super().__init__(self._Context(context))


def _extend(value: Any, ctype: c.CType) -> None:
    # nvcc's callers and callees assume that the other side extends a narrow integer to 32 bits.
    if isinstance(ctype, c.Scalar) and ctype.extension:
        value.add_attribute(ctype.extension)


def _align(function: ir.Function, signature: Signature) -> None:
    """Annotate parameters and the result that C aligns differently from their IR types."""
    # NVVM IR Specification, "Global Property Annotation": the position is in the upper 16 bits.
    values = [signature.result, *(ctype for _, ctype in signature.params)]
    operands: list[Any] = []
    for position, ctype in enumerate(values):
        if position and is_large(ctype) and not signature.kernel:
            continue  # the byval parameter has an align attribute
        if ctype.align != ctype.natural_align:
            operands += ["align", ir.Constant(ir.IntType(32), position << 16 | ctype.align)]
    if operands:
        annotations = cgutils.get_or_insert_named_metadata(function.module, "nvvm.annotations")
        annotations.add(function.module.add_metadata([function, *operands]))
