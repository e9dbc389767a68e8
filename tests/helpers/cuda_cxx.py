"""Compile CUDA C++ with NVRTC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numba_ptxlink as pl
from numba_ptxlink._tools import nvrtc

if TYPE_CHECKING:
    from pathlib import Path


def compiled(
    source: str, arch: str = "sm_80", *flags: str, output: str = "ptx", folders: tuple[Path | str, ...] = ()
) -> bytes:
    """Return CUDA C++ as PTX or LTO-IR."""
    dirs = (*folders, *nvrtc.toolkit_include_dirs()) if folders else ()
    options = nvrtc.SourceOptions(dirs, flags=flags)
    entry = nvrtc.compile_source(source, "source.cu", pl.Arch.of(arch), options, output=output)
    return entry.code.rstrip(b"\0") if output == "ptx" else entry.code


def ptx(source: str, arch: str = "sm_80", *flags: str, folders: tuple[Path | str, ...] = ()) -> str:
    """Return CUDA C++ as the text of PTX."""
    return compiled(source, arch, *flags, folders=folders).decode()
