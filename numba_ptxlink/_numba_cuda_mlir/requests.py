"""
What travels between the replaced functions of numba-cuda-mlir: the compilation that a thread is in.

Importing this module imports nothing of numba-cuda-mlir: it may run during its own import.
"""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator


class Request(NamedTuple):
    """
    The values that outer replaced functions pass to inner ones.

    Args:
        cc: The requested compute capability, which counts where there is no device.
        origin: The Python function that is being compiled, with file and line, for messages.
        links: Whether anybody has use for a cubin.
        remarks: The warnings of NVVM.
    """

    cc: tuple[int, int] | None = None
    origin: str = ""
    links: bool = True
    remarks: list[str] | None = None


_current: ContextVar[Request] = ContextVar("numba_ptxlink_mlir_request")
_NONE = Request()


def current() -> Request:
    """Return the request of the compilation that this thread is in."""
    return _current.get(_NONE)


@contextlib.contextmanager
def entered(**changes: Any) -> Iterator[None]:
    """Change the request for the length of a `with` block."""
    token = _current.set(current()._replace(**changes))
    try:
        yield
    finally:
        _current.reset(token)


def requested_cc(options: dict[str, Any]) -> tuple[int, int] | None:
    """Return the compute capability in a dispatcher's options, None where none was asked for."""
    from numba_ptxlink._arch import Arch

    asked = options.get("chip") or options.get("cc")
    if not asked:
        return current().cc
    arch = Arch.of(asked)
    return (arch.major, arch.minor)
