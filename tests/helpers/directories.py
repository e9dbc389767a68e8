"""What this system lets threads do with their working directory."""

from __future__ import annotations

import functools
import subprocess
import sys

# <linux/sched.h>: CLONE_FS.
_LEAVE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x200))"


@functools.cache
def of_threads() -> bool:
    """Return whether a thread may have a working directory of its own; some containers forbid it."""
    return subprocess.run([sys.executable, "-c", _LEAVE], check=False).returncode == 0
