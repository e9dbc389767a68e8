"""nvcc of this environment's wheels, in the layout of a toolkit, and what a linked program holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from numba_ptxlink._formats import containers, elf

if TYPE_CHECKING:
    from collections.abc import Mapping


def lay_out(folder: Path) -> Path:
    """
    Return a toolkit below *folder*, made of links to the wheels; skip the test where they are missing.

    The wheels have libnvvm.so.4 in lib, and `nvcc -dlto` loads libnvvm.so from nvvm/lib64.
    """
    import nvidia

    wheels = (path.parents[1] for place in nvidia.__path__ for path in Path(place).glob("*/bin/nvcc"))
    wheel = next(wheels, None)
    if wheel is None or shutil.which("g++") is None:
        pytest.skip("there is no nvcc in the wheels, or no g++ for it")
    if not (wheel / "lib" / "libcudart_static.a").exists():
        pytest.skip("there is no nvidia-cuda-runtime beside nvcc")
    root = folder / "cuda"
    (root / "nvvm" / "lib64").mkdir(parents=True)
    # No link itself: nvcc looks for everything else from bin/.. on.
    (root / "bin").mkdir()
    links = {f"bin/{path.name}": path for path in (wheel / "bin").iterdir()}
    links |= {name: wheel / name for name in ("include", "lib", "nvvm/bin", "nvvm/libdevice")}
    (library,) = (wheel / "lib").glob("libnvvm.so.*")
    for name, target in {**links, "lib64": wheel / "lib", "nvvm/lib64/libnvvm.so": library}.items():
        (root / name).symlink_to(target)
    return root


def environment(toolkit: Path) -> Mapping[str, str]:
    """Return the environment of this process with *toolkit* first on PATH."""
    path = f"{toolkit / 'bin'}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "CUDACXX": str(toolkit / "bin" / "nvcc")}


def shell(command: str, folder: Path, toolkit: Path) -> str:
    """Run *command* in *folder*, and return what it says."""
    done = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment(toolkit),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def linked_functions(program: Path) -> dict[str, set[str]]:
    """Return the functions with machine code in the device link of *program*, or a cubin, by architecture."""
    code = program.read_bytes()
    if program.suffix == ".cubin":
        return {"": _functions(code)}
    sections = dict(elf.raw_sections(code, program.name))
    # The device link comes first on the linker's command line; whole programs of exports follow.
    linked = next(iter(containers._split(sections[".nv_fatbin"])))
    entries = containers.fatbin_entries(linked, program.name)
    return {entry.arch: _functions(entry.payload) for entry in entries if entry.kind == "cubin"}


def _functions(cubin: bytes) -> set[str]:
    names = (section.name for section in elf.read(cubin).sections)
    return {name.removeprefix(".text.") for name in names if name.startswith(".text.")}
