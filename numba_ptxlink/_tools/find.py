"""Find NVIDIA's libraries and programs: their paths, their build IDs, and the packages that contain them."""

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
"""
The name of each library in messages, by its name in cuda-pathfinder and in file names.

"device" is for messages only: libdevice.10.bc is bitcode, which is read and not loaded.
"""

# Up to CUDA 12, the names of packages end in the major version, such as nvidia-nvjitlink-cu12.
_LAST_MAJOR_WITH_SUFFIX = 12
# The first release whose ptxas a package contains: nvidia-cuda-nvcc-cu11.
_FIRST_RELEASE_WITH_PTXAS_PACKAGE = (11, 7)
# An ELF note: the size of its name (4), the size of its content, the type NT_GNU_BUILD_ID (3) and the name
# "GNU". The content, which follows, is the build ID.
_BUILD_ID_NOTE = re.compile(rb"\x04\0\0\0(?P<size>.)\0\0\0\x03\0\0\0GNU\0", re.DOTALL)
# The notes of a library are at its beginning, or at its end if a tool such as patchelf has moved them.
_SEARCHED_BYTES = 1 << 16
# Errors of finding or loading a library by cuda-pathfinder, whose own errors are RuntimeErrors.
_LOADING_ERRORS = (ImportError, OSError, RuntimeError)
# A script named nvcc may do something else than compile, and never end.
_TIMEOUT_SECONDS = 30


def load_library(name: str, path: str = "") -> ctypes.CDLL:
    """
    Return the CUDA library *name*, one of `LIBRARIES`, loaded into this process.

    Args:
        name: The library.
        path: The file; "" for the one of this environment.

    Raises:
        LinkError: The library cannot be found or loaded. The error names its package.
    """
    # Deferred: for a kernel from the cache, only the build IDs of libraries are read, and none is loaded.
    from .child import load

    try:
        return load(path or library(name))
    except OSError as error:
        raise load_error(name, error) from error


def version(name: str, function: str, path: str = "") -> tuple[int, int]:
    """
    Return the version of a library as (major, minor); raise as `load_library` does.

    Args:
        name: The library, one of `LIBRARIES`.
        function: The C function that reports the version, such as "nvrtcVersion".
        path: The file; "" for the one of this environment.
    """
    return _version(name, function, path or library(name))


@functools.cache
def _version(name: str, function: str, path: str) -> tuple[int, int]:
    major_number, minor_number = ctypes.c_int(), ctypes.c_int()
    try:
        report_version = getattr(load_library(name, path), function)
    except AttributeError as error:
        raise load_error(name, error) from error
    report_version(ctypes.byref(major_number), ctypes.byref(minor_number))
    return (major_number.value, minor_number.value)


def pathfinder() -> Any:
    """
    Return the module `cuda.pathfinder`.

    Raises:
        LinkError: The module cannot be imported.
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

    If neither a wheel nor a conda environment contains the library, only loading it shows where it is: then
    it is loaded.

    Raises:
        LinkError: The library cannot be found.
    """
    try:
        return _find_without_loading(name) or str(pathfinder().load_nvidia_dynamic_lib(name).abs_path)
    except _LOADING_ERRORS as error:
        raise load_error(name, error) from error


def _find_without_loading(name: str) -> str:
    """Return the file that cuda-pathfinder would load; "" if that is known only after loading it."""
    # cuda-pathfinder has no public function for this, so releases without these private ones give "". Loading
    # takes 5 to 100 ms, which a cached kernel saves.
    try:
        loading = importlib.import_module("cuda.pathfinder._dynamic_libs.load_nvidia_dynamic_lib")
        descriptor = loading.LIB_DESCRIPTORS[name]
        # cuda-pathfinder returns a library that this process has loaded, wherever it is: let it do so.
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
            content = file.read(_SEARCHED_BYTES)
            if note := _BUILD_ID_NOTE.search(content):
                return content[note.end() : note.end() + note["size"][0]].hex()
        file.seek(0)
        digest = hashlib.sha256()
        while chunk := file.read(1 << 20):
            digest.update(chunk)
        return digest.hexdigest()


def program(name: str) -> str | None:
    """Return the first path of an NVIDIA program that `programs` finds; None if it finds none."""
    return next(programs(name), None)


def programs(name: str, *, wheels_first: bool = False) -> Iterator[str]:
    """
    Return the paths of an NVIDIA program: on PATH, then in wheels, CUDA_HOME, CUDA_PATH and other `toolkits`.

    With *wheels_first*, the program on PATH comes last. A path may occur twice.
    """
    on_path = [shutil.which(name)]
    in_folders = (
        shutil.which(name, path=str(folder / "bin"))
        for folder in itertools.chain(_package_and_variable_roots(), toolkits())
    )
    paths = itertools.chain(in_folders, on_path) if wheels_first else itertools.chain(on_path, in_folders)
    return filter(None, paths)


def toolkits() -> Iterator[Path]:
    """
    Yield folders that may be toolkits: of the nvcc in CUDACXX and on PATH, wheels, CUDA_HOME and CUDA_PATH.

    A folder may occur twice, or contain no toolkit.
    """
    cudacxx = command("CUDACXX")[:1]
    for path in filter(None, map(shutil.which, (*cudacxx, "nvcc"))):
        # A script named nvcc, such as a wrapper of a package manager, may call an nvcc in another folder.
        if _is_script(path) and (folder := toolkit_of(path)):
            yield folder
        # The parent of nvcc's folder "bin": once for the path as it is, since a toolkit may consist of links,
        # and once for the file that the path leads to, since nvcc may be a link in /usr/bin.
        yield from (Path(path).absolute().parents[1], Path(path).resolve().parents[1])
    yield from _package_and_variable_roots()


