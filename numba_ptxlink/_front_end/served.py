"""Count the links that replaced linkers of front ends complete in this process."""

from __future__ import annotations

from dataclasses import dataclass, replace

from numba_ptxlink._locks import Lock


@dataclass(eq=False, repr=False)
class Served:
    """
    The links completed in this process.

    Args:
        assembled: How many of them nvPTXCompiler did.
        linked: How many of them nvJitLink did.
        last: Tool and reason of the last one, "" before any.
    """

    assembled: int = 0
    linked: int = 0
    last: str = ""


_served = Served()
_lock = Lock()


def served() -> Served:
    """Return the links completed in this process."""
    with _lock.held:
        return replace(_served)


def count(backend: str, reason: str) -> None:
    """Count a link that *backend* did for *reason*."""
    with _lock.held:
        if backend == "nvptxcompiler":
            _served.assembled += 1
        else:
            _served.linked += 1
        _served.last = f"{backend}: {reason}"
