"""The names of the packages that bring NVIDIA's tools: those of CUDA 12 end in -cu12."""

from __future__ import annotations

import functools
from importlib import metadata

_LAST_WITH_SUFFIX = 12


@functools.cache
def major() -> int:
    """
    Return the major version of CUDA that this environment's bindings are for, 13 without bindings.

    numba-cuda needs a toolkit of the same. Loads no library.
    """
    try:
        return int(metadata.version("cuda-bindings").partition(".")[0])
    except (metadata.PackageNotFoundError, ValueError):
        return _LAST_WITH_SUFFIX + 1


def package(name: str, release: int | None = None) -> str:
    """
    Return the package that brings what *name* does in CUDA 13, for another *release*.

    Args:
        name: The package's name in CUDA 13, such as "nvidia-nvjitlink".
        release: The major version of CUDA, None for this environment's.
    """
    release = major() if release is None else release
    return f"{name}-cu{release}" if release <= _LAST_WITH_SUFFIX else name


def install() -> str:
    """Return the command that installs all tools, of the major version that this environment has."""
    return f"pip install 'numba-ptxlink[cu{min(max(major(), _LAST_WITH_SUFFIX), _LAST_WITH_SUFFIX + 1)}]'"
