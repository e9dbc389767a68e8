"""UDFs whose arithmetic numba-cuda has in CUDA C++."""

from __future__ import annotations

from numba.cuda import types

from numba_ptxlink import udf


@udf("float16(float16, float16)")
def fused(a, b):
    """Multiply and add."""
    return a * b + a


@udf(types.bfloat16(types.bfloat16))
def doubled(value):
    """Add."""
    return value + value
