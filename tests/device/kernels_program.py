"""A program with kernels in Python, for the front end that its argument names; it prints their results."""

# ruff: noqa: ARG001, S102, S301, T201 - a program, with its own pickles and a kernel without a file

from __future__ import annotations

import importlib
import pickle
import sys

import numpy as np

import numba_ptxlink as pl

cuda = importlib.import_module(sys.argv[1])


@cuda.jit
def saxpy(a, x, y):
    """Add a multiple of an array to another."""
    i = cuda.grid(1)
    if i < y.size:
        y[i] += a * x[i]


# The line of a lambda is no statement.
double = cuda.jit(
    device=True,
)(lambda value: 2 * value)


@cuda.jit
def reverse(x):
    """Reverse each block by shared memory."""
    tile = cuda.shared.array(64, np.float32)
    i = cuda.grid(1)
    tile[cuda.threadIdx.x] = x[i]
    cuda.syncthreads()
    x[i] = double(tile[63 - cuda.threadIdx.x]) / 2


@cuda.jit(device=True)
def store(x, i):
    """Store a number, wherever that is."""
    x[i] = 1


@cuda.jit
def nothing(unused):
    """Have no body and an argument of 0 bytes: numba-cuda compiles neither with line numbers."""


missing = cuda.declare_device("missing", "float32(float32)")


@cuda.jit
def call_missing(x):
    """Call a function that no file defines."""
    x[0] = missing(x[0])


@cuda.jit
def overrun(unused, x):
    """Write behind an array."""
    store(x, cuda.grid(1))


@cuda.jit("void(float32[::1], int64)", device=True)
def store_beyond(x, i):
    """Write behind an array, in a function that is compiled before a kernel calls it."""
    x[i + 128] = 2


namespace = {"cuda": cuda, "store_beyond": store_beyond}
exec("@cuda.jit\ndef sourceless(x):\n    store_beyond(x, cuda.grid(1))", namespace)

TABLE = np.arange(4, dtype=np.float32)


@cuda.jit
def look_up(x, i):
    """Read a table in constant memory."""
    x[0] = cuda.const.array_like(TABLE)[i]


stream = cuda.stream()
x, y = np.arange(128, dtype=np.float32), np.ones(128, np.float32)
device_y = cuda.to_device(y, stream=stream)
saxpy[2, 64, stream](np.float32(2), cuda.to_device(x, stream=stream), device_y)
assert (device_y.copy_to_host(stream=stream) == 2 * x + y).all()
reverse[2, 64](x)
nothing[1, 1](())
nothing[1, 1](x)
assert (x[:64] == np.arange(63, -1, -1)).all()
try:
    saxpy.inspect_sass()
except pl.LinkError as error:
    print("sass:", str(error).partition(";")[0])
try:
    call_missing[1, 1](device_y)
except pl.LinkError as error:
    print("link:", str(error).partition("fatal   : ")[2])
try:
    overrun[3, 64](np.float32(1), device_y)
except pl.DeviceFaultError as error:
    print("fault:", error.kernel, error.line, error.block, error.thread, error.cuda_error)
    print(str(error).partition("error: ")[2].partition(" at 0x")[0])
    print(str(error).partition("bounds, ")[2].partition(";")[0])
    copy = pickle.loads(pickle.dumps(error))
    print(type(copy).__mro__[0] is pl.DeviceFaultError, copy.line == error.line)
cuda.synchronize()
try:
    namespace["sourceless"][1, 1](device_y)
except pl.DeviceFaultError as error:
    print("sourceless:", error.kernel, error.line)
try:
    look_up[1, 1](device_y, 6)
except pl.DeviceFaultError as error:
    print(str(error).partition("bounds, ")[2].partition(";")[0])
saxpy[2, 64](np.float32(2), x, y)
print("later:", (y == 2 * x + 1).all())
