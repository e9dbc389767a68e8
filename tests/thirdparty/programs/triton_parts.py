"""A Triton kernel that calls another Triton function, which is not inlined; Triton reads its source."""

import triton
import triton.language as tl


@triton.jit(noinline=True)
def weight(n):
    return (n * n) % 7


@triton.jit
def weigh(x, y, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + i, tl.load(x + i, mask=i < n) * weight(n), mask=i < n)
