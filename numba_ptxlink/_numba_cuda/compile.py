"""Compile Python functions to LLVM IR with Numba's ABI, and LLVM IR to PTX and LTO-IR. Needs no driver."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._front_end.protocol import CompileOptions
from numba_ptxlink._front_end.substitution import applied
from numba_ptxlink.errors import ExportError

from .context import LibraryNotes, entered, notes
from .modules import all_libraries
from .patches.c_abi import C_ABI
from .patches.driverless import DRIVERLESS
from .patches.nvvm_cache import NVVM

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba_ptxlink._arch import Arch


_OPTIONS = CompileOptions()
# What numba-cuda has no code for, by what its errors have in them, with the cure.
_NO_TRY = "numba-cuda has neither `try` nor `with`; test the condition before it arises"
_LACKS = {
    **dict.fromkeys(("set_try_status", "terminator_types", "exception_match", "'exc_class'"), _NO_TRY),
    "Exception object cannot be": _NO_TRY,
    "return_dynamic_user_exc": (
        "numba-cuda has no exception whose arguments are computed; write it with constant ones"
    ),
    "Context.call_conv is deprecated": (
        "numba-cuda compiles functions that call themselves with the same argument types, and no others "
        "that call each other in a circle; write a loop"
    ),
}
PATCHES = (*DRIVERLESS, *C_ABI)


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
        if lacked:
            raise ExportError(lacked) from error
        raise
    return Lowered(compiled, _raise_sites(compiled.library), options)


def _lacked(error: Exception) -> str:
    """Return what numba-cuda lacks by *error*, with the cure; "" if it is another error."""
    key: Any = error.args[0] if isinstance(error, KeyError) else None
    if type(key).__name__ == "ufunc":
        name = f"numpy.{key.__name__}"
        return f"numba-cuda has no `{name}` of such numbers; write it with operators, or functions of `math`"
    return next((advice for trace, advice in _LACKS.items() if trace in str(error)), "")


def _raise_sites(library: Any) -> tuple[str, ...]:
    """Return the lines where the code of *library* or of its callees may raise, its own first."""
    libraries = all_libraries([library])
    own, *others = (notes(each, LibraryNotes).sites for each in libraries)
    places = [*sorted(own), *sorted(place for sites in others for place in sites)]
    return tuple(dict.fromkeys(f"{Path(file).name}:{line}" for file, line in places))


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

    with global_compiler_lock, applied(PATCHES), entered(checked=checked):
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
