"""
Patch `cuda.compile` to give functions this package's C ABI, and numba-cuda to compile exported functions.

`cuda.compile` gives functions the C ABI if `abi_info=` is passed. Exported functions need the error model
that the export requires, prototypes as in C, and pointers to records.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any

from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda.context import current_context, notes
from numba_ptxlink.errors import ExportError

from .driverless import current_cc

C_ABI = PatchTable("C ABI")
"""The patches that the plugin applies, and that an export applies without the plugin, too."""
PATCHES = PatchTable("C ABI")
"""The patches that only the plugin applies."""

# As nvcc does, extend narrower results to 32 bits, the size of a register.
_REGISTER_BITS = 32
# Numba's tables of compiled subroutines (functions of its own library), by error checks and options of the
# caller. Numba itself has one table, so that all callers would get the code that was compiled for the first.
_subroutines: dict[tuple[bool, str], dict[Any, Any]] = {}


@PATCHES.around("numba.cuda.compiler", "compile", importers="numba.cuda")
def _compile(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Compile without a driver; with `abi_info`, give functions and kernels the prototype of C++."""
    from numba_ptxlink._export import choice

    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    arguments = bound.arguments
    # The function may be marked by `@udf`.
    arguments["pyfunc"] = choice.unwrap_marked(arguments["pyfunc"])
    arguments["cc"] = arguments["cc"] or current_cc()
    if arguments["abi_info"] is not None:
        from numba_ptxlink._arch import Arch
        from numba_ptxlink._export import cuda_compile

        arch = Arch.of(arguments["cc"])
        # The result is None if numba-cuda compiles this function itself.
        code = cuda_compile.compile_c_abi("numba-cuda", arguments, lambda _: arch, always=False)
        if code is not None:
            return code
    return original(**arguments)


@C_ABI.around("numba.cuda.core.inline_closurecall", "_get_callee_args")
def _get_callee_args(original: Any, call: Any, callee: Any, loc: Any, func_ir: Any) -> Any:
    """Refuse a closure that an exported function calls with keyword arguments, which would be ignored."""
    args = original(call, callee, loc, func_ir)
    if current_context().checked is not None:
        from numba_ptxlink._front_end.closures import check_closure

        check_closure(call, callee, loc, args)
    return args


@C_ABI.around("numba.cuda.core.compiler", "_make_subtarget")
def _make_subtarget(original: Any, targetctx: Any, flags: Any) -> Any:
    """Give an exported function and its callees the error model that the export requires."""
    from numba.cuda.core.callconv import PythonErrorModel

    checked = current_context().checked
    if checked is None:
        return original(targetctx, flags)
    # Numba has two error models: "python" raises an error for a division by zero, "numpy" does not.
    if checked:
        flags.error_model = "python"
    elif not flags.is_set("error_model"):
        # A subroutine has new flags, with the default "python": inherit the error model of its caller.
        raises_errors = isinstance(targetctx.error_model, PythonErrorModel)
        flags.error_model = "python" if raises_errors else "numpy"
    context = original(targetctx, flags)
    # The flags of a subroutine lack the compiler's options: it keeps the table of the function that calls it.
    if hasattr(flags, "nvvm_options"):
        context.cached_internal_func = _subroutines.setdefault((checked, flags.summary()), {})
    if checked:
        # With fastmath, numba-cuda would use its approximate division, which does not check the divisor.
        context.fastmath = False
    return context


@C_ABI.replace("numba.cuda.target", "CUDATargetContext.enable_boundscheck")
def _enable_boundscheck(_original: Any) -> Any:
    """Check indices in an exported function and its callees if the export requires it."""
    return property(lambda _self: bool(current_context().checked))


@C_ABI.around("numba.cuda.lowering", "Lower.lower_inst")
def _lower_inst(original: Any, self: Any, inst: Any) -> None:
    """Record the lines that raise, for headers and manifests; reject float16 constants."""
    if current_context().checked is not None:
        _check_half_constant(self, inst)
    # The call helper lists the exceptions that the function raises; that of numba-cuda's own C convention has
    # no list, since functions do not return errors there.
    exceptions = getattr(self.call_helper, "exceptions", ())
    earlier_count = len(exceptions)
    original(self, inst)
    if len(exceptions) > earlier_count:
        notes(self.library).sites.add((inst.loc.filename, inst.loc.line))


