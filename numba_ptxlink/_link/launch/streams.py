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
        number = _number(stream)
    except LaunchError:
        raise
    except Exception as error:
        raise LaunchError(
            f"The handle of {shown(stream)} cannot be read: {error}; pass the handle, or another stream."
        ) from error
    if number not in _HANDLES:
        raise LaunchError(
            f"{shown(stream)} is no stream; pass one of cuda.core, CuPy, PyTorch or Numba, its handle, or "
            "None."
        )
    return number


_HANDLES = range(1 << 64)


def _number(stream: Any) -> int:
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        # A property before cuda.core 0.3.
        version, number = protocol() if callable(protocol) else protocol
        if version == 0:
            return operator.index(number) if hasattr(number, "__index__") else int(number)
        raise LaunchError(f"{stream!r} follows version {version} of __cuda_stream__, not 0; pass its handle.")
    for name in ("cuda_stream", "ptr"):
        number = getattr(stream, name, None)
        if number is not None:
            return operator.index(number)
    try:
        return operator.index(stream)
    except TypeError:
        # Numba's, whose handle is an object of the bindings or of ctypes.
        return int(stream) if hasattr(stream, "external") else -1
