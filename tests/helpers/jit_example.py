"""Builds and runs the example that links at run time, with the libraries that this package uses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from numba_ptxlink._tools import nvrtc

EXAMPLE = Path(__file__).parents[2] / "examples" / "jit"
_HEADERS = ("cuda_runtime_api.h", "nvJitLink.h", "nvrtc.h")


def home() -> Path:
    """Return the folder whose `include` has the headers of the example; skip where none has all of them."""
    folders = [*nvrtc.toolkit_include_dirs(), Path("/usr/local/cuda/include")]
    for folder in folders:
        if all((folder / header).exists() for header in _HEADERS):
            return folder.parent
    pytest.skip(f"no folder has {', '.join(_HEADERS)}: {', '.join(map(str, folders))}")


def libraries() -> list[Path]:
    """Return NVRTC, nvJitLink and the runtime, as Python finds them."""
    from cuda.pathfinder import DynamicLibNotFoundError, load_nvidia_dynamic_lib

    try:
        return [Path(load_nvidia_dynamic_lib(name).abs_path) for name in ("nvrtc", "nvJitLink", "cudart")]
    except DynamicLibNotFoundError as error:
        pytest.skip(str(error))


def environment(**variables: str) -> dict[str, str]:
    """Return an environment in which the example finds its libraries."""
    own = os.environ.get("LD_LIBRARY_PATH")
    paths = [*dict.fromkeys(str(path.parent) for path in libraries()), *([own] if own else [])]
    return {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(paths), **variables}


def run(out: Path, arch: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Build the example into *out*, and run it on LTO-IR and on PTX."""
    command = [
        *(shutil.which("make") or "make", "-s", "-C", str(EXAMPLE), "run"),
        *(f"OUT={out}", f"ARCH={arch}", f"CUDA_HOME={home()}", "CXXFLAGS=-Wall -Wextra -Werror"),
        f"PTXLINK={sys.executable} -m numba_ptxlink.cli",
        f"LIBRARIES={' '.join(map(str, libraries()))}",
    ]
    return subprocess.run(command, env=environment(**variables), capture_output=True, text=True, check=False)
