"""racecheck, initcheck and synccheck: the errors that they report, and correct programs that they accept."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from cuda_cxx import ptx

import numba_ptxlink as pl
from numba_ptxlink._cpu.host import PtxKernel
from numba_ptxlink._cpu.run import CpuProgram

CHECKS = ("memcheck", "racecheck", "initcheck", "synccheck")
KERNEL = 'extern "C" __global__ void'
SOURCE = f"""
#include <cooperative_groups.h>
#include <cuda_pipeline.h>
#include <mma.h>
{KERNEL} harris(const int* x, int* o) {{
    __shared__ volatile int s[64]; int t = threadIdx.x; s[t] = x[t] + x[t + 64]; __syncthreads();
    if (t < 32) s[t] += s[t + 32];
    __syncthreads();
    if (t < 32) {{
        s[t] += s[t + 16]; s[t] += s[t + 8]; s[t] += s[t + 4]; s[t] += s[t + 2]; s[t] += s[t + 1]; }}
    if (t == 0) *o = s[0];
}}
{KERNEL} shuffled(const int* x, int* o) {{
    __shared__ int s[64]; int t = threadIdx.x; s[t] = x[t] + x[t + 64]; __syncthreads();
    if (t < 32) {{ int v = s[t] + s[t + 32]; for (int d = 16; d; d >>= 1) v += __shfl_down_sync(-1, v, d);
        if (t == 0) *o = v; }}
}}
{KERNEL} halo(const int* x, int* o) {{
    __shared__ int s[66]; int t = threadIdx.x; for (int d = 0; d < 3; d++) s[t + d] = x[t + d];
    __syncthreads(); o[t] = s[t] + s[t + 1] + s[t + 2];
}}
{KERNEL} neighbour(const int* x, int* o) {{
    __shared__ int s[64]; int t = threadIdx.x;
    s[t] = x[t];
    o[t] = s[t ^ 32];
}}
{KERNEL} total(const int* x, int* o) {{
    o[0] += x[threadIdx.x];
}}
{KERNEL} synced(const int* x, int* o) {{
    __shared__ int s[64]; int t = threadIdx.x;
    s[t] = x[t]; __syncwarp();
    o[t] = s[t ^ 1]; __syncthreads(); s[t ^ 33] = 1;
}}
{KERNEL} partial(const int* x, int* o) {{
    __shared__ int s[64]; int t = threadIdx.x; if (t) s[t] = x[t]; __syncthreads();
    o[t] = s[t];
}}
{KERNEL} sums(const int* x, int* o) {{
    if (threadIdx.x == 0) o[1] = o[1] + x[blockIdx.x];
}}
{KERNEL} counted(const int* x, int* o) {{ atomicAdd(o, x[threadIdx.x]); }}
{KERNEL} copied(const int* x, int* o) {{
    __shared__ int4 s[64]; int t = threadIdx.x;
    __pipeline_memcpy_async(&s[t], x + t / 4 * 4, 16, 8); __pipeline_commit(); __pipeline_wait_prior(0);
    o[t] = s[t].y + s[t].w;
}}
{KERNEL} product(const int* x, int* o) {{
    __shared__ float s[256]; int t = threadIdx.x;
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> sums;
    nvcuda::wmma::fill_fragment(sums, 2);
    if (t < 32) nvcuda::wmma::store_matrix_sync(s, sums, 16, nvcuda::wmma::mem_row_major);
    __syncthreads(); o[t] = s[4 * t];
}}
{KERNEL} swapped(const int* x, int* o) {{
    int old, seen = *(volatile int*)o;
    do {{ old = seen; seen = atomicCAS(o, old, old + x[threadIdx.x]); }} while (seen != old);
}}
{KERNEL} largest(const int* x, int* o) {{
    int old = *o, seen;
    do {{ seen = old; old = atomicCAS(o, seen, max(seen, x[threadIdx.x])); }} while (old != seen);
}}
{KERNEL} limited(const int* x, int* o) {{
    if (*o < x[threadIdx.x + 60]) atomicAdd(o, 1);
}}
{KERNEL} grid(const int* x, int* o) {{
    __shared__ int s[64]; int t = threadIdx.x; s[t] = 1 + blockIdx.x; __syncthreads();
    o[0] = s[t];
    cudaCGSynchronize(cudaCGGetIntrinsicHandle(cudaCGScopeGrid), 0); if (t) o[t] = s[t - 1];
}}
__device__ void meet() {{ cudaCGSynchronize(cudaCGGetIntrinsicHandle(cudaCGScopeGrid), 0); }}
{KERNEL} phases(const int* x, int* o) {{
    meet(); o[blockIdx.x] = 1;
    meet(); int other = o[1 - blockIdx.x];
    meet(); if (threadIdx.x == 0)
        o[2] += other;
}}
{KERNEL} uneven(const int* x, int* o) {{
    __shared__ int s[64]; int t = threadIdx.x;
    if (x[0]) {{ if (t < 32) asm volatile("bar.sync 1, 32;"); return; }}
    s[t] = x[t]; o[t] = s[t ^ 32];
}}
{KERNEL} some(const int* x, int* o) {{
    if (threadIdx.x < 32) {{
        __syncthreads();
        o[threadIdx.x] = x[5]; }}
}}
{KERNEL} unnamed(const int* x, int* o) {{
    o[threadIdx.x] = __shfl_xor_sync(0xFFFF, x[threadIdx.x], 1);
}}
{KERNEL} branches(const int* x, int* o) {{
    if (threadIdx.x < 32) {{
        __syncthreads(); o[threadIdx.x] = 1;
    }} else {{
        o[threadIdx.x] = 2; __syncthreads(); o[threadIdx.x] += x[0];
    }}
}}
"""
LINES = SOURCE.splitlines()


def line_of(text: str) -> int:
    """Return the number of the line that has *text*."""
    return next(number for number, line in enumerate(LINES, start=1) if text in line)


# The lines at which each kernel is reported, and the end of the message.
REPORTS = {
    "harris": ("racecheck", "s[t + 16]", "s[t + 16]", "put __syncwarp() (cuda.syncwarp()) between them"),
    "neighbour": (
        "racecheck",
        "s[t ^ 32]",
        "    s[t] = x[t];",
        "put __syncthreads() (cuda.syncthreads()) between",
    ),
    "total": ("racecheck", "o[0] += x", "o[0] += x", "or use an atomic operation (cuda.atomic.add)"),
    "limited": ("racecheck", "if (*o <", "if (*o <", "or use an atomic operation (cuda.atomic.add)"),
    "partial": ("initcheck", "    o[t] = s[t];", "", "nothing has written them; write them first"),
    "sums": ("racecheck", "o[1] + x", "o[1] + x", "atomic operations, or make two launches"),
    "some": ("synccheck", "        __syncthreads();", "", "other threads of the block have ended"),
    "unnamed": ("synccheck", "0xFFFF", "", "pass a mask that names each lane that executes it"),
    "branches": (
        "synccheck",
        "o[threadIdx.x] = 2;",
        "o[threadIdx.x] = 1;",
        "let all threads reach the same one",
    ),
}
SILENT = ("shuffled", "halo", "synced", "counted", "copied", "product", "swapped", "largest")


@pytest.fixture(scope="module")
def program() -> CpuProgram:
    """Return the kernels of `SOURCE`."""
    return CpuProgram.of(ptx(SOURCE, "sm_90", "-w", "-lineinfo", folders=(".",)), checks=CHECKS)


def launch(program: CpuProgram, name: str) -> np.ndarray:
    """Launch a kernel; return the numbers that it writes."""
    written = np.zeros(66, np.int32)
    PtxKernel(program, name)[3 if name == "sums" else 1, 64](np.arange(130, dtype=np.int32), written)
    return written


@pytest.mark.parametrize("name", REPORTS)
def test_reports(program, name, caplog):
    """A report names the check, both source lines, the threads and a cure, and the kernel goes on."""
    check, line, other, cure = REPORTS[name]
    written = launch(program, name)
    prefix = re.escape(f"{Path.cwd() / 'source.cu'}:{line_of(line)}: warning: {check}: {name}, ")
    elsewhere = rf".*source\.cu:{line_of(other)}.*" if other else ".*"
    pattern = rf"{prefix}block \(.*\), thread \(.*\): {elsewhere}{re.escape(cure)}"
    assert [pattern] == [pattern for message in caplog.messages if re.match(pattern, message)][:1]
    assert written.any()
    caplog.clear()
    launch(program, name)
    assert [] == caplog.messages


@pytest.mark.parametrize("name", SILENT)
def test_what_is_ordered_is_not_reported(program, name, caplog):
    """Shuffles, equal values, barriers, atomic operations, and memory that matrices or copies fill."""
    assert launch(program, name).any()
    assert [] == caplog.messages


def test_blocks_of_a_grid_are_checked_together(program, caplog):
    """A race of blocks that meet is found, and shared memory stays initialised beyond the barrier."""
    values = np.zeros(64, np.int32)
    PtxKernel(program, "grid").launch(values, values, grid=2, block=64, cooperative=True)
    reports = [re.search(r"source.cu:(\d+): warning: (\w+)", message).groups() for message in caplog.messages]
    assert (str(line_of("o[0] = s[t];")), "racecheck") in reports
    assert ["racecheck"] * len(reports) == [check for _, check in reports]


def test_a_barrier_of_the_grid_orders_blocks(program, caplog):
    """Blocks race between two barriers of the grid, but not across one."""
    values = np.zeros(64, np.int32)
    PtxKernel(program, "phases").launch(values, values, grid=2, block=64, cooperative=True)
    reports = {re.search(r"source.cu:(\d+): warning: (\w+)", message).groups() for message in caplog.messages}
    assert {(str(line_of("o[2] += other;")), "racecheck")} == reports


def test_a_launch_begins_without_the_barriers_of_the_one_before(program, caplog):
    """Warps that passed different numbers of barriers in one launch race in the next."""
    for first in (1, 0):
        values = np.full(64, first, np.int32)
        PtxKernel(program, "uneven")[1, 64](values, np.zeros(64, np.int32))
    assert any("racecheck: uneven" in message for message in caplog.messages)


def test_checks_of_a_link(caplog):
    """`Linked.kernel` takes the names of checks; an unknown one is an error."""
    linked = pl.link(f"{KERNEL} k(int* o) {{ o[0] = threadIdx.x; }}", arch="sm_90", lineinfo=True)
    written = np.zeros(1, np.int32)
    linked.kernel("k", device="cpu", checks=("racecheck",))[1, 2](written)
    assert ["writes 4 bytes"] == [re.search("writes 4 bytes", message)[0] for message in caplog.messages]
    with pytest.raises(
        pl.LaunchError, match=r"checks is \('race',\); pass True, False, or a tuple of memcheck"
    ):
        linked.kernel("k", device="cpu", checks=("race",))


RACING_TEST = f"""
import numpy as np
import numba_ptxlink as pl

def test_passes():
    linked = pl.link('{KERNEL} k(int* o) {{ o[0] = threadIdx.x; }}', arch="sm_90", lineinfo=True)
    linked.kernel("k", device="cpu", checks=("racecheck",))[1, 2](np.zeros(1, np.int32))
"""


def test_reports_of_a_test_that_passes_end_the_process(tmp_path):
    """Pytest hides the log of such a test: its process prints the reports again, and ends with status 66."""
    module = tmp_path / "test_racing.py"
    module.write_text(RACING_TEST)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(module)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "1 passed" in done.stdout
    assert 66 == done.returncode
    assert re.search(r"numba-ptxlink: 1 report of the checks:\n  .*: warning: racecheck: k\n", done.stderr)
