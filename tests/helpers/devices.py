"""The CUDA device of this process: a GPU of this machine, the CPU, or none."""

from __future__ import annotations

import functools
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

# The architecture is the newest without thread block clusters, which the CPU does not run.
ON_CPU = (sys.executable, "-m", "numba_ptxlink", "cpu", "--arch", "8.9", "--")
"""The command that makes the CPU the device of a program, which follows."""


@functools.cache
def missing_device() -> str:
    """Return the reason why there is no usable device, "" if there is one."""
    try:
        from cuda.core import Device

        Device(0).set_current()
    except Exception as error:  # noqa: BLE001 - what a missing driver raises depends on the version
        return f"no CUDA device: {type(error).__name__}"
    return ""


def runtime_library(toolkit: Path) -> str:
    """Return the options of g++ for the CUDA runtime: NVIDIA's static library, or that of the CPU device."""
    if not missing_gpu():
        return f"-L{toolkit}/lib64 -lcudart_static -ldl -lrt -lpthread"
    # Deferred: conftest.py imports this module before it chooses the package that is tested.
    from numba_ptxlink._cpu.device import LIBRARY_FOLDER, RUNTIME_FOLDER

    return f"{RUNTIME_FOLDER}/libcudart.so.13 {LIBRARY_FOLDER}/libcuda.so.1 -ldl"


def missing_gpu() -> str:
    """Return why the device of this process is no GPU, "" if it is one."""
    return "the device is the CPU" if os.environ.get("NUMBA_PTXLINK_DEVICE") == "cpu" else missing_device()