def _package_and_variable_roots() -> Iterator[Path]:
    """Yield folders that may be toolkits: those of wheels, then those of CUDA_HOME and CUDA_PATH."""
    for folder in map(Path, sys.path):
        yield from folder.glob("nvidia/*")
    yield from map(Path, filter(None, map(os.environ.get, ("CUDA_HOME", "CUDA_PATH"))))


def command(variable: str) -> list[str]:
    """
    Return the command in an environment variable, as a program and its arguments; empty if it is not set.

    The value is a path, which may contain blanks, or a line of shell such as "ccache g++".
    """
    value = os.environ.get(variable, "")
    return [value] if shutil.which(value) else shlex.split(value)


@functools.cache
def toolkit_of(nvcc: str) -> Path | None:
    """Return the folder of the toolkit that *nvcc* belongs to; None if nvcc does not report it."""
    import subprocess

    # A dry run of nvcc prints the commands that it would run, and variables such as
    # "#$ TOP=/usr/local/cuda/bin/..".
    dry_run = [nvcc, "--dryrun", "-x", "cu", os.devnull]
    with contextlib.suppress(OSError, subprocess.TimeoutExpired):
        process = subprocess.run(  # noqa: S603 - the user's nvcc
            dry_run,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
        if top := re.search(r"^#\$ TOP=(.+)$", process.stderr, re.MULTILINE):
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


def package_name(name: str, cuda_major: int | None = None) -> str:
    """
    Return the name that a package has for a major version of CUDA, such as "nvidia-nvjitlink-cu12".

    Args:
        name: The name of the package for CUDA 13, such as "nvidia-nvjitlink".
        cuda_major: The major version of CUDA; None for this environment's.
    """
    cuda_major = major() if cuda_major is None else cuda_major
    if cuda_major > _LAST_MAJOR_WITH_SUFFIX:
        return name
    # Up to CUDA 12, the package of nvcc contains libNVVM and the headers in crt/.
    if name in ("nvidia-nvvm", "nvidia-cuda-crt"):
        name = "nvidia-cuda-nvcc"
    return f"{name}-cu{cuda_major}"


def package_of_ptxas(release: tuple[int, int]) -> str:
    """Return the package with a ptxas of CUDA *release*; "" if there is none."""
    # The extra [nvcc] installs ptxas and nvcc's other programs in one release. A newer compiler beside this
    # ptxas would write PTX that this ptxas rejects.
    has_extra = release[0] > _LAST_MAJOR_WITH_SUFFIX
    package = "cuda-toolkit[nvcc]" if has_extra else package_name("nvidia-cuda-nvcc", release[0])
    return f"{package}=={dotted(release)}.*" if release >= _FIRST_RELEASE_WITH_PTXAS_PACKAGE else ""


def install_nvvm_command(release: tuple[int, int]) -> str:
    """Return the command that installs the libNVVM of CUDA *release* beside this environment's."""
    wheel = f"{package_name('nvidia-nvvm', release[0])}=={dotted(release)}.*"
    if release[0] != major():
        return f"pip install '{wheel}'"
    # A wheel of the same major version, installed into this environment, would replace its newer libNVVM. The
    # wheel contains nvidia/cu13, or nvidia/cuda_nvcc up to CUDA 12.
    folder = f"cu{release[0]}" if release[0] > _LAST_MAJOR_WITH_SUFFIX else "cuda_nvcc"
    return f"pip install --no-deps --target cuda '{wheel}' && export CUDA_HOME=$PWD/cuda/nvidia/{folder}"


def toolkit_extra(cuda_major: int | None = None) -> str:
    """
    Return the extra of numba-ptxlink that installs the tools, "toolkit12" or "toolkit13".

    Args:
        cuda_major: The major version of CUDA; None for this environment's. For a version without an extra,
            such as 11, the nearest one that has an extra is used.
    """
    cuda_major = major() if cuda_major is None else cuda_major
    return f"toolkit{min(max(cuda_major, _LAST_MAJOR_WITH_SUFFIX), _LAST_MAJOR_WITH_SUFFIX + 1)}"


def install_command(cuda_major: int | None = None) -> str:
    """Return the command that installs the tools for *cuda_major*, as for `toolkit_extra`."""
    return f"pip install 'numba-ptxlink[{toolkit_extra(cuda_major)}]'"


def load_error(name: str, reason: object) -> LinkError:
    """Return the error that the library *name*, one of `LIBRARIES`, could not be loaded for *reason*."""
    if isinstance(reason, LinkError):
        return reason
    first_line = (str(reason).strip() or type(reason).__name__).splitlines()[0]
    return LinkError(
        f"{LIBRARIES[name]} could not be loaded ({first_line}); install it with `{install_command()}`."
    )


def missing_library_error(error: BaseException) -> LinkError | None:
    """
    Return an error that names the missing package if *error* is about a missing library of the toolkit.

    Return None for any other error. The front ends' own messages name only the file, or another installer.
    """
    cause: BaseException | None = error
    while cause is not None:
        # Compare names of classes, since cuda-pathfinder, which has the classes, may not be imported yet.
        if type(cause).__name__.endswith(("LibNotFoundError", "LibNotAvailableError")):
            match = re.search(f"lib({'|'.join(LIBRARIES)})", str(cause))
            if match is not None:
                return load_error(match[1], cause)
        cause = cause.__cause__ or cause.__context__
    return None


@contextlib.contextmanager
def naming_missing_packages() -> Iterator[None]:
    """
    Replace an error about a missing library, raised in a `with` block, by one that names its package.

    Raises:
        LinkError: The block failed since a library was not found.
    """
    try:
        yield
    except Exception as error:
        package_error = missing_library_error(error)
        if package_error is None:
            raise
        raise package_error from error
