"""
Raise the DeviceFaultError of a kernel in the program that launched it.

`launch` of cuda.core, which numba-cuda and numba-cuda-mlir also call, raises an error that has only the
driver's code. Raising the DeviceFaultError instead clears the fault: later launches and copies run, so that
one failed test does not fail the others of a suite. Programs in C get the error code from each later call, as
on a GPU.
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
"""`last_launch.error` is the DeviceFaultError of the last launch of a thread, None if it succeeded."""


def raise_instead_of(error: Exception) -> None:
    """
    Raise the fault of the last launch of this thread, once, as an error that handlers of *error* catch.

    The context is usable afterwards.
    """
    fault: DeviceFaultError | None = getattr(last_launch, "error", None)
    last_launch.error = None
    if fault is not None:
        ctypes.CDLL("libcuda.so.1").numba_ptxlink_clear_fault()
        raise _combine(fault, type(error)) from None


def with_fault_reports(launch: Callable[..., Any]) -> Callable[..., Any]:
    """Return *launch* as a function that raises the fault of the kernel in place of the driver's error."""

    @functools.wraps(launch)
    def launch_and_report(*args: Any, **kwargs: Any) -> Any:
        try:
            return launch(*args, **kwargs)
        except Exception as error:
            raise_instead_of(error)
            raise

    return launch_and_report


def replace_everywhere(original: Any, replacement: Any) -> None:
    """Replace an object of a module wherever it has been imported by name."""
    for module in [*sys.modules.values()]:
        names = getattr(module, "__dict__", {})
        for name in [name for name, value in [*names.items()] if value is original]:
            names[name] = replacement


_combined_types: dict[type[Exception], type[DeviceFaultError]] = {}


def _combine(fault: DeviceFaultError, other: type[Exception]) -> DeviceFaultError:
    """Return *fault* as an error that handlers of the launch's own error catch, too."""
    if other not in _combined_types:
        # Pickle it as a DeviceFaultError, since another process does not have the combined class.
        members = {
            "__module__": DeviceFaultError.__module__,
            "__reduce__": lambda self: (DeviceFaultError, self.args, vars(self)),
        }
        _combined_types[other] = type("DeviceFaultError", (DeviceFaultError, other), members)
    return _combined_types[other](str(fault), **vars(fault))
