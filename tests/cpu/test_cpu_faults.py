"""Faults on the CPU are reported with source line, block, thread and instruction."""

from __future__ import annotations

import contextlib
import os
import signal
import struct
import sys
import threading

import numpy as np
import pytest
from cuda_cxx import ptx
from instructions import HEAD

from numba_ptxlink._cpu.run import CpuProgram, Region
from numba_ptxlink._cpu.worker import Worker
from numba_ptxlink._tools.launching import Configuration
from numba_ptxlink.errors import DeviceFaultError, LaunchError

# Each kernel stands on one line, whose number is in FAULTS.
SOURCE = """#define KERNEL extern "C" __global__ void
KERNEL beyond(int* x, int n) { x[threadIdx.x + blockIdx.x * n] = 1; }
KERNEL crooked(int* x, int n) { *(int*)((char*)x + threadIdx.x * n) = 1; }
KERNEL fixed(int* x, int n) { if (threadIdx.x == 3) x[0] = n; }
KERNEL trapped(int* x, int n) { if (threadIdx.x + blockIdx.x == n) __trap(); }
KERNEL apart(int* x, int n) { if (n < (int)threadIdx.x) asm("bar.sync 1;"); else asm("bar.sync 2;"); }
KERNEL endless(int* x, int n) { while (n) { *(volatile int*)x = n; if (n > 1) printf("."); } }
KERNEL outside(int* x, int n) { __shared__ int t[4]; t[threadIdx.x * n] = 1; x[0] = t[1]; }
KERNEL unknown(int*, int n) { if (threadIdx.x == 2) asm("setmaxnreg.inc.sync.aligned.u32 64;"); }
extern "C" __device__ int deep(int n) { volatile int a[9]; a[1] = n; return n < 1 ? 0 : deep(n - 1) + a[1]; }
KERNEL nested(int* x, int n) { x[0] = deep(n); }
extern "C" __device__ int get(const int* x, int i) { printf("%d;", i); return x[i]; }
extern "C" __device__ void undefined();
KERNEL elsewhere(int* x, int n) { if (threadIdx.x == 2) undefined(); }
extern "C" __device__ void meet() { __syncthreads(); }
KERNEL asserted(int*, int n) { assert(threadIdx.x != n); }
KERNEL missing(int*, int n) { if (threadIdx.x == 2) asm("cp.async.bulk.commit_group;"); }
KERNEL folded(int*, int n) { if (threadIdx.x == 2) asm("{ .reg .b32 a; mov.b32 a, !0; }"); }
KERNEL mixed(int*, int n) { if (threadIdx.x == 2) asm("{.reg .b16 h; .reg .f32 f; add.f32.f16 f, h, f;}"); }
extern "C" __device__ int again(int n) { return n < 1 ? 0 : again(n - 1) + __shfl_sync(~0u, n, 0); }
KERNEL repeated(int* x, int n) { x[0] = again(n); }
KERNEL joined(int* x, int) { int a; asm("mov.u32 %0, %%envreg1;" : "=r"(a)); if (!a) __trap(); x[0] = a; }
extern "C" __device__ int cudaLaunchDeviceV2(int);
KERNEL launching(int* x, int n) { x[0] = cudaLaunchDeviceV2(n); }
"""
FAULTS = {
    # kernel: (argument, line, block, thread, part of the message, part of the instruction)
    "beyond": (3, 2, 1, 1, "4 bytes at", "st.global"),
    "crooked": (2, 3, 0, 1, "no multiple of 4", "st.global"),
    "fixed": (1, 4, 0, 3, "read-only", "st.global"),
    "trapped": (2, 5, 0, 2, "trap", "trap"),
    "apart": (0, 6, 0, 0, "waits at a barrier .* never reach", "bar.sync"),
    "endless": (1, 7, 0, 0, "exceeded the limit of steps", "bra"),
    "outside": (
        2,
        8,
        0,
        2,
        "out of bounds, in shared memory .16 bytes.; check the index and the array\\.",
        "st.shared",
    ),
    "unknown": (0, 9, 0, 2, "CPU does not support this instruction", "setmaxnreg.inc.sync.aligned.u32"),
    "missing": (
        0,
        17,
        0,
        2,
        "CPU does not support bulk copies of the tensor memory accelerator",
        "cp.async.bulk",
    ),
    "folded": (0, 18, 0, 2, "CPU does not support this instruction", "mov.b32 a, !0"),
    "mixed": (0, 19, 0, 2, "CPU does not support this instruction", "add.f32.f16"),
    "repeated": (5, 21, 0, 0, "recursive function with a barrier or a warp operation", "again"),
    "joined": (0, 22, 0, 0, "the launch is not cooperative; pass cooperative=True", "trap"),
    "launching": (0, 24, 0, 0, "kernel launches from a kernel", "cudaLaunchDeviceV2"),
    "elsewhere": (
        0,
        14,
        0,
        2,
        "undefined is called, which no input defines; link the file that defines it",
        "undefined",
    ),
    "nested": (9000, 10, 0, 0, "exceeded the local memory", "__local_depot"),
}


