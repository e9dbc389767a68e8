"""
Make cuda.bindings and cuda.core.system use the CPU device.

cuda.bindings contains NVIDIA's static runtime, which needs undocumented tables of NVIDIA's driver, and NVRTC
makes cubins, which the device cannot run. Modules of cuda.bindings call C functions through capsules, which
they take from the dictionary `__pyx_capi__` of another module when they are imported. So a finder replaces
capsules as soon as that other module is imported: by the runtime of this package, and by functions for PTX.

cuda.core.system counts devices by NVML, a library of NVIDIA's driver that a machine without a GPU lacks.
"""

from __future__ import annotations

import ctypes
import re
import sys
from importlib.machinery import PathFinder
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from pathlib import Path
    from types import ModuleType

# The modules with the capsules of the runtime: of cuda.bindings 13.5, then of 12.9. Those with the suffix are
# used with CUDA_PYTHON_CUDA_PER_THREAD_DEFAULT_STREAM=1.
_RUNTIMES = tuple(
    f"cuda.bindings.{name}{suffix}"
    for name in ("_internal.runtime", "_bindings.cyruntime")
    for suffix in ("", "_ptds")
)
_NVRTC = "cuda.bindings._internal.nvrtc"
# The name ends "cu13.system._system" in wheels of cuda.core.
_CORE_SYSTEM = re.compile(r"cuda\.core\.(cu\d+\.)?system\._system")
_PTX_FUNCTIONS = {"_nvrtcGetCUBINSize": "_nvrtcGetPTXSize", "_nvrtcGetCUBIN": "_nvrtcGetPTX"}


class _Finder:
    """A meta path finder that finds the modules to patch as Python does, and patches them."""

    def __init__(self, runtime_folder: Path) -> None:
        self._runtime_folder = runtime_folder

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != _NVRTC and name not in _RUNTIMES and not _CORE_SYSTEM.fullmatch(name):
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.loader is None:
            return None
        exec_module = spec.loader.exec_module

        def exec_and_patch(module: ModuleType) -> None:
            exec_module(module)
            capsules = getattr(module, "__pyx_capi__", {})
            if name == _NVRTC:
                _use_ptx(capsules)
            elif name not in _RUNTIMES:
                _use_driver(module)
            else:
                major = sys.modules["cuda.bindings"].__version__.partition(".")[0]
                _use_library(capsules, self._runtime_folder / f"libcudart.so.{major}")

        spec.loader.exec_module = exec_and_patch  # type: ignore[method-assign]
        return spec


def install(runtime_folder: Path) -> None:
    """Patch the modules that are imported from now on, for the runtimes in a folder."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder(runtime_folder))


def _use_library(capsules: dict[str, Any], path: Path) -> None:
    """Replace the functions of the static runtime by those of the shared library at *path*."""
    library = ctypes.CDLL(str(path))
    get_name, new = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_New
    get_name.argtypes, get_name.restype = [ctypes.py_object], ctypes.c_void_p
    new.argtypes, new.restype = [ctypes.c_void_p] * 3, ctypes.py_object
    for name, capsule in list(capsules.items()):
        # "_cudaMalloc" has the C function cudaMalloc; the library lacks functions of cuda.bindings itself.
        function = getattr(library, name.removeprefix("_"), None)
        if function is not None:
            address = ctypes.cast(function, ctypes.c_void_p)
            # Users of a capsule check its name, the prototype. A capsule does not copy the text: pass that of
            # the old capsule, which is a constant in the code of the module.
            capsules[name] = new(address, get_name(capsule), None)


def _use_ptx(capsules: dict[str, Any]) -> None:
    """Let NVRTC return PTX where a cubin is requested: it makes both for an architecture such as sm_90."""
    capsules.update({name: capsules[ptx] for name, ptx in _PTX_FUNCTIONS.items() if ptx in capsules})


def _use_driver(module: Any) -> None:
    """Replace functions of cuda.core.system that call NVML by functions that ask the driver."""
    driver = ctypes.CDLL("libcuda.so.1")

    def get_num_devices() -> int:
        """Return the number of devices in the system."""
        count = ctypes.c_int()
        driver.cuInit(0)
        driver.cuDeviceGetCount(ctypes.byref(count))
        return count.value

    def get_user_mode_driver_version() -> tuple[int, int]:
        """Return the version of CUDA that the driver supports, such as (13, 5)."""
        version = ctypes.c_int()
        driver.cuDriverGetVersion(ctypes.byref(version))
        return version.value // 1000, version.value % 1000 // 10

    for function in (get_num_devices, get_user_mode_driver_version):
        setattr(module, function.__name__, function)
