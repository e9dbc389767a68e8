"""CUDA C++ on the CPU: cooperation of lanes, warps, blocks and grids, and halves against NumPy."""

from __future__ import annotations

import re
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from cuda_cxx import ptx
from instructions import HEAD, Sample, bits_of, kernel

from numba_ptxlink import _config
from numba_ptxlink._cpu import machine_code, runtime
from numba_ptxlink._cpu import run as run_module
from numba_ptxlink._cpu.functions import translate
from numba_ptxlink._cpu.host import PtxKernel
from numba_ptxlink._cpu.run import CpuProgram, Region
from numba_ptxlink._cpu.symbols import Symbols
from numba_ptxlink._formats import ptx as ptx_format
from numba_ptxlink._tools.launching import Configuration
from numba_ptxlink.errors import DeviceFaultError

LANES = 64
LANE = np.arange(LANES, dtype=np.int64)
INCLUDED = ("cooperative_groups.h", "cub/block/block_radix_sort.cuh")
DECLARED = """
__constant__ int four[4] = {3, 4, 5, 6};
__device__ int seven = 7;
__device__ int* pointed = &seven;
struct Shape { __device__ virtual int area(int x) const = 0; };
struct Square : Shape {
    int side; __device__ Square(int s) : side(s) {}
    __device__ int area(int x) const override { return side * x; }
};
struct Disc : Shape {
    int radius; __device__ Disc(int r) : radius(r) {}
    __device__ int area(int x) const override { return 3 * radius + __shfl_sync(__activemask(), x, 0) - x; }
};
__device__ __noinline__ int plus(int a, int b) { return a + b; }
__device__ __noinline__ int times(int a, int b) { return a * b; }
__device__ int (*operations[2])(int, int) = {plus, times};
struct Counted { int value; __device__ Counted() : value(7) {} };
"""
# Statements of lane i, and the value that they store to o[i].
PROGRAMS = {
    "constant memory, and a pointer in a variable": ("o[i] = four[i & 3] + *pointed;", 10 + LANE % 4),
    "shared memory": (
        (
            "extern __shared__ int s[]; __shared__ int t[9]; t[i % 9] = i; s[i] = i; __syncthreads(); "
            'int total; asm("mov.u32 %0, %%total_smem_size;" : "=r"(total)); '
            "o[i] = s[63 - i] + (total < 256 + 36) + (t[0] < 0);"
        ),
        63 - LANE,
    ),
    "an array of objects behind another allocation": (
        (
            "int* p = (int*)malloc(16); p[3] = i; Counted* q = new Counted[2]; "
            "o[i] = p[3] + q[1].value + (q - (Counted*)p > 4); delete[] q; free(p);"
        ),
        LANE + 8,
    ),
    "a producer that arrives at a barrier, and a consumer that waits": (
        (
            "__shared__ int data[32]; int lane = i & 31; "
            "for (int turn = 0; turn < 3; turn++) { if (i < 32) { "
            'if (turn) asm volatile("bar.sync 2, 64;" ::: "memory"); data[lane] = lane + turn * 100; '
            '__threadfence_block(); asm volatile("bar.arrive 1, 64;" ::: "memory"); o[i] = turn; } else { '
            'asm volatile("bar.sync 1, 64;" ::: "memory"); o[i] = data[31 - lane] + (turn ? o[i] : 0); '
            'if (turn < 2) asm volatile("bar.arrive 2, 64;" ::: "memory"); } }'
        ),
        np.where(LANE < 32, 2, (31 - LANE % 32) * 3 + 300),
    ),
    "virtual functions, of which one has a shuffle": (
        "Square q(i); Disc d(i); const Shape* s = i & 32 ? (const Shape*)&q : &d; o[i] = s->area(2);",
        np.where(LANE < 32, 3 * LANE, 2 * LANE),
    ),
    "pointers to functions": ("o[i] = operations[i & 1](i, 3);", np.where(LANE % 2, 3 * LANE, LANE + 3)),
    "memory of the heap": ("int* p = (int*)malloc(1 << 20); p[1] = i; o[i] = p[1]; free(p);", LANE),
    "products of bytes, and zeros, which are normal numbers": (
        (
            'int normal; asm("{.reg .pred p; testp.normal.f32 p, %1; selp.b32 %0, 1, 0, p;}" '
            ': "=r"(normal) : "f"(i - 3.0f)); o[i] = normal * 10000; '
            "o[i] += __dp2a_lo(i * 65539, 0x81f3, i) + __dp2a_hi(i * 65539, 0x5070000, 0);"
        ),
        10_000 - 139 * LANE,
    ),
    "a table of jumps": (
        (
            "switch (i & 7) { case 0: o[i] = 9; break; case 1: o[i] = i * 3; break; "
            "case 2: o[i] = i ^ 5; break; "
            "case 3: o[i] = i << 2; break; case 4: o[i] = ~i; break; default: o[i] = 1; }"
        ),
        np.select([LANE % 8 == k for k in range(5)], [9 + 0 * LANE, LANE * 3, LANE ^ 5, LANE << 2, ~LANE], 1),
    ),
    "shuffles": (
        (
            "o[i] = __shfl_up_sync(-1, i, 2) * 100 + __shfl_down_sync(-1, i, 3, 8);"
            "o[i] += __shfl_sync(-1, i, 5) * 10000;"
        ),
        np.where(LANE % 32 < 2, LANE, LANE - 2) * 100
        + np.where(LANE % 8 < 5, LANE + 3, LANE)
        + (LANE // 32 * 32 + 5) * 10_000,
    ),
    "a vote with its modifiers in CUB's order": (
        (
            'int votes; asm volatile("{ .reg .pred p; setp.ne.s32 p, %1, 0; '
            'vote.ballot.sync.b32 %0, p, 0xffffffff; }" : "=r"(votes) : "r"(i & 1)); o[i] = votes;'
        ),
        0 * LANE - 0x55555556,
    ),
    "votes": (
        (
            "o[i] = __popc(__ballot_sync(-1, i % 3)) + 100 * __any_sync(-1, i == 3);"
            "o[i] += 1000 * __all_sync(-1, i < 64);"
        ),
        np.where(LANE < 32, 121, 22) - np.where(LANE < 32, 0, 1) + 1000,
    ),
    "matches and reductions": (
        "o[i] = __match_any_sync(-1, i / 4) ^ __reduce_add_sync(-1, i) ^ __reduce_max_sync(-1, -i);",
        (0xF << (LANE % 32 // 4 * 4)).astype(np.int32)
        ^ np.where(LANE < 32, 496, 1520)
        ^ np.where(LANE < 32, 0, -32),
    ),
    "lanes that come together": (
        "if (i % 3 == 1) o[i] = __popc(__activemask());",
        np.where(LANE % 3 == 1, np.where(LANE < 32, 11, 10), 0),
    ),
    "barriers that count": (
        (
            "o[i] = __syncthreads_count(i % 3 == 0) * 10 + __syncthreads_or(i == 5);"
            "o[i] += __syncthreads_and(i < 9) * 2;"
        ),
        221 + 0 * LANE,
    ),
    "a lock": (
        (
            "__shared__ int lock; if (!i) lock = 0; __syncthreads(); for (bool done = false; !done;) "
            "if (!atomicCAS(&lock, 0, 1)) { o[0]++; __threadfence(); atomicExch(&lock, 0); done = true; }"
        ),
        np.where(LANE, 0, LANES),
    ),
    "atomics": (
        (
            "atomicAdd(o, i); atomicMax(o + 1, i); atomicInc((unsigned*)o + 2, 9); atomicXor(o + 3, i); "
            "atomicAdd((float*)o + 4, 0.5f); atomicMin(o + 5, -i); atomicDec((unsigned*)o + 6, 4);"
        ),
        np.array([2016, 63, 4, 0, 0x42000000, -63, 1, *[0] * 57]),
    ),
    "groups of lanes": (
        (
            "auto t = cooperative_groups::tiled_partition<8>(cooperative_groups::this_thread_block()); "
            "int v = i; for (int k = 4; k; k /= 2) v += t.shfl_down(v, k); o[i] = t.shfl(v, 0);"
        ),
        LANE // 8 * 64 + 28,
    ),
    "a sort of the block": (
        (
            "using Sort = cub::BlockRadixSort<int, 64, 1>; __shared__ typename Sort::TempStorage t; "
            "int keys[1] = {i * 37 % 64}; Sort(t).Sort(keys); o[i] = keys[0];"
        ),
        LANE,
    ),
    "integers of 128 bits": (
        (
            "unsigned __int128 a = ((unsigned __int128)i << 90) + ~0ull; a = a * a - 7; "
            "o[i] = (int)(a >> 60) ^ (int)(a / (i + 3)) ^ (int)(a % 1000000007);"
        ),
        np.array(
            [
                ((v := (((i << 90) + 2**64 - 1) ** 2 - 7) % 2**128) >> 60 ^ v // (i + 3) ^ v % 1000000007)
                % 2**32
                for i in range(64)
            ]
        )
        .astype(np.uint32)
        .astype(np.int32),
    ),
}


def region(array: np.ndarray) -> Region:
    """Return an array as memory that may be accessed."""
    return Region(array.ctypes.data, array.nbytes, True, "array")


def run(program: CpuProgram, name: str, *arrays: np.ndarray, grid: int = 1, **options: object) -> None:
    """Launch a kernel with the addresses of arrays."""
    params = [struct.pack("Q", array.ctypes.data) for array in arrays]
    launch_config = Configuration((grid, 1, 1), (LANES, 1, 1), **options)
    program.launch(name, launch_config, params, list(map(region, arrays)))


@pytest.fixture(scope="module")
def program() -> CpuProgram:
    """Return a kernel for each program."""
    text = "".join(f"#include <{header}>\n" for header in INCLUDED) + DECLARED
    for number, (body, _) in enumerate(PROGRAMS.values()):
        text += f'extern "C" __global__ void k{number}(int* o) {{ int i = threadIdx.x; {body} }}\n'
    text += """
    extern "C" __global__ void grid(int* o) {
        int i = blockIdx.x * 64 + threadIdx.x;
        o[i] = i; cooperative_groups::this_grid().sync(); int v = o[(i + 100) % 256];
        cooperative_groups::this_grid().sync(); o[i] = v;
    }
    extern "C" __global__ void uneven(int* o) {
        if (blockIdx.x == 1) while (!atomicAdd(o + 8, 0));
        if (blockIdx.x == 2) atomicExch(o + 8, 1);
        o[blockIdx.x] = blockIdx.x + 1;
        cudaCGSynchronize(cudaCGGetIntrinsicHandle(cudaCGScopeGrid), 0);
        o[4 + blockIdx.x] = o[(blockIdx.x + 1) % 3];
    }
    extern "C" __global__ void print(int* o) {
        if (threadIdx.x < 2) *o = printf("%d %5.2f %s %c %llu %#x %#o %hhd %a %05f %.0d|%-*s|%p %%\\n",
            threadIdx.x, 1.5, "text", 65, 1ull << 40, 0, 8, 300, 1.5, 1 / 0.0, 0, 3, "ab", (void*)0);
    }
    """
    return CpuProgram.of(ptx(text, "sm_90", "-w", "--device-int128", folders=(".",)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_compute_what_they_say(program, name):
    """Each program writes the numbers that NumPy computes."""
    array = np.zeros(LANES, np.int32)
    run(program, f"k{list(PROGRAMS).index(name)}", array, shared=256)
    assert PROGRAMS[name][1].tolist() == array.tolist()


def test_blocks_wait_for_each_other(program):
    """The barrier of a grid works in a cooperative launch."""
    array = np.zeros(4 * LANES, np.int32)
    run(program, "grid", array, grid=4, cooperative=True)
    assert np.roll(np.arange(256), -100).tolist() == array.tolist()


def test_blocks_wait_at_the_barrier_of_a_grid_for_one_that_yields(program):
    """At the barrier that Numba calls, a block stays while another one spins for a third; then it goes on."""
    array = np.zeros(9, np.int32)
    run(program, "uneven", array, grid=3, cooperative=True)
    assert [2, 3, 1] == array[4:7].tolist()


def test_machine_code_comes_from_the_cache(tmp_path, monkeypatch):
    """A second process finds the kernels of the first in the cache, with barriers and without."""
    source = """
    extern "C" __global__ void one(int* o) { *o = 3; }
    extern "C" __global__ void two(int* o) { __shared__ int s; s = *o; __syncthreads(); *o = s + 1; }
    """
    monkeypatch.setenv("NUMBA_PTXLINK_CACHE", str(tmp_path))
    program = (
        "import sys, numpy as np\n"
        "from numba_ptxlink._cpu.host import PtxKernel\n"
        "from numba_ptxlink._cpu.run import CpuProgram\n"
        "program, value = CpuProgram.of(sys.stdin.read()), np.zeros(1, np.int32)\n"
        "PtxKernel(program, 'one')[1, 1](value)\n"
        "PtxKernel(program, 'two')[1, 1](value)\n"
        "print(value[0])"
    )
    for _ in range(2):
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, input=ptx(source), text=True, capture_output=True, check=True)
        assert "4\n" == done.stdout


def test_blocks_run_on_several_cores(monkeypatch):
    """Two threads run the blocks of a grid: sums are those of one, and a fault of any block is raised."""
    source = """
    extern "C" __global__ void k(int* x, int* sum, int bad) {
        __shared__ int s[32];
        int i = blockIdx.x * 32 + threadIdx.x;
        s[threadIdx.x] = i; __syncthreads();
        x[i] = s[31 - threadIdx.x]; atomicAdd(sum, i);
        if (blockIdx.x == bad) x[1 << 20] = 1;
        while (bad >= 0 && blockIdx.x == 0) ;
    }
    """
    monkeypatch.setattr(run_module, "config", lambda: _config.Config(cpu_threads=3))
    kernel = PtxKernel(CpuProgram.of(ptx(source, "sm_90")), "k")
    values, total = np.zeros(7 * 32, np.int32), np.zeros(1, np.int32)
    kernel[7, 32](values, total, np.int32(-1))
    expected = np.arange(7 * 32).reshape(7, 32)[:, ::-1].reshape(-1)
    assert expected.tolist() == values.tolist()
    assert [expected.sum()] == total.tolist()
    with pytest.raises(DeviceFaultError, match=r"block \(6, 0, 0\)"):
        kernel[7, 32](values, total, np.int32(6))


def test_float_atomics_flush_in_global_memory_only():
    """A sum of subnormal numbers is zero, also by a generic address, as on an H200; not in shared memory."""
    source = """
    extern "C" __global__ void k(float* x) {
        __shared__ float s[2];
        float v = x[0];
        s[0] = s[1] = v;
        asm volatile("red.global.add.f32 [%0], %1;" :: "l"(__cvta_generic_to_global(x)), "f"(v));
        asm volatile("red.add.f32 [%0], %1;" :: "l"(x + 1), "f"(v));
        asm volatile("red.shared.add.f32 [%0], %1;" :: "l"(__cvta_generic_to_shared(s)), "f"(v));
        asm volatile("red.add.f32 [%0], %1;" :: "l"(s + 1), "f"(v));
        x[2] = s[0]; x[3] = s[1];
    }
    """
    values = np.full(4, 3, np.uint32)
    PtxKernel(CpuProgram.of(ptx(source, "sm_90")), "k")[1, 1](values)
    assert [0, 0, 6, 6] == values.tolist()


def test_a_nan_has_the_bits_of_its_origin():
    """A NaN that was loaded keeps its bits, also as an accumulator; one that was computed has a GPU's."""
    source = """
    extern "C" __global__ void k(float* x) {
        float sum = x[threadIdx.x];
        for (int turn = 0; turn < threadIdx.x; turn++) sum += 1;
        x[threadIdx.x] = sum;
        x[threadIdx.x + 4] = threadIdx.x & 2 ? x[3] : sum - sum;
        x[threadIdx.x + 8] = copysignf(1, sum);
        x[threadIdx.x + 12] = __uint2float_rz(__float_as_uint(sum));
    }
    """
    values = np.full(16, 0xFFC12345, np.uint32)
    PtxKernel(CpuProgram.of(ptx(source, "sm_90")), "k")[1, 4](values)
    computed = [0x7FFFFFFF] * 3
    assert [0xFFC12345, *computed] == values[:4].tolist()
    assert [0x7FFFFFFF, 0x7FFFFFFF] == values[4:6].tolist()
    assert {0xFFC12345, 0x7FFFFFFF} >= set(values[6:8].tolist())
    assert [0xBF800000, *[0x3F800000] * 3] == values[8:12].tolist()
    # 0xFFC12345 and 0x7FFFFFFF as integers, rounded toward zero to floats.
    assert [0x4F7FC123, *[0x4EFFFFFF] * 3] == values[12:].tolist()


def test_a_thread_that_suspends_reads_a_parameter_by_its_address():
    """A coroutine that is called for its frame size copies no parameter whose address is taken."""
    source = """
    struct Four { int values[4]; };
    extern "C" __global__ void k(int* o, __grid_constant__ const Four four) {
        o[threadIdx.x] = four.values[threadIdx.x & 3];
        __syncthreads();
        o[threadIdx.x] += __shfl_sync(-1, four.values[threadIdx.x & 1], 1);
    }
    """
    array, four = np.zeros(32, np.int32), np.array([(1, 2, 3, 4)], "i4,i4,i4,i4")[0]
    PtxKernel(CpuProgram.of(ptx(source, "sm_75")), "k")[1, 32](array, four)
    assert [3, 4, 5, 6] * 8 == array.tolist()


def test_a_shuffle_reads_zero_from_a_lane_that_the_block_lacks():
    """A block of one thread has the records of a whole warp, so that no other memory is read."""
    source = 'extern "C" __global__ void k(unsigned* o) { *o = __shfl_sync(-1, 77, 31); }'
    value = np.full(1, 5, np.uint32)
    PtxKernel(CpuProgram.of(ptx(source, "sm_90")), "k")[1, 1](value)
    assert [0] == value.tolist()


def test_what_is_printed_is_on_the_standard_output(program, capsys):
    """`printf` formats as the C library does, and returns the number of its arguments."""
    text = "{}  1.50 text A 1099511627776 0 010 44 0x1.8p+0   inf |ab |(nil) %\n"
    count = np.zeros(1, np.int32)
    run(program, "print", count)
    assert (text.format(0) + text.format(1), 14) == (capsys.readouterr().out, count)


def test_functions_have_shared_memory_of_their_own():
    """Variables of one name in shared memory, which two functions declare, are two."""
    body = "{ .shared .b32 t; .reg .b32 %r; mov.u32 %r, t; st.param.b32 [r], %r; }"
    both = (
        ".func (.param .b32 r) both() { .param .b32 f; .param .b32 g; .reg .b32 %f, %g; call (f), f; "
        "call (g), g; ld.param.b32 %f, [f]; ld.param.b32 %g, [g]; sub.u32 %f, %f, %g; st.param.b32 [r], %f; }"
    )
    functions = "".join(f".func (.param .b32 r) {name}() {body}\n" for name in "fg")
    distance = np.zeros(1, np.int32)
    CpuProgram.of(HEAD + functions + both).call_elementwise("both", 1, [], (distance.ctypes.data, 4), [])
    assert abs(distance[0]) == 16


def test_addresses_wrap_in_the_width_of_their_register():
    """An address below zero and an offset are one in shared memory, as compilers write a signed index."""
    body = (
        ".shared .align 16 .b8 t[8]; .reg .b32 %a, %v; .reg .b64 %o; ld.param.u64 %o, [o]; mov.u32 %a, t; "
        "st.shared.u32 [%a+4], 7; sub.u32 %a, %a, 1048576; ld.shared.u32 %v, [%a+1048580]; "
        "st.global.u32 [%o], %v; ret;"
    )
    result = np.zeros(1, np.int32)
    run(CpuProgram.of(f"{HEAD}.visible .entry k(.param .u64 o) {{ {body} }}"), "k", result)
    assert result[0] == 7


SHORT = {
    "a local variable": (
        ".local .align 8 .b8 t[16]; mov.b32 %a, t; mov.u32 %v, 7; st.local.u32 [%a+4], %v; "
        "ld.local.u32 %v, [%a+4];"
    ),
    "a generic address of it": (
        ".local .b32 t[4]; mov.b32 %a, t; cvt.u64.u32 %p, %a; cvta.local.u64 %p, %p; mov.u32 %v, 7; "
        "st.u32 [%p+8], %v; ld.local.u32 %v, [%a+8];"
    ),
    "a constant": "mov.b32 %a, c; ld.const.u32 %v, [%a+4];",
    "an element of an array": ".shared .b32 s[4]; mov.u64 %p, s[2]; mov.u32 %v, 7; st.shared.u32 [%p], %v; "
    "ld.shared.u32 %v, s[2];",
    "the bytes of an address": "ld.global.u64 %p, [bytes+8]; ld.global.u32 %v, [%p+4];",
}


@pytest.mark.parametrize("name", SHORT)
def test_addresses_have_other_forms(name):
    """Addresses in 32 bits, elements of arrays, and the bytes of an address that an initialiser has."""
    masks = ", ".join(f"0xFF{'00' * index}(generic(g))" for index in range(8))
    variables = (
        ".const .b32 c[2] = {6, 7}; .global .b32 g[2] = {6, 7}; "
        f".global .b8 bytes[16] = {{{'0, ' * 8}{masks}}};"
    )
    registers = ".reg .b32 %a, %v; .reg .b64 %o, %p; ld.param.u64 %o, [o];"
    kernel = f".visible .entry k(.param .u64 o) {{ {registers} {SHORT[name]} st.global.u32 [%o], %v; ret; }}"
    result = np.zeros(1, np.int32)
    run(CpuProgram.of(f"{HEAD}{variables}\n{kernel}"), "k", result)
    assert result[0] == 7


def test_kernels_of_a_program_share_variables_and_are_compiled_apart(monkeypatch):
    """A launch compiles only the launched kernel; each kernel sees the values that another has stored."""
    begin = "(.param .u64 o) { .reg .b64 %o; .reg .b32 %v; ld.param.u64 %o, [o]; "
    program = CpuProgram.of(
        f"{HEAD}.global .u32 g = 5;\n"
        f".visible .entry put{begin} ld.global.u32 %v, [%o]; st.global.u32 [g], %v; ret; }}\n"
        f".visible .entry get{begin} ld.global.u32 %v, [g]; st.global.u32 [%o], %v; ret; }}\n"
    )
    compiled, compile_ir = [], machine_code.compile_ir
    monkeypatch.setattr(machine_code, "compile_ir", lambda text: compiled.append(text) or compile_ir(text))
    value = np.zeros(1, np.int32)
    run(program, "get", value)
    assert [value[0], len(compiled), '"f.put"' in compiled[0]] == [5, 1, False]
    run(program, "put", np.array([9], np.int32))
    run(program, "get", value)
    assert [value[0], len(compiled)] == [9, 2]


def test_threads_compile_and_launch_at_a_time():
    """Threads launch kernels of one program, some of them the same one, whose code is loaded meanwhile."""
    body = ".reg .b64 %o; .reg .b32 %v; ld.param.u64 %o, [o]; atom.global.add.u32 %v, [%o],"
    kernels = "".join(f".visible .entry k{n}(.param .u64 o) {{ {body} {n}; ret; }}\n" for n in range(4))
    program, sums = CpuProgram.of(HEAD + kernels), np.zeros((8, 4), np.int32)
    jobs = [(f"k{n}", sums[row, n : n + 1]) for row in range(8) for n in range(4)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda job: run(program, *job), jobs))
    assert (sums == LANES * np.arange(4)).all()


def test_functions_that_call_each_other_twice_are_read_once():
    """A kernel is compiled in a time that is linear in the number of functions, not of paths."""
    text = f"{HEAD}.func f30() {{ ret; }}\n"
    for level in reversed(range(30)):
        text += "".join(f".func {name}{level}() {{ call f{level + 1}; ret; }}\n" for name in "ab")
        text += f".func f{level}() {{ call a{level}; call b{level}; ret; }}\n"
    run(CpuProgram.of(text + ".visible .entry k() { call f0; ret; }"), "k")


def test_callees_are_in_the_order_of_the_source():
    """PYTHONHASHSEED changes neither the LLVM IR nor the layout of shared memory, which follows from it."""
    names = "dgbhface"
    functions = "".join(f".func {name}() {{ ret; }}\n" for name in names)
    calls = " ".join(f"call {name};" for name in reversed(names))
    pointers = " ".join(f"mov.u64 %p, {name};" for name in sorted(names))
    kernels = (
        f".visible .entry by_name() {{ {calls} ret; }}\n"
        f".visible .entry by_pointer() {{ .reg .b64 %p; {pointers} call %p; ret; }}\n"
    )
    symbols = Symbols(ptx_format.parse(HEAD + functions + kernels))
    by_name, by_pointer = (
        re.findall(r'define internal i8 @"f\.(\w)"', translate(symbols, kernel, checks=()).text)
        for kernel in ("by_name", "by_pointer")
    )
    assert [[*reversed(names)], [*names]] == [by_name, by_pointer]


HALVES = """
.func (.param .b16 r) NAME(.param .b64 a) {
.reg .b16 %h; .reg .b64 %d; .reg .f32 %f;
ld.param.b64 %d, [a]; BODY
st.param.b16 [r], %h; ret; }
"""


# Instructions, the types of their results and operands, the bits of these, and the result of an H200. In a
# row of several instructions, only the last one writes the result; the others write %n and the carry.
ON_A_DEVICE = (
    ("cvt.rn.ftz.f16.f32", "f16", "f32", (0x3595BA27,), 0x13),
    ("cvt.rp.ftz.f16.f32", "f16", "f32", (1,), 1),
    ("cvt.ftz.f32.f16", "f32", "f16", (1,), 0x33800000),
    ("cvt.rn.f16.f64", "f16", "f64", (0x7FF8 << 48,), 0x7E00),
    ("cvt.rna.tf32.f32", "b32", "f32", (0x7FC00000,), 0x7FC00000),
    ("cvt.rz.bf16.u64", "b16", "u64", (2**64 - 32,), 0x5F7F),
    ("ex2.approx.ftz.bf16", "b16", "b16", (0xC300,), 0),
    ("sin.approx.f32", "f32", "f32", (0x5F000000,), 0),
    ("cos.approx.f32", "f32", "f32", (0x4F000000,), 0x3F800000),
    ("sub.cc.u32 %n, %a0, %a1; addc.u32", "u32", "u32 u32", (5, 5), 11),
    ("sub.cc.u32 %n, %a0, %a1; addc.u32", "u32", "u32 u32", (5, 6), 11),
    ("add.cc.u32 %n, %a0, %a1; subc.u32", "u32", "u32 u32", (5, 5), 2**32 - 1),
    ("add.cc.u32 %n, %a0, %a1; subc.u32", "u32", "u32 u32", (2**32 - 1, 1), 2**32 - 2),
    ("sub.cc.u64 %d, %a0, %a1; subc.cc.u64 %d, %a0, %a1; addc.u64", "u64", "u64 u64", (1, 2), 3),
)


@pytest.mark.parametrize(("opcode", "result", "sources", "operand_bits", "expected"), ON_A_DEVICE)
def test_instructions_compute_what_a_device_computed(opcode, result, sources, operand_bits, expected):
    """Carries that sums and differences share, halves that are not normal, and angles of many turns."""
    sample = Sample(opcode, result, tuple(sources.split()))
    operands = [
        np.array([bits], f"u{bits_of(kind) // 8}")
        for bits, kind in zip(operand_bits, sample.sources, strict=True)
    ]
    results = np.zeros(1, f"u{bits_of(result) // 8}")
    PtxKernel(CpuProgram.of(HEAD + kernel("k", sample)), "k")[1, 1](results, *operands)
    assert expected == results[0]


@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_halves_are_rounded_once(mode):
    """Doubles at, above and below the middle of two halves are rounded to the nearest and towards zero."""
    body = f"cvt.{mode}.f16.f64 %h, %d;"
    program = CpuProgram.of(
        HEAD + HALVES.replace("NAME", "f").replace("BODY", body).replace(".reg .b64 %d", ".reg .f64 %d")
    )
    halves = np.arange(0x7C00, dtype=np.uint16).view(np.float16).astype(np.float64)
    middle = (halves[:-1] + halves[1:]) / 2
    doubles = np.concatenate([halves, middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)])
    doubles = np.concatenate([doubles, -doubles])
    results = np.zeros(len(doubles), np.uint16)
    program.call_elementwise("f", len(doubles), [(doubles.ctypes.data, 8)], (results.ctypes.data, 2), [])
    expected = doubles.astype(np.float16)
    if mode == "rz":
        beyond = np.abs(expected.astype(float)) > np.abs(doubles)
        expected = np.where(beyond, np.nextafter(expected, np.float16(0)), expected)
    assert (expected.view(np.uint16) == results).all()


def test_programs_declare_functions_of_the_runtime_as_these_are_defined():
    """The result type and the parameter types are the same in both files of LLVM IR."""
    function = re.compile(r"^(declare|define) (\S+) @(ptxlink[\w.]+)\((.*?)\)", re.MULTILINE)
    signatures = {
        (keyword, name): (result, [parameter.split()[0] for parameter in parameters.split(", ") if parameter])
        for file in ("program.ll", "runtime.ll")
        for keyword, result, name, parameters in function.findall(runtime.read_ir(file))
    }
    declared = {name: types for (keyword, name), types in signatures.items() if keyword == "declare"}
    defined = {name: types for (keyword, name), types in signatures.items() if keyword == "define"}
    assert declared == {name: defined.get(name) for name in declared}
