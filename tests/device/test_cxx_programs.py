"""C++ programs that use the driver API run without Python, and end as they do on a GPU."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import processes
import pytest
from cuda_toolkit import host_includes

from numba_ptxlink._cpu import device

PTX = """\
.version 7.5
.target sm_75
.address_size 64
.visible .entry saxpy(.param .f32 a, .param .u64 x, .param .u64 y, .param .u32 n)
{
    .reg .pred %p1;
    .reg .f32 %f<5>;
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ntid.x;
    mov.u32 %r3, %tid.x;
    mad.lo.u32 %r4, %r1, %r2, %r3;
    ld.param.u32 %r5, [n];
    setp.ge.u32 %p1, %r4, %r5;
    @%p1 bra done;
    ld.param.f32 %f1, [a];
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    mul.wide.u32 %rd3, %r4, 4;
    add.s64 %rd4, %rd1, %rd3;
    add.s64 %rd5, %rd2, %rd3;
    ld.global.f32 %f2, [%rd4];
    ld.global.f32 %f3, [%rd5];
    fma.rn.f32 %f4, %f1, %f2, %f3;
    st.global.f32 [%rd5], %f4;
done:
    ret;
}
.visible .entry endless(.param .u64 flag)
{
    .reg .b64 %rd1;
    ld.param.u64 %rd1, [flag];
    st.volatile.global.u32 [%rd1], 1;
loop:
    bra loop;
}
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Build the program; return the command that runs it on the CPU."""
    if not device._libpython():
        pytest.skip("this Python has no shared library")
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("g++ is not installed")
    folder = tmp_path_factory.mktemp("program")
    source = Path(__file__).with_name("driver_program.cpp")
    library = device.LIBRARY_FOLDER / "libcuda.so.1"
    subprocess.run(
        [compiler, *host_includes(), source, library, "-o", folder / "app", "-pthread"], check=True
    )
    (folder / "saxpy.ptx").write_text(PTX + "\0")
    return [
        sys.executable,
        "-m",
        "numba_ptxlink",
        "cpu",
        "--",
        str(folder / "app"),
        str(folder / "saxpy.ptx"),
    ]


@pytest.mark.parametrize(
    ("way", "status", "output"),
    [
        ("threads", 0, "before\n1 2 3 4 5 6 7 8 \n"),
        ("exit", 3, "before\n"),
        ("endless", 0, "before\n"),
        ("late", 2, "before\nerror 4: driver shutting down\n"),
    ],
)
def test_a_program_ends(program, way, status, output):
    """A program returns, exits in a thread, leaves an endless kernel, or calls the driver in a destructor."""
    environ = processes.environ(NUMBA_PTXLINK_CACHE="0")
    done = subprocess.run(
        [*program, way], env=environ, capture_output=True, text=True, check=False, timeout=30
    )
    assert (done.returncode, done.stdout) == (status, output), done.stderr


def test_a_fault_is_reported(program):
    """The driver's error text and the standard error name block, thread and address of the fault."""
    environ = processes.environ(NUMBA_PTXLINK_CACHE="0")
    done = subprocess.run([*program, "overrun"], env=environ, capture_output=True, text=True, check=False)
    fault = "saxpy, block (7, 0, 0), thread (104, 0, 0): 4 bytes at"
    assert done.returncode == 2
    assert f"error 700: {fault}" in done.stdout
    assert fault in done.stderr


def test_without_the_command(program):
    """A program that was started without the command ends with the command to start it by."""
    environ = {**os.environ, "LD_LIBRARY_PATH": str(device.LIBRARY_FOLDER)}
    done = subprocess.run([*program[5:], "exit"], env=environ, capture_output=True, text=True, check=False)
    assert "start the program with: numba-ptxlink cpu -- PROGRAM" in done.stderr


def test_a_report_of_a_check_is_an_exit_status(program):
    """A program that succeeds ends with status 66 after a report, and its exit handlers run."""
    *command, separator, app, ptx = program
    command = [*command, "--check", "initcheck", separator, app, ptx, "unwritten"]
    done = subprocess.run(
        command, env=processes.environ(NUMBA_PTXLINK_CACHE="0"), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (66, "before\nafter\n"), done.stderr
    assert "initcheck: saxpy" in done.stderr
