"""
Small programs, each about one thing that once differed from stock; they always run, besides the random ones.

`python cases.py NAME` prints one.
"""

from __future__ import annotations

import sys
import textwrap
from typing import TYPE_CHECKING

from generator import HEAD
from pieces import BLOCKS, THREADS

if TYPE_CHECKING:
    from pathlib import Path

N = BLOCKS * THREADS

# Ways to get two device functions of equal content, `f` and `g`.
EQUAL = {
    "wrapped_twice": """
        def plain(v):
            return v * 3 + 1
        f, g = cuda.jit(device=True)(plain), cuda.jit(device=True)(plain)
    """,
    "closures": """
        def make(k):
            @cuda.jit(device=True)
            def made(v):
                return v * 3 + k
            return made
        f, g = make(1), make(1)
    """,
    "lambdas": """
        f, g = [cuda.jit(device=True)(lambda v: v * 3 + 1) for _ in range(2)]
    """,
    "njit": """
        f, g = [njit(lambda v: v * 3 + 1) for _ in range(2)]
    """,
    "arguments": """
        @cuda.jit(device=True)
        def call(function, v):
            return function(v)
        def bind(function):
            return cuda.jit(device=True)(lambda v: call(function, v))
        f, g = [bind(cuda.jit(device=True)(lambda v: v * 3 + 1)) for _ in range(2)]
    """,
}
OPTIONS = {"default": "", "ptx": "lto=False", "debug": "debug=True, opt=False", "lines": "lineinfo=True"}

CASES = {
    f"equal_{form}_{name}": f"""
{textwrap.dedent(definitions)}
@cuda.jit({options})
def kernel(out, src):
    i = cuda.grid(1)
    out[i] = f(src[i]) * 1000 + g(src[i] + 1)
"""
    for form, definitions in EQUAL.items()
    for name, options in OPTIONS.items()
}

CASES["shared_arrays_of_equal_helpers"] = """
def make():
    @cuda.jit(device=True)
    def cell(v, write):
        box = cuda.shared.array(1, types.int64)
        if write:
            box[0] = v
        cuda.syncthreads()
        return box[0]
    return cell

f, g = make(), make()

@cuda.jit(device=True)
def through_f(v, write):
    return f(v, write)

@cuda.jit(device=True)
def through_g(v, write):
    return g(v, write)

@cuda.jit
def kernel(out, src):
    through_f(3, True)
    through_g(5, True)
    cuda.syncthreads()
    out[cuda.grid(1)] = through_f(0, False) + 1000 * through_g(0, False)
"""

CASES["two_record_types_of_one_layout"] = """
ONE = np.dtype([("a", "i4"), ("b", "i4")])
TWO = np.dtype([("a", "i4"), ("c", "i4")])

@cuda.jit(device=True)
def first(r):
    return r.a

@cuda.jit
def kernel(out, src, one, two):
    i = cuda.grid(1)
    out[i] = first(one[i]) + 1000 * first(two[i])
# arguments: filled(ONE), filled(TWO)
"""

CASES["nested_inline"] = """
@cuda.jit(device=True, inline="always")
def inner(v):
    if v > 7:
        return v - 6
    return v * 2

@cuda.jit(device=True, inline="always")
def outer(v):
    return inner(v) + 1

@cuda.jit
def kernel(out, src):
    i = cuda.grid(1)
    out[i] = outer(src[i])
"""

CASES["names_like_counters"] = """
def make(k):
    @cuda.jit(device=True)
    def fB2v1(v):
        box = cuda.shared.array(4, types.int64)
        box[v & 3] = v
        cuda.syncthreads()
        return box[0] + k
    return fB2v1

@cuda.jit(device=True)
def _cudapy_smem_3(v):
    return v + 3

@cuda.jit(device=True)
def B3v12B(v):
    return _cudapy_smem_3(v) * 2

f, g = make(1), make(2)

@cuda.jit
def kernel(out, src):
    i = cuda.grid(1)
    if i == 0:
        print("_cudapy_smem_3", "_ZN1m1gB2v2B5flagsEf", ".bytes.12", src[i])
    out[i] = f(1) + g(1) + B3v12B(src[i])
"""

