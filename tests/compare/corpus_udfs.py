"""Functions of every type family, exported by either front end."""

import math

from numba_ptxlink import kernel, udf

NUMBERS = [
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float32",
    "float64",
    "boolean",
    "float16",
    "complex64",
    "complex128",
]


def doubled(x):
    """Add a value to itself."""
    return x + x


for _type in NUMBERS:
    globals()[f"same_{_type}"] = udf(f"{_type}({_type})", name=f"same_{_type}")(lambda x: x)
for _type in NUMBERS:
    if _type not in ("boolean", "float16"):
        globals()[f"twice_{_type}"] = udf(f"{_type}({_type})", name=f"twice_{_type}")(doubled)


@udf("float32(float32, float32)")
def damp(value, time):
    """Call libdevice."""
    return value * math.exp(-0.5 * time)


@udf("void(CPointer(float32), int32)")
def scale_in_place(p, i):
    """Write through a pointer."""
    p[i] = p[i] * 3


@udf("float32(float32[::1], int64)")
def element(x, i):
    """Read an array."""
    return x[i]


@udf("float64(float64[:, ::1], int64, int64)")
def element2(x, i, j):
    """Read an array of two dimensions."""
    return x[i, j] + x.shape[0]


@udf("UniTuple(float32, 3)(UniTuple(float32, 3), float32)")
def scaled3(v, s):
    """Take and return a tuple."""
    return v[0] * s, v[1] * s, v[2] * s


@udf("Tuple((int8, float64, int16))(int8, float64)")
def mixed(a, b):
    """Return members of different widths."""
    return a, b, a * 2


@udf("int32(int32)")
def refuse_negative(n):
    """Raise."""
    if n < 0:
        raise ValueError
    return n


@udf("int32(int32)", on_error="trap", name="trap_negative")
def trap_negative(n):
    """Raise, and trap."""
    if n < 0:
        raise ValueError
    return n


@udf("int64(int32, uint32)")
def loop(n, m):
    """Loop over a sum."""
    total = 0
    for i in range(n):
        total += i * m
    return total


@kernel("void(float32[::1], float32)")
def scale(x, factor):
    """Scale all elements in one lane."""
    for i in range(x.shape[0]):
        x[i] *= factor
