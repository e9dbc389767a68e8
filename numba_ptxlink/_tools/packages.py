"""The names of the packages that bring NVIDIA's tools: those of CUDA 12 end in -cu12."""

from __future__ import annotations

import contextlib
import functools
import re
import site
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink import _native
from numba_ptxlink._arch import dotted
from numba_ptxlink.errors import LinkError

from . import build_id

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

_LAST_WITH_SUFFIX = 12
_OLDEST_NVCC = (11, 7)
_LAST_OF_CUDA_11 = (11, 8)
# A driver was released as 12.7, and no toolkit.
_SKIPPED = {(12, 7): (12, 6)}
# By the names of the files; a front end loads all of them itself.
_LIBRARIES = {
    "cudart": ("The CUDA runtime library", "nvidia-cuda-runtime"),
    "nvJitLink": ("nvJitLink", "nvidia-nvjitlink"),
    "nvfatbin": ("nvFatbin", "nvidia-nvfatbin"),
    "nvrtc": ("NVRTC", "nvidia-cuda-nvrtc"),
    "nvvm": ("libNVVM", "nvidia-nvvm"),
    "device": ("libdevice", "nvidia-nvvm"),
}
# What cuda-pathfinder raises for a file that it has found; the dynamic loader's reason names that file.
_UNLOADABLE = re.compile(r"Failed to dlopen .+?: (.+)")
# The oldest cuda-bindings that load the libraries without a driver; pyproject.toml has them too.
DRIVERLESS = {12: "12.9.3", 13: "13.0.2"}
_WANTS_DRIVER = "driver is not found"
_NOT_FOUND = "Failure finding"
_PYTHON = ("cuda-bindings", "cuda-pathfinder")
_parsed = functools.cache(_native.glibc_needed)
FOUND = "was found but could not be loaded"
"""What the error of `missing` says of a library that is there."""
UNLOADABLE_CURE = (
    "remove what the reason tells, such as a limit of memory (ulimit -v) or a mount without execution, "
    "or replace the file if it is damaged"
)
"""What helps against that."""


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
    if name in ("nvidia-nvvm", "nvidia-cuda-crt") and release <= _LAST_WITH_SUFFIX:
        name = "nvidia-cuda-nvcc"
    return f"{name}-cu{release}" if release <= _LAST_WITH_SUFFIX else name


def of_ptxas(release: tuple[int, int], *, relocatable: bool = True) -> str:
    """
    Return what pip installs to have a ptxas for CUDA *release*, "" where no package has one.

    Args:
        release: The CUDA release.
        relocatable: Whether a newer one of that major version does not do, since its code is to be linked.
    """
    release = _SKIPPED.get(release, release)
    if release < _OLDEST_NVCC and not relocatable:
        release = _LAST_OF_CUDA_11
    version = f"{dotted(release)}.*"
    if release[0] > _LAST_WITH_SUFFIX:
        # With what its nvcc calls: pip would leave these of another release, whose PTX this ptxas refuses.
        return f"cuda-toolkit[nvcc]=={version}"
    return f"{package('nvidia-cuda-nvcc', release[0])}=={version}" if release >= _OLDEST_NVCC else ""


def like(name: str, other: str) -> str:
    """Return what pip installs for *name*: of the release of the package *other*, if that is installed."""
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
        major, minor, *_ = metadata.version(package(other)).split(".")
        return f"{package(name)}=={major}.{minor}.*"
    return package(name)


def mixed_nvcc() -> tuple[str, str] | None:
    """
    Return what is wrong and what helps where nvcc's and NVVM's packages are of different releases, else None.

    nvcc 13.1 refuses the PTX of NVVM 13.5, and NVVM 13.1 the options of nvcc 13.5. Before CUDA 13 both are in
    one package.
    """
    try:
        nvcc, nvvm = (
            tuple(map(int, metadata.version(name).split(".")[:2]))
            for name in ("nvidia-cuda-nvcc", "nvidia-nvvm")
        )
    except (metadata.PackageNotFoundError, ValueError):
        return None
    if nvcc == nvvm:
        return None
    return (
        f"nvidia-cuda-nvcc {dotted(nvcc)} cannot compile with nvidia-nvvm {dotted(nvvm)}",
        f"install both of one release: `pip install '{of_ptxas((nvcc[0], nvcc[1]))}'`",
    )


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


def location(name: str, release: int | None = None) -> Path | None:
    """Return the folder that has the package of *name*, as `package` takes both; None where none has."""
    try:
        return Path(str(metadata.distribution(package(name, release)).locate_file(""))).resolve()
    except metadata.PackageNotFoundError:
        return None


def copies(name: str) -> dict[Path, str]:
    """Return the folders that have the package *name*, the one that is imported first, with its version."""
    found: dict[Path, str] = {}
    for each in metadata.distributions(name=name):
        found.setdefault(Path(str(each.locate_file(""))).resolve(), each.version)
    return found


