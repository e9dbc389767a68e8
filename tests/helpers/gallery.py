"""Run the programs of the gallery, each in another process."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import NamedTuple

import cuda_toolkit
import processes
import pytest
from cuda.pathfinder import load_nvidia_dynamic_lib

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


class Program(NamedTuple):
    """
    A program of the gallery.

    Args:
        file: A Python file below `examples`, or a Makefile with the target `run`.
        linked: A regular expression for the output about the link, without a GPU.
        verified: A regular expression for the output on a GPU.
        packages: The imported packages beside those of the tests.
        gpu_packages: The packages that are imported only with a GPU.
        arguments: The arguments, with {arch}, {toolkit} and {libraries}.
        on_cpu: A regular expression for the output about results, without a GPU.
    """

    file: str
    linked: str
    verified: str
    packages: tuple[str, ...] = ()
    gpu_packages: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    on_cpu: str = "Not run: ."


NVCC = ("CUDA={toolkit}", "ARCH={number}")
PROGRAMS = {
    "transform": Program(
        "transform/transform.py",
        r"float user_transform\(float value, int32_t index\)\n(?s:.*)2 PTX as one, 1 call inlined\)",
        r"PTX link: 100001 elements match NumPy(?s:.*)LTO link: 100001 elements match NumPy",
        arguments=("--elements", "100001"),
        on_cpu=r"PTX link, on the CPU: 100001 elements match(?s:.*)LTO link, on the CPU: 100001 elements",
    ),
    "jit": Program(
        "jit/Makefile",
        "LTO-IR for sm_90(?s:.*)PTX for sm_90",
        "0 elements are wrong(?s:.*)0 elements are wrong",
        arguments=("ARCH={arch}", "CUDA_HOME={toolkit}", "LIBRARIES={libraries}"),
    ),
    "cub": Program(
        "cub/Makefile",
        "Not run",
        r"1048576 elements, greatest error \S+; farthest \S+: right",
        arguments=NVCC,
    ),
    "cupy": Program(
        "cupy/raw_module.py",
        r"\d+ bytes of machine code for sm_\w+: link-time optimisation",
        "100001 elements match NumPy",
        gpu_packages=("cupy",),
        on_cpu="Verified on the CPU: 100001 elements match NumPy",
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
        on_cpu="Verified on the CPU: 1024 windowed samples",
    ),
    "compute": Program(
        "compute/operators.py",
        r"\d+ bytes of machine code for sm_90: link-time optimisation",
        "100001 turned vectors and the longest, .*, match NumPy",
        gpu_packages=("cuda.compute",),
        on_cpu="Verified on the CPU: a turned vector and the longer one",
    ),
    "triton": Program(
        "triton/damped.py",
        "2 calls inlined.* 0 calls left",
        "The results are PyTorch's",
        packages=("triton",),
        on_cpu="Verified on the CPU: 1000 elements match NumPy",
    ),
    "nbody": Program(
        "nbody/nbody.py",
        r"advance: \d+ bytes for GPUs",
        "A step of 1000 bodies matches NumPy",
        arguments=("--bodies", "1000"),
        on_cpu="Verified on the CPU: A step of 1000 bodies matches NumPy",
    ),
    "library": Program(
        "library/Makefile",
        "for sm_90: link-time optimisation",
        r"The sum of 1000001 squares is \d+, as NumPy's",
        arguments=NVCC,
        on_cpu=r"Verified on the CPU: The sum of 1000001 squares is \d+, as NumPy's",
    ),
    "jax": Program(
        "jax/ffi_call.py",
        "The program lowered for CUDA calls the handler 2 times",
        "100001 elements match JAX's own",
        packages=("jax",),
        on_cpu="Verified on the CPU: 100001 elements match JAX's own",
    ),
}


def run(name: str, scratch: Path, arch: str, target: str = "run", **variables: str) -> str:
    """Run a program, assert that it succeeds, and return its output; skip if a package is missing."""
    program = PROGRAMS[name]
    for package in program.packages:
        pytest.importorskip(package)
    file, command, libraries = EXAMPLES / program.file, [sys.executable], []
    if file.name == "Makefile":
        names = ("nvrtc", "nvJitLink", "cudart")
        libraries = [Path(load_nvidia_dynamic_lib(library).abs_path) for library in names]
        command = [
            *(
                "make",
                "-s",
                "-C",
                str(file.parent),
                target,
                f"OUT={scratch / 'out'}",
                f"PYTHON={sys.executable}",
            ),
            f"PTXLINK={sys.executable} -m numba_ptxlink.cli",
        ]
    else:
        command.append(str(file))
    values = {
        "arch": arch,
        "number": arch.removeprefix("sm_"),
        "toolkit": cuda_toolkit.lay_out(scratch, installed=True) if libraries else "",
        "libraries": " ".join(map(str, libraries)),
    }
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environ = {
        "PATH": path,
        # The user's cache could have results of earlier runs.
        "TRITON_CACHE_DIR": str(scratch / "triton"),
        # JAX takes three quarters of the memory otherwise, whoever else runs.
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    if libraries:
        inherited = os.environ.get("LD_LIBRARY_PATH", "")
        environ["LD_LIBRARY_PATH"] = os.pathsep.join([*(str(path.parent) for path in libraries), inherited])
    done = processes.run(
        *command,
        *(path.format(**values) for path in program.arguments),
        env={**os.environ, **environ, **variables},
        cwd=scratch,
    )
    return done.stdout
