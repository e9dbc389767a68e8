"""Read NVVM's output from the cache, by LLVM IR whose names do not depend on the process."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import config
from numba_ptxlink._front_end.nvvm_unit import compilation_unit
from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda.context import current_context, with_nvrtc_debug_version

if TYPE_CHECKING:
    from collections.abc import Sequence

PATCHES = PatchTable("cache")


# Patched where `numba.cuda.codegen` uses it: the module nvvm may be imported before the plugin is active.
@PATCHES.replace("numba.cuda.codegen", "nvvm.CompilationUnit")
def _compilation_unit(original: Any) -> Any:
    """
    Read NVVM's output from the cache, and show its warnings again.

    If NVVM refuses the code, the error contains its log. Unoptimised code is compiled in a child process:
    after such a call, NVVM generates other code for the rest of the process.
    """
    return compilation_unit(original, _fail, _normalize)


def _fail(unit: Any, _step: str, status: int) -> None:
    """Raise numba-cuda's error for libNVVM's *status*, with the log of *unit*."""
    from numba.cuda.cudadrv.nvvm import nvvmError

    error = nvvmError(status)
    error.args = (f"{error}: {unit.get_log().strip()}",)
    raise error


def _normalize(text: str) -> str:
    """Return a module's text for the key of the cache; `llvm_strs` has already renamed the symbols."""
    from numba_ptxlink._numba_cuda.stable_names import QuotedModule

    return QuotedModule(text).normalized_text({})


@PATCHES.around("numba.cuda.codegen", "nvvm.NVVM.check_options")
def _check_options(original: Any, self: Any, options: Sequence[Any]) -> bool:
    """Check options for unoptimised code in a child process: NVVM would generate other code afterwards."""
    from numba_ptxlink._tools import nvvm

    texts = tuple(option.decode() if isinstance(option, bytes) else option for option in options)
    if nvvm.alters_later_calls(texts):
        return nvvm.accepts(texts)
    accepted: bool = original(self, options)
    return accepted


@PATCHES.replace("numba.cuda.codegen", "CUDACodeLibrary.llvm_strs")
def _llvm_strs(original: Any) -> Any:
    """
    Give a program's functions an order and names that are the same in each process.

    Other processes then find the code in the cache.
    """

    @functools.wraps(original.fget)
    def llvm_strs(self: Any) -> Any:
        if self._llvm_strs is None and config().cache:
            from numba_ptxlink._numba_cuda.modules import rename_program

            # `_kernel_init` in `first_kernel` gives a new kernel the new name, by which the driver finds it.
            # Keep other names: a device function, without an entry, is called by its name, and a kernel that
            # was created before the plugin was active has read its name already.
            is_new_kernel = self._entry_name is not None and bool(current_context().searched_names)
            program = rename_program(self, keep_visible=not is_new_kernel)
            self._llvm_strs = list(program.texts)
            self._entry_name = program.names.get(self._entry_name, self._entry_name)
        if self._llvm_strs is None:
            self._llvm_strs = [with_nvrtc_debug_version(text) for text in original.fget(self)]
        return self._llvm_strs

    return property(llvm_strs)
