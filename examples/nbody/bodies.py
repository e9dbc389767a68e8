"""The kernel of the N-body example. Its parameters are one struct, in C++ as in Python."""

import math

import numpy as np
from numba import cuda
from numpy import float32

from numba_ptxlink import kernel, udf

parameters = np.dtype([("step", "f4"), ("softening", "f4"), ("count", "i4")], align=True)


@udf("float32(float32, float32, float32)")
def inverse_cube(x, y, softening):
    """Return 1 / r^3 for the distance r of (x, y) from the origin; *softening* keeps r from being zero."""
    inverse = float32(1) / math.sqrt(x * x + y * y + softening * softening)
    return inverse * inverse * inverse


@kernel("void(parameters, float32[:, ::1], float32[:, ::1], float32[:, ::1])")
def advance(p, bodies, velocities, moved):
    """Write *bodies*, each (x, y, mass), as they are after a step, to *moved*; each thread moves one body."""
    i = cuda.grid(1)
    if i >= p.count:
        return
    ax = ay = float32(0)
    for j in range(p.count):
        dx, dy = bodies[j, 0] - bodies[i, 0], bodies[j, 1] - bodies[i, 1]
        pull = bodies[j, 2] * inverse_cube(dx, dy, p.softening)
        ax += pull * dx
        ay += pull * dy
    velocities[i, 0] += p.step * ax
    velocities[i, 1] += p.step * ay
    moved[i, 0] = bodies[i, 0] + p.step * velocities[i, 0]
    moved[i, 1] = bodies[i, 1] + p.step * velocities[i, 1]
    moved[i, 2] = bodies[i, 2]
