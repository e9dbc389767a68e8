"""Matrix instructions against products of NumPy, by the layouts of the PTX ISA."""

from __future__ import annotations

import struct

import ml_dtypes
import numpy as np
import pytest
from cuda_cxx import ptx

from numba_ptxlink._cpu.host import PtxKernel
from numba_ptxlink._cpu.run import CpuProgram, Region
from numba_ptxlink._tools.launching import Configuration
from numba_ptxlink.errors import DeviceFaultError

HEAD = ".version 8.6\n.target sm_90\n.address_size 64\n"
LANE = np.arange(32)
DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "f32": np.float32,
    "f64": np.float64,
    "s8": np.int8,
    "u8": np.uint8,
    "s32": np.int32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
# Rows, depth, and the types of D, A, B and C.
PRODUCTS = [
    (16, 8, "f32", "f16", "f16", "f32"),
    (16, 16, "f32", "f16", "f16", "f32"),
    (16, 16, "f16", "f16", "f16", "f16"),
    (16, 16, "f32", "bf16", "bf16", "f32"),
    (16, 8, "f32", "bf16", "bf16", "f32"),
    (16, 4, "f32", "tf32", "tf32", "f32"),
    (16, 8, "f32", "tf32", "tf32", "f32"),
    (8, 4, "f64", "f64", "f64", "f64"),
    (16, 16, "f64", "f64", "f64", "f64"),
    (8, 16, "s32", "s8", "u8", "s32"),
    (16, 32, "s32", "u8", "s8", "s32"),
    (16, 32, "f32", "e4m3", "e5m2", "f32"),
]


def register_letter(kind: str) -> str:
    """Return the type of a register of a matrix."""
    return "f64" if kind == "f64" else "b32"


def product_kernel(name: str, rows: int, depth: int, kinds: tuple[str, ...], counts: list[int]) -> str:
    """Return a kernel that loads the registers of each lane, multiplies, and stores those of the result."""
    d, names = kinds[0], ["d", "a", "b", "c"]
    parameters = ", ".join(f".param .u64 {name}" for name in names)
    body, vectors = "", []
    for matrix, kind, count in zip(names, kinds, counts, strict=True):
        letter, size = register_letter(kind), 8 if kind == "f64" else 4
        body += f".reg .{letter} %{matrix}<{count}>; .reg .b64 %p{matrix};\n"
        body += f"ld.param.u64 %p{matrix}, [{matrix}];\n"
        body += f"mad.wide.u32 %p{matrix}, %lane, {size * count}, %p{matrix};\n"
        vectors.append("{" + ", ".join(f"%{matrix}{n}" for n in range(count)) + "}")
        if matrix != "d":
            body += "".join(
                f"ld.global.{letter} %{matrix}{n}, [%p{matrix}+{size * n}];\n" for n in range(count)
            )
    d_size = 8 if d == "f64" else 4
    stores = "".join(f"st.global.{register_letter(d)} [%pd+{d_size * n}], %d{n};\n" for n in range(counts[0]))
    types = ".".join(kinds)
    return f"""
.visible .entry {name}({parameters})
{{
.reg .b32 %lane; mov.u32 %lane, %tid.x;
{body}mma.sync.aligned.m{rows}n8k{depth}.row.col.{types} {", ".join(vectors)};
{stores}ret;
}}
"""


