"""
`cuda.compile` with the C ABI of this package, where `abi_info` asks for it, and what such functions need.

That is one error model, prototypes of C, and records behind pointers.
"""

from __future__ import annotations

import functools
import inspect
import operator
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import current, notes

from .driverless import current_cc

# The bits that a narrow integer is extended to.
_REGISTER = 32
# Numba keeps one compiled subroutine for the process, as the first use made it; here each set of options that
# functions are compiled with has its own.
_subroutines: dict[tuple[bool, str], dict[Any, Any]] = {}


def _wrap_compile(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - Numba's name for it
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        from numba_ptxlink._export import choice

        given["pyfunc"] = choice.unmarked(given["pyfunc"])
        given["cc"] = given["cc"] or current_cc()
        if given["abi_info"] is not None:
            from numba_ptxlink._arch import Arch
            from numba_ptxlink._export import cuda_compile

            arch = Arch.of(given["cc"])
            code = cuda_compile.by_value("numba-cuda", given, lambda _: arch, always=False)
            if code is not None:
                return code
        return original(**given)

    return compile


def _wrap_make_subtarget(original: Any) -> Any:
    @functools.wraps(original)
    def _make_subtarget(targetctx: Any, flags: Any) -> Any:
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

    return _make_subtarget


def _wrap_enable_boundscheck(_original: Any) -> Any:
    return property(lambda _self: bool(current().checked))


def _wrap_lower_inst(original: Any) -> Any:
    @functools.wraps(original)
    def lower_inst(self: Any, inst: Any) -> None:
        # numba-cuda's own convention for C has no exceptions.
        exceptions = getattr(self.call_helper, "exceptions", ())
        before = len(exceptions)
        original(self, inst)
        if len(exceptions) > before:
            notes(self.library).sites.add((inst.loc.filename, inst.loc.line))

    return lower_inst


def _wrap_function_type(original: Any) -> Any:
    @functools.wraps(original)
    def get_function_type(self: Any, restype: Any, argtypes: Any) -> Any:
        from llvmlite import ir

        kind = original(self, restype, argtypes)
        if _is_none(restype):
            kind = ir.FunctionType(ir.VoidType(), kind.args)
        elif isinstance(kind.return_type, ir.IntType) and kind.return_type.width < _REGISTER:
            kind.extension = "signext" if getattr(restype, "signed", False) else "zeroext"
        return kind

    return get_function_type


def _wrap_decorate_function(original: Any) -> Any:
    @functools.wraps(original)
    def decorate_function(self: Any, fn: Any, *args: Any, **kwargs: Any) -> None:
        original(self, fn, *args, **kwargs)
        extension = getattr(fn.ftype, "extension", None)
        if extension:
            fn.return_value.add_attribute(extension)

    return decorate_function


def _wrap_call_function(original: Any) -> Any:
    @functools.wraps(original)
    def call_function(self: Any, builder: Any, callee: Any, resty: Any, *arguments: Any) -> Any:
        if not _is_none(resty):
            return original(self, builder, callee, resty, *arguments)
        argtys, args = arguments
        builder.call(callee, self._get_arg_packer(argtys).as_arguments(builder, args))
        return None, self.context.get_dummy_value()

    return call_function


def _wrap_return_value(original: Any) -> Any:
    @functools.wraps(original)
    def return_value(self: Any, builder: Any, retval: Any) -> Any:
        from llvmlite import ir

        if isinstance(builder.function.ftype.return_type, ir.VoidType):
            return builder.ret_void()
        return original(self, builder, retval)

    return return_value


def _is_none(restype: Any) -> bool:
    from numba.cuda import types

    return bool(restype == types.none)


def _wrap_get_function(original: Any) -> Any:
    accesses = {operator.getitem: _load_from_pointer, operator.setitem: _store_to_pointer}

    @functools.wraps(original)
    def get_function(self: Any, fn: Any, sig: Any, *args: Any, **kwargs: Any) -> Any:
        from numba.cuda import types
        from numba.cuda.core.base import _wrap_impl

        if sig.args and isinstance(sig.args[0], types.CPointer):
            access = accesses.get(fn.get_impl_key(sig) if isinstance(fn, types.Callable) else fn)
            model = self.data_model_manager[sig.args[0].dtype]
            if access is not None and model.get_data_type() != model.get_value_type():
                return _wrap_impl(access, self, sig)
        return original(self, fn, sig, *args, **kwargs)

    return get_function


def _load_from_pointer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    pointer, index = args
    return context.unpack_value(builder, sig.args[0].dtype, builder.gep(pointer, [index]))


def _store_to_pointer(context: Any, builder: Any, sig: Any, args: Any) -> None:
    pointer, index, value = args
    context.pack_value(builder, sig.args[0].dtype, value, builder.gep(pointer, [index]))


def _wrap_get_callee_args(original: Any) -> Any:
    from numba_ptxlink._front_end.compiler import checked_closures

    return checked_closures(original, lambda: current().checked is not None)


C_ABI = (
    Substitution(
        "numba.cuda.core.inline_closurecall",
        "_get_callee_args",
        _wrap_get_callee_args,
        "A closure that an exported function calls by a keyword is refused: its default would be taken.",
        purpose="C ABI",
    ),
    Substitution(
        "numba.cuda.core.compiler",
        "_make_subtarget",
        _wrap_make_subtarget,
        "A function with the C ABI and all that it calls have one error model, which its caller chooses.",
        purpose="C ABI",
    ),
    Substitution(
        "numba.cuda.target",
        "CUDATargetContext.enable_boundscheck",
        _wrap_enable_boundscheck,
        "Indices are checked where a function with the C ABI asks for it.",
        purpose="C ABI",
    ),
    Substitution(
        "numba.cuda.lowering",
        "Lower.lower_inst",
        _wrap_lower_inst,
        "The lines that raise are noted, for headers and manifests.",
        purpose="C ABI",
    ),
    Substitution(
        "numba.cuda.core.callconv",
        "CUDACABICallConv.get_function_type",
        _wrap_function_type,
        'A function without a result, declared with `abi="c"`, is `void`, where numba-cuda has a pointer.',
        purpose="C ABI",
    ),
    Substitution(
        "numba.cuda.core.callconv",
        "CUDACABICallConv.call_function",
        _wrap_call_function,
        "A call of such a function has no result.",
        purpose="C ABI",
    ),
    Substitution(
        "numba.cuda.core.callconv",
        "CUDACABICallConv.return_value",
        _wrap_return_value,
        "Its `return` returns no value.",
        purpose="C ABI",
    ),
    Substitution(
        "numba.cuda.core.callconv",
        "CUDACABICallConv.decorate_function",
        _wrap_decorate_function,
        "A narrow result is extended, as C++ expects it.",
        purpose="C ABI",
    ),
    Substitution(
        "numba.cuda.core.base",
        "BaseContext.get_function",
        _wrap_get_function,
        "A pointer to records, to booleans, or to tuples of booleans can be read and written, where "
        "numba-cuda takes what lies in memory for a value and fails.",
        purpose="C ABI",
    ),
)
"""The rows that an export applies, too."""

SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.compiler",
        "compile",
        _wrap_compile,
        "It needs no driver. With `abi_info`, functions and kernels have the prototype that C++ declares.",
        bound="numba.cuda",
        purpose="C ABI",
    ),
)
