"""Read NVVM's output from the cache, by LLVM IR whose names do not depend on the process."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import config
from numba_ptxlink._front_end.nvvm_unit import compilation_unit
from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda.context import DEBUG_VERSION, current_context

if TYPE_CHECKING:
    from collections.abc import Sequence

PATCHES = PatchTable("cache")


# Patched in the module that uses it, since the module nvvm is imported before the plugin.
@PATCHES.replace("numba.cuda.codegen", "nvvm.CompilationUnit")
def _compilation_unit(original: Any) -> Any:
    """
    Read NVVM's output from the cache, and show its warnings again.

    If NVVM refuses the code, the error contains its log. Unoptimised code is compiled in a child process,
    since it alters the code that NVVM compiles later.
    """
    return compilation_unit(original, _fail, _normalize)


def _fail(unit: Any, _step: str, status: int) -> None:
    from numba.cuda.cudadrv.nvvm import nvvmError

    error = nvvmError(status)
    error.args = (f"{error}: {unit.get_log().strip()}",)
    raise error


def _normalize(text: str) -> str:
    from numba_ptxlink._numba_cuda.stable_names import QuotedModule

    return QuotedModule(text).normalized_text({})


@PATCHES.around("numba.cuda.codegen", "nvvm.NVVM.check_options")
def _check_options(original: Any, self: Any, options: Sequence[Any]) -> bool:
    """Check options for unoptimised code in a child process, since they alter NVVM's later code."""
    from numba_ptxlink._tools import nvvm

    texts = tuple(option.decode() if isinstance(option, bytes) else option for option in options)
    if nvvm.alters_later_calls(texts):
        return nvvm.accepts(texts)
    accepted: bool = original(self, options)
    return accepted


@PATCHES.replace("numba.cuda.codegen", "CUDACodeLibrary.llvm_strs")
def _llvm_strs(original: Any) -> Any:
    """
    Give a program's functions an order and names that do not depend on the process.

    Other processes then find the code in the cache.
    """

    @functools.wraps(original.fget)
    def llvm_strs(self: Any) -> Any:
        if self._llvm_strs is None and config().cache:
            from numba_ptxlink._numba_cuda.modules import rename_program

            # The driver looks up a kernel by its new name, and callers of a device function use its own name.
            # A kernel that was created outside the patches of this package has read its name already: keep
            # it.
            program = rename_program(
                self, keep_visible=self._entry_name is None or not current_context().searched_names
            )
            self._llvm_strs = list(program.texts)
            self._entry_name = program.names.get(self._entry_name, self._entry_name)
        if self._llvm_strs is None:
            # LTO refuses to link modules with different debug versions.
            self._llvm_strs = [text.replace(*DEBUG_VERSION) for text in original.fget(self)]
        return self._llvm_strs

    return property(llvm_strs)
