"""Kernels that Triton compiles to PTX; it reads their source."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < n
    tl.store(out + i, tl.load(x + i, mask=inside) + tl.load(y + i, mask=inside), mask=inside)


@triton.jit
def multiply(a, b, c, depth, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), dtype=tl.float32)
    for at in range(0, depth, STEP):
        left = tl.load(a + i[:, None] * depth + (at + k)[None, :])
        right = tl.load(b + (at + k)[:, None] * N + j[None, :])
        total += tl.dot(left, right)
    tl.store(c + i[:, None] * N + j[None, :], total)


KERNELS = {
    "add": (
        add,
        {"x": "*fp32", "y": "*fp32", "out": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        {"BLOCK": 1024},
    ),
    "multiply": (
        multiply,
        {
            "a": "*fp16",
            "b": "*fp16",
            "c": "*fp32",
            "depth": "i32",
            "M": "constexpr",
            "N": "constexpr",
            "STEP": "constexpr",
        },
        {"M": 64, "N": 64, "STEP": 32},
    ),
}
