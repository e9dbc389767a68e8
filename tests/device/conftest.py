"""The library of the CPU device in a checkout that was not installed."""

from __future__ import annotations

import subprocess
from importlib import metadata
from pathlib import Path

import pytest

from numba_ptxlink._cpu.device import LIBRARY_FOLDER


@pytest.fixture(scope="session", autouse=True)
def _built() -> None:
    """Build libcuda.so.1 beside its sources, if they are newer; an installed package has it."""
    library, sources = LIBRARY_FOLDER / "libcuda.so.1", sorted(LIBRARY_FOLDER.glob("*.[ch]"))
    if not sources or (
        library.exists() and library.stat().st_mtime > max(s.stat().st_mtime for s in sources)
    ):
        return
    (header,) = (file for file in metadata.files("nvidia-cuda-runtime") or () if file.name == "cuda.h")
    command = ["gcc", "-std=gnu11", "-O2", "-fPIC", "-shared", f"-I{Path(str(header.locate())).parent}"]
    command += [
        "-Wl,-soname,libcuda.so.1",
        "-Wl,-Bsymbolic",
        f"-Wl,--version-script={LIBRARY_FOLDER}/exports.map",
    ]
    command += [*map(str, LIBRARY_FOLDER.glob("*.c")), str(LIBRARY_FOLDER / "per_thread.ld")]
    subprocess.run([*command, "-o", str(library), "-ldl", "-lpthread"], check=True)