def _check_half_constant(lower: Any, inst: Any) -> None:
    """
    Check that *inst* reads no float16 constant, alone or in a tuple.

    A constant may be a global, a variable of an enclosing function, a literal or a default argument.

    In LLVM IR, numba-cuda represents a float16 by an integer, but writes such a constant as a float, which
    NVVM rejects.

    Raises:
        ExportError: *inst* reads such a constant.
    """
    from numba.cuda import types
    from numba.cuda.core import ir

    value = getattr(inst, "value", None)
    is_default = isinstance(value, ir.Arg) and isinstance(lower.fndesc.argtypes[value.index], types.Omitted)
    if not isinstance(inst, ir.Assign) or not (
        isinstance(value, (ir.Global, ir.FreeVar, ir.Const)) or is_default
    ):
        return
    pending = [lower.typeof(inst.target.name)]
    while pending:
        ty = pending.pop()
        if ty == types.float16:
            name = getattr(value, "name", inst.target.name)
            raise ExportError(
                f"numba-cuda has no float16 constants, and reads one from {name}; write the number in the "
                "function, such as np.float16(1.5)"
            )
        pending += getattr(ty, "types", ()) if isinstance(ty, types.BaseTuple) else ()


@C_ABI.replace("numba.cuda.core.callconv", "CUDACABICallConv", importers="numba.cuda")
def _c_convention(original: Any) -> Any:
    """
    With `abi="c"`, let a function without a result return `void`, and extend narrow results, as C++ expects.

    numba-cuda returns a pointer instead of `void`, and leaves the upper bits of narrow results undefined.
    """

    class CUDACABICallConv(original):  # type: ignore[misc]
        """numba-cuda's calling convention for C."""

        def get_function_type(self, restype: Any, argtypes: Any) -> Any:
            from llvmlite import ir

            function_type = super().get_function_type(restype, argtypes)
            return_type = function_type.return_type
            if _is_none(restype):
                return ir.FunctionType(ir.VoidType(), function_type.args)
            if isinstance(return_type, ir.IntType) and return_type.width < _REGISTER_BITS:
                # `decorate_function`, which gets no Numba type, reads this attribute.
                function_type.extension = "signext" if getattr(restype, "signed", False) else "zeroext"
            return function_type

        def decorate_function(self, fn: Any, *args: Any, **kwargs: Any) -> None:
            super().decorate_function(fn, *args, **kwargs)
            extension = getattr(fn.ftype, "extension", None)
            if extension:
                fn.return_value.add_attribute(extension)

        def call_function(self, builder: Any, callee: Any, resty: Any, *arguments: Any) -> Any:
            if not _is_none(resty):
                return super().call_function(builder, callee, resty, *arguments)
            argtys, args = arguments
            builder.call(callee, self._get_arg_packer(argtys).as_arguments(builder, args))
            return None, self.context.get_dummy_value()

        def return_value(self, builder: Any, retval: Any) -> Any:
            from llvmlite import ir

            if isinstance(builder.function.ftype.return_type, ir.VoidType):
                return builder.ret_void()
            return super().return_value(builder, retval)

    return CUDACABICallConv


def _is_none(restype: Any) -> bool:
    from numba.cuda import types

    return bool(restype == types.none)


@C_ABI.around("numba.cuda.core.base", "BaseContext.get_function")
def _get_function(original: Any, self: Any, fn: Any, sig: Any, *args: Any, **kwargs: Any) -> Any:
    """
    Access records, booleans and tuples of booleans by pointers; reject the truth value of a float16.

    numba-cuda fails for pointers to types whose representations in memory and in registers differ.
    """
    from numba.cuda import types
    from numba.cuda.core.base import _wrap_impl

    if sig.args == (types.float16,) and current_context().checked is not None and _key_of(fn, sig) is bool:
        raise ExportError("numba-cuda has no truth value of a float16; compare it with 0: `if x != 0:`")
    if sig.args and isinstance(sig.args[0], types.CPointer):
        implementation = _POINTER_ACCESSES.get(_key_of(fn, sig))
        model = self.data_model_manager[sig.args[0].dtype]
        if implementation is not None and model.get_data_type() != model.get_value_type():
            return _wrap_impl(implementation, self, sig)
    return original(self, fn, sig, *args, **kwargs)


def _key_of(fn: Any, sig: Any) -> Any:
    """Return the key by which numba-cuda finds the implementations of *fn*, such as `operator.getitem`."""
    from numba.cuda import types

    return fn.get_impl_key(sig) if isinstance(fn, types.Callable) else fn


def _load_from_pointer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Lower `pointer[index]`: load an element, and convert it to its representation in registers."""
    pointer, index = args
    return context.unpack_value(builder, sig.args[0].dtype, builder.gep(pointer, [index]))


def _store_to_pointer(context: Any, builder: Any, sig: Any, args: Any) -> None:
    """Lower `pointer[index] = value`: convert *value* to its representation in memory, and store it."""
    pointer, index, value = args
    context.pack_value(builder, sig.args[0].dtype, value, builder.gep(pointer, [index]))


_POINTER_ACCESSES = {operator.getitem: _load_from_pointer, operator.setitem: _store_to_pointer}
