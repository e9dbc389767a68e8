"""NVVM's output out of the cache, found by LLVM IR whose names depend on the program alone."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import config
from numba_ptxlink._front_end.nvvm_unit import compilation_unit
from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda.context import DEBUG_VERSION, current

if TYPE_CHECKING:
    from collections.abc import Sequence

PATCHES = PatchTable("cache")


# Patched by way of the module that uses it: NVVM's own is imported before the plugin.
@PATCHES.replace("numba.cuda.codegen", "nvvm.CompilationUnit")
def _compilation_unit(original: Any) -> Any:
    """
    Read NVVM's output from the cache where it was kept, and show its warnings again.

    The error of code that it refuses has its log. A child process makes unoptimised code, after which NVVM
    compiles other code.
    """
    return compilation_unit(original, _fail, _meaning)


def _fail(unit: Any, _step: str, status: int) -> None:
    from numba.cuda.cudadrv.nvvm import nvvmError

    error = nvvmError(status)
    error.args = (f"{error}: {unit.get_log().strip()}",)
    raise error


def _meaning(text: str) -> str:
    from numba_ptxlink._numba_cuda.stable_names import QuotedModule

    return QuotedModule(text).meaning({})


@PATCHES.around("numba.cuda.codegen", "nvvm.NVVM.check_options")
def _check_options(original: Any, self: Any, options: Sequence[Any]) -> bool:
    """Ask NVVM for options of unoptimised code in a child process."""
    from numba_ptxlink._tools import nvvm

    texts = tuple(each.decode() if isinstance(each, bytes) else each for each in options)
    if nvvm.alters_later_calls(texts):
        return nvvm.accepts(texts)
    accepted: bool = original(self, options)
    return accepted


@PATCHES.replace("numba.cuda.codegen", "CUDACodeLibrary.llvm_strs")
def _llvm_strs(original: Any) -> Any:
    """
    Give a program's functions an order and names that depend on the program alone.

    So another process finds the code in the cache.
    """

    @functools.wraps(original.fget)
    def llvm_strs(self: Any) -> Any:
        if self._llvm_strs is None and config().cache:
            from numba_ptxlink._numba_cuda.modules import renamed

            # The driver finds a kernel by this name; callers of a device function use the function's own.
            # A kernel created outside the wrappers of this package has read its name already: keep it.
            program = renamed(self, keep_visible=self._entry_name is None or not current().sought)
            self._llvm_strs = list(program.texts)
            self._entry_name = program.names.get(self._entry_name, self._entry_name)
        if self._llvm_strs is None:
            # LTO refuses to link modules that differ in it.
            self._llvm_strs = [text.replace(*DEBUG_VERSION) for text in original.fget(self)]
        return self._llvm_strs

    return property(llvm_strs)
