"""Python functions to LLVM IR with Numba's ABI, and LLVM IR to PTX and LTO-IR. No driver."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .patches.driverless import DRIVERLESS
from .patches.nvvm_cache import NVVM
from .patches.substitution import applied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba_ptxlink._arch import Arch


def compile_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    result: Any,
    arch: Arch,
    *,
    debug: bool = False,
    lineinfo: bool = False,
    fastmath: bool = False,
    opt: bool = True,
) -> Any:
    """Compile *function* with Numba's ABI, as far as LLVM IR, and return the CUDACompileResult. No driver."""
    from numba.cuda.compiler import compile_cuda
    from numba.cuda.core.compiler_lock import global_compiler_lock

    with global_compiler_lock, applied(DRIVERLESS):
        return compile_cuda(
            function,
            result,
            args,
            debug=debug,
            lineinfo=lineinfo,
            fastmath=fastmath,
            nvvm_options={"fastmath": fastmath, "opt": 3 if opt else 0},
            cc=arch.cc,
        )


def compile_ir(modules: Sequence[str], **options: Any) -> bytes:
    """Compile LLVM IR with NVVM, as numba-cuda does, or take the result out of the cache."""
    from numba.cuda.cudadrv import nvvm

    with applied(NVVM):
        code: bytes = nvvm.compile_ir(list(modules), **options)
        return code
