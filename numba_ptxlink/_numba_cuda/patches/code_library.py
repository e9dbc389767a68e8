"""Give a kernel's code stable names and link options, and save compiling it to PTX to search it."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

from numba_ptxlink._formats.kinds import EXTENSIONS, PTX
from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import LibraryNotes, current, entered, notes


def _wrap_kernel_init(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - replaces __init__
        from numba.cuda.dispatcher import reshape_funcs

        with entered(sought=(*reshape_funcs, *self.NRT_functions)):
            original(self, *args, **kwargs)
        # The original read the name before the program was renamed.
        self.entry_name = self._codelibrary._entry_name

    return __init__


def _wrap_get_asm_str(original: Any) -> Any:
    @functools.wraps(original)
    def get_asm_str(self: Any, cc: Any = None) -> Any:
        from numba.cuda.core import config

        # The original searches the PTX of a new kernel, which LTO does not need, for a few names. The PTX has
        # only names that the LLVM IR has.
        names = current().sought
        if (
            names
            and not config.DUMP_ASSEMBLY
            and not any(name in text for text in self.llvm_strs for name in names)
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
                all_ptx=not self.needs_cudadevrt and all(map(_is_ptx, self._linking_files)),
                debug="g" in options,
                # The linker keeps denormals in conversions between float types, and optimises code that NVVM
                # was told not to.
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
            from numba_ptxlink._numba_cuda.modules import renamed

            # The driver finds a kernel by this name; callers of a device function use the function's own.
            # A kernel created outside the wrappers of this package has read its name already: keep it.
            context = current()
            wrapped = bool(context.sought) or context.result is not None
            program = renamed([self], keep_visible=self._entry_name is None or not wrapped)
            self._llvm_strs = list(program.texts)
            self._entry_name = program.names.get(self._entry_name, self._entry_name)
        return self._llvm_strs

    return property(llvm_strs)


def _is_ptx(path_or_code: Any) -> bool:
    """Return whether a link file of numba-cuda, a path or a `LinkableCode`, is PTX."""
    if isinstance(path_or_code, (str, os.PathLike)):
        return EXTENSIONS.get(Path(path_or_code).suffix) == PTX
    from numba.cuda.cudadrv.mappings import FILE_EXTENSION_MAP

    return bool(getattr(path_or_code, "kind", None) == FILE_EXTENSION_MAP["ptx"])


SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.dispatcher",
        "_Kernel.__init__",
        _wrap_kernel_init,
        "The kernel's `entry_name` is its name in the cubin and in the LLVM IR.",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary.get_asm_str",
        _wrap_get_asm_str,
        "With link-time optimisation, numba-cuda compiles a new kernel to PTX only to search it for a few "
        "names; its LLVM IR is searched instead, which saves a fifth of the time of such a kernel.",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary._link_all",
        _wrap_link_all,
        "The linker gets the function's name for its errors; link files get an order that does not vary.",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary.llvm_strs",
        _wrap_llvm_strs,
        "Names and order of a program's functions depend on the program alone, so that another process finds "
        "the code in the cache.",
    ),
)
