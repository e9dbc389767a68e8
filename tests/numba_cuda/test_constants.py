"""Global arrays: one copy of equal ones in constant memory, and an error that says which are too large."""

from __future__ import annotations

import numpy as np
import pytest
from numba import cuda

import numba_ptxlink as pl
from numba_ptxlink import udf
from numba_ptxlink._export import constants
from numba_ptxlink._formats.ptx import parse

TABLE = np.arange(1000, dtype=np.float32)
INTEGERS = TABLE.view(np.int32)
BYTES = TABLE.view(np.uint8)
COPY = TABLE.copy()
OTHER = TABLE + 1
LARGE = np.arange(15000, dtype=np.float32)
HUGE = np.arange(20000, dtype=np.float32)


@cuda.jit(device=True)
def helper(i):
    """Read two global arrays."""
    return TABLE[i] + LARGE[i]


@udf("float32(int32)")
def first(i):
    """Read arrays directly and by the helper."""
    return helper(i) + TABLE[i] + TABLE[i + 1] + INTEGERS[i] + COPY[i] + LARGE[i]


@udf("float32(int32)")
def second(i):
    """Read the same bytes as other types."""
    constant = cuda.const.array_like(TABLE)
    return BYTES[i] + TABLE[i] + constant[i]


@udf("float32(int32)")
def third(i):
    """Read another array of the same shape."""
    return OTHER[i] + TABLE[i]


@udf("float32(int32)")
def too_large(i):
    """Read more than constant memory holds."""
    return HUGE[i] + helper(i)


def sizes(exported):
    """Return the sizes of the constants in the PTX."""
    variables = parse(exported.artifacts["ptx", "sm_90"].read_text()).variables
    return sorted(variable.extents[0] for variable in variables if variable.space == "const")


@pytest.mark.parametrize("opt", [pytest.param(True, marks=pytest.mark.slow), False], ids=["O3", "O0"])
def test_equal_arrays_are_defined_once(tmp_path, opt):
    """In a function, in its helper, in another function and as another type, equal bytes are one constant."""
    exported = pl.export([first, second], tmp_path, archs=["sm_90"], emit=["ptx"], opt=opt)
    assert [4000, 60000] == sizes(exported)


def test_different_arrays_stay_apart(tmp_path):
    """Two arrays of one type and shape are two constants."""
    assert [4000, 4000] == sizes(pl.export([third], tmp_path, archs=["sm_90"], emit=["ptx"]))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin", "fatbin"])
def test_exports_share_equal_arrays(tmp_path, kind):
    """Three exports that would take 132 kB of constant memory link in its 64 kB."""
    made = [
        pl.export([function], tmp_path, archs=["sm_90"], name=function.name)
        for function in (first, second, udf("float32(int32)", name="fourth")(first.function))
    ]
    source = """
        extern "C" __device__ float first(int), second(int), fourth(int);
        extern "C" __global__ void caller(float* x) { x[0] = first(x[0]) + second(x[1]) + fourth(x[2]); }
    """
    files = [export.artifacts[kind, "" if kind == "fatbin" else "sm_90"] for export in made]
    assert b"caller" in pl.link(source, *files, arch="sm_90").cubin


@pytest.mark.parametrize(
    "emit", ["ptx", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("ltoir", "cubin"))]
)
def test_too_many_bytes_name_array_function_size_and_cure(tmp_path, emit):
    """The error lists the arrays, the largest first, with all functions that use them."""
    with pytest.raises(pl.ExportError) as caught:
        pl.export([too_large, first], tmp_path, archs=["sm_90"], emit=[emit])
    text = str(caught.value)
    for part in ("144,000 bytes", "65,536", "HUGE, float32 of shape (20000,) (80,000 bytes), in too_large"):
        assert part in text
    assert text.index("HUGE") < text.index("LARGE") < text.index("TABLE")
    assert "in helper (test_constants.py:" in text or "and helper (test_constants.py:" in text
    assert text.endswith("Pass a large array to the function as an argument.")
    assert [] == list(tmp_path.iterdir())


def test_the_limit_is_the_assemblers():
    """Constant memory takes 65536 bytes and not one more."""
    text = """
        .version 8.0
        .target sm_80
        .address_size 64
        .const .align 4 .b8 table[{size}];
        .visible .entry k(.param .u64 p) {{
            .reg .b64 %rd<2>; .reg .b32 %r<2>;
            ld.param.u64 %rd1, [p]; ld.const.u32 %r1, [table]; st.global.u32 [%rd1], %r1; ret;
        }}
    """
    constants.check(parse(text.format(size=constants.SIZE)), [])
    pl.assemble(text.format(size=constants.SIZE), "sm_80")
    with pytest.raises(pl.ExportError, match="defined in a link file"):
        constants.check(parse(text.format(size=constants.SIZE + 4)), [])
    with pytest.raises(pl.AssembleError, match="too much global constant data"):
        pl.assemble(text.format(size=constants.SIZE + 4), "sm_80")
