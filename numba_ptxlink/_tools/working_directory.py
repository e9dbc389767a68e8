"""
Call a compiler from the root directory, without changing the directory of this process.

NVRTC writes the working directory into LTO-IR, so that the same source gave other bytes in another place.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

log = logging.getLogger(__name__)

# <linux/sched.h>: the working directory belongs to the thread from then on.
_CLONE_FS = 0x200


def in_root(work: Callable[[], T]) -> T:
    """
    Return the result of *work*, called in a thread whose working directory is "/".

    Where the system refuses a thread its own directory, *work* runs in the process's; see `available`.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            if _leave():
                os.chdir("/")
            results.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that called
            errors.append(error)

    thread = threading.Thread(target=run, name="numba-ptxlink-in-root")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


@functools.cache
def available() -> bool:
    """Return whether a thread can have its own working directory; some containers forbid it."""
    outcomes: list[bool] = []
    thread = threading.Thread(target=lambda: outcomes.append(_leave()))
    thread.start()
    thread.join()
    if not outcomes[0]:
        log.debug("a thread cannot have its own directory here, so LTO-IR depends on the working directory")
    return outcomes[0]


def _leave() -> bool:
    """Give the calling thread a working directory of its own."""
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    return unshare is not None and unshare(_CLONE_FS) == 0
