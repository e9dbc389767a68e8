"""The names of the packages that bring NVIDIA's tools: those of CUDA 12 end in -cu12."""

from __future__ import annotations

import contextlib
import functools
import re
import site
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

_LAST_WITH_SUFFIX = 12
# By the names of the files; a front end loads all of them itself.
_LIBRARIES = {
    "cudart": ("The CUDA runtime library", "nvidia-cuda-runtime"),
    "nvJitLink": ("nvJitLink", "nvidia-nvjitlink"),
    "nvfatbin": ("nvFatbin", "nvidia-nvfatbin"),
    "nvrtc": ("NVRTC", "nvidia-cuda-nvrtc"),
    "nvvm": ("libNVVM", "nvidia-nvvm"),
    "device": ("libdevice", "nvidia-nvvm"),
}


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
    if name == "nvidia-nvvm" and release <= _LAST_WITH_SUFFIX:
        name = "nvidia-cuda-nvcc"
    return f"{name}-cu{release}" if release <= _LAST_WITH_SUFFIX else name


def toolkit() -> str:
    """Return the extra that installs the tools of this environment's major version: "toolkit13"."""
    return f"toolkit{_offered(major())}"


def install(release: int | None = None) -> str:
    """
    Return the command that installs all tools, and numba-cuda with them if it is there.

    Args:
        release: The major version of CUDA, None for this environment's.
    """
    release = _offered(major() if release is None else release)
    try:
        metadata.version("numba-cuda")
    except metadata.PackageNotFoundError:
        return f"pip install 'numba-ptxlink[toolkit{release}]'"
    return f"pip install 'numba-ptxlink[cu{release}]'"


def _offered(release: int) -> int:
    """Return the major version nearest to *release* that there are extras for."""
    return min(max(release, _LAST_WITH_SUFFIX), _LAST_WITH_SUFFIX + 1)


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
    if folder is None or _is_site(folder):
        return ""
    return (
        f"{package(name)} is installed in {folder}, which is no site directory of this interpreter: run the "
        "one of that environment, rather than add the folder to PYTHONPATH"
    )


def is_site(path: os.PathLike[str]) -> bool:
    """Return whether the file *path* lies in a site directory, whose .pth files Python reads."""
    return _is_site(Path(path).parent.resolve())


def _is_site(folder: Path) -> bool:
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return folder in [Path(each).resolve() for each in folders]


def missing(tool: str, name: str, reason: object) -> LinkError:
    """Return the error that *tool*, which the package of *name* brings, could not be loaded for *reason*."""
    said = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    cure = elsewhere(name) or f"install it with `{install()}`"
    return LinkError(f"{tool} could not be loaded ({said}); {cure}.")


def explained(error: BaseException) -> LinkError | None:
    """
    Return what says which package to install, where *error* is that a library of the toolkit is not found.

    None for any other error. What a front end raises for it names the file alone, or another installer.
    """
    seen: BaseException | None = error
    while seen is not None:
        # By name: pathfinder may not be imported yet, and need not be.
        if type(seen).__name__.endswith(("LibNotFoundError", "LibNotAvailableError")):
            match = re.search(f"lib({'|'.join(_LIBRARIES)})", str(seen))
            if match is not None:
                return missing(*_LIBRARIES[match[1]], seen)
        seen = seen.__cause__ or seen.__context__
    return None


@contextlib.contextmanager
def explaining() -> Iterator[None]:
    """
    Say, during a `with` block of a front end's code, which package brings a library that is not found.

    Raises:
        LinkError: That is why the block failed.
    """
    try:
        yield
    except Exception as error:
        cure = explained(error)
        if cure is None:
            raise
        raise cure from error
