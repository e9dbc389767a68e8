"""Runs the programs of the gallery, each in a process of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import cuda_toolkit
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


class Program(NamedTuple):
    """
    A program of the gallery.

    Args:
        file: What is run, below `examples`: a Python file, or a Makefile with the target `run`.
        linked: What it says of the link where there is no GPU, as a regular expression.
        verified: What it says on a GPU, likewise.
        packages: What it imports beside the packages of the tests.
        gpu_packages: What it imports only where there is a GPU.
        arguments: How it is called.
    """

    file: str
    linked: str
    verified: str
    packages: tuple[str, ...] = ()
    gpu_packages: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()


PROGRAMS = {
    "cub": Program("cub/Makefile", "Not run", r"1048576 elements, greatest error \S+; farthest \S+: right"),
    "cupy": Program(
        "cupy/raw_module.py",
        r"\d+ bytes of machine code for sm_\w+: link-time optimisation",
        "100001 elements match NumPy",
        gpu_packages=("cupy",),
    ),
    "torch": Program(
        "torch/softsign.py",
        "operator gallery.softsign.default",
        "100001 values and gradients are PyTorch's",
        packages=("torch", "ninja"),
    ),
    "cufft": Program(
        "cufft/callback.py",
        r"float _Z6windowPvyS_S_\(.*\d+ bytes of LTO-IR for sm_\w+; link-time optimisation",
        "The spectrum of 4096 windowed samples matches NumPy's",
    ),
    "compute": Program(
        "compute/operators.py",
        r"\d+ bytes of machine code for sm_90: link-time optimisation",
        "100001 turned vectors and the longest, .*, match NumPy",
        gpu_packages=("cuda.compute",),
    ),
    "triton": Program(
        "triton/damped.py",
        "2 calls inlined.* 0 calls left",
        "The results are PyTorch's",
        packages=("triton",),
    ),
    "nbody": Program(
        "nbody/nbody.py",
        r"advance: \d+ bytes for GPUs",
        "A step of 1000 bodies matches NumPy",
        arguments=("--bodies", "1000"),
    ),
    "library": Program(
        "library/Makefile",
        "for sm_90: link-time optimisation",
        r"The sum of 1000001 squares is \d+, as NumPy's",
    ),
    "jax": Program(
        "jax/ffi_call.py",
        "The program lowered for CUDA calls the handler 2 times",
        "100001 elements match JAX's own",
        packages=("jax",),
    ),
}


def missing(packages: tuple[str, ...]) -> str:
    """Return why *packages* cannot be imported, "" where they can."""
    absent = [name for name in packages if not _is_there(name)]
    return f"not installed: {', '.join(absent)}" if absent else ""


def run(name: str, scratch: Path, arch: str, **variables: str) -> str:
    """Run a program, assert that it succeeds, and return what it says; skip where something is missing."""
    program = PROGRAMS[name]
    if reason := missing(program.packages):
        pytest.skip(reason)
    file = EXAMPLES / program.file
    if file.name == "Makefile":
        command = [
            *(shutil.which("make") or "make", "-s", "-C", str(file.parent), "run", f"OUT={scratch / 'out'}"),
            *(f"CUDA={toolkit(scratch)}", f"ARCH={arch.removeprefix('sm_')}", f"PYTHON={sys.executable}"),
            f"PTXLINK={sys.executable} -m numba_ptxlink.cli",
        ]
    else:
        command = [sys.executable, str(file), *program.arguments]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    fixed = {
        "PATH": path,
        # Its own would answer from earlier runs.
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        # JAX takes three quarters of the memory otherwise, whoever else runs.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    environment = {**os.environ, **fixed, **variables}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, cwd=scratch)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def toolkit(scratch: Path) -> Path:
    """Return a toolkit whose nvcc optimises at link time: the machine's, or one of the wheels."""
    compiler = shutil.which("nvcc")
    homes = [os.environ.get("CUDA_HOME"), compiler and Path(compiler).parents[1], "/usr/local/cuda"]
    for home in map(Path, filter(None, homes)):
        if (home / "bin" / "nvcc").exists() and (home / "nvvm" / "lib64" / "libnvvm.so").exists():
            return home
    return cuda_toolkit.lay_out(scratch, installed=True)


def _is_there(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