def elsewhere(name: str) -> str:
    """
    Return that the package of *name* is where its libraries are not found, "" where that is not so.

    cuda-pathfinder looks in the interpreter's site directories, not in those of PYTHONPATH.
    """
    folder = location(name)
    if folder is None or _is_site(folder):
        return ""
    where = f"{package(name)} is installed in {folder}, which is no site directory of this interpreter"
    # That of an environment is lib/python3.11/site-packages; that of `pip install --target` any.
    if any((parent / "bin" / "python").exists() for parent in folder.parents[2:3]):
        return f"{where}: run the one of that environment, rather than add the folder to PYTHONPATH"
    return f"{where}: set LD_LIBRARY_PATH={':'.join(_library_folders())}"


def _library_folders() -> list[str]:
    """Return the folders of the shared libraries of all tools that are installed."""
    folders: dict[str, None] = {}
    for _, name in _LIBRARIES.values():
        with contextlib.suppress(metadata.PackageNotFoundError):
            for file in metadata.files(package(name)) or ():
                if re.search(r"\.so(\.\d+)*$", file.name):
                    folders[str(Path(str(file.locate())).resolve().parent)] = None
    return list(folders)


def is_site(path: os.PathLike[str]) -> bool:
    """Return whether the file *path* lies in a site directory, whose .pth files Python reads."""
    return _is_site(Path(path).parent.resolve())


def _is_site(folder: Path) -> bool:
    folders = [*site.getsitepackages(), *([site.getusersitepackages()] if site.ENABLE_USER_SITE else [])]
    return folder in [Path(each).resolve() for each in folders]


def check(library: str) -> None:
    """
    Refuse *library*, such as "nvJitLink", where its file is incomplete.

    To load one that is cut off can end the process, by SIGBUS.

    Raises:
        LinkError: Its file is incomplete, or cannot be read.
    """
    path = build_id.unloaded_path(library)
    if not path:
        return
    try:
        _parsed(path)
    except (OSError, ValueError) as error:
        tool, name = _LIBRARIES[library]
        cure = _again(package(name)) or "replace the file"
        raise LinkError(f"{tool} {FOUND} ({path}: {error}); {cure}.") from error


def pathfinder() -> Any:
    """
    Return the module `cuda.pathfinder`.

    Raises:
        LinkError: It cannot be imported.
    """
    try:
        from cuda import pathfinder
    except ImportError as error:
        raise missing("cuda-pathfinder", "cuda-pathfinder", error) from error
    return pathfinder


def missing(tool: str, name: str, reason: object) -> LinkError:
    """Return the error that *tool*, which the package of *name* brings, could not be loaded for *reason*."""
    if isinstance(reason, LinkError):
        return reason
    said = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    found = _UNLOADABLE.match(said)
    if found is not None:
        return LinkError(f"{tool} {FOUND} ({found[1]}); {UNLOADABLE_CURE}.")
    return LinkError(f"{tool} could not be loaded ({said}); {_cure(name, reason)}.")


def _cure(name: str, reason: object) -> str:
    """Return what helps where a library of the package of *name* is not found for *reason*."""
    oldest = DRIVERLESS.get(major())
    if _WANTS_DRIVER in str(reason) and oldest is not None:
        return (
            "install a driver, or bindings that need none: "
            f"`pip install --upgrade 'cuda-bindings>={oldest},<{major() + 1}'`, "
            "and newer releases of those packages that pip then says want older ones"
        )
    # Pip takes what is damaged for whole: the metadata are there.
    again = _again(package(name)) if _NOT_FOUND in str(reason) else ""
    if isinstance(reason, ImportError):
        again = next((_again(each) for each in _PYTHON if _is_part(reason, each)), "")
    return elsewhere(name) or again or f"install it with `{install()}`"


def _is_part(error: ImportError, name: str) -> bool:
    """Return whether what cannot be imported belongs to the package *name*."""
    return f"{error.name}.".startswith(f"{name.replace('-', '.')}.")


def _again(name: str) -> str:
    """Return that the files of the package *name* are to be put back, "" where it is not installed."""
    try:
        version = metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""
    return f"install {name} again: `pip install --force-reinstall --no-deps {name}=={version}`"


def explained(error: BaseException) -> LinkError | None:
    """
    Return what says which package to install, where *error* is that a library of the toolkit is not found.

    Or why it cannot be loaded, where it is found; likewise for NVIDIA's packages of Python modules.

    None for any other error. What a front end raises for it names the file alone, or another installer.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, ImportError):
            for each in _PYTHON:
                if _is_part(seen, each):
                    return missing(each, each, seen)
        # By name: pathfinder may not be imported yet, and need not be.
        absent = type(seen).__name__.endswith(("LibNotFoundError", "LibNotAvailableError"))
        if absent or (isinstance(seen, RuntimeError) and _UNLOADABLE.match(str(seen))):
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
