"""Compile Python functions to LLVM IR with Numba's ABI, and LLVM IR to PTX and LTO-IR. Needs no driver."""

from __future__ import annotations

import math
import re
import traceback
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._front_end.protocol import CompileOptions
from numba_ptxlink._front_end.substitution import applied
from numba_ptxlink.errors import ExportError

from .context import entered
from .patches.corrections import CODE
from .patches.driverless import DRIVERLESS
from .patches.error_model import ERROR_MODEL
from .patches.nvvm_cache import NVVM
from .patches.results import RESULTS
from .raises import raise_sites

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba_ptxlink._arch import Arch


_OPTIONS = CompileOptions()
# What numba-cuda's errors have in them where Numba would make something of `try` or `with`.
_TRY = ("set_try_status", "terminator_types", "exception_match", "'exc_class'", "Exception object cannot be")
# And where it would copy an array, for which its own is allocated.
_COPY = re.compile(r'NRT required but not enabled\nDuring: lowering "[^"=\n]*\[[^"\n]*\] = ')
# Ufuncs that are operators of Python. What `math` and libdevice have by a ufunc's name has its value, but for
# `math.remainder`, which is IEEE's.
_OPERATORS = {
    "absolute": "`abs`",
    "add": "`+`",
    "divmod": "`//` and `%`",
    "floor_divide": "`//`",
    "multiply": "`*`",
    "negative": "`-`",
    "power": "`**`",
    "remainder": "`%`",
    "subtract": "`-`",
}
_FREELY = "it with operators, or functions of `math`"
PATCHES = (*DRIVERLESS, *ERROR_MODEL, *CODE, *RESULTS)


class Lowered(NamedTuple):
    """
    A function that numba-cuda compiled to LLVM IR, with Numba's ABI.

    Args:
        compiled: The CUDACompileResult.
        raises: The lines where it or its callees raise.
        options: What it is compiled with.
    """

    compiled: Any
    raises: tuple[str, ...]
    options: CompileOptions

    @property
    def args(self) -> tuple[Any, ...]:
        """The Numba types of the parameters."""
        return tuple(self.compiled.signature.args)

    @property
    def result(self) -> Any:
        """The Numba type of the result."""
        return self.compiled.signature.return_type


def lower(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    result: Any,
    arch: Arch,
    options: CompileOptions,
    *,
    checked: bool,
) -> Lowered:
    """
    Compile *function* as `compile_function` does, and note where it raises.

    Raises:
        ExportError: The function has what numba-cuda lacks, and says so in words of its own.
    """
    try:
        compiled = compile_function(function, args, result, arch, options, checked=checked)
    except Exception as error:
        lacked = _lacked(error)
        if lacked is None:
            raise
        raise lacked from error
    return Lowered(compiled, raise_sites(compiled), options)


def _lacked(error: Exception) -> ExportError | None:
    """Return what says what numba-cuda lacks by *error*, and the cure; None if it is another error."""
    if any(trace in str(error) for trace in _TRY):
        return ExportError("numba-cuda has neither `try` nor `with`; test the condition before it arises")
    if _COPY.search(str(error)):
        return ExportError(
            "neither numba-cuda nor numba-cuda-mlir copies one array into another; write a loop over "
            "its elements"
        )
    key: Any = error.args[0] if isinstance(error, KeyError) else None
    if type(key).__name__ != "ufunc":
        return None
    import numpy as np

    lacks = " or ".join(f"`numpy.{name}`" for name, value in sorted(vars(np).items()) if value is key)
    calls, cure, written = "", _in_place_of(key.__name__), _written(error)
    if written:
        lacks, calls, cure = f"`{written}`", f", as it calls {lacks}", _FREELY
    return ExportError(f"numba-cuda has no {lacks} of such numbers{calls}; write {cure}")


def _in_place_of(name: str) -> str:
    """Return what has the value of the ufunc *name*."""
    from numba.cuda import libdevice

    if name in _OPERATORS:
        return _OPERATORS[name]
    known = [module for module in (math, libdevice) if _knows(getattr(module, name, None))]
    return f"`{known[0].__name__}.{name}`" if known else _FREELY


def _written(error: Exception) -> str:
    """Return the function of NumPy whose code, which is Numba's, calls what is lacked; "" for none."""
    from numba.cuda.typing.templates import _OverloadFunctionTemplate

    for frame, _ in traceback.walk_tb(error.__traceback__):
        template = frame.f_locals.get("self")
        if isinstance(template, _OverloadFunctionTemplate):
            function: Any = type(template).key
            if str(getattr(function, "__module__", "")).partition(".")[0] == "numpy":
                return f"numpy.{function.__name__}"
    return ""


def _knows(function: object) -> bool:
    from numba.cuda.descriptor import cuda_target

    try:
        cuda_target.typing_context.resolve_value_type(function)
    except ValueError:
        return False
    return function is not None


def compile_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    result: Any,
    arch: Arch,
    options: CompileOptions = _OPTIONS,
    *,
    checked: bool = False,
) -> Any:
    """
    Compile *function* to LLVM IR with Numba's ABI; return the CUDACompileResult. Needs no driver.

    With *checked*, it and its callees raise for divisions by zero and for indices out of range.
    """
    from numba.cuda.compiler import compile_cuda
    from numba.cuda.core.compiler_lock import global_compiler_lock

    with global_compiler_lock, applied(PATCHES), entered(checked=checked, returns=result):
        return compile_cuda(
            function,
            result,
            args,
            lineinfo=options.lineinfo,
            fastmath=options.fastmath,
            nvvm_options={"fastmath": options.fastmath, "opt": options.level},
            cc=arch.cc,
        )


def compile_ir(modules: Sequence[str], **options: Any) -> bytes:
    """
    Compile LLVM IR with NVVM, as numba-cuda does, or read the result from the cache.

    Args:
        modules: The program, with names that depend on it alone.
        options: The options of numba-cuda's function.
    """
    from numba.cuda.cudadrv import nvvm

    with applied(NVVM), entered(stable=True):
        code: bytes = nvvm.compile_ir(list(modules), **options)
        return code
