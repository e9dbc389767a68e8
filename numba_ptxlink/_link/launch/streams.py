"""Read streams of other packages, as the handles that the driver knows them by."""

from __future__ import annotations

import operator
from typing import Any

from numba_ptxlink.errors import LaunchError

from .elements import shown


def handle(stream: Any) -> int:
    """
    Return the handle of *stream*.

    Args:
        stream: None for the default stream, a handle, or a stream of cuda.core, CuPy, PyTorch or Numba: an
            object with `__cuda_stream__`, or with the attribute that its package has for the handle.

    Raises:
        LaunchError: It is none of these.
    """
    if stream is None:
        return 0
    try:
        # What is no number of 64 bits has no such bytes.
        return int.from_bytes(_number(stream).to_bytes(8, "little"), "little")
    except Exception as error:
        raise LaunchError(
            f"{shown(stream)} is no stream: {error}; pass one of cuda.core, CuPy, PyTorch or Numba, its "
            "handle, or None."
        ) from error


def _number(stream: Any) -> int:
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # A property before cuda.core 0.3.
        version, number = protocol() if callable(protocol) else protocol
        if version != 0:
            raise ValueError(f"it follows version {version} of __cuda_stream__")
        return int(number)
    # Numba's is an object of the bindings or of ctypes.
    if hasattr(stream, "external"):
        return int(stream)
    names = (name for name in ("cuda_stream", "ptr") if hasattr(stream, name))
    return operator.index(getattr(stream, next(names, ""), stream))
