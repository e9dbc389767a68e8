"""Run NVIDIA's programs and compilers of C++ in a folder of their own."""

from __future__ import annotations

import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numba_ptxlink.errors import PtxlinkError

_SECONDS = 300


@contextmanager
def folder(failure: type[PtxlinkError]) -> Iterator[Path]:
    """
    Yield a new folder, which is deleted afterwards.

    Raises:
        PtxlinkError: As *failure*, that it could not be made, or a file in it not be written or read.
    """
    try:
        with tempfile.TemporaryDirectory() as path:
            yield Path(path)
    except OSError as error:
        where = tempfile.tempdir or "the directories for temporary files"
        raise failure(
            f"A tool's file in {where} could not be written or read: {error.strerror or error}; make room "
            "there, or let TMPDIR name a directory of another disk."
        ) from error


def run(command: Sequence[str], cwd: Path | None = None) -> tuple[bool, str, str]:
    """Run *command*; return whether it succeeded, its standard output, and why it failed."""
    try:
        done = subprocess.run(  # noqa: S603 - programs that the user named or installed
            list(command),
            cwd=cwd,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, "", str(error)
    log = (done.stderr + done.stdout).strip() or f"exit status {done.returncode}"
    return not done.returncode, done.stdout, log if done.returncode else ""
