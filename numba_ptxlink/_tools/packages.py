"""The names of the packages that bring NVIDIA's tools: those of CUDA 12 end in -cu12."""

from __future__ import annotations

import functools
import site
from importlib import metadata
from pathlib import Path

from numba_ptxlink.errors import LinkError

_LAST_WITH_SUFFIX = 12


@functools.cache
def major() -> int:
    """
    Return the major version of CUDA that this environment's bindings are for, 13 without bindings.

    They need a toolkit of the same. Loads no library.
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
    """Return the command that installs all tools of this major version, and numba-cuda if it is there."""
    release = min(max(major(), _LAST_WITH_SUFFIX), _LAST_WITH_SUFFIX + 1)
    try:
        metadata.version("numba-cuda")
    except metadata.PackageNotFoundError:
        return f"pip install 'numba-ptxlink[toolkit{release}]'"
    return f"pip install 'numba-ptxlink[cu{release}]'"


def location(name: str) -> Path | None:
    """Return the folder that has the package of *name*, as `package` takes it; None where none has."""
    try:
        return Path(str(metadata.distribution(package(name)).locate_file(""))).resolve()
    except metadata.PackageNotFoundError:
        return None


def elsewhere(name: str) -> str:
    """
    Return that the package of *name* is where its libraries are not found, "" where that is not so.

    cuda-pathfinder looks in the interpreter's site directories, not in those of PYTHONPATH.
    """
    folder = location(name)
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    if folder is None or folder in [Path(each).resolve() for each in folders]:
        return ""
    return (
        f"{package(name)} is installed in {folder}, which is no site directory of this interpreter: run the "
        "one of that environment, rather than add the folder to PYTHONPATH"
    )


def missing(tool: str, name: str, reason: object) -> LinkError:
    """Return the error that *tool*, which the package of *name* brings, could not be loaded for *reason*."""
    said = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    cure = elsewhere(name) or f"install it with `{install()}`"
    return LinkError(f"{tool} could not be loaded ({said}); {cure}.")
