"""
Make the CPU the CUDA device of a process, by a libcuda.so.1 of this package that runs kernels with `_cpu`.

`use_cpu` loads the package's library before NVIDIA's is loaded, so that later loads of libcuda.so.1 return
the package's. Its function cuInit imports `_link/cpu_device.py`, which calls `attach` of this module:
`attach` registers the Python functions of `callbacks` with the library, to compile PTX and run kernels.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import _native
from numba_ptxlink._config import CPU_CHECKS, MAX_CPU_DEVICES, config
from numba_ptxlink.errors import ActivationError, ConfigError, LinkError, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numba_ptxlink._arch import Arch, ArchLike

LIBRARY_FOLDER = Path(_native.__file__).parent / "cuda_driver"
"""The directory of libcuda.so.1. The dynamic loader searches it only if LD_LIBRARY_PATH contains it."""
RUNTIME_FOLDER = LIBRARY_FOLDER.parent / "cuda_runtime"
"""The directory of libcudart.so.12 and libcudart.so.13, the CUDA runtime over this libcuda.so.1."""
_SONAME = "libcuda.so.1"


class Settings(NamedTuple):
    """
    The CPU device of this process.

    Args:
        arch: The compute capability of the devices.
        devices: The number of devices.
        checks: The names of the checks of kernels, such as "memcheck"; an empty tuple for none.
    """

    arch: Arch
    devices: int
    checks: tuple[str, ...]


_settings: Settings | None = None  # Set by `use_cpu` or cuInit; None before.
_attached = False  # Whether cuInit has called `attach`, so that the settings are final.


def use_cpu(
    arch: ArchLike | None = None, devices: int | None = None, checks: Iterable[str] | None = None
) -> None:
    """
    Make the CPU the CUDA device of this process, before numba.cuda is imported and CUDA is initialised.

    Programs that use numba-cuda, numba-cuda-mlir, cuda.core, cuda.bindings or the driver API run unmodified;
    programs with NVIDIA's static runtime library, such as CuPy and PyTorch, do not. Each launch returns when
    the kernel has ended. An error of a kernel names its source line, block and thread.

    Args:
        arch: The compute capability, such as "9.0"; by default NUMBA_PTXLINK_CPU_ARCH, or 7.5.
        devices: The number of devices, up to 16; by default NUMBA_PTXLINK_CPU_DEVICES, or 1.
        checks: The names of checks: "memcheck", "initcheck", "racecheck" or "synccheck"; by default
            NUMBA_PTXLINK_CPU_CHECKS, or memcheck, which runs with each other check. With an empty tuple, a
            wrong access may end the process.

    Raises:
        ActivationError: A driver is loaded already, or CUDA is initialised with other settings.
        ConfigError: A value is not among its choices.
    """
    global _settings  # noqa: PLW0603 - one driver for each process
    new_settings = checked_settings(arch, devices, checks)
    if _settings == new_settings:
        return
    if _attached:
        raise ActivationError(
            f"CUDA is initialised, with the device {description()}; call use_cpu() once, before CUDA is used."
        )
    path = LIBRARY_FOLDER / _SONAME
    loaded = _loaded_driver()
    if loaded is not None and not hasattr(loaded, "numba_ptxlink_register"):
        raise ActivationError(
            "NVIDIA's libcuda.so.1 is loaded in this process already; call use_cpu() before CUDA is "
            "imported, or set NUMBA_PTXLINK_DEVICE=cpu."
        )
    # numba-cuda looks for a driver when it is imported, and never again. If it has loaded this library, which
    # LD_LIBRARY_PATH may contain, the CPU is its device already.
    if loaded is None and "numba.cuda" in sys.modules:
        raise ActivationError(
            "numba.cuda is imported already, and has found no driver; call use_cpu() before, or set "
            "NUMBA_PTXLINK_DEVICE=cpu."
        )
    try:
        # Later loads of libcuda.so.1 return this library, since its SONAME is libcuda.so.1, too.
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ActivationError(_native.load_failure(error)) from error
    # Deferred: every program that uses Numba imports this module.
    from . import bindings

    bindings.install(RUNTIME_FOLDER)
    _settings = new_settings


def is_active() -> bool:
    """Return whether the CPU is the CUDA device of this process."""
    return _settings is not None


def needs_line_numbers(function: Callable[..., Any], options: Mapping[str, Any]) -> bool:
    """
    Return whether a function has to be compiled with line numbers, so that a fault can name its line.

    Args:
        function: The Python function. Its source may be missing, as for a ufunc's kernel, which Numba writes:
            the function may call others, whose lines are known.
        options: The options of its decorator. With `debug` or `lineinfo`, the answer is False: they request
            line numbers already.
    """
    if not is_active() or options.get("debug") or options.get("lineinfo"):
        return False
    # numba-cuda parses the lines of a function, and looks for `def`: a lambda is a SyntaxError or a warning.
    return getattr(function, "__name__", "") != "<lambda>"


@contextlib.contextmanager
def no_source_warnings() -> Iterator[None]:
    """
    Hide, in a `with` block, numba-cuda's warning that the source of a function is missing.

    numba-cuda warns if line numbers are requested, and the program has not requested them.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Could not find source for function")
        yield


def settings() -> Settings:
    """Return the settings of the CPU device of this process; before `use_cpu`, those of the environment."""
    return _settings or checked_settings()


