"""Kernels that Warp compiles to PTX; Warp reads their source and annotations."""

import warp as wp


@wp.kernel
def saxpy(a: float, x: wp.array(dtype=float), y: wp.array(dtype=float)):
    i = wp.tid()
    y[i] = a * x[i] + y[i]


@wp.kernel
def rotate(q: wp.array(dtype=wp.quat), v: wp.array(dtype=wp.vec3), out: wp.array(dtype=wp.vec3)):
    i = wp.tid()
    out[i] = wp.quat_rotate(q[i], v[i]) * wp.sin(float(i))


@wp.kernel
def count(x: wp.array(dtype=float), total: wp.array(dtype=wp.int32)):
    if x[wp.tid()] > 0.5:
        wp.atomic_add(total, 0, 1)
