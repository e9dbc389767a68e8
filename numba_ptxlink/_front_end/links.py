"""Count the links that replaced linkers of front ends complete in this process."""

from __future__ import annotations

from typing import NamedTuple

from numba_ptxlink._locks import Lock


class Links(NamedTuple):
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


_links = Links()
_lock = Lock()


def completed() -> Links:
    """Return the links completed in this process."""
    return _links


def count(backend: str, reason: str) -> None:
    """Count a link that *backend* did for *reason*."""
    global _links  # noqa: PLW0603 - what a process counts
    with _lock.held:
        assembled = backend == "nvptxcompiler"
        last = f"{backend}: {reason}"
        _links = Links(_links.assembled + assembled, _links.linked + (not assembled), last)