def description() -> str:
    """Return the devices of this process in words, such as "CPU, sm_75, 2 devices, memcheck"."""
    arch, devices, checks = settings()
    count = f"{devices} device{'s' * (devices != 1)}"
    return ", ".join(("CPU", arch.sm, count, *(checks or ("no checks",))))


def child_environment(device_settings: Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    """
    Return the environment in which a command, in Python or not, and its children use the CPU as CUDA device.

    Args:
        device_settings: The devices.
        inherited: The environment that is extended.
    """
    folders = filter(None, (str(LIBRARY_FOLDER), str(RUNTIME_FOLDER), inherited.get("LD_LIBRARY_PATH")))
    return {
        **inherited,
        "LD_LIBRARY_PATH": os.pathsep.join(folders),
        "NUMBA_PTXLINK_DEVICE": "cpu",
        "NUMBA_PTXLINK_CPU_ARCH": str(device_settings.arch),
        "NUMBA_PTXLINK_CPU_DEVICES": str(device_settings.devices),
        "NUMBA_PTXLINK_CPU_CHECKS": ",".join(device_settings.checks) or "none",
        # In a program without Python, the driver starts this interpreter.
        "NUMBA_PTXLINK_CPU_PYTHON": sys.executable,
        "NUMBA_PTXLINK_CPU_LIBPYTHON": _libpython(),
    }


def _libpython() -> str:
    """Return the path or name of the shared library of this Python; "" if there is none."""
    # Deferred: every program that uses Numba imports this module.
    import ctypes.util
    import sysconfig

    # Such as "/usr/lib" and "libpython3.12.so.1.0"; "libpython3.12.a" for a Python without a shared library.
    folder_and_name = (sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    library = Path(*filter(None, folder_and_name))
    if library.is_file() and ".so" in library.name:
        return str(library)
    return ctypes.util.find_library(f"python{sys.version_info[0]}.{sys.version_info[1]}") or ""


def check_machine_code() -> None:
    """
    Check that a GPU is the device of this process, so that kernels have its machine code (SASS).

    Raises:
        LinkError: The CPU is the device.
    """
    if is_active():
        raise LinkError(
            "The CPU device compiles no SASS; compile the kernel with numba_ptxlink.link() or "
            "cuda.compile_ptx() and pass the result to numba-ptxlink inspect, or run the program without "
            "NUMBA_PTXLINK_DEVICE."
        )


@contextlib.contextmanager
def raising_kernel_faults() -> Iterator[None]:
    """Raise the fault of a kernel that the `with` block launches, in place of the driver's error."""
    try:
        yield
    except Exception as error:
        if not _attached:
            raise
        from . import fault_reports

        fault_reports.raise_instead_of(error)
        raise


def attach(*, link: Callable[[Sequence[str], Sequence[bytes]], bytes], prepare: Callable[[], None]) -> None:
    """
    Give the loaded libcuda.so.1 the functions that compile PTX, link it and run kernels.

    Args:
        link: Links PTX inputs, given by their names and contents, to one PTX module.
        prepare: Patches Python packages; called whenever the device loads a module of PTX, since packages
            may have been imported since the last call.
    """
    global _settings, _attached  # noqa: PLW0603 - one driver for each process
    # Without `use_cpu`, the library was found by LD_LIBRARY_PATH, and the environment has the settings.
    _settings = settings()
    from . import callbacks

    callbacks.register(_settings, link, prepare)
    _attached = True


def enable_from_environment() -> None:
    """Make the CPU the CUDA device if NUMBA_PTXLINK_DEVICE is "cpu". The import hook calls this function."""
    try:
        if config().device == "cpu":
            use_cpu()
    except (ActivationError, ConfigError) as error:
        # Exit here, and raise nothing: the hook's .pth file calls this function while Python starts. After an
        # Exception, Python would continue, on another device; for a SystemExit, it would print a traceback
        # of its start-up code.
        sys.stderr.write(f"numba-ptxlink: error: {error}\n")
        sys.stderr.flush()
        os._exit(1)


def _loaded_driver() -> ctypes.CDLL | None:
    """Return the libcuda.so.1 that this process has loaded, of this package or NVIDIA's; None without one."""
    try:
        return ctypes.CDLL(_SONAME, mode=os.RTLD_NOLOAD)
    except OSError:
        return None


def checked_settings(
    arch: ArchLike | None = None, devices: int | None = None, checks: Iterable[str] | None = None
) -> Settings:
    """
    Return the arguments of `use_cpu`, completed by the environment.

    Raises:
        ConfigError: A value is not among its choices.
    """
    from numba_ptxlink._arch import Arch

    configured = config()
    try:
        chosen_arch = Arch.of(configured.cpu_arch if arch is None else arch)
    except ConfigError as error:
        raise ConfigError(f"NUMBA_PTXLINK_CPU_ARCH: {error}" if arch is None else str(error)) from error
    count = configured.cpu_devices if devices is None else devices
    if type(count) is not int or not 1 <= count <= MAX_CPU_DEVICES:
        raise ConfigError(f"devices is {short_repr(devices)}; pass a number from 1 to {MAX_CPU_DEVICES}.")
    names = configured.cpu_checks if checks is None else checks
    if not isinstance(names, (tuple, list, set)) or not all(name in CPU_CHECKS for name in names):
        raise ConfigError(f"checks is {short_repr(checks)}; pass a tuple of {', '.join(CPU_CHECKS)}.")
    # Without memcheck, a wrong access would end the process that another check was to explain.
    with_memcheck = ("memcheck", *(name for name in names if name != "memcheck")) if names else ()
    return Settings(chosen_arch, count, with_memcheck)
