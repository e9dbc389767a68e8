"""Corrections of numba-cuda that a right link, a right prototype or a found cache entry depends on."""

from __future__ import annotations

import functools
import operator
import re
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import LibraryNotes, current, entered, notes

from .results import is_not_zero

_UNDECODED = re.compile("[\ud800-\udfff]")


def _wrap_create_library(original: Any) -> Any:
    @functools.wraps(original)
    def run_pass(self: Any, state: Any) -> Any:
        result = original(self, state)
        function = state.func_id
        file = function.filename.replace("\\", "/").rpartition("/")[2]
        notes(
            state.library, LibraryNotes
        ).origin = f"{function.func_qualname} ({file}:{function.firstlineno})"
        return result

    return run_pass


def _wrap_c_function_type(original: Any) -> Any:
    from llvmlite import ir

    @functools.wraps(original)
    def get_function_type(self: Any, restype: Any, argtypes: Any) -> Any:
        function_type = original(self, restype, argtypes)
        if not _is_none(restype):
            return function_type
        # numba-cuda has a pointer there, which no `void` function of C++ returns.
        return ir.FunctionType(ir.VoidType(), function_type.args)

    return get_function_type


def _wrap_c_call_function(original: Any) -> Any:
    @functools.wraps(original)
    def call_function(self: Any, builder: Any, callee: Any, resty: Any, *arguments: Any) -> Any:
        if not _is_none(resty):
            return original(self, builder, callee, resty, *arguments)
        argtys, args = arguments
        builder.call(callee, self._get_arg_packer(argtys).as_arguments(builder, args))
        return None, self.context.get_dummy_value()

    return call_function


def _wrap_c_return_value(original: Any) -> Any:
    from llvmlite import ir

    @functools.wraps(original)
    def return_value(self: Any, builder: Any, retval: Any) -> Any:
        if isinstance(builder.function.ftype.return_type, ir.VoidType):
            return builder.ret_void()
        return original(self, builder, retval)

    return return_value


def _is_none(restype: Any) -> bool:
    from numba.cuda import types

    return bool(restype == types.none)


def _wrap_set_module_flags(original: Any) -> Any:
    from llvmlite import ir

    @functools.wraps(original)
    def _set_module_flags(self: Any) -> Any:
        original(self)
        for flag in self.module.namedmetadata["llvm.module.flags"].operands:
            _, name, *rest = flag.operands
            # NVRTC says 1 where numba-cuda says 2, and LTO refuses to link modules that differ in it.
            if getattr(name, "string", None) == "Debug Info Version":
                flag.operands = (ir.IntType(32)(1), name, *rest)

    return _set_module_flags


def _wrap_jit(original: Any) -> Any:
    @functools.wraps(original)
    def jit(func_or_sig: Any = None, *args: Any, **kwargs: Any) -> Any:
        decorator = original(func_or_sig, *args, **kwargs)
        if func_or_sig is not None or kwargs.get("lto") is None:
            return decorator
        # The decorator that numba-cuda returns has forgotten lto.
        return lambda func: original(func, *args, **kwargs)

    return jit


def _wrap_make_constant_array(original: Any) -> Any:
    @functools.wraps(original)
    def make_constant_array(self: Any, builder: Any, aryty: Any, arr: Any) -> Any:
        # It takes the bytes as they are, and what lies between the fields is whatever was in memory there.
        return original(self, builder, aryty, _with_blank_padding(arr))

    return make_constant_array


def _with_blank_padding(array: Any) -> Any:
    import numpy as np

    if array.dtype.names is None:
        return array
    # numpy.zeros_like leaves what lies between the fields as it finds it.
    fortran = array.flags.f_contiguous and not array.flags.c_contiguous
    blank = np.zeros(array.shape, array.dtype, order="F" if fortran else "C")
    _copy_fields(array, blank)
    return blank


def _copy_fields(source: Any, target: Any) -> None:
    for name in source.dtype.names:
        if target[name].dtype.names is None:
            target[name] = source[name]
        else:
            _copy_fields(source[name], target[name])


def _wrap_compile_extra(original: Any) -> Any:
    @functools.wraps(original)
    def compile_extra(*args: Any, **kwargs: Any) -> Any:
        with entered(places={}):
            return original(*args, **kwargs)

    return compile_extra


def _wrap_inlined_name(original: Any) -> Any:
    @functools.wraps(original)
    def _created_inlined_var_name(function_name: str, var_name: str) -> Any:
        # The debugger is told the name, which else had a counter of the process in it.
        function, mark, counter = function_name.rpartition("$")
        places = current().places
        if mark and places is not None:
            function_name = f"{function}${places.setdefault(counter, len(places))}"
        return original(function_name, var_name)

    return _created_inlined_var_name