CASES["typer_that_is_asked_again"] = """
def convert(v):
    return v

ASKED = [types.int64]

@type_callable(convert)
def type_convert(context):
    def typer(v):
        return ASKED[0]
    return typer

@lower_builtin(convert, types.Integer)
def lower_convert(context, builder, signature, args):
    return context.cast(builder, args[0], signature.args[0], signature.return_type)

def make():
    @cuda.jit
    def kernel(out, src):
        i = cuda.grid(1)
        out[i] = convert(src[i]) / 2
    return kernel

def launches():
    yield make(), (2, 32, 0), (np.zeros(64), np.arange(64))
    ASKED[0] = types.float32
    yield make(), (2, 32, 0), (np.zeros(64), np.arange(64))
"""

CASES["constant_records_with_padding"] = """
ROW = np.dtype([("key", "i1"), ("weight", "f8")], align=True)
ROWS = np.array([(k, k / 2) for k in range(4)], ROW)

@cuda.jit
def kernel(out, src):
    i = cuda.grid(1)
    rows = cuda.const.array_like(ROWS)
    out[i] = rows[src[i] & 3].key
"""

CASES["cubin_with_static_shared_memory"] = """
from cuda.bindings import nvrtc

def compiled(source, arch):
    _, program = nvrtc.nvrtcCreateProgram(source, b"shared.cu", 0, [], [])
    nvrtc.nvrtcCompileProgram(program, 2, [f"-arch=sm_{arch}".encode(), b"-rdc=true"])
    _, size = nvrtc.nvrtcGetCUBINSize(program)
    code = bytes(size)
    nvrtc.nvrtcGetCUBIN(program, code)
    return code

SOURCE = b'''extern "C" __device__ int exchange(int* result, int x) {
    __shared__ int s[2048];
    s[threadIdx.x] = x;
    __syncthreads();
    *result = s[threadIdx.x ^ 1];
    return 0;
}'''

def launches():
    major, minor = cuda.api.get_current_device().compute_capability
    code = cuda.Cubin(compiled(SOURCE, f"{major}{minor}"))
    exchange = cuda.declare_device("exchange", "int32(int32)", link=code)

    @cuda.jit(lto=False)
    def kernel(out, src):
        i = cuda.grid(1)
        out[i] = exchange(src[i])

    yield kernel, (2, 32, 0), (np.zeros(64, np.int64), np.arange(64))
"""

CASES["several_kinds_of_link_files"] = """
source = cuda.CUSource('''extern "C" __device__ int one(int* r, int x) { *r = x + 1; return 0; }''')
shared = cuda.CUSource('''__shared__ int buffer[64];
extern "C" __device__ int two(int* r, int x) {
    buffer[threadIdx.x] = x; *r = buffer[threadIdx.x] * 2; return 0;
}''')
one = cuda.declare_device("one", "int32(int32)", link=source)
two = cuda.declare_device("two", "int32(int32)", link=[source, shared])

@cuda.jit
def kernel(out, src):
    i = cuda.grid(1)
    out[i] = one(src[i]) + two(src[i])

@cuda.jit(lineinfo=True)
def second(out, src):
    i = cuda.grid(1)
    out[i] = one(src[i])

@cuda.jit(debug=True, opt=False)
def third(out, src):
    i = cuda.grid(1)
    out[i] = one(src[i])

def launches():
    for each in (kernel, second, third):
        yield each, (2, 32, 0), (np.zeros(64, np.int64), np.arange(64))
"""


def source(name: str) -> str:
    """Return the source of a case, with the head and the launch that most share."""
    text = CASES[name]
    _, _, arguments = text.partition("# arguments: ")
    text_of_case = HEAD.format(seed=name, names=name, n=N) + text
    if "def launches" not in text:
        parts = [f"np.zeros({N}, np.int64)", f"np.arange({N}) % 13", *filter(None, [arguments.strip()])]
        text_of_case += (
            f"\n\ndef launches():\n    yield kernel, ({BLOCKS}, {THREADS}, 0), ({', '.join(parts)})\n"
        )
    return text_of_case


def write(folder: Path) -> list[Path]:
    """Write all cases to *folder* and return their paths."""
    paths = []
    for name in CASES:
        path = folder / f"case_{name}.py"
        path.write_text(source(name))
        paths.append(path)
    return paths


if __name__ == "__main__":
    sys.stdout.write(source(sys.argv[1]))
