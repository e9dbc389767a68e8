"""The include directories of NVRTC for CUDA C++ that is linked into kernels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink._link import compile as sources

if TYPE_CHECKING:
    from collections.abc import Sequence


def source_options(flags: Sequence[str] = (), folder: Path | None = None) -> sources.SourceOptions:
    """Return the options for CUDA C++ from *folder*: *flags*, and numba-cuda's search path."""
    from numba.cuda import cudadrv
    from numba.cuda.core import config
    from numba.cuda.cuda_paths import get_cuda_paths

    root = Path(cudadrv.__file__).parent.parent
    return sources.kernel_options(
        flags,
        folder,
        home=root / "include",
        toolkit=get_cuda_paths()["include_dir"].info,
        own=root / "memory_management",
        extra=getattr(config, "CUDA_NVRTC_EXTRA_SEARCH_PATHS", ""),
    )
