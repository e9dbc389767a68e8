"""
Programs of two CUDA C++ units that use CUB, libcu++ and cooperative groups: a kernel, and its callees.

Each kernel is `k(unsigned long long* out, int n)`, and its results are exact.
"""

from __future__ import annotations

from typing import NamedTuple

import cuda_cxx
import numpy as np

import numba_ptxlink as pl
from numba_ptxlink.linker import INCLUDE_DIR

THREADS = 64
POLICIES = ("none", "auto", "all")


class Units(NamedTuple):
    """
    A program of two units.

    Args:
        declarations: Source at the top of both units.
        callee: The functions of the second unit.
        body: Statements of the kernel, which read the thread's number `i` and compute its result `h`.
    """

    declarations: str
    callee: str
    body: str

    @property
    def sources(self) -> tuple[str, str]:
        """The unit with the kernel, and the one with the functions."""
        kernel = (
            'extern "C" __global__ void k(unsigned long long* out, int n) {\n'
            "  int i = threadIdx.x; long long h = i * 37 % 101 + n;\n"
            f"  {self.body}\n  out[i] = h;\n}}\n"
        )
        return f"{self.declarations}\n{kernel}", f"{self.declarations}\n{self.callee}\n"


PROGRAMS = {
    "cub block reduce": Units(
        "#include <cub/block/block_reduce.cuh>\n__device__ long long total(long long value);",
        """__device__ long long total(long long value) {
            using Reduce = cub::BlockReduce<long long, 64>;
            __shared__ typename Reduce::TempStorage storage;
            __shared__ long long sum;
            long long result = Reduce(storage).Sum(value);
            if (threadIdx.x == 0) sum = result;
            __syncthreads();
            return sum;
        }""",
        "for (int j = 0; j < n; ++j) { h += total(h) % 1000; __syncthreads(); }",
    ),
    "cub block scan": Units(
        "#include <cub/block/block_scan.cuh>\nstruct Pair { int before; int all; };\n"
        "__device__ Pair scan(int value);",
        """__device__ Pair scan(int value) {
            using Scan = cub::BlockScan<int, 64>;
            __shared__ typename Scan::TempStorage storage;
            Pair pair;
            Scan(storage).ExclusiveSum(value, pair.before, pair.all);
            __syncthreads();
            return pair;
        }""",
        "Pair pair = scan((int)h); h = pair.before * 3 + pair.all;",
    ),
    "cub block radix sort": Units(
        "#include <cub/block/block_radix_sort.cuh>\nstruct Keys { unsigned key[4]; };\n"
        "__device__ Keys sorted(Keys keys);",
        """__device__ Keys sorted(Keys keys) {
            using Sort = cub::BlockRadixSort<unsigned, 64, 4>;
            __shared__ typename Sort::TempStorage storage;
            Sort(storage).Sort(keys.key);
            return keys;
        }""",
        "Keys keys; for (int j = 0; j < 4; ++j) keys.key[j] = (h * 7919u + j * 104729u) % 10007u;"
        "keys = sorted(keys); h = 0; for (int j = 0; j < 4; ++j) h = h * 10007 + keys.key[j];",
    ),
    "libcu++ complex and array": Units(
        "#include <cuda/std/complex>\n#include <cuda/std/array>\nusing Numbers = cuda::std::array<int, 5>;\n"
        "using Complex = cuda::std::complex<double>;\n"
        "__device__ Complex turned(Complex z, Numbers numbers, int turns);",
        """__device__ Complex turned(Complex z, Numbers numbers, int turns) {
            for (int j = 0; j < turns; ++j)
                z = Complex(-z.imag() + numbers[j % 5], z.real() - numbers[(j + 1) % 5]);
            return z;
        }""",
        "Numbers numbers{1, 2, 3, 4, (int)h}; auto z = turned({(double)h, 2.0}, numbers, n * 4);"
        "h = (long long)z.real() * 1000 + (long long)z.imag();",
    ),
    "libcu++ optional and tuple": Units(
        "#include <cuda/std/optional>\n#include <cuda/std/tuple>\n"
        "using Both = cuda::std::tuple<int, double, char>;\n"
        "__device__ cuda::std::optional<Both> found(int key);",
        """__device__ cuda::std::optional<Both> found(int key) {
            if (key % 3 == 0) return {};
            return Both(key * 2, key * 0.5, (char)(key % 100));
        }""",
        "auto both = found((int)h); h = -1; if (both) h = cuda::std::get<0>(*both) * 7"
        " + (long long)cuda::std::get<1>(*both) + cuda::std::get<2>(*both);",
    ),
    "cooperative groups": Units(
        "#include <cooperative_groups.h>\n#include <cooperative_groups/reduce.h>\n"
        "namespace cg = cooperative_groups;\n"
        "__device__ int tile_sum(cg::thread_block_tile<16> tile, int value);",
        """__device__ int tile_sum(cg::thread_block_tile<16> tile, int value) {
            return cg::reduce(tile, value, cg::plus<int>()) + tile.thread_rank();
        }""",
        "auto tile = cg::tiled_partition<16>(cg::this_thread_block()); h = tile_sum(tile, (int)h);",
    ),
    "function pointers": Units(
        "#include <cuda/std/functional>\nusing Step = int (*)(int);\n__device__ Step chosen(int which);\n"
        "__device__ int applied(Step step, int times, int value);",
        """__device__ __noinline__ int twice(int x) { return x * 2; }
        __device__ __noinline__ int next(int x) { return x + 1; }
        __device__ Step chosen(int which) { return which % 2 ? twice : next; }
        __device__ int applied(Step step, int times, int value) {
            for (int j = 0; j < times; ++j) value = step(value) % 1009;
            return value;
        }""",
        "h = applied(chosen(i), n + 2, (int)h);",
    ),
}


def compiled(source: str, arch: str) -> str:
    """Return *source* as PTX by NVRTC."""
    return cuda_cxx.ptx(source, arch, "-std=c++17", "-w", folders=(INCLUDE_DIR,))


def linked(units: list[str], arch: str) -> dict[str, pl.Linked]:
    """Return *units* linked by each policy."""
    return {policy: pl.link(*units, arch=arch, inline=policy, lto=False) for policy in POLICIES}


def run(cubin: bytes) -> np.ndarray:
    """Return the numbers that `k(unsigned long long* out, int n)` of *cubin* writes on the device."""
    from cuda.bindings import runtime
    from cuda.core import Device, LaunchConfig, ObjectCode, launch

    device = Device(0)
    device.set_current()
    stream = device.create_stream()
    host = np.zeros(THREADS, np.uint64)
    buffer = device.allocate(host.nbytes, stream=stream)
    kernel = ObjectCode.from_cubin(cubin).get_kernel("k")
    launch(stream, LaunchConfig(grid=1, block=host.size), kernel, int(buffer.handle), np.int32(3))
    stream.sync()
    kind = runtime.cudaMemcpyKind.cudaMemcpyDeviceToHost
    runtime.cudaMemcpy(host.ctypes.data, int(buffer.handle), host.nbytes, kind)
    buffer.close()
    return host


def on_cpu(result: pl.Linked) -> list[int]:
    """Return the numbers that the kernel `k` of *result* writes on the CPU."""
    out = np.zeros(THREADS, np.uint64)
    result.kernel("k", device="cpu")[1, THREADS](out, np.int32(3))
    return out.tolist()


def find_device() -> str:
    """Return the architecture of the device."""
    from cuda.core import Device

    return "sm_{}{}".format(*Device(0).compute_capability)
