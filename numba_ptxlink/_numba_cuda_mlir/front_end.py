"""numba-cuda-mlir as a front end. Importing this module imports nothing of numba-cuda-mlir."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end import imports

from . import release

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from numba_ptxlink._front_end.substitution import Substitution


class NumbaCudaMlir:
    """numba-cuda-mlir; see `_front_end.protocol.FrontEnd`, where each member is described."""

    name = "numba-cuda-mlir"
    module = "numba_cuda_mlir"
    root = "numba_cuda_mlir"
    package = "numba_cuda_mlir"
    extra = "mlir"
    distributions: tuple[str, ...] = ("numba-cuda-mlir",)
    driver = release.DRIVER

    def unsupported_reason(self) -> str | None:
        return release.unsupported_reason()

    def simulated(self) -> bool:
        return False

    def specifier(self) -> str:
        return str(release.SUPPORTED)

    def table(self) -> tuple[Substitution, ...]:
        from .patches.table import TABLE

        return TABLE

    def linker(self) -> None:
        return None

    def compilation_stopped(self) -> AbstractContextManager[None]:
        return imports.compilation_stopped(release.LOCK)

    def free_compiler_lock(self) -> None:
        imports.free_compiler_lock(release.LOCK)

    @property
    def types(self) -> Any:
        return importlib.import_module("numba_cuda_mlir.numba_cuda.types")

    def require_compiler(self) -> None:
        release.require_compiler()


FRONT_END = NumbaCudaMlir()
