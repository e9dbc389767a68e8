"""Find NVIDIA's command-line tools, give tools their files, and disassemble cubins with nvdisasm."""

from __future__ import annotations

import errno
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numba_ptxlink.errors import PtxlinkError

# A tool that compiles needs less for its own files.
_ENOUGH = 16 << 20
_CURE = "make room there, or let TMPDIR name a directory of another disk"


def find_tool(name: str) -> str | None:
    """Return the path of an NVIDIA tool on PATH or in a wheel of this environment, None if there is none."""
    return next(find_tools(name), None)


def find_tools(name: str, *, wheels_first: bool = False) -> Iterator[str]:
    """Return the paths of an NVIDIA tool: on PATH, in wheels of this environment, in CUDA_HOME, CUDA_PATH."""
    wheels = (str(path) for folder in map(Path, sys.path) for path in folder.glob(f"nvidia/*/bin/{name}"))
    on_path = filter(None, [shutil.which(name)])
    homes = filter(None, map(os.environ.get, ("CUDA_HOME", "CUDA_PATH")))
    toolkits = filter(None, (shutil.which(name, path=str(Path(home, "bin"))) for home in homes))
    return itertools.chain(*((wheels, on_path) if wheels_first else (on_path, wheels)), toolkits)


@contextmanager
def tool_folder(failure: type[PtxlinkError]) -> Iterator[Path]:
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
        reason = error.strerror or error
        raise failure(f"A tool's file in {where} could not be written or read: {reason}; {_CURE}.") from error


def write_input(path: Path, content: bytes) -> None:
    """
    Write a file that a tool reads, below an existing folder or a new one.

    Raises:
        OSError: It is not whole.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    if path.stat().st_size != len(content):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def shortage(folder: Path) -> str:
    """Return which disk that a tool in *folder* writes to is nearly full, and the cure; "" where none is."""
    # Tools make files of their own where TMPDIR says, even if Python cannot.
    for place in (folder.parent, Path(os.environ.get("TMPDIR") or folder.parent)):
        free = shutil.disk_usage(place).free if place.is_dir() else _ENOUGH
        if free < _ENOUGH:
            return f"{place} has {free >> 10} KiB left, which may be why: {_CURE}."
    return ""


def disassemble(code: bytes) -> tuple[str, str]:
    """Return the disassembly of a cubin, and the reason if there is none."""
    tool = find_tool("nvdisasm")
    if tool is None:
        return (
            "",
            "There is no nvdisasm for the machine code; install it with `pip install nvidia-cuda-nvdisasm`.",
        )
    with tool_folder(LinkError) as folder:
        path = folder / "code.cubin"
        write_input(path, code)
        try:
            run = subprocess.run(  # noqa: S603 - NVIDIA's own tool
                [tool, "-c", str(path)], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", f"{tool} failed: {error}"
        cause = shortage(folder)
    if run.returncode:
        return "", f"{tool} failed: {run.stderr.strip()} {cause}".rstrip()
    return run.stdout, ""
