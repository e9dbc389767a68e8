"""The CUDA device of this process: a GPU of this machine, the CPU, or none."""

from __future__ import annotations

import functools
import os

# The architecture is the newest without thread block clusters, which the CPU does not run.
ON_CPU = {"NUMBA_PTXLINK_DEVICE": "cpu", "NUMBA_PTXLINK_CPU_ARCH": "8.9"}
"""Environment variables that make the CPU the device of a program."""


@functools.cache
def missing_device() -> str:
    """Return why there is no usable device, "" where there is one."""
    try:
        from cuda.core import Device

        Device(0).set_current()
    except Exception as error:  # noqa: BLE001 - what a missing driver raises depends on the version
        return f"no CUDA device: {type(error).__name__}"
    return ""


def missing_gpu() -> str:
    """Return why the device of this process is no GPU, "" if it is one."""
    return "the device is the CPU" if os.environ.get("NUMBA_PTXLINK_DEVICE") == "cpu" else missing_device()
