"""
Make the CPU the CUDA device of a process, by a libcuda.so.1 of this package that runs kernels with `_cpu`.

`use_cpu` loads the library before NVIDIA's is loaded. Programs that load libcuda.so.1 later get this one. The
function cuInit calls `attach` of `_link/cpu_device.py`, which registers the functions of `callbacks`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import _native
from numba_ptxlink._config import CPU_CHECKS, MAX_CPU_DEVICES, config
from numba_ptxlink.errors import ActivationError, ConfigError, LinkError, short_repr

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from numba_ptxlink._arch import Arch, ArchLike

LIBRARY_FOLDER = Path(_native.__file__).parent / "cuda_driver"
"""The directory of libcuda.so.1, which no loader searches."""
RUNTIME_FOLDER = LIBRARY_FOLDER.parent / "cuda_runtime"
"""The directory of libcudart.so.12 and libcudart.so.13, which use that library."""
_SONAME = "libcuda.so.1"


class Settings(NamedTuple):
    """
    The CPU device of this process.

    Args:
        arch: The compute capability of the devices.
        devices: The number of devices.
        checks: The names of the checks of kernels.
    """

    arch: Arch
    devices: int
    checks: tuple[str, ...]


_settings: Settings | None = None
_attached = False


def use_cpu(
    arch: ArchLike | None = None, devices: int | None = None, checks: Iterable[str] | None = None
) -> None:
    """
    Make the CPU the CUDA device of this process, before numba.cuda is imported and CUDA is initialised.

    Programs that use numba-cuda, numba-cuda-mlir, cuda.core, cuda.bindings or the driver API run unmodified;
    those with NVIDIA's static runtime library, such as CuPy and PyTorch, do not. Each launch has ended when
    it returns. An error of a kernel names its source line, block and thread.

    Args:
        arch: The compute capability, such as "9.0"; by default NUMBA_PTXLINK_CPU_ARCH, or 7.5.
        devices: The number of devices, up to 16; by default NUMBA_PTXLINK_CPU_DEVICES, or 1.
        checks: The names of checks: "memcheck", "initcheck", "racecheck" or "synccheck"; by default
            NUMBA_PTXLINK_CPU_CHECKS, or memcheck. Without memcheck, a wrong access may end the process.

    Raises:
        ActivationError: A driver is loaded already, or CUDA is initialised with other settings.
        ConfigError: A value is not among its choices.
    """
    global _settings  # noqa: PLW0603 - one driver for each process
    chosen = checked_settings(arch, devices, checks)
    if _settings == chosen:
        return
    if _attached:
        raise ActivationError(
            f"CUDA is initialised, with {_settings}; call use_cpu() once, before CUDA is used."
        )
    path = LIBRARY_FOLDER / _SONAME
    loaded = _loaded_driver()
    if loaded is not None and not hasattr(loaded, "numba_ptxlink_register"):
        raise ActivationError(
            "NVIDIA's libcuda.so.1 is loaded in this process already; call use_cpu() before CUDA is "
            "imported, or set NUMBA_PTXLINK_DEVICE=cpu."
        )
    # numba-cuda looks for a driver when it is imported, and never again.
    if loaded is None and "numba.cuda" in sys.modules:
        raise ActivationError(
            "numba.cuda is imported already, and has found no driver; call use_cpu() before, or set "
            "NUMBA_PTXLINK_DEVICE=cpu."
        )
    try:
        # Later loads of libcuda.so.1 get this library, since it has the same name.
        ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise ActivationError(_native.load_failure(error)) from error
    _settings = chosen


def is_active() -> bool:
    """Return whether the CPU is the CUDA device of this process."""
    return _settings is not None


def needs_lines(function: Callable[..., Any], options: Mapping[str, Any]) -> bool:
    """
    Return whether a kernel has to be compiled with line numbers, which faults name.

    Args:
        function: The Python function. Compilers warn of line numbers for one without a source file.
        options: The options of its decorator.
    """
    if not is_active() or options.get("debug") or options.get("lineinfo"):
        return False
    # numba-cuda parses the lines of a function, and looks for `def`: a lambda is a SyntaxError or a warning.
    if getattr(function, "__name__", "") == "<lambda>":
        return False
    import inspect

    try:
        inspect.getsource(function)
    except (OSError, TypeError):
        return False
    return True


def settings() -> Settings:
    """Return the settings of the CPU device of this process, those of the environment before `use_cpu`."""
    return _settings or checked_settings()


def description() -> str:
    """Return the devices of this process in words, such as "CPU, sm_75, 2 devices, memcheck"."""
    arch, devices, checks = settings()
    count = f"{devices} device{'s' * (devices != 1)}"
    return ", ".join(("CPU", arch.sm, count, *(checks or ("no checks",))))


def child_environment(chosen: Settings, inherited: Mapping[str, str]) -> dict[str, str]:
    """
    Return the environment of a command whose CUDA device is the CPU, Python or not, and of its children.

    Args:
        chosen: The devices.
        inherited: The environment that is extended.
    """
    folders = filter(None, (str(LIBRARY_FOLDER), str(RUNTIME_FOLDER), inherited.get("LD_LIBRARY_PATH")))
    return {
        **inherited,
        "LD_LIBRARY_PATH": os.pathsep.join(folders),
        "NUMBA_PTXLINK_DEVICE": "cpu",
        "NUMBA_PTXLINK_CPU_ARCH": str(chosen.arch),
        "NUMBA_PTXLINK_CPU_DEVICES": str(chosen.devices),
        "NUMBA_PTXLINK_CPU_CHECKS": ",".join(chosen.checks) or "none",
        # For programs without Python: the driver starts this one.
        "NUMBA_PTXLINK_CPU_PYTHON": sys.executable,
        "NUMBA_PTXLINK_CPU_LIBPYTHON": _libpython(),
    }


def _libpython() -> str:
    """Return the shared library of this Python; "" if it has none."""
    # Deferred: every program that uses Numba imports this module.
    import ctypes.util
    import sysconfig

    names = (sysconfig.get_config_var("LIBDIR"), sysconfig.get_config_var("INSTSONAME"))
    library = Path(*filter(None, names))
    if library.is_file() and ".so" in library.name:
        return str(library)
    return ctypes.util.find_library(f"python{sys.version_info[0]}.{sys.version_info[1]}") or ""


def check_machine_code() -> None:
    """
    Do nothing if kernels of this process have machine code of a GPU.

    Raises:
        LinkError: The CPU is the device, whose kernels have none.
    """
    if is_active():
        raise LinkError(
            "The CPU device compiles no SASS; compile the kernel with numba_ptxlink.link() or "
            "cuda.compile_ptx() and numba-ptxlink inspect, or run the program without NUMBA_PTXLINK_DEVICE."
        )


@contextlib.contextmanager
def raising_kernel_faults() -> Iterator[None]:
    """Raise the fault of the kernel that a `with` block has launched, in place of the driver's error."""
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
    Register the functions that compile PTX and run kernels.

    Args:
        link: Links PTX inputs, given by their names and contents, to one PTX module.
        prepare: Called when a module is loaded.
    """
    global _settings, _attached  # noqa: PLW0603
    # Without `use_cpu`, the library was found by LD_LIBRARY_PATH.
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
        # Python would print an exception of a .pth file and continue, on another device, and SystemExit with
        # the traceback of its own start.
        sys.stderr.write(f"numba-ptxlink: error: {error}\n")
        sys.stderr.flush()
        os._exit(1)


def _loaded_driver() -> ctypes.CDLL | None:
    """Return the libcuda.so.1 that this process has loaded, None without one."""
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
    return Settings(chosen_arch, count, tuple(names))
