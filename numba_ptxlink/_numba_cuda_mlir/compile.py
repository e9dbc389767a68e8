"""Compile the LLVM IR of a program to code, with libNVVM and numba-cuda-mlir's libdevice. Needs no driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._tools import nvvm

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions

_FASTMATH = ("-ftz=1", "-prec-div=0", "-prec-sqrt=0", "-fma=1")


def compile_ir(modules: Sequence[str], arch: Arch, options: CompileOptions, *, lto: bool) -> bytes:
    """Compile LLVM IR with libNVVM, or read the result from the cache."""
    from numba_cuda_mlir.numba_cuda.cudadrv.nvvm import LibDevice

    flags = [f"-arch={arch.compute}", f"-opt={options.level}", *(_FASTMATH if options.fastmath else ())]
    return nvvm.compile_ir(modules, [*flags, "-gen-lto"] if lto else flags, LibDevice().get())
