"""
Raise the DeviceFaultError of a kernel in the program that launched it.

The function `launch` of cuda.core, which numba-cuda and numba-cuda-mlir also call, raises an error that has
only the driver's error code. This module raises the DeviceFaultError instead, and clears the fault: later
launches and copies run, so that one failed test does not fail the other tests of a suite. In a program in C,
nothing clears the fault: each later call returns the error code, as on a GPU.
"""

from __future__ import annotations

import ctypes
import functools
import sys
import threading
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import DeviceFaultError

if TYPE_CHECKING:
    from collections.abc import Callable

last_launch = threading.local()
"""
`last_launch.error` is the DeviceFaultError of this thread's last launch. It is None if the launch had no
fault or the error has been raised, and missing before the first launch.
"""


def raise_instead_of(error: Exception) -> None:
    """
    Raise the fault of the last launch of this thread, as an error that handlers of *error* catch.

    Return if there is no fault, or if it has been raised before. The CUDA context is usable afterwards.
    """
    fault: DeviceFaultError | None = getattr(last_launch, "error", None)
    last_launch.error = None
    if fault is not None:
        # Only this package's libcuda.so.1 reports faults, so it is loaded, rather than NVIDIA's.
        ctypes.CDLL("libcuda.so.1").numba_ptxlink_clear_fault()
        raise _combine(fault, type(error)) from None


def with_fault_reports(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that calls *launch*, but raises a fault of the kernel in place of the error."""

    @functools.wraps(launch)
    def launch_and_report(*args: Any, **kwargs: Any) -> Any:
        try:
            return launch(*args, **kwargs)
        except Exception as error:
            raise_instead_of(error)
            raise

    return launch_and_report


def replace_everywhere(original: Any, replacement: Any) -> None:
    """Replace a function or class in its module, and in all modules that have imported it by name."""
    for module in [*sys.modules.values()]:
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in [*names.items()] if value is original]:
            names[name] = replacement


_combined_types: dict[type[Exception], type[DeviceFaultError]] = {}


def _combine(fault: DeviceFaultError, error_type: type[Exception]) -> DeviceFaultError:
    """Return *fault* as an error that is also an *error_type*, for programs that catch the launch's error."""
    if error_type not in _combined_types:
        # Pickle the error as a DeviceFaultError, since another process does not have the combined class.
        members = {
            "__module__": DeviceFaultError.__module__,
            "__reduce__": lambda self: (DeviceFaultError, self.args, vars(self)),
        }
        _combined_types[error_type] = type("DeviceFaultError", (DeviceFaultError, error_type), members)
    return _combined_types[error_type](str(fault), **vars(fault))
