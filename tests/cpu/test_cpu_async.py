"""Asynchronous copies, and barriers in shared memory."""

from __future__ import annotations

import numpy as np
import pytest
from cuda_cxx import ptx

from numba_ptxlink._cpu.host import PtxKernel
from numba_ptxlink._cpu.run import CpuProgram
from numba_ptxlink.errors import DeviceFaultError

SOURCE = r"""
#include <cuda_awbarrier_primitives.h>
#include <cuda_pipeline.h>
#include <cuda/barrier>
extern "C" __global__ void pipelined(const float* x, float* o, int n) {
    __shared__ float tile[2][64];
    int i = threadIdx.x;
    __pipeline_memcpy_async(&tile[0][i], &x[i], 4); __pipeline_commit();
    float sum = 0;
    for (int k = 0; k < n; k++) {
        if (k + 1 < n) __pipeline_memcpy_async(&tile[(k + 1) & 1][i], &x[(k + 1) * 64 + i], 4);
        __pipeline_commit(); __pipeline_wait_prior(1); __syncthreads();
        sum += tile[k & 1][63 - i]; __syncthreads();
    }
    o[i] = sum;
}
extern "C" __global__ void filled(const int4* x, int* o, int bytes) {
    __shared__ int4 tile;
    __pipeline_memcpy_async(&tile, x, 16, 16 - bytes); __pipeline_commit(); __pipeline_wait_prior(0);
    o[0] = tile.x; o[1] = tile.y; o[2] = tile.z; o[3] = tile.w;
}
extern "C" __global__ void hexadecimal(const int4* x, int* o) {
    __shared__ int4 tile;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 0x10;"
        :: "r"((unsigned)__cvta_generic_to_shared(&tile)), "l"(x));
    asm volatile("cp.async.wait_all;" ::: "memory");
    *o = tile.w;
}
extern "C" __global__ void phases(int* o) {
    __shared__ cuda::barrier<cuda::thread_scope_block> barrier;
    __shared__ int values[64];
    int i = threadIdx.x;
    if (i == 0) init(&barrier, 64);
    __syncthreads();
    int sum = 0;
    for (int turn = 0; turn < 3; turn++) {
        values[i] = i * 10 + turn;
        barrier.arrive_and_wait();
        sum += values[(i + 1) % 64];
        auto token = barrier.arrive();
        barrier.wait(std::move(token));
    }
    o[i] = sum;
}
extern "C" __global__ void dropped(int* o) {
    __shared__ __mbarrier_t barrier;
    int i = threadIdx.x;
    if (i == 0) __mbarrier_init(&barrier, 64);
    __syncthreads();
    auto token = i < 32 ? __mbarrier_arrive(&barrier) : __mbarrier_arrive_and_drop(&barrier);
    __syncthreads();
    o[i] = __mbarrier_test_wait(&barrier, token);
    if (i >= 32) return;
    token = __mbarrier_arrive(&barrier);
    __syncwarp();
    o[i] += 2 * __mbarrier_test_wait(&barrier, token);
}
"""


@pytest.fixture(scope="module")
def program() -> CpuProgram:
    """Return the kernels of `SOURCE`."""
    return CpuProgram.of(ptx(SOURCE, "sm_90", "-w", folders=(".",)))


def test_a_pipeline_of_copies(program):
    """Two buffers are filled and read by turns."""
    values = np.arange(5 * 64, dtype=np.float32)
    sums = np.zeros(64, np.float32)
    PtxKernel(program, "pipelined")[1, 64](values, sums, np.int32(5))
    assert values.reshape(5, 64).sum(axis=0)[::-1].tolist() == sums.tolist()


@pytest.mark.parametrize(
    ("count", "expected"), [(16, [1, 2, 3, 4]), (8, [1, 2, 0, 0]), (5, [1, 2, 0, 0]), (0, [0, 0, 0, 0])]
)
def test_bytes_that_are_not_copied_are_zero(program, count, expected):
    """The size of the source may be smaller than that of the copy; no byte behind it is read."""
    source, written = np.array([1, 2, 3, 4], np.int32)[: -(-count // 4)], np.full(4, -1, np.int32)
    if count == 5:
        source = source.copy().view(np.uint8)[:5]
    argument = source if source.size else None
    PtxKernel(program, "filled")[1, 1](argument, written, np.int32(count))
    assert expected == written.tolist()


def test_a_copy_out_of_bounds_is_a_fault(program):
    """A copy is checked like a load and a store."""
    with pytest.raises(DeviceFaultError, match=r"16 bytes at .* are out of bounds"):
        PtxKernel(program, "filled")[1, 1](np.zeros(2, np.int32), np.zeros(4, np.int32), np.int32(16))


def test_a_size_may_be_hexadecimal(program):
    """Triton writes the size of a copy as 0x10."""
    written = np.zeros(1, np.int32)
    PtxKernel(program, "hexadecimal")[1, 1](np.array([1, 2, 3, 4], np.int32), written)
    assert 4 == written[0]


def test_phases_of_a_barrier(program):
    """cuda::barrier lets no thread pass before all have arrived, three times."""
    sums = np.zeros(64, np.int32)
    PtxKernel(program, "phases")[1, 64](sums)
    assert (((np.arange(64) + 1) % 64) * 30 + 3).tolist() == sums.tolist()


def test_a_barrier_does_not_wait_for_threads_that_dropped_out(program):
    """The second phase is complete when the threads of the first that did not drop out have arrived."""
    completed = np.zeros(64, np.int32)
    PtxKernel(program, "dropped")[1, 64](completed)
    assert [3] * 32 + [1] * 32 == completed.tolist()
