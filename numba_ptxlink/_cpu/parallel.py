"""Run the blocks of a grid on several cores, with a worker for each core."""

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
    Run the blocks of a grid in parts of equal size; return when all have finished.

    If a part raises an exception, and at Ctrl-C, the other parts are interrupted.

    Args:
        workers: A worker for each part.
        count: The number of blocks.
        run: Runs blocks; called with the worker, the index of the first block, and the number of blocks.

    Raises:
        Exception: The first exception that *run* raised.
    """
    part_size = -(-count // len(workers))
    stop_event = threading.Event()
    # Loops in generated code call this function, with the GIL, and end if it returns 1. The usual function,
    # PyErr_CheckSignals, would find nothing: only the main thread, which waits here, receives signals.
    check_stop = ctypes.PYFUNCTYPE(ctypes.c_int)(stop_event.is_set)
    parts = []
    with ThreadPoolExecutor(len(workers)) as pool:
        try:
            for index, worker in enumerate(workers):
                worker.context.check_signals = ctypes.cast(check_stop, ctypes.c_void_p).value
                first_block = index * part_size
                # The last parts can be smaller, or empty.
                block_count = max(min(part_size, count - first_block), 0)
                parts.append(pool.submit(run, worker, first_block, block_count))
            done, _ = wait(parts, return_when=FIRST_EXCEPTION)
        finally:
            stop_event.set()
        failed = [part for part in parts if part in done and part.exception()]
    # Raise the cause, and not the interruption of another part.
    for part in (*failed, *parts):
        part.result()
