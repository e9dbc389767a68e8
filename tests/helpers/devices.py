"""The GPU of this machine, if there is one."""

from __future__ import annotations

import functools


@functools.cache
def missing_device() -> str:
    """Return why there is no usable device, "" where there is one."""
    try:
        from cuda.core import Device

        Device(0).set_current()
    except Exception as error:  # noqa: BLE001 - what a missing driver raises depends on the version
        return f"no CUDA device: {type(error).__name__}"
    return ""
