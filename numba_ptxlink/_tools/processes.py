"""A pool of processes that outlives its workers: what a killed one had begun is done again."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from typing import TYPE_CHECKING, Any, cast

from numba_ptxlink._locks import Lock

if TYPE_CHECKING:
    from collections.abc import Callable

# A program that ends each worker it meets, for want of memory for one, ends this many.
_ATTEMPTS = 3


class Processes(Executor):
    """
    A pool of fresh processes, which ignore Ctrl-C: the process that owns them ends them.

    Args:
        count: How many there are at most.
        prepare: What each does at once, before there is work; None to start them with the first call.
    """

    def __init__(self, count: int, prepare: Callable[[], object] | None = None) -> None:
        self.count = count
        self._lock = Lock()
        self._pool: ProcessPoolExecutor | None = None
        self._used = False
        for _ in range(count if prepare else 0):
            _given(self._current(), cast("Callable[[], object]", prepare))

    def submit(self, call: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Return the future of *call*, which is made again if its process is lost."""
        self._used = True
        outer: Future[Any] = Future()
        self._submit(outer, call, args, kwargs, 1)
        return outer

    def _submit(
        self, outer: Future[Any], call: Callable[..., Any], args: Any, kwargs: Any, attempt: int
    ) -> None:
        try:
            pool = self._current()
            inner = _given(pool, call, *args, **kwargs)
        except BrokenExecutor:
            self._drop(pool)
            inner = _given(self._current(), call, *args, **kwargs)

        def finished(inner: Future[Any]) -> None:
            if inner.cancelled() or outer.cancelled():
                outer.cancel()
                return
            error = inner.exception()
            if isinstance(error, BrokenExecutor) and attempt < _ATTEMPTS:
                self._drop(pool)
                self._submit(outer, call, args, kwargs, attempt + 1)
            elif error is not None:
                outer.set_exception(error)
            else:
                outer.set_result(inner.result())

        inner.add_done_callback(finished)

    def _current(self) -> ProcessPoolExecutor:
        with self._lock.held:
            if self._pool is None:
                # Not forked: the process may have threads, and locks that they hold.
                context = multiprocessing.get_context("spawn")
                self._pool = ProcessPoolExecutor(self.count, context, initializer=_begin)
            return self._pool

    def _drop(self, pool: ProcessPoolExecutor) -> None:
        with self._lock.held:
            if self._pool is pool:
                self._pool = None

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:  # noqa: FBT001, FBT002 - as its base
        """End the processes, at once if they were never asked for anything."""
        if not self._used:
            self.terminate()
            return
        pool = self._taken()
        if pool is not None:
            pool.shutdown(wait, cancel_futures=cancel_futures)

    def terminate(self) -> None:
        """End the processes now, whatever they do."""
        pool = self._taken()
        if pool is not None:
            # Before the pool forgets them.
            processes = list((getattr(pool, "_processes", None) or {}).values())
            pool.shutdown(wait=False, cancel_futures=True)
            for process in processes:
                process.terminate()

    def _taken(self) -> ProcessPoolExecutor | None:
        with self._lock.held:
            pool, self._pool = self._pool, None
            return pool


def _given(pool: ProcessPoolExecutor, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
    """Submit *call* to *pool*, which may start a process for it."""
    # Ctrl-C reaches it as early as this one: until it ignores that, it has the signal blocked, as its parent.
    former = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        return pool.submit(call, *args, **kwargs)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _begin() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    # A process that is killed cannot end the pool, whose processes would wait for work for ever.
    threading.Thread(target=_end_with_owner, daemon=True).start()


def _end_with_owner() -> None:
    owner = multiprocessing.parent_process()
    if owner is not None:
        owner.join()
        os._exit(1)
