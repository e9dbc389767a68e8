"""Start the first kernel sooner: avoid making PTX for a search, needless LTO, and loading libraries."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
from pathlib import Path
from typing import Any

from numba_ptxlink._config import config
from numba_ptxlink._cpu import device
from numba_ptxlink._formats.kinds import EXTENSIONS, PTX
from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda.context import current_context, notes, override
from numba_ptxlink.errors import LinkError

PATCHES = PatchTable("first kernel")

# numba-cuda requires nvJitLink 12.3. The file name shows only the major version, which suffices from 13 on.
_NVJITLINK_MAJOR = 13


@PATCHES.around("numba.cuda.dispatcher", "_Kernel.__init__")
def _kernel_init(original: Any, self: Any, *args: Any, **kwargs: Any) -> None:
    """
    Set `entry_name` to the kernel's name in the cubin and in the LLVM IR; name its function in errors.

    Kernels for the CPU device are compiled with line numbers, for errors.
    """
    from numba.cuda.dispatcher import reshape_funcs

    # The original looks for these functions in the kernel's code, to link the files that define them.
    names = (*reshape_funcs, *self.NRT_functions)
    lineinfo = device.needs_line_numbers(args[0] if args else kwargs["py_func"], kwargs)
    changed_kwargs = {**kwargs, "lineinfo": True} if lineinfo else kwargs
    no_warnings = device.no_source_warnings() if lineinfo else contextlib.nullcontext()
    try:
        with no_warnings, override(searched_names=names):
            original(self, *args, **changed_kwargs)
    except (ZeroDivisionError, IndexError):
        # With line numbers, numba-cuda raises these errors for arguments of 0 bytes, such as empty tuples,
        # and for functions whose body is only a docstring. Compile such a kernel without line numbers.
        if not lineinfo:
            raise
        with override(searched_names=names):
            original(self, *args, **kwargs)
    library, code = self._codelibrary, self.py_func.__code__
    # The original has read the name before `llvm_strs` renamed the symbols of the program; see `nvvm_cache`.
    self.entry_name = library._entry_name
    location = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
    notes(library).origin = f"{self.py_func.__qualname__} ({location})"


@PATCHES.around("numba.cuda.codegen", "CUDACodeLibrary.get_asm_str")
def _get_asm_str(original: Any, self: Any, cc: Any = None) -> Any:
    """
    Look for a few functions in a new kernel's LLVM IR instead of its PTX.

    With link-time optimisation, numba-cuda would compile the kernel to PTX only for this search, which takes
    a fifth of the compile time.
    """
    from numba.cuda.core import config as numba_config

    # All names in the PTX are in the LLVM IR. If none is there, the search of the text "" finds none, either.
    names = current_context().searched_names
    if (
        names
        and not numba_config.DUMP_ASSEMBLY
        and not any(name in text for text in self.llvm_strs for name in names)
    ):
        return ""
    return original(self, cc)


@PATCHES.around("numba.cuda.codegen", "CUDACodeLibrary._link_all")
def _link_all(original: Any, self: Any, linker: Any, cc: Any, ignore_nonlto: bool = False) -> Any:
    """Pass the function's name to the linker, for errors, and sort its link files; skip needless LTO."""
    # numba-cuda passes `additional_flags` only for `get_lto_ptx`, the PTX after LTO, which always needs LTO.
    if linker.lto and not linker.additional_flags:
        linker.lto = _lto_changes_code(self)
    linker.describe(notes(self).origin or self.name, self.llvm_strs)
    original(self, linker, cc, ignore_nonlto)
    # The original has added the kernel's own code before the files: one module of LTO-IR, or one or several
    # of PTX.
    linker.order_files(1 if linker.lto else len(self.get_asm_strs(cc=cc)))


def _lto_changes_code(library: Any) -> bool:
    """Return whether link-time optimisation of a kernel may give other code than a compilation to PTX."""
    options, files = library._nvvm_options, library._linking_files
    # "g" is numba-cuda's option for code for a debugger, which is not optimised. On the CPU, LLVM optimises.
    if "g" in options or device.is_active():
        return False
    # With fastmath, NVVM flushes denormals in conversions of floats, and nvJitLink keeps them. With opt=0,
    # NVVM does not optimise, and nvJitLink does.
    if options.get("fastmath") or not options.get("opt", 3):
        return True
    # Inputs other than PTX (the device runtime, CUDA C++) may become LTO-IR, whose functions are inlined.
    if library.needs_cudadevrt or not all(map(_is_ptx, files)):
        return True
    # Without link files there is nothing to inline. If all are PTX, this package inlines their functions into
    # the kernel's PTX; nvJitLink cannot inline them into LTO-IR. If this package does not inline, keep the
    # LTO that numba-cuda requested.
    inlines_ptx = config().inline != "none" and config().backend in ("auto", "nvptxcompiler")
    return bool(files) and not inlines_ptx


def _is_ptx(path_or_code: Any) -> bool:
    """Return whether a link file (a path, or an object of numba-cuda's `LinkableCode`) is PTX."""
    if isinstance(path_or_code, (str, os.PathLike)):
        return EXTENSIONS.get(Path(path_or_code).suffix) == PTX
    from numba.cuda.cudadrv.mappings import FILE_EXTENSION_MAP

    return bool(getattr(path_or_code, "kind", None) == FILE_EXTENSION_MAP["ptx"])


@PATCHES.around("numba.cuda.dispatcher", "Cache.load_overload")
def _load_overload(_original: Any, self: Any, sig: Any, target_context: Any) -> Any:
    """Load a kernel from the disk without importing modules that only a compilation needs."""
    with self._guard_against_spurious_io_errors():
        return self._load_overload(sig, target_context)
    return None  # The guard has suppressed an exception: the kernel has to be compiled.


@PATCHES.replace("numba.cuda.cudadrv.driver", "_have_nvjitlink", importers="numba.cuda")
def _have_nvjitlink_by_name(original: Any) -> Any:
    """Recognise nvJitLink 13 and later by its file name, so that `@cuda.jit` does not load it."""

    @functools.wraps(original)
    def _have_nvjitlink() -> bool:
        from numba_ptxlink._tools import find

        try:
            # For example "/usr/local/cuda/lib64/libnvJitLink.so.13".
            major = int(find.library("nvJitLink").rpartition(".so.")[2].partition(".")[0])
            is_available = (
                major >= _NVJITLINK_MAJOR and importlib.util.find_spec("cuda.bindings.nvjitlink") is not None
            )
        # No library is found, its name has no number, or `find_spec` fails (ValueError during the import of
        # the module): ask numba-cuda.
        except (LinkError, ImportError, ValueError):
            return bool(original())
        return is_available or bool(original())

    return functools.cache(_have_nvjitlink)


@PATCHES.around("numba.cuda.codegen", "JITCUDACodegen.magic_tuple")
def _magic_tuple(original: Any, self: Any) -> Any:
    """Identify NVRTC in the keys of kernels on disk by the build ID in its file, without loading it."""
    from numba.cuda.cudadrv import devices

    from numba_ptxlink._tools import find

    try:
        build = find.library_build_id("nvrtc")
    except LinkError:
        return original(self)
    return (build, devices.get_context().device.compute_capability)