def fragments(matrix: np.ndarray, packed: int) -> np.ndarray:
    """Return a matrix of rows that lanes share, as each lane has it: element i of a lane is at [lane, i]."""
    rows, depth = matrix.shape
    elements = []
    for chunk in range(0, depth, 4 * packed):
        for block in range(0, rows, 8):
            columns = chunk + (LANE % 4)[:, None] * packed + np.arange(packed)
            elements.append(matrix[block + LANE // 4][LANE[:, None], columns])
    return np.ascontiguousarray(np.concatenate(elements, axis=1))


def accumulators(matrix: np.ndarray) -> np.ndarray:
    """Return the matrix that is added, or the result, as each lane has it."""
    blocks = [
        matrix[block + LANE // 4][LANE[:, None], (LANE % 4)[:, None] * 2 + [0, 1]]
        for block in range(0, len(matrix), 8)
    ]
    return np.ascontiguousarray(np.concatenate(blocks, axis=1))


def random_matrix(kind: str, shape: tuple[int, int], rng: np.random.Generator) -> np.ndarray:
    """Return a matrix whose products are exact."""
    if kind in ("s8", "u8", "s32"):
        limits = np.iinfo(DTYPES[kind])
        return rng.integers(limits.min, limits.max, shape, dtype=DTYPES[kind], endpoint=True)
    return rng.integers(-8, 9, shape).astype(np.float32).astype(DTYPES[kind])


@pytest.mark.parametrize("case", PRODUCTS, ids=lambda case: ".".join(map(str, case)))
def test_products(case):
    """The registers of each lane have the elements of A * B + C."""
    rows, depth, *kinds = case
    d, a, b, c = kinds
    rng = np.random.default_rng(3)
    bits = {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16}.get(a, 8)
    packed = 1 if a == "f64" else 32 // bits
    first, second = random_matrix(a, (rows, depth), rng), random_matrix(b, (depth, 8), rng)
    third = random_matrix(c, (rows, 8), rng)
    operands = [fragments(first, packed), fragments(second.T, packed), accumulators(third)]
    wide = np.int64 if d == "s32" else np.float64
    expected = accumulators((first.astype(wide) @ second.astype(wide) + third.astype(wide)).astype(DTYPES[d]))
    written = np.zeros_like(expected)
    counts = [
        array.nbytes // 32 // (8 if kind == "f64" else 4)
        for array, kind in zip((written, *operands), kinds, strict=True)
    ]
    program = CpuProgram.of(HEAD + product_kernel("k", rows, depth, tuple(kinds), counts))
    launch(program, written, *operands)
    assert expected.tolist() == written.tolist()


def launch(program: CpuProgram, *arrays: np.ndarray, threads: int = 32) -> None:
    """Launch the kernel k with the addresses of arrays."""
    regions = [Region(array.ctypes.data, array.nbytes, True, "array") for array in arrays]
    params = [struct.pack("Q", array.ctypes.data) for array in arrays]
    program.launch("k", Configuration((1, 1, 1), (threads, 1, 1)), params, regions)


def test_a_warp_that_is_not_complete_is_a_fault():
    """A matrix needs the registers of 32 threads."""
    program = CpuProgram.of(HEAD + product_kernel("k", 8, 4, ("f64",) * 4, [2, 1, 1, 2]))
    arrays = [np.zeros((32, 2)), np.zeros((32, 1)), np.zeros((32, 1)), np.zeros((32, 2))]
    with pytest.raises(DeviceFaultError, match=r"mma\.sync"):
        launch(program, *arrays, threads=31)


def test_a_matrix_is_transposed():
    """`movmatrix` exchanges rows and columns of 8 by 8 halves."""
    text = """
.visible .entry k(.param .u64 p)
{
.reg .b32 %r<3>; .reg .b64 %p;
mov.u32 %r0, %tid.x; ld.param.u64 %p, [p]; mad.wide.u32 %p, %r0, 4, %p;
ld.global.b32 %r1, [%p]; movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.global.b32 [%p], %r2;
ret;
}
"""
    matrix = np.arange(64, dtype=np.uint16).reshape(8, 8)
    moved = matrix.copy()
    launch(CpuProgram.of(HEAD + text), moved)
    assert matrix.T.tolist() == moved.tolist()


SHARED = """
.visible .entry k(.param .u64 in, .param .u64 out)
{
.shared .align 16 .b8 tile[512];
.reg .b32 %r<8>; .reg .b64 %p, %q; .reg .b32 %lane, %at;
mov.u32 %lane, %tid.x;
ld.param.u64 %p, [in]; mad.wide.u32 %p, %lane, 16, %p; ld.param.u64 %q, [out];
mov.u32 %at, tile; mad.lo.u32 %at, %lane, 16, %at;
ld.global.v4.b32 {%r0, %r1, %r2, %r3}, [%p];
BODY
ret;
}
"""
LOAD = (
    "st.shared.v4.b32 [%at], {%r0, %r1, %r2, %r3}; bar.warp.sync -1;"
    "ldmatrix.sync.aligned.m8n8.x4.TRANSshared.b16 {%r4, %r5, %r6, %r7}, [%at];"
    "mad.wide.u32 %q, %lane, 16, %q; st.global.v4.b32 [%q], {%r4, %r5, %r6, %r7};"
)
STORE = (
    "stmatrix.sync.aligned.m8n8.x4.TRANSshared.b16 [%at], {%r0, %r1, %r2, %r3}; bar.warp.sync -1;"
    "ld.shared.v4.b32 {%r4, %r5, %r6, %r7}, [%at];"
    "mad.wide.u32 %q, %lane, 16, %q; st.global.v4.b32 [%q], {%r4, %r5, %r6, %r7};"
)


@pytest.mark.parametrize("is_transposed", [False, True])
@pytest.mark.parametrize("body", [LOAD, STORE], ids=["ldmatrix", "stmatrix"])
def test_matrices_in_shared_memory(body, is_transposed):
    """Each lane has two neighbours of a row of four matrices, or of a column."""
    matrices = np.arange(256, dtype=np.uint16).reshape(4, 8, 8)
    in_lanes = np.stack(
        [fragments(matrix.T if is_transposed else matrix, 2) for matrix in matrices], axis=1
    ).reshape(32, 8)
    source, expected = (matrices, in_lanes) if body is LOAD else (in_lanes, matrices)
    written = np.zeros_like(expected)
    text = HEAD + SHARED.replace("BODY", body.replace("TRANS", "trans." if is_transposed else ""))
    launch(CpuProgram.of(text), np.ascontiguousarray(source), written)
    assert expected.tolist() == written.tolist()


WARP_SOURCE = """
#include <mma.h>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
using namespace nvcuda;
template <int M, int N, int K, class A, class B, class T, class Factor>
__device__ void product(const A* a, const B* b, const T* c, T* d) {
    wmma::fragment<wmma::matrix_a, M, N, K, Factor, wmma::row_major> fa;
    wmma::fragment<wmma::matrix_b, M, N, K, Factor, wmma::col_major> fb;
    wmma::fragment<wmma::accumulator, M, N, K, T> fc;
    wmma::load_matrix_sync(fa, a, K); wmma::load_matrix_sync(fb, b, K);
    wmma::load_matrix_sync(fc, c, N, wmma::mem_row_major);
    for (int i = 0; i < fa.num_elements; i++) fa.x[i] = fa.x[i] + fa.x[i];
    wmma::mma_sync(fc, fa, fb, fc);
    wmma::store_matrix_sync(d, fc, M, wmma::mem_col_major);
}
#define KERNEL(name, M, N, K, A, T, F) extern "C" __global__ \\
    void name(const A* a, const A* b, const T* c, T* d) { product<M, N, K, A, A, T, F>(a, b, c, d); }
KERNEL(half_float, 16, 16, 16, half, float, half)
KERNEL(half_half, 32, 8, 16, half, half, half)
KERNEL(bfloat_float, 8, 32, 16, __nv_bfloat16, float, __nv_bfloat16)
KERNEL(tf32_float, 16, 16, 8, float, float, wmma::precision::tf32)
KERNEL(double_double, 8, 8, 4, double, double, double)
KERNEL(byte_int, 16, 16, 16, signed char, int, signed char)
"""
WARP_PRODUCTS = {
    "half_float": (16, 16, 16, "f16", "f32"),
    "half_half": (32, 8, 16, "f16", "f16"),
    "bfloat_float": (8, 32, 16, "bf16", "f32"),
    "tf32_float": (16, 16, 8, "tf32", "f32"),
    "double_double": (8, 8, 4, "f64", "f64"),
    "byte_int": (16, 16, 16, "s8", "s32"),
}


@pytest.fixture(scope="module")
def warp_products() -> CpuProgram:
    """Return the kernels of `WARP_SOURCE`."""
    return CpuProgram.of(ptx(WARP_SOURCE, "sm_90", "-w", folders=(".",)))


@pytest.mark.parametrize("name", WARP_PRODUCTS)
def test_matrices_of_a_warp(warp_products, name):
    """nvcuda::wmma loads by rows and columns, computes on elements, multiplies, and stores by columns."""
    m, n, k, kind, result = WARP_PRODUCTS[name]
    rng = np.random.default_rng(4)
    first, second = (rng.integers(-8, 9, shape).astype(DTYPES[kind]) for shape in ((m, k), (k, n)))
    third = rng.integers(-8, 9, (m, n)).astype(DTYPES[result])
    written = np.zeros((n, m), DTYPES[result])
    arrays = [np.ascontiguousarray(matrix) for matrix in (first, second.T, third)]
    PtxKernel(warp_products, name)[1, 32](*(array.view(f"u{array.itemsize}") for array in arrays), written)
    wide = np.int64 if result == "s32" else np.float64
    expected = 2 * first.astype(wide) @ second.astype(wide) + third.astype(wide)
    assert expected.tolist() == written.T.astype(wide).tolist()
