"""A Warp kernel that calls a function which Warp does not define; Warp reads its source."""

import warp as wp


# C++ declares it here, so its symbol is the mangled one.
@wp.func_native("extern __device__ float damp(float); return damp(x);")
def damped(x: float) -> float: ...


@wp.kernel(enable_backward=False)
def damp_all(x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = damped(x[i])
