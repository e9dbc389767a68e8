"""A kernel's code: its names, its link options, and what a new kernel is searched for."""

from __future__ import annotations

import functools
from typing import Any

from numba_ptxlink._numba_cuda.context import LibraryNotes, current, entered, notes
from numba_ptxlink._numba_cuda.modules import renamed

from .substitution import Substitution


def _wrap_kernel_init(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - it stands for one
        from numba.cuda.dispatcher import reshape_funcs

        with entered(sought=(*reshape_funcs, *self.NRT_functions)):
            original(self, *args, **kwargs)
        # It took the name out of the module, before the program was renamed.
        self.entry_name = self._codelibrary._entry_name

    return __init__


def _wrap_get_asm_str(original: Any) -> Any:
    @functools.wraps(original)
    def get_asm_str(self: Any, cc: Any = None) -> Any:
        from numba.cuda.core import config

        # A new kernel is asked for its PTX, which with LTO nobody needs, to look for a few names in it. It
        # has none that its LLVM IR has not.
        names = current().sought
        if (
            names
            and not config.DUMP_ASSEMBLY
            and not any(n in text for text in self.llvm_strs for n in names)
        ):
            return ""
        return original(self, cc)

    return get_asm_str


def _wrap_link_all(original: Any) -> Any:
    @functools.wraps(original)
    def _link_all(self: Any, linker: Any, cc: Any, ignore_nonlto: bool = False) -> Any:
        choose = getattr(linker, "choose_lto", None)
        if choose is not None:
            options = self._nvvm_options
            choose(
                has_link_files=bool(self._linking_files or self.needs_cudadevrt),
                debug="g" in options,
                # The linker does not flush denormals where it converts between float types, and optimises
                # what NVVM was told not to.
                by_linker=bool(options.get("fastmath")) or not options.get("opt", 3),
            )
            linker.describe(notes(self, LibraryNotes).origin or self.name, self.llvm_strs)
        original(self, linker, cc, ignore_nonlto)
        order = getattr(linker, "order_files", None)
        if order is not None:
            order(1 if linker.lto else len(self.get_asm_strs(cc=cc)))

    return _link_all


def _wrap_llvm_strs(original: Any) -> Any:
    @functools.wraps(original.fget)
    def llvm_strs(self: Any) -> Any:
        if self._llvm_strs is None:
            # A kernel is looked up by the name kept here; a device function's caller knows it by its own.
            # Who made the kernel without this package's wrappers around keeps the name it has read.
            context = current()
            wrapped = bool(context.sought) or context.result is not None
            made = renamed([self], keep_visible=self._entry_name is None or not wrapped)
            self._llvm_strs = list(made.texts)
            self._entry_name = made.names.get(self._entry_name, self._entry_name)
        return self._llvm_strs

    return property(llvm_strs)


SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.dispatcher",
        "_Kernel.__init__",
        _wrap_kernel_init,
        "The kernel's `entry_name` is the one that its cubin and its LLVM IR have.",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary.get_asm_str",
        _wrap_get_asm_str,
        "With link-time optimisation, a new kernel is searched for a few names in its LLVM IR, without "
        "compiling it to PTX that nothing else needs, which takes a fifth of the time of such a kernel.",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary._link_all",
        _wrap_link_all,
        "The linker is told which function it links; files are linked in an order of their own.",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary.llvm_strs",
        _wrap_llvm_strs,
        "Names and order of a program's functions depend on the program, not on what the process compiled "
        "before, so that another process finds the code in the cache.",
    ),
)
