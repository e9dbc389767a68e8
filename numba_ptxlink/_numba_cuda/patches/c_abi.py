"""
`cuda.compile` with the C ABI of this package, where `abi_info` asks for it, and what such functions need.

That is one error model, prototypes of C, and records behind pointers.
"""

from __future__ import annotations

import inspect
import operator
from typing import Any

from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda.context import current, notes

from .driverless import current_cc

C_ABI = PatchTable("C ABI")
"""The rows that an export applies, too."""
PATCHES = PatchTable("C ABI")

# The bits that a narrow integer is extended to.
_REGISTER = 32
# Numba keeps one compiled subroutine for the process, as the first use made it; here each set of options that
# functions are compiled with has its own.
_subroutines: dict[tuple[bool, str], dict[Any, Any]] = {}


@PATCHES.around("numba.cuda.compiler", "compile", bound="numba.cuda")
def _compile(original: Any, *args: Any, **kwargs: Any) -> Any:
    """Need no driver; with `abi_info`, give functions and kernels the prototype that C++ declares."""
    from numba_ptxlink._export import choice

    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    given = bound.arguments
    given["pyfunc"] = choice.unmarked(given["pyfunc"])
    given["cc"] = given["cc"] or current_cc()
    if given["abi_info"] is not None:
        from numba_ptxlink._arch import Arch
        from numba_ptxlink._export import cuda_compile

        arch = Arch.of(given["cc"])
        code = cuda_compile.compile_c_abi("numba-cuda", given, lambda _: arch, always=False)
        if code is not None:
            return code
    return original(**given)


@C_ABI.around("numba.cuda.core.inline_closurecall", "_get_callee_args")
def _get_callee_args(original: Any, call: Any, callee: Any, loc: Any, func_ir: Any) -> Any:
    """Refuse a closure that an exported function calls by a keyword: its default would be taken."""
    args = original(call, callee, loc, func_ir)
    if current().checked is not None:
        from numba_ptxlink._front_end.closures import check_closure

        check_closure(call, callee, loc, args)
    return args


@C_ABI.around("numba.cuda.core.compiler", "_make_subtarget")
def _make_subtarget(original: Any, targetctx: Any, flags: Any) -> Any:
    """Give a function with the C ABI, and all that it calls, the error model that its caller chooses."""
    from numba.cuda.core.callconv import PythonErrorModel

    checked = current().checked
    if checked is None:
        return original(targetctx, flags)
    if checked:
        flags.error_model = "python"
    elif not flags.is_set("error_model"):
        # The flags of a subroutine are new ones, with Python's error model in them.
        inherited = isinstance(targetctx.error_model, PythonErrorModel)
        flags.error_model = "python" if inherited else "numpy"
    context = original(targetctx, flags)
    # The flags of a subroutine say nothing of its function's, whose table its context has.
    if hasattr(flags, "nvvm_options"):
        context.cached_internal_func = _subroutines.setdefault((checked, flags.summary()), {})
    if checked:
        # The approximate division has no check.
        context.fastmath = False
    return context


@C_ABI.replace("numba.cuda.target", "CUDATargetContext.enable_boundscheck")
def _enable_boundscheck(_original: Any) -> Any:
    """Check indices where a function with the C ABI asks for it."""
    return property(lambda _self: bool(current().checked))


@C_ABI.around("numba.cuda.lowering", "Lower.lower_inst")
def _lower_inst(original: Any, self: Any, inst: Any) -> None:
    """Note the lines that raise, for headers and manifests."""
    # numba-cuda's own convention for C has no exceptions.
    exceptions = getattr(self.call_helper, "exceptions", ())
    before = len(exceptions)
    original(self, inst)
    if len(exceptions) > before:
        notes(self.library).sites.add((inst.loc.filename, inst.loc.line))


@C_ABI.replace("numba.cuda.core.callconv", "CUDACABICallConv", bound="numba.cuda")
def _c_convention(original: Any) -> Any:
    """
    With `abi="c"`, let a function without a result be `void`, and extend narrow results, as C++ expects it.

    numba-cuda has a pointer for the one, and leaves the upper bits of the other.
    """

    class CUDACABICallConv(original):  # type: ignore[misc]
        """numba-cuda's calling convention for C."""

        def get_function_type(self, restype: Any, argtypes: Any) -> Any:
            from llvmlite import ir

            kind = super().get_function_type(restype, argtypes)
            if _is_none(restype):
                kind = ir.FunctionType(ir.VoidType(), kind.args)
            elif isinstance(kind.return_type, ir.IntType) and kind.return_type.width < _REGISTER:
                kind.extension = "signext" if getattr(restype, "signed", False) else "zeroext"
            return kind

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
    Let pointers to records, to booleans, and to tuples of booleans be read and written.

    numba-cuda takes what lies in memory for a value, and fails.
    """
    from numba.cuda import types
    from numba.cuda.core.base import _wrap_impl

    if sig.args and isinstance(sig.args[0], types.CPointer):
        access = _ACCESSES.get(fn.get_impl_key(sig) if isinstance(fn, types.Callable) else fn)
        model = self.data_model_manager[sig.args[0].dtype]
        if access is not None and model.get_data_type() != model.get_value_type():
            return _wrap_impl(access, self, sig)
    return original(self, fn, sig, *args, **kwargs)


def _load_from_pointer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    pointer, index = args
    return context.unpack_value(builder, sig.args[0].dtype, builder.gep(pointer, [index]))


def _store_to_pointer(context: Any, builder: Any, sig: Any, args: Any) -> None:
    pointer, index, value = args
    context.pack_value(builder, sig.args[0].dtype, value, builder.gep(pointer, [index]))


_ACCESSES = {operator.getitem: _load_from_pointer, operator.setitem: _store_to_pointer}
