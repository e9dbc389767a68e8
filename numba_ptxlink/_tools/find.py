"""Find NVIDIA's libraries and programs: their paths, builds, and the packages that contain them."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import importlib
import itertools
import os
import re
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink._arch import dotted
from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

LIBRARIES = {
    "cudart": "The CUDA runtime library",
    "nvJitLink": "nvJitLink",
    "nvfatbin": "nvFatbin",
    "nvrtc": "NVRTC",
    "nvvm": "libNVVM",
    "device": "libdevice",
}
"""The libraries: their names in messages, by the names that files and cuda-pathfinder use."""

_LAST_MAJOR_WITH_SUFFIX = 12
_OLDEST_NVCC = (11, 7)
_NOTE = re.compile(rb"\x04\0\0\0(?P<size>.)\0\0\0\x03\0\0\0GNU\0", re.DOTALL)
# The notes of a library are at its beginning, or at its end if a tool has moved them.
_SEARCHED_BYTES = 1 << 16
# Errors of loading a library: those of cuda-pathfinder and of older bindings are RuntimeErrors.
_LOADING_ERRORS = (ImportError, OSError, RuntimeError)
# A script named nvcc may do something else, and never end.
_TIMEOUT_SECONDS = 30


def load_library(name: str, path: str = "") -> ctypes.CDLL:
    """
    Return the CUDA library *name*, one of `LIBRARIES`, loaded into this process.

    Args:
        name: The library.
        path: The file; "" for the one of this environment.

    Raises:
        LinkError: The library cannot be found or loaded. Names the package.
    """
    # Deferred: a kernel out of the cache needs the build IDs of libraries, and loads none.
    from .child import load

    try:
        return load(path or library(name))
    except OSError as error:
        raise load_error(name, error) from error


def version(name: str, function: str, path: str = "") -> tuple[int, int]:
    """Return (major, minor) of a library by its *function*; raises what `load_library` raises."""
    return _version(name, function, path or library(name))


@functools.cache
def _version(name: str, function: str, path: str) -> tuple[int, int]:
    major, minor = ctypes.c_int(), ctypes.c_int()
    try:
        getattr(load_library(name, path), function)(ctypes.byref(major), ctypes.byref(minor))
    except AttributeError as error:
        raise load_error(name, error) from error
    return (major.value, minor.value)


def pathfinder() -> Any:
    """
    Return the module `cuda.pathfinder`.

    Raises:
        LinkError: It cannot be imported.
    """
    try:
        return importlib.import_module("cuda.pathfinder")
    except ImportError as error:
        raise LinkError(
            f"cuda-pathfinder could not be loaded ({error}); install it with `{install_command()}`."
        ) from error


@functools.cache
def library(name: str) -> str:
    """
    Return the file of the CUDA library *name*, one of `LIBRARIES`.

    A library that is in neither the process nor a wheel nor a conda environment is loaded to find it.

    Raises:
        LinkError: The library cannot be found.
    """
    try:
        return _find_without_loading(name) or str(pathfinder().load_nvidia_dynamic_lib(name).abs_path)
    except _LOADING_ERRORS as error:
        raise load_error(name, error) from error


def _find_without_loading(name: str) -> str:
    """Return the file that cuda-pathfinder would load; "" if it has to load it to find it, or has done so."""
    # cuda-pathfinder has no public function for this. Loading takes 5 to 100 ms, which a cached kernel saves.
    try:
        loading = importlib.import_module("cuda.pathfinder._dynamic_libs.load_nvidia_dynamic_lib")
        descriptor = loading.LIB_DESCRIPTORS[name]
        if loading.LOADER.check_if_already_loaded_from_elsewhere(descriptor) is not None:
            return ""
        return str(
            loading.run_find_steps(loading.SearchContext(descriptor), loading.EARLY_FIND_STEPS).abs_path
        )
    except (ImportError, AttributeError, LookupError, RuntimeError, TypeError):
        return ""


def library_build_id(name: str) -> str:
    """
    Return the build ID of the CUDA library *name*, one of `LIBRARIES`.

    Raises:
        LinkError: The library cannot be found.
    """
    return build_id(library(name))


@functools.cache
def build_id(path: str) -> str:
    """
    Return the GNU build ID of the library at *path*; a SHA-256 of the file if it has none.

    The build ID distinguishes builds of one version, and is the same on every machine. The format is that of
    the System V gABI, "Note Section", and of GNU ld's --build-id.

    Raises:
        OSError: The file cannot be read.
    """
    with Path(path).open("rb") as file:
        for start in (0, max(0, os.fstat(file.fileno()).st_size - _SEARCHED_BYTES)):
            file.seek(start)
            pages = file.read(_SEARCHED_BYTES)
            if note := _NOTE.search(pages):
                return pages[note.end() : note.end() + note["size"][0]].hex()
        file.seek(0)
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def program(name: str) -> str | None:
    """Return the first path of an NVIDIA program that `programs` finds; None if it finds none."""
    return next(programs(name), None)


def programs(name: str, *, wheels_first: bool = False) -> Iterator[str]:
    """Return the paths of an NVIDIA program: on PATH, then in wheels and in `toolkits`; or on PATH last."""
    on_path = [shutil.which(name)]
    in_folders = (
        shutil.which(name, path=str(folder / "bin"))
        for folder in itertools.chain(_package_and_variable_roots(), toolkits())
    )
    paths = itertools.chain(in_folders, on_path) if wheels_first else itertools.chain(on_path, in_folders)
    return filter(None, paths)


def toolkits() -> Iterator[Path]:
    """Yield possible folders of toolkits: of nvcc in CUDACXX or PATH, wheels, CUDA_HOME and CUDA_PATH."""
    cudacxx = command("CUDACXX")[:1]
    for path in filter(None, map(shutil.which, (*cudacxx, "nvcc"))):
        if _is_script(path) and (folder := toolkit_of(path)):
            yield folder
        # nvcc may be a link in a folder of programs, or a file in a toolkit of links.
        yield from (Path(path).absolute().parents[1], Path(path).resolve().parents[1])
    yield from _package_and_variable_roots()


def _package_and_variable_roots() -> Iterator[Path]:
    for folder in map(Path, sys.path):
        yield from folder.glob("nvidia/*")
    yield from map(Path, filter(None, map(os.environ.get, ("CUDA_HOME", "CUDA_PATH"))))


def command(variable: str) -> list[str]:
    """Return the command in an environment variable: the path of a program, or a line of shell."""
    value = os.environ.get(variable, "")
    return [value] if shutil.which(value) else shlex.split(value)


@functools.cache
def toolkit_of(nvcc: str) -> Path | None:
    """Return the folder of the toolkit that *nvcc* belongs to, None if it does not report one."""
    import subprocess

    # A dry run of nvcc prints the variables of its profile among the commands that it would run.
    command = [nvcc, "--dryrun", "-x", "cu", os.devnull]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        done = subprocess.run(  # noqa: S603 - the user's nvcc
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        if top := re.search(r"^#\$ TOP=(.+)$", done.stderr, re.MULTILINE):
            return Path(top[1]).resolve()
    return None


def _is_script(path: str) -> bool:
    with contextlib.suppress(OSError), Path(path).open("rb") as file:
        return file.read(2) == b"#!"
    return False


@functools.cache
def major() -> int:
    """
    Return the major version of CUDA of this environment's bindings; 13 without bindings.

    The toolkit has to be of the same major version. Loads no library.
    """
    try:
        return int(metadata.version("cuda-bindings").partition(".")[0])
    except metadata.PackageNotFoundError:
        return _LAST_MAJOR_WITH_SUFFIX + 1


def installed_versions(packages: Iterable[str]) -> dict[str, str]:
    """Return the versions of the installed ones of *packages*, by name."""
    versions = {}
    for name in packages:
        # A package without metadata counts as missing.
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def package_name(name: str, release: int | None = None) -> str:
    """
    Return the name that a package has for a *release* of CUDA.

    Args:
        name: The name of the package for CUDA 13, such as "nvidia-nvjitlink".
        release: The major version of CUDA; None for this environment's.
    """
    release = major() if release is None else release
    if name in ("nvidia-nvvm", "nvidia-cuda-crt") and release <= _LAST_MAJOR_WITH_SUFFIX:
        name = "nvidia-cuda-nvcc"
    return f"{name}-cu{release}" if release <= _LAST_MAJOR_WITH_SUFFIX else name


def package_of_ptxas(release: tuple[int, int]) -> str:
    """Return the package with a ptxas of CUDA *release*; "" if there is none."""
    # The extra includes the programs that nvcc calls. Programs of another release would write PTX that this
    # ptxas rejects.
    later = release[0] > _LAST_MAJOR_WITH_SUFFIX
    wheel = "cuda-toolkit[nvcc]" if later else package_name("nvidia-cuda-nvcc", release[0])
    return f"{wheel}=={dotted(release)}.*" if release >= _OLDEST_NVCC else ""


def install_nvvm_command(release: tuple[int, int]) -> str:
    """Return the command that installs the libNVVM of CUDA *release* beside this environment's."""
    wheel = f"{package_name('nvidia-nvvm', release[0])}=={dotted(release)}.*"
    if release[0] != major():
        return f"pip install '{wheel}'"
    # In the environment, the wheel would replace the newer one.
    folder = f"cu{release[0]}" if release[0] > _LAST_MAJOR_WITH_SUFFIX else "cuda_nvcc"
    return f"pip install --no-deps --target cuda '{wheel}' && export CUDA_HOME=$PWD/cuda/nvidia/{folder}"


