"""Find NVIDIA's command-line tools, and disassemble cubins with nvdisasm."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


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


def disassemble(code: bytes) -> tuple[str, str]:
    """Return the disassembly of a cubin, and the reason if there is none."""
    tool = find_tool("nvdisasm")
    if tool is None:
        return (
            "",
            "There is no nvdisasm for the machine code; install it with `pip install nvidia-cuda-nvdisasm`.",
        )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "code.cubin")
        path.write_bytes(code)
        try:
            run = subprocess.run(  # noqa: S603 - NVIDIA's own tool
                [tool, "-c", str(path)], capture_output=True, text=True, timeout=60, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return "", f"{tool} failed: {error}"
    if run.returncode:
        return "", f"{tool} failed: {run.stderr.strip()}"
    return run.stdout, ""
