"""Python functions as CUDA symbols: static PTX compilation, a C ABI and a checked linker for Numba."""

from __future__ import annotations

import contextlib
import importlib
import sys
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from ._arch import Arch
    from ._cabi.signatures import Signature
    from ._cpu.device import use_cpu
    from ._export.marks import Kernel, Udf, kernel, udf
    from ._launch.library import Library, LoadedKernel, load
    from ._plugin import FrontEndStatus, Status, disable, enable, status
    from ._tools.toolchain import Toolchain, toolchain
    from .assembler import Cubin, assemble
    from .comparison import Difference, compare
    from .doctor import Diagnosis, diagnose, driver_can_load_ptx
    from .errors import (
        AbiError,
        ActivationError,
        AssembleError,
        ConfigError,
        DeviceFaultError,
        ExportError,
        LaunchError,
        LinkError,
        PtxlinkError,
    )
    from .exporter import Export, export
    from .inspection import Inspection, SymbolReport, inspect
    from .linker import Linked, link

# The public names of each module. A module is imported at the first use of one of its names, so importing the
# package is fast.
_PUBLIC_NAMES = {
    "_plugin": ("FrontEndStatus", "Status", "disable", "enable", "status"),
    "_arch": ("Arch",),
    "_cabi.signatures": ("Signature",),
    "_cpu.device": ("use_cpu",),
    "assembler": ("Cubin", "assemble"),
    "comparison": ("Difference", "compare"),
    "doctor": ("Diagnosis", "diagnose", "driver_can_load_ptx"),
    "errors": (
        "AbiError",
        "ActivationError",
        "AssembleError",
        "ConfigError",
        "DeviceFaultError",
        "ExportError",
        "LaunchError",
        "LinkError",
        "PtxlinkError",
    ),
    "exporter": ("Export", "export"),
    "inspection": ("Inspection", "SymbolReport", "inspect"),
    "_export.marks": ("Kernel", "Udf", "kernel", "udf"),
    "linker": ("Linked", "link"),
    "_launch.library": ("Library", "LoadedKernel", "load"),
    "_tools.toolchain": ("Toolchain", "toolchain"),
}
_MODULE_OF = {name: module for module, names in _PUBLIC_NAMES.items() for name in names}

__all__ = [
    "AbiError",
    "ActivationError",
    "Arch",
    "AssembleError",
    "ConfigError",
    "Cubin",
    "DeviceFaultError",
    "Diagnosis",
    "Difference",
    "Export",
    "ExportError",
    "FrontEndStatus",
    "Inspection",
    "Kernel",
    "LaunchError",
    "Library",
    "LinkError",
    "Linked",
    "LoadedKernel",
    "PtxlinkError",
    "Signature",
    "Status",
    "SymbolReport",
    "Toolchain",
    "Udf",
    "assemble",
    "compare",
    "diagnose",
    "disable",
    "driver_can_load_ptx",
    "enable",
    "export",
    "inspect",
    "kernel",
    "link",
    "load",
    "status",
    "toolchain",
    "udf",
    "use_cpu",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{_MODULE_OF[name]}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


def _install_hooks() -> None:
    """
    Import the modules that `.pth` files usually import, and activate front ends that are imported already.

    Python reads no `.pth` files in directories of PYTHONPATH and of `pip install --target`. The file of this
    package imports `_numba_ptxlink_hook`. That of numba-cuda imports `_numba_cuda_redirector`, by which
    `import numba.cuda` imports numba-cuda; after the import of numba.cuda, the redirector has no effect.
    """
    is_numba_cuda_imported = "numba.cuda" in sys.modules
    hooks = ["_numba_ptxlink_hook"]
    if not is_numba_cuda_imported:
        hooks.insert(0, "_numba_cuda_redirector")
    for hook in hooks:
        # numba-cuda may be missing, and in a checkout without installation also this package's hook.
        with contextlib.suppress(ImportError):
            importlib.import_module(hook)
    front_end_packages = getattr(sys.modules.get("_numba_ptxlink_hook"), "PACKAGES", ())
    # Test numba.cuda apart: without the hook, its list PACKAGES is missing, too.
    if is_numba_cuda_imported or any(package in sys.modules for package in front_end_packages):
        importlib.import_module("._plugin", __name__).imported_late()


# If Python has read the `.pth` file of this package at its start, the hook is imported already.
if sys.modules.get("_numba_ptxlink_hook") is None:
    _install_hooks()