def toolkit_extra(release: int | None = None) -> str:
    """
    Return the extra that installs the tools, such as "toolkit13".

    Args:
        release: The major version of CUDA; None for this environment's. The nearest one with an extra is
            used.
    """
    release = major() if release is None else release
    return f"toolkit{min(max(release, _LAST_MAJOR_WITH_SUFFIX), _LAST_MAJOR_WITH_SUFFIX + 1)}"


def install_command(release: int | None = None) -> str:
    """Return the command that installs the tools, as for `toolkit_extra`."""
    return f"pip install 'numba-ptxlink[{toolkit_extra(release)}]'"


def load_error(name: str, reason: object) -> LinkError:
    """Return the error that the library *name*, one of `LIBRARIES`, could not be loaded for *reason*."""
    if isinstance(reason, LinkError):
        return reason
    line = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    return LinkError(
        f"{LIBRARIES[name]} could not be loaded ({line}); install it with `{install_command()}`."
    )


def missing_library_error(error: BaseException) -> LinkError | None:
    """
    Return an error that names the missing package, if *error* is about a missing library of the toolkit.

    None for any other error. Front ends' own messages name the file only, or another installer.
    """
    cause: BaseException | None = error
    while cause is not None:
        # Compare names of classes, since cuda-pathfinder may not be imported yet.
        if type(cause).__name__.endswith(("LibNotFoundError", "LibNotAvailableError")):
            match = re.search(f"lib({'|'.join(LIBRARIES)})", str(cause))
            if match is not None:
                return load_error(match[1], cause)
        cause = cause.__cause__ or cause.__context__
    return None


@contextlib.contextmanager
def naming_missing_packages() -> Iterator[None]:
    """
    Name the package of a library that code of a front end in a `with` block does not find.

    Raises:
        LinkError: The block failed since a library was not found.
    """
    try:
        yield
    except Exception as error:
        cure = missing_library_error(error)
        if cure is None:
            raise
        raise cure from error
