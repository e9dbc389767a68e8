"""
Make a private copy of a library: when the copy is loaded, it has global state of its own.

So calls of the copy do not change the results of calls of the original in the same process.
"""

from __future__ import annotations

import os
from pathlib import Path

# The path of the copy of each library.
_copy_paths: dict[str, str] = {}


def copy_of(library: str) -> str:
    """
    Return the path of a private copy of *library*, which exists as long as the process.

    Raises:
        OSError: There is no memory for the copy, or a file cannot be opened.
    """
    if library not in _copy_paths:
        # Never closed: the loader identifies libraries by path, so if the number of the descriptor were
        # reused for another copy, the loader would return the old library.
        descriptor = os.memfd_create(Path(library).name)
        with Path(library).open("rb") as file:
            # Copies up to 1 GiB from the current position; returns 0 at the end of the file.
            while os.sendfile(descriptor, file.fileno(), None, 1 << 30):
                pass
        _copy_paths[library] = f"/proc/self/fd/{descriptor}"
    return _copy_paths[library]