@pytest.fixture(scope="module")
def program() -> CpuProgram:
    """Return the kernels, with line numbers."""
    return CpuProgram.of(ptx(SOURCE, "sm_90", "-w", "-lineinfo"))


def launch(program: CpuProgram, name: str, argument: int, **options: object) -> np.ndarray:
    """Launch a kernel with four integers in each of two blocks of four."""
    array = np.zeros(4, np.int32)
    region = Region(array.ctypes.data, array.nbytes, name != "fixed", "x")
    params = [struct.pack("Q", array.ctypes.data), struct.pack("i", argument)]
    program.launch(name, Configuration((2, 1, 1), (4, 1, 1)), params, [region], **options)
    return array


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_tells_where_it_is(program, name):
    """The kernel, file, line, block, thread and instruction are attributes, and in the message."""
    argument, line, block, thread, message, instruction = FAULTS[name]
    with pytest.raises(DeviceFaultError, match=message) as caught:
        launch(program, name, argument, steps=10_000)
    fault = caught.value
    assert (name, line, (block, 0, 0), (thread, 0, 0)) == (
        fault.kernel,
        fault.line,
        fault.block,
        fault.thread,
    )
    assert instruction in fault.instruction
    assert f"{fault.file}:{line}: error: {name}" in str(fault)
    assert fault.instruction in str(fault)


def test_an_assertion_is_told_in_its_own_words(program):
    """A failed assert names its text and file."""
    with pytest.raises(DeviceFaultError, match=r"'threadIdx.x != n' of source.cu failed") as caught:
        launch(program, "asserted", 2)
    assert ((2, 0, 0), 16) == (caught.value.thread, caught.value.line)


def test_a_call_tells_the_element(program, capsys):
    """The thread of a fault is the index of the element; lines printed before the fault are there."""
    array, indices, results = (np.arange(4, dtype=np.int32) for _ in range(3))
    indices[2] = 4
    pointer = np.array(array.ctypes.data)
    regions = [Region(array.ctypes.data, array.nbytes, False, "x")]
    arrays = [(pointer.ctypes.data, 0), (indices.ctypes.data, 4)]
    with pytest.raises(DeviceFaultError, match=r"0 bytes past the end of x \(16 bytes\)") as caught:
        program.call_elementwise("get", 4, arrays, (results.ctypes.data, 4), regions)
    assert (12, (2, 0, 0), "get") == (caught.value.line, caught.value.thread, caught.value.kernel)
    assert ([0, 1], "0;1;4;") == (results[:2].tolist(), capsys.readouterr().out)