def _wrap_get_function(original: Any) -> Any:
    accesses = {operator.getitem: _load_from_pointer, operator.setitem: _store_to_pointer}

    @functools.wraps(original)
    def get_function(self: Any, fn: Any, sig: Any, *args: Any, **kwargs: Any) -> Any:
        from numba.cuda import types
        from numba.cuda.core.base import _wrap_impl

        if sig.args and sig.args[0] in (types.float16, types.bfloat16):
            if (fn.get_impl_key(sig) if isinstance(fn, types.Callable) else fn) is bool:
                return _wrap_impl(_half_as_boolean, self, sig)
        elif sig.args and isinstance(sig.args[0], types.CPointer):
            access = accesses.get(fn.get_impl_key(sig) if isinstance(fn, types.Callable) else fn)
            model = self.data_model_manager[sig.args[0].dtype]
            if access is not None and model.get_data_type() != model.get_value_type():
                return _wrap_impl(access, self, sig)
        return original(self, fn, sig, *args, **kwargs)

    return get_function


def _wrap_mangle_identifier(original: Any) -> Any:
    @functools.wraps(original)
    def mangle_identifier(ident: str, *args: Any, **kwargs: Any) -> Any:
        # Names of files that the locale does not decode; numba-cuda mangles none with the C ABI.
        return original(_UNDECODED.sub(lambda char: f"_{ord(char[0]):04x}", ident), *args, **kwargs)

    return mangle_identifier


def _load_from_pointer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    pointer, index = args
    return context.unpack_value(builder, sig.args[0].dtype, builder.gep(pointer, [index]))


def _store_to_pointer(context: Any, builder: Any, sig: Any, args: Any) -> None:
    pointer, index, value = args
    context.pack_value(builder, sig.args[0].dtype, value, builder.gep(pointer, [index]))


def _half_as_boolean(_context: Any, builder: Any, _sig: Any, args: Any) -> Any:
    return is_not_zero(builder, args[0])


CODE = (
    Substitution(
        "numba.cuda.core.base",
        "BaseContext.get_function",
        _wrap_get_function,
        "A pointer to records, to booleans, or to tuples of booleans can be read and written, where "
        "numba-cuda takes what lies in memory for a value and fails. Halves are conditions, as in `if x:`, "
        "which it does not compile.",
    ),
    Substitution(
        "numba.cuda.compiler",
        "CreateLibrary.run_pass",
        _wrap_create_library,
        "Errors name the Python function and the line that code was compiled from.",
    ),
    Substitution(
        "numba.cuda.compiler",
        "compile_extra",
        _wrap_compile_extra,
        "Inlined functions are counted anew in each compilation: their variables are named by that count.",
    ),
    Substitution(
        "numba.cuda.core.inline_closurecall",
        "_created_inlined_var_name",
        _wrap_inlined_name,
        "Variables of inlined functions are named for the debugger by the function's place, not by a counter "
        "of the process, so that another process finds the code in the cache.",
    ),
    Substitution(
        "numba.cuda.core.callconv",
        "CUDACABICallConv.get_function_type",
        _wrap_c_function_type,
        'A function without a result, declared with `abi="c"`, is `void`, where numba-cuda has a pointer.',
    ),
    Substitution(
        "numba.cuda.core.callconv",
        "CUDACABICallConv.call_function",
        _wrap_c_call_function,
        "It is called as such.",
    ),
    Substitution(
        "numba.cuda.core.callconv",
        "CUDACABICallConv.return_value",
        _wrap_c_return_value,
        "It returns as such.",
    ),
    Substitution(
        "numba.cuda.itanium_mangler",
        "mangle_identifier",
        _wrap_mangle_identifier,
        "Names of modules that the locale does not decode are mangled, where numba-cuda fails.",
    ),
    Substitution(
        "numba.cuda.debuginfo",
        "DIBuilder._set_module_flags",
        _wrap_set_module_flags,
        "The version of debug information is NVRTC's; modules that differ in it are not linked with LTO.",
    ),
    Substitution(
        "numba.cuda.target",
        "CUDATargetContext.make_constant_array",
        _wrap_make_constant_array,
        "What lies between the fields of constant records is zero, not what was in memory there, so that "
        "another process finds the code in the cache.",
    ),
)
"""What compiled code depends on; an export applies them, too, and yields the same without the plugin."""

SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.decorators",
        "jit",
        _wrap_jit,
        "A decorator without signatures keeps `lto=`, which numba-cuda forgets.",
        bound="numba.cuda",
    ),
)
