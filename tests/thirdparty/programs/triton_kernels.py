"""Kernels that Triton compiles to PTX; Triton reads their source."""

import triton
import triton.language as tl


@triton.jit
def multiply(a, b, c, depth, M: tl.constexpr, N: tl.constexpr, STEP: tl.constexpr):
    i, j, k = tl.arange(0, M), tl.arange(0, N), tl.arange(0, STEP)
    total = tl.zeros((M, N), dtype=tl.float32)
    for at in range(0, depth, STEP):
        tile_a = tl.load(a + i[:, None] * depth + (at + k)[None, :])
        tile_b = tl.load(b + (at + k)[:, None] * N + j[None, :])
        total += tl.dot(tile_a, tile_b)
    tl.store(c + i[:, None] * N + j[None, :], total)


KERNELS = {
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
