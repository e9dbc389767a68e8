"""Run the blocks of a grid in several threads of Python, with a worker for each."""

from __future__ import annotations

import ctypes
import threading
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from .worker import Worker


def run_blocks(workers: Sequence[Worker], count: int, run: Callable[[Worker, int, int], object]) -> None:
    """
    Run the blocks of a grid in parts of equal size, one for each worker; return when all have finished.

    At Ctrl-C, all parts stop at their next check for signals; if a part raises an exception, the others do.

    Args:
        workers: The workers, which execute blocks.
        count: The number of blocks.
        run: Runs blocks; called with the worker, the index of the first block, and the number of blocks.

    Raises:
        Exception: The first exception that *run* raised.
    """
    part_size = -(-count // len(workers))
    stop_event = threading.Event()
    # Generated code calls this function at intervals, with the GIL, and stops if it returns 1. It replaces
    # PyErr_CheckSignals, which finds nothing in these threads: only the main thread receives signals.
    check_stop = ctypes.PYFUNCTYPE(ctypes.c_int)(stop_event.is_set)
    futures = []
    with ThreadPoolExecutor(len(workers)) as pool:
        try:
            for index, worker in enumerate(workers):
                worker.context.check_signals = ctypes.cast(check_stop, ctypes.c_void_p).value
                first_block = index * part_size
                # The last parts can be smaller, or empty.
                block_count = max(min(part_size, count - first_block), 0)
                futures.append(pool.submit(run, worker, first_block, block_count))
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            stop_event.set()
        # The first that failed: interrupted parts end after `wait` has returned.
        failed = [future for future in futures if future in done and future.exception()]
    # `result` raises the exception of a part. Ask the first that failed before those that were interrupted.
    for future in (*failed, *futures):
        future.result()
