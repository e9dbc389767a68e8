"""
Call a compiler where no path of this machine reaches its output, without a change to this process.

NVRTC writes the working directory and the paths of headers into LTO-IR, so that the same source gave other
bytes in another place. Here it works in the root directory, and directories of headers have numbers.
"""

from __future__ import annotations

import ctypes
import functools
import logging
import os
import threading
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

T = TypeVar("T")

log = logging.getLogger(__name__)

# <linux/sched.h>: the working directory and the open files belong to the thread from then on.
_CLONE_FS, _CLONE_FILES = 0x200, 0x400
# Numbers that other files of the process hardly have, below the usual limit of 1024.
_FIRST = 900


def isolated(work: Callable[[list[str]], T], folders: Sequence[Path]) -> T:
    """
    Return the result of *work*, called in a thread whose working directory is "/".

    Where `available` is false, *work* runs in the process's directory, with the paths of *folders*.

    Args:
        work: Takes a path for each of *folders*, which is the same wherever they are.
        folders: Absolute paths of directories. One that cannot be opened keeps its path.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            paths = list(map(str, folders))
            if _leave():
                os.chdir("/")
                paths = [_numbered(path, _FIRST + count) for count, path in enumerate(paths)]
            results.append(work(paths))
        except BaseException as error:  # noqa: BLE001 - raised again in the thread that called
            errors.append(error)

    thread = threading.Thread(target=run, name="numba-ptxlink-isolated")
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
        log.debug("a thread cannot have its own directory here, so LTO-IR depends on where its sources are")
    return outcomes[0]


def _leave() -> bool:
    """Give the calling thread a working directory and a table of open files of its own."""
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    return unshare is not None and unshare(_CLONE_FS | _CLONE_FILES) == 0


def _numbered(path: str, number: int) -> str:
    """Open the directory *path* as the file *number* of this thread; return a path with the number alone."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        return path
    try:
        os.dup2(opened, number)
    except OSError:
        return path
    finally:
        os.close(opened)
    return f"/proc/thread-self/fd/{number}"
