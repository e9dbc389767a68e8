"""The CUDA driver of the CPU device, by its C interface and without Numba."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import processes
import pytest

PROGRAM = Path(__file__).with_name("driver_program.py")
EXPECTED: dict[str, Any] = {
    # A kernel writes device memory.
    "a_launch": [5, 6, 7, 8],
    # An overrun is CUDA_ERROR_ILLEGAL_ADDRESS until the context is reset; the text names the thread.
    "an_overrun": [700, [700, 700], 0, True, True],
    # Addresses of freed memory are not reused for long, so that kernels and copies with old ones fault. The
    # text names the argument.
    "use_after_free": [True, 700, True, 1],
    # Kernels access host memory once it is registered.
    "memory_of_the_host": [700, True, 0, 5, 6, 7, 8],
    # Host and kernels share pinned and managed memory, and only the one that allocated frees.
    "pinned_and_managed_memory": [[0, 0], [[7, 8, 9, 10], [7, 8, 9, 10]], [1, 2], [0, 1], 1],
    # A pool counts the bytes in use.
    "pools": [100, 0],
    # Pools of pinned and of managed memory; a default pool is not destroyed. A pool has a largest size.
    "pools_of_the_host": [[0, 10, 1, 0], [0, 10, 1, 0], 1, [0, 10, 2, 1], [0, 10, 2, 1], 1, 2, 0, 2],
    # More memory than is free or than there are addresses is CUDA_ERROR_OUT_OF_MEMORY; no bytes are invalid.
    "out_of_memory": [2, True, 1, 2],
    # Each of 10,000 allocations has a gap around it.
    "many_allocations": True,
    # Copies and fills stay within an allocation, at the alignment of their elements.
    "copies": [[0, 9, 9, 3], 1, 1],
    # A variable of a module ends with the module.
    "variables": [[3], 4, 400, 1],
    # Memory of unloaded modules is released; the cache has their code, since LLVM leaks.
    "many_modules": True,
    # Blocks, grids and shared memory are limited as on a GPU.
    "configurations": [1, 1, 1, 1, 0, 0, 0, 1],
    "images": [
        [209, "The image is machine code of a GPU, which the CPU device can"],
        [209, "The PTX is for compute_90, and the CPU device is sm_75"],
        [218, "LaunchError: The PTX is malformed: a type is expected, not t"],
    ],
    # cuLinkComplete returns one PTX of several, which a module is loaded from.
    "linking": [0, [7], 0],
    # ptxas refuses more than 48 KiB of static shared memory.
    "shared_memory_limit": [218],
    # Memory of another device is a fault until access to it is enabled.
    "peers": [1, 700, 0, 704, 1, 1, 2],
    # Threads launch one kernel on separate memory.
    "threads": [True] * 8,
    # Ctrl-C stops an endless kernel, after which the context is usable.
    "interrupt": [True, 0],
    # A destroyed context takes its memory along.
    "contexts": [709, 1, 0],
    "events": [400, True, 0, 0, 400, 400, 0, 400, 400],
    # Each program gets the version of a function that it was built for.
    "entry_points": [True] * 6,
    "not_supported": [801, 801],
    # A child that is forked after cuInit has no CUDA.
    "a_forked_child": [33, 0],
    # The number of registers is a guess: it keeps no block from running.
    "attributes": ["CPU (numba-ptxlink, sm_75)", [7, 5, 65536, 1024], 4, 1],
}


@pytest.fixture(scope="module")
def completed(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run the program on two devices."""
    variables = {"NUMBA_PTXLINK_DEVICE": "cpu", "NUMBA_PTXLINK_CPU_DEVICES": "2"}
    environ = processes.environ(**variables, NUMBA_PTXLINK_CACHE=str(tmp_path_factory.mktemp("cache")))
    return processes.run(sys.executable, PROGRAM, env=environ)


@pytest.mark.parametrize("name", EXPECTED)
def test_driver(completed: Any, name: str) -> None:
    """The driver returns the codes and values of NVIDIA's driver; a comment explains each row."""
    assert json.loads(completed.stdout)[name] == EXPECTED[name]


def test_missing_functions_are_reported_once(completed: Any) -> None:
    """A function that is not supported returns an error each time, and is logged once."""
    assert completed.stderr.count("cuGraphCreate is not supported on the CPU device") == 1


@pytest.mark.parametrize(
    "sentence",
    [
        "A launch has blocks of 1025 threads along x, and the limit is 1024; use smaller blocks.",
        "A launch has 49153 bytes of dynamic shared memory, and the limit of the kernel is 49152; use less",
        "A launch has a grid or block of the size 0 along x; pass at least 1, or do not launch.",
    ],
)
def test_a_refused_launch_is_explained(completed: Any, sentence: str) -> None:
    """The error has only CUDA's code, so that the cause and the cure are logged."""
    assert sentence in completed.stderr
