"""Compile Python functions to LLVM IR with Numba's ABI, and LLVM IR to PTX and LTO-IR. Needs no driver."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .context import entered
from .patches.corrections import CODE
from .patches.driverless import DRIVERLESS
from .patches.error_model import ERROR_MODEL
from .patches.nvvm_cache import NVVM
from .patches.substitution import applied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba_ptxlink._arch import Arch


@dataclass(frozen=True)
class CompileOptions:
    """
    The options that marked functions are compiled with.

    Args:
        opt: Whether NVVM optimises.
        fastmath: Whether floating-point arithmetic may be approximate.
        lineinfo: Whether the code carries the Python line numbers.
    """

    opt: bool = True
    fastmath: bool = False
    lineinfo: bool = False

    @property
    def level(self) -> int:
        """The optimisation level of NVVM and the assembler."""
        return 3 if self.opt else 0

    def nvvm(self, arch: Arch, *, lto: bool) -> dict[str, Any]:
        """Return the options of numba-cuda's `compile_ir`."""
        flags: dict[str, Any] = {"arch": arch.compute, "opt": self.level, "fastmath": self.fastmath}
        return {**flags, "gen_lto": None} if lto else flags


def compile_function(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    result: Any,
    arch: Arch,
    options: CompileOptions = CompileOptions(),
    *,
    checked: bool = False,
) -> Any:
    """
    Compile *function* to LLVM IR with Numba's ABI; return the CUDACompileResult. Needs no driver.

    With *checked*, it and its callees raise for divisions by zero and for indices out of range.
    """
    from numba.cuda.compiler import compile_cuda
    from numba.cuda.core.compiler_lock import global_compiler_lock

    with global_compiler_lock, applied((*DRIVERLESS, *ERROR_MODEL, *CODE)), entered(checked=checked):
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
    """Compile LLVM IR with NVVM, as numba-cuda does, or read the result from the cache."""
    from numba.cuda.cudadrv import nvvm

    with applied(NVVM):
        code: bytes = nvvm.compile_ir(list(modules), **options)
        return code
