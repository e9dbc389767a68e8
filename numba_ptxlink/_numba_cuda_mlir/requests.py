"""
What travels between the replaced functions of numba-cuda-mlir: the compilation that a thread is in.

Importing this module imports nothing of numba-cuda-mlir: it may run during its own import.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from numba_ptxlink._front_end.carried import Carried


class Request(NamedTuple):
    """
    The values that outer replaced functions pass to inner ones.

    Args:
        cc: The requested compute capability, which counts where there is no device.
        origin: The Python function that is being compiled, with file and line, for messages.
        called: The C functions that it calls, with the names of their C types: result, then parameters.
        links: Whether anybody has use for a cubin.
        remarks: The warnings of NVVM.
        lowering: Whether a function is being lowered; what it calls is compiled meanwhile.
    """

    cc: tuple[int, int] | None = None
    origin: str = ""
    called: tuple[tuple[str, tuple[str, ...]], ...] = ()
    links: bool = True
    remarks: list[str] | None = None
    lowering: bool = False


_requests = Carried("numba_ptxlink_mlir_request", Request())
current, entered = _requests.current, _requests.entered


def requested_cc(options: dict[str, Any]) -> tuple[int, int] | None:
    """Return the compute capability in a dispatcher's options, None where none was asked for."""
    from numba_ptxlink._arch import Arch

    asked = options.get("chip") or options.get("cc")
    if not asked:
        return current().cc
    arch = Arch.of(asked)
    return (arch.major, arch.minor)
