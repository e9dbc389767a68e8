"""Programs with kernels in Python run unmodified on the CPU device, with both front ends."""

from __future__ import annotations

import sys
from pathlib import Path

import processes
import pytest

BINDINGS_PROGRAM = Path(__file__).with_name("bindings_program.py")
CORE_PROGRAM = Path(__file__).with_name("core_program.py")
PROGRAM = Path(__file__).with_name("kernels_program.py")
ENVIRON = processes.environ(NUMBA_PTXLINK_DEVICE="cpu", NUMBA_PTXLINK_CACHE="0")
LINE, CALL, BEYOND = (
    next(number for number, text in enumerate(PROGRAM.read_text().splitlines(), 1) if part in text)
    for part in ("x[i] = 1", "missing(x[0])", "x[i + 128] = 2")
)


@pytest.mark.parametrize("module", ["numba.cuda", "numba_cuda_mlir.cuda"])
def test_a_program_runs_and_its_fault_names_the_place(module):
    """A fault names kernel, line, block, thread and array, and later launches run."""
    pytest.importorskip(module)
    done = processes.run(sys.executable, "-W", "ignore", PROGRAM, module, env=ENVIRON)
    assert done.stdout.splitlines() == [
        "sass: The CPU device compiles no SASS",
        (
            f"link: Unresolved extern function 'missing', called at {PROGRAM}:{CALL} in call_missing; "
            'link the file that defines it, in C++ as extern "C".'
        ),
        f"fault: overrun {LINE} (2, 0, 0) (0, 0, 0) 700",
        "overrun, block (2, 0, 0), thread (0, 0, 0): 4 bytes",
        "0 bytes past the end of argument 'x' (512 bytes)",
        "True True",
        f"sourceless: sourceless {BEYOND if module == 'numba.cuda' else 0}",
        "8 bytes past the end of an array in constant memory, as by cuda.const.array_like (16 bytes)",
        "later: True",
    ]


def test_cuda_core_runs():
    """Cubins of cuda.core are PTX there, faults name the line, and devices are counted without NVML."""
    pytest.importorskip("cuda.core")
    lines = processes.run(sys.executable, "-W", "ignore", CORE_PROGRAM, env=ENVIRON).stdout.splitlines()
    assert lines == [
        "devices 1",
        "cubin 2.0",
        "of PTX 4.0",
        "shared 49152 49152",
        "empty 0",
        "linked 3.0",
        "link compile all inputs to LTO-IR: beside PTX, LTO-IR keeps only what its own kernels call.",
        "fault fill 2 (100, 0, 0)",
        "later 5.0",
    ]


def test_cuda_bindings_runs():
    """The runtime of cuda.bindings is that of the package, and cubins of NVRTC are PTX."""
    pytest.importorskip("cuda.bindings")
    lines = processes.run(sys.executable, "-W", "ignore", BINDINGS_PROGRAM, env=ENVIRON).stdout.splitlines()
    assert lines == ["7 5 32 True", "2.5 2.5", "cudaErrorMemoryAllocation"]


SLICES = """
import numpy as np
from numba_cuda_mlir import cuda

@cuda.jit
def fill(x):
    i = cuda.grid(1)
    if i < x.size:
        x[i] = 1

@cuda.jit
def count_rows(a, counts):
    counts[0], counts[1] = a[::2].shape[0], a[::2, :].shape[0]

counts = np.zeros(2, np.int64)
count_rows[1, 1](np.zeros((8, 4)), counts)
print(*counts)
for dtype in (np.float64, np.complex64):
    x = cuda.to_device(np.zeros(32, dtype))
    fill[1, 32](x[:8:2])
    print(*np.flatnonzero(x.copy_to_host()))
"""


@pytest.mark.slow
def test_the_page_names_wrong_slices(tmp_path):
    """numba-cuda-mlir doubles strides of complex arrays, and forgets a step before a whole dimension."""
    pytest.importorskip("numba_cuda_mlir.cuda")
    program = tmp_path / "program.py"
    program.write_text(SLICES)
    done = processes.run(sys.executable, "-W", "ignore", program, env=ENVIRON)
    assert ["4 8", "0 2 4 6", "0 4 8 12"] == done.stdout.splitlines()
