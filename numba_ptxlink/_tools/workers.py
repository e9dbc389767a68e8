"""The processes and clusters that an export can use."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

from .processes import Processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Executor


@contextmanager
def chosen(
    jobs: int = 1, scheduler: str | None = None, prepare: Callable[[], object] | None = None
) -> Iterator[Executor | None]:
    """
    Yield where an export is compiled, for a `with` block; None for this process.

    Args:
        jobs: How many processes on this machine compile, this one included: at most one for each core that
            may be used, and two where that is one.
        scheduler: The address of a Dask scheduler, such as "tcp://host:8786", in place of them.
        prepare: What those that are started do while this one gets ready.

    Raises:
        ExportError: *jobs* is less than one, or Dask is not installed, or its scheduler cannot be reached.
    """
    if scheduler is not None:
        with _dask(scheduler) as executor:
            yield executor
        return
    if jobs < 1:
        raise ExportError(f"{jobs} processes cannot export; give 1 or more.")
    if jobs == 1:
        yield None
        return
    processes = Processes(min(jobs, max(2, _cores())) - 1, prepare)
    try:
        yield processes
    except BaseException:
        processes.terminate()
        raise
    processes.shutdown()


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
