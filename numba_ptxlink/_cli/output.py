"""Print the reports of commands, as text or JSON, and write files."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from contextlib import contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import PtxlinkError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Sequence

# All control characters except for tab and line feed.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def prepare_streams() -> None:
    """
    Open the null device for closed standard streams: files opened later would get their descriptors.

    Let characters that the encoding of standard output lacks be escaped, as Python does for standard error.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            descriptor = os.open(os.devnull, os.O_RDWR)
            # Child processes use the same standard streams.
            os.set_inheritable(descriptor, True)
            setattr(sys, name, os.fdopen(descriptor, mode, errors="backslashreplace"))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def escape_controls(text: str) -> str:
    """Return *text* with control characters escaped, so that names in a file cannot control a terminal."""
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", text)


@dataclass(frozen=True)
class Report:
    """
    The result of a command.

    Args:
        content: The value to print with --json.
        text: The text to print otherwise.
        brief: The text to print with --quiet.
        to_stderr: Whether the report goes to standard error, for a command that writes its file to standard
            output.
        status: The exit status.
    """

    content: Any
    text: str
    brief: str = ""
    to_stderr: bool = False
    status: int = 0

    def show(self, arguments: argparse.Namespace) -> None:
        """Print the content, the text or the brief text, as --json and --quiet in *arguments* request."""
        if arguments.json:
            text = json.dumps(self.content, indent=2, sort_keys=True)
        else:
            text = self.brief if arguments.quiet else self.text
        if text:
            print(escape_controls(text), file=sys.stderr if self.to_stderr else sys.stdout)


def write(path: Path, content: bytes) -> None:
    """Write a file atomically, or write to a device or pipe, which cannot be replaced."""
    from numba_ptxlink._artifacts import outputs

    try:
        if is_stream(path):
            path.write_bytes(content)
        else:
            outputs.write({Path(os.path.realpath(path)): content})
    except OSError as error:
        raise PtxlinkError(f"{path} could not be written: {error.strerror}; check the folder.") from error


def is_stream(path: Path) -> bool:
    """Return whether *path* is a device, a pipe or a descriptor, which can be written but not replaced."""
    # /dev/stdout and /proc/self/fd/1 may be a regular file, which the shell has opened for the output.
    return (path.exists() and not path.is_file()) or path.parts[:2] in (("/", "dev"), ("/", "proc"))


def check_output(path: Path, inputs: Sequence[Path]) -> None:
    """
    Check the path of an output before compiling.

    Raises:
        PtxlinkError: *path* is one of *inputs* or a folder, or is in a folder that does not exist.
    """
    if path.is_file() and any(source.exists() and path.samefile(source) for source in inputs):
        raise PtxlinkError(f"{path} is an input, too; pass another output.")
    if path.is_dir() or not Path(os.path.realpath(path)).parent.is_dir():
        raise PtxlinkError(f"{path} could not be written; give the path of a file in a folder that exists.")


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Redirect stdout of this process, and of processes that it starts, to stderr for a `with` block."""
    # Descriptor 1 is standard output, 2 is standard error.
    saved_stdout = None
    with redirect_stdout(sys.stderr):
        with suppress(OSError):  # The process may have started with closed descriptors.
            saved_stdout = os.dup(1)
            os.dup2(2, 1)
        try:
            yield
        finally:
            if saved_stdout is not None:
                os.dup2(saved_stdout, 1)
                os.close(saved_stdout)
