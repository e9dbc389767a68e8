"""The processes and clusters that an export can use."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Executor


@contextmanager
def chosen(jobs: int = 1, scheduler: str | None = None) -> Iterator[Executor | None]:
    """
    Yield where an export is compiled, for a `with` block; None for this process.

    Args:
        jobs: How many processes on this machine compile: at most one for each core that may be used, and two
            where that is one. Each is the child of a thread.
        scheduler: The address of a Dask scheduler, such as "tcp://host:8786", in place of them.

    Raises:
        ExportError: *jobs* is less than one, or Dask is not installed, or its scheduler cannot be reached.
    """
    if scheduler is not None:
        with _dask(scheduler) as executor:
            yield executor
        return
    if jobs == 1:
        yield None
        return
    with threads(jobs) as executor:
        yield executor


def threads(jobs: int) -> ThreadPoolExecutor:
    """
    Return threads that wait for *jobs* processes.

    Raises:
        ExportError: *jobs* is less than one.
    """
    if jobs < 1:
        raise ExportError(f"{jobs} processes cannot export; give 1 or more.")
    return ThreadPoolExecutor(min(jobs, max(2, _cores())))


def _cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _dask(scheduler: str) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError as error:
        raise ExportError(
            "Dask is not installed: `pip install 'numba-ptxlink[dask]'` here and on the workers."
        ) from error
    try:
        client: Any = Client(scheduler, set_as_default=False)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise ExportError(
            f"The Dask scheduler {scheduler} cannot be reached: {error}; check the address."
        ) from error
    with client:
        yield client.get_executor()