@pytest.mark.usefixtures("interruptible")
def test_a_loop_is_interrupted(program):
    """Ctrl-C ends a loop."""
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        launch(program, "endless", 1, steps=10**11)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupt_reaches_the_caller_from_where_code_prints(program):
    """Ctrl-C before the first line of the function that prints is not lost."""

    def interrupt(frame, event, _):
        if event == "call" and frame.f_back.f_code is Worker.run.__code__:
            signal.raise_signal(signal.SIGINT)

    sys.setprofile(interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            launch(program, "endless", 2, steps=100)
    finally:
        sys.setprofile(None)


def test_what_cannot_be_launched_is_refused(program):
    """Functions with a barrier, and parameters of other sizes, have an error with the cure."""
    with pytest.raises(LaunchError, match=r"Function meet has a barrier or a warp operation"):
        program.call_elementwise("meet", 1, [], (0, 0), [])
    with pytest.raises(LaunchError, match=r"takes parameters of \[8, 4\] bytes, and was given \[4\]"):
        program.launch("beyond", Configuration((1, 1, 1), (1, 1, 1)), [b"1234"], [])


@pytest.mark.parametrize(
    ("access", "message"),
    [
        ("ld.local.u16 %h, [t+6]", ""),
        ("ld.local.u16 %h, [t+7]", "2 bytes at 0x7 are out of bounds"),
        ("ld.local.u32 %r, [t+-4]", r"out of bounds; check the index and the array\."),
        ("ld.local.v2.u32 v, [t]", "does not support this instruction"),
    ],
)
def test_variables_of_a_function_have_bounds(access, message):
    """An access is inside of a variable to its last byte; a register of two elements is refused."""
    registers = ".local .align 8 .b8 t[8]; .reg .b16 %h; .reg .b32 %r; .reg .v2 .b32 v;"
    program = CpuProgram.of(f"{HEAD}.visible .entry k() {{ {registers} {access}; ret; }}")
    with pytest.raises(DeviceFaultError, match=message) if message else contextlib.nullcontext():
        program.launch("k", Configuration((1, 1, 1), (1, 1, 1)), [], [])


@pytest.mark.parametrize("barrier", ["", "bar.sync 0;"])
@pytest.mark.parametrize("space", [".local", ""])
@pytest.mark.parametrize(
    ("offset", "message"),
    [
        (8, ""),
        (12, r"0 bytes past the end of the local memory of the thread \(12 bytes\)"),
        (-4, r"4 bytes before the local memory of the thread \(12 bytes\)"),
    ],
)
def test_an_index_beyond_a_local_array_is_a_fault(barrier, space, offset, message):
    """A thread accesses neither the bytes around its local array nor the array of another thread."""
    registers = ".local .align 4 .b8 t[12]; .reg .b64 %a; .reg .b32 %r;"
    address = "mov.u64 %a, t; cvta.local.u64 %a, %a;"
    access = f"st{space}.u32 [%a+{offset}], %r;"
    program = CpuProgram.of(f"{HEAD}.visible .entry k() {{ {registers} {address} {barrier} {access} ret; }}")
    with pytest.raises(DeviceFaultError, match=message) if message else contextlib.nullcontext():
        program.launch("k", Configuration((2, 1, 1), (4, 1, 1)), [], [])


def test_missing_dynamic_shared_memory_has_its_cure():
    """A kernel that is launched without its dynamic shared memory fails with what the launch lacks."""
    variable = ".extern .shared .align 4 .b8 tile[];"
    program = CpuProgram.of(f"{HEAD}{variable} .visible .entry k() {{ st.shared.u32 [tile], 1; ret; }}")
    with pytest.raises(DeviceFaultError, match=r"\(0 bytes\); pass the size of dynamic shared memory at the"):
        program.launch("k", Configuration((1, 1, 1), (1, 1, 1)), [], [])


@pytest.mark.parametrize(("line", "message_start"), [(7, "a.py:7: error: k"), (0, "a.py: error: k")])
def test_line_zero_is_no_line(line, message_start):
    """A trap with line 0, which stands for checks of several lines, is reported with its file alone."""
    program = CpuProgram.of(f'{HEAD}.file 1 "a.py"\n.visible .entry k() {{\n.loc 1 {line} 1\ntrap;\nret;\n}}')
    with pytest.raises(DeviceFaultError) as caught:
        program.launch("k", Configuration((1, 1, 1), (1, 1, 1)), [], [])
    assert str(caught.value).startswith(message_start)
    assert line == caught.value.line


MALFORMED = (
    "add.u32 %r, %r",
    "add.f8 %r, %r, %r",
    "mov.u32 %r, 0f12",
    "setp.eq.and.u32 %p, %r, %r",
    "cvt.s32.f32 %r, %f",
    "atom.global.cas.b32 %r, [%d], %r",
    "redux.sync.mul.u32 %r, %r, -1",
    "shfl.sync.left.b32 %r, %r, 1, 31, -1",
    "brx.idx %r, nowhere",
    "wmma.load.a.sync.m16n16k16.row",
)


@pytest.mark.parametrize("instruction", MALFORMED)
def test_a_malformed_instruction_is_a_fault(instruction):
    """An unknown modifier, a missing operand or type, or an operand that is none is reported when reached."""
    registers = ".reg .pred %p; .reg .b32 %r; .reg .f32 %f; .reg .b64 %d;"
    program = CpuProgram.of(f"{HEAD}.visible .entry k() {{ {registers} {instruction}; ret; }}")
    with pytest.raises(DeviceFaultError, match="does not support") as caught:
        program.launch("k", Configuration((1, 1, 1), (1, 1, 1)), [], [])
    assert instruction in caught.value.instruction
