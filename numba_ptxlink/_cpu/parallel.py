"""Run the blocks of a grid on several cores, with a worker for each core."""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .worker import Worker

_FIRST_EXCEPTION = "FIRST_EXCEPTION"


def run_blocks(workers: Sequence[Worker], count: int, run: Callable[[Worker, int, int], object]) -> None:
    """
    Run the blocks of a grid in parts of equal size; return when all have finished.

    An exception in one part, and Ctrl-C, end the others.

    Args:
        workers: A worker for each part.
        count: The number of blocks.
        run: Runs blocks, from the worker, the number of the first block, and the number of blocks.

    Raises:
        Exception: The first one that *run* raised.
    """
    size = -(-count // len(workers))
    stopped = threading.Event()
    # Generated code calls this function in loops, with the GIL: only the main thread, which waits here, gets
    # signals.
    is_stopped = ctypes.PYFUNCTYPE(ctypes.c_int)(stopped.is_set)
    parts = []
    with ThreadPoolExecutor(len(workers)) as pool:
        try:
            for index, worker in enumerate(workers):
                worker.context.check_signals = ctypes.cast(is_stopped, ctypes.c_void_p).value
                first = index * size
                parts.append(pool.submit(run, worker, first, max(min(size, count - first), 0)))
            done, _ = wait(parts, return_when=_FIRST_EXCEPTION)
        finally:
            stopped.set()
        failed = [part for part in parts if part in done and part.exception()]
    for part in (*failed, *parts):
        part.result()
