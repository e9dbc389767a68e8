"""The include directories of NVRTC for CUDA C++ that is linked into kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink._link.sources import SourceOptions
from numba_ptxlink._tools import nvrtc

if TYPE_CHECKING:
    from collections.abc import Sequence


def source_options(flags: Sequence[str] = (), folder: Path | None = None) -> SourceOptions:
    """
    Return the options for CUDA C++ that kernels link: *flags* and numba-cuda-mlir's search path.

    It searches the working directory for `#include "..."`, then the toolkit; so that the same headers are
    included, *folder*, which the source was read from, comes last.
    """
    return SourceOptions(
        flags=tuple(flags),
        include_dirs=(*_extra_include_dirs(), *((str(folder),) if folder else ())),
        toolkit_dirs=_include_dirs(),
        toolkit_first=True,
    )


def _include_dirs() -> tuple[str, ...]:
    """Return the directories that numba-cuda-mlir gives NVRTC, in its order."""
    import numba_cuda_mlir.numba_cuda.cudadrv
    from numba_cuda_mlir.memory_management.nrt import get_include
    from numba_cuda_mlir.numba_cuda.cuda_paths import get_cuda_paths

    major, _ = nvrtc.version()
    home = Path(numba_cuda_mlir.numba_cuda.cudadrv.__file__).parent.parent
    toolkit = get_cuda_paths()["include_dir"].info
    return (
        str(home / "include" / str(major)),
        *((str(toolkit),) if toolkit else ()),
        *(str(path) for path in nvrtc.toolkit_include_dirs() if str(path) != str(toolkit)),
        str(get_include()),
    )


def _extra_include_dirs() -> tuple[str, ...]:
    from numba_cuda_mlir.numba_cuda import config

    extra = getattr(config, "CUDA_NVRTC_EXTRA_SEARCH_PATHS", "")
    return tuple(path for path in extra.split(":") if path)
