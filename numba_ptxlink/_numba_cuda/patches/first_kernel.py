"""What a kernel of numba-cuda need not wait for: PTX that is searched alone, LTO, libraries, imports."""

from __future__ import annotations

import functools
import importlib.util
import os
from pathlib import Path
from typing import Any

from numba_ptxlink._formats.kinds import EXTENSIONS, PTX
from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import current, entered, notes
from numba_ptxlink.errors import LinkError

# numba-cuda wants nvJitLink 12.3. A file's name has the major version alone.
_SURE = 13


def _wrap_kernel_init(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - replaces __init__
        from numba.cuda.dispatcher import reshape_funcs

        with entered(sought=(*reshape_funcs, *self.NRT_functions)):
            original(self, *args, **kwargs)
        library, code = self._codelibrary, self.py_func.__code__
        # The original read the name before the program was renamed.
        self.entry_name = library._entry_name
        place = f"{Path(code.co_filename).name}:{code.co_firstlineno}"
        noted = notes(library)
        noted.origin = f"{self.py_func.__qualname__} ({place})"
        noted.link = tuple(kwargs.get("link") or ())

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
        options = self._nvvm_options
        linker.choose_lto(
            has_link_files=bool(self._linking_files or self.needs_cudadevrt),
            all_ptx=not self.needs_cudadevrt and all(map(_is_ptx, self._linking_files)),
            debug="g" in options,
            # The linker keeps denormals in conversions between float types, and optimises code that NVVM was
            # told not to.
            by_linker=bool(options.get("fastmath")) or not options.get("opt", 3),
        )
        linker.describe(notes(self).origin or self.name, self.llvm_strs)
        original(self, linker, cc, ignore_nonlto)
        linker.order_files(1 if linker.lto else len(self.get_asm_strs(cc=cc)))

    return _link_all


def _is_ptx(path_or_code: Any) -> bool:
    """Return whether a link file of numba-cuda, a path or a `LinkableCode`, is PTX."""
    if isinstance(path_or_code, (str, os.PathLike)):
        return EXTENSIONS.get(Path(path_or_code).suffix) == PTX
    from numba.cuda.cudadrv.mappings import FILE_EXTENSION_MAP

    return bool(getattr(path_or_code, "kind", None) == FILE_EXTENSION_MAP["ptx"])


def _wrap_have_nvjitlink(original: Any) -> Any:
    """Tell by its file that nvJitLink is there, and ask numba-cuda where that does not tell."""

    @functools.wraps(original)
    def _have_nvjitlink() -> bool:
        from numba_ptxlink._tools import find

        try:
            major = int(find.library("nvJitLink").rpartition(".so.")[2].partition(".")[0])
            there = major >= _SURE and importlib.util.find_spec("cuda.bindings.nvjitlink") is not None
        except (LinkError, ImportError, ValueError):  # such as for a module that is being imported
            return bool(original())
        return there or bool(original())

    return functools.cache(_have_nvjitlink)


def _wrap_magic_tuple(original: Any) -> Any:
    """Have the build of NVRTC where numba-cuda has its version."""

    @functools.wraps(original)
    def magic_tuple(self: Any) -> Any:
        from numba.cuda.cudadrv import devices

        from numba_ptxlink._tools import find

        try:
            build = find.build_of("nvrtc")
        except LinkError:
            return original(self)
        return (build, devices.get_context().device.compute_capability)

    return magic_tuple


def _wrap_load_overload(original: Any) -> Any:
    """Load a kernel without importing what compiles, which a compile after a miss asks for itself."""

    @functools.wraps(original)
    def load_overload(self: Any, sig: Any, target_context: Any) -> Any:
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)
        return None  # where the guard has swallowed an exception

    return load_overload


SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.dispatcher",
        "_Kernel.__init__",
        _wrap_kernel_init,
        "The kernel's `entry_name` is its name in the cubin and in the LLVM IR; errors name its function.",
        purpose="first kernel",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary.get_asm_str",
        _wrap_get_asm_str,
        "With link-time optimisation, numba-cuda compiles a new kernel to PTX only to search it for a few "
        "names; its LLVM IR is searched instead, which saves a fifth of the time of such a kernel.",
        purpose="first kernel",
    ),
    Substitution(
        "numba.cuda.codegen",
        "CUDACodeLibrary._link_all",
        _wrap_link_all,
        "The linker gets the function's name for its errors; link files get an order that does not vary.",
        purpose="first kernel",
    ),
    Substitution(
        "numba.cuda.dispatcher",
        "Cache.load_overload",
        _wrap_load_overload,
        "A kernel on disk is loaded without importing what only compiling needs.",
        purpose="first kernel",
    ),
    Substitution(
        "numba.cuda.cudadrv.driver",
        "_have_nvjitlink",
        _wrap_have_nvjitlink,
        "`@cuda.jit` sees nvJitLink 13 and later by its file, without loading it.",
        bound="numba.cuda",
        purpose="first kernel",
    ),
    Substitution(
        "numba.cuda.codegen",
        "JITCUDACodegen.magic_tuple",
        _wrap_magic_tuple,
        "A kernel on disk is found by the build of NVRTC, without loading it.",
        purpose="first kernel",
    ),
)
