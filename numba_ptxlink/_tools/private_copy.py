"""Load a private copy of a library, whose global state is separate from the state of the first copy."""

from __future__ import annotations

import os
from pathlib import Path

_copies: dict[str, str] = {}


def copy_of(library: str) -> str:
    """
    Return the path of a private copy of *library*, which exists as long as the process.

    Raises:
        OSError: There is no memory for it, or no file can be opened.
    """
    if library not in _copies:
        # Keep the descriptor open: the loader identifies libraries by path, so for another file with a reused
        # number it would return the old library.
        copy = os.memfd_create(Path(library).name)
        with Path(library).open("rb") as file:
            while os.sendfile(copy, file.fileno(), None, 1 << 30):
                pass
        _copies[library] = f"/proc/self/fd/{copy}"
    return _copies[library]
