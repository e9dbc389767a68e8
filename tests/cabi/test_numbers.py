"""The table of numbers: a row is all that a number needs, and what its floats are read as."""

from __future__ import annotations

import itertools
import json
import math
import random
import struct

import ml_dtypes
import numpy as np
import pytest
from numba.cuda import types
from numba.cuda._internal import cuda_fp8

import numba_ptxlink as pl
from numba_ptxlink import abi
from numba_ptxlink._cabi.numbers import NUMBERS, FloatFormat, Number
from numba_ptxlink._link.launch import values
from numba_ptxlink._link.launch.arrays import Launch
from numba_ptxlink._link.launch.elements import RefusedError
from numba_ptxlink._numba_cuda_mlir.codegen.builder import Builder
from numba_ptxlink._tools import nvrtc

E4M3 = FloatFormat(4, 3, infinite=False)
# What the export knows nothing of, while CUDA and both compilers have it.
ROW = Number(
    "__nv_fp8_e4m3", "fp8_e4m3", 1, 1, "e4m3", "i8", "V", 10, E4M3, header="cuda_fp8.h", in_c=False
)  # fmt: skip
# NumPy's type of each format that it, or ml_dtypes, has.
FORMATS = {
    FloatFormat(5, 10): np.float16,
    FloatFormat(8, 7): ml_dtypes.bfloat16,
    E4M3: ml_dtypes.float8_e4m3fn,
    FloatFormat(5, 2): ml_dtypes.float8_e5m2,
}


@pytest.fixture
def row(monkeypatch):
    """Return a type of Numba that nothing but a row and a name tells the C type of."""
    ty = cuda_fp8._type_fp8_e4m3
    with pytest.raises(pl.AbiError):
        abi.c_type(ty)
    monkeypatch.setitem(NUMBERS, ROW.name, ROW)
    monkeypatch.setitem(abi._NUMBERS, ty.name, ROW.name)
    return ty


def store(x, out, pair):
    """Store one of three numbers to each element."""
    out[0], out[1], out[2] = x, pair[0], pair[1]


def test_a_row_is_all_that_a_number_needs(row, tmp_path):
    """Layout, header, manifest, arguments and numba-cuda's code follow from one row of the table."""
    pair = types.UniTuple(row, 2)
    marked = [
        pl.udf(row(row), name="same")(lambda x: x),
        pl.udf(pair(row, row), name="both")(lambda x, y: (x, y)),
        pl.kernel(types.void(row, row[::1], pair), name="store")(store),
    ]
    emit = ["ptx", "ltoir", "kernels"]
    exported = pl.export(marked, tmp_path, archs=["sm_90"], emit=emit, name="small")
    header = exported.header.read_text()
    assert "#include <cuda_fp8.h>" in header
    assert "NUMBA_PTXLINK_DEVICE __nv_fp8_e4m3 same(__nv_fp8_e4m3 x);" in header
    assert "tuple2_e4m3_e4m3 both(__nv_fp8_e4m3 x, __nv_fp8_e4m3 y);" in header
    user = """
        #include "small.h"
        __global__ void call(__nv_fp8_e4m3* p) { *p = both(same(*p), p[1]).f1; }
    """
    includes = [exported.header.parent, *nvrtc.toolkit_include_dirs()]
    made = nvrtc.compile_source(user, "user.cu", pl.Arch.of("sm_90"), include_dirs=includes)
    assert pl.link(made.code, exported.artifacts["ptx", "sm_90"], arch="sm_90").cubin
    described = json.loads(exported.manifest.read_text())["types"]
    assert {"kind": "fp8_e4m3", "size": 1, "align": 1} == described["__nv_fp8_e4m3"]
    pack = values.layout(described, "tuple2_e4m3_e4m3").pack
    assert bytes.fromhex("38 fe") == pack((1.0, -448), Launch(0))
    with pytest.raises(RefusedError, match=r"too large for __nv_fp8_e4m3; pass less$"):
        pack((math.inf, 1), Launch(0))


def test_a_row_has_its_llvm_ir_in_the_other_front_end(row):
    """numba-cuda-mlir, which cannot pass such numbers yet, would give them the types that nvcc does."""
    builder = Builder({}, modern=True)
    kind = builder.c_type(abi.c_type(types.UniTuple(row, 2)))
    assert "{ %struct.__nv_fp8_e4m3, %struct.__nv_fp8_e4m3 }" == builder.bodies[str(kind)]
    assert "{ i8 }" == builder.bodies["%struct.__nv_fp8_e4m3"]


def test_a_number_is_wider_than_a_register(monkeypatch, tmp_path):
    """An integer of 128 bits, which PTX passes as bytes, is one row and its name, too."""
    wide = Number("__int128_t", "int", 16, 16, "i128", "i128", "i", 0)
    monkeypatch.setitem(NUMBERS, wide.name, wide)
    known = abi._number
    monkeypatch.setattr(abi, "_number", lambda ty: known(ty).replace("int128_t", wide.name))
    int128 = types.Integer("int128", bitwidth=128, signed=True)
    marked = [
        pl.udf(int128(int128, int128), name="second")(lambda _, y: y),
        pl.kernel(types.void(int128, types.CPointer(int128)), name="store")(put),
    ]
    exported = pl.export(marked, tmp_path, archs=["sm_90"], emit=["ptx"], name="wide")
    assert "__int128_t second(__int128_t _, __int128_t y);" in exported.header.read_text()
    described = json.loads(exported.manifest.read_text())["types"]
    pack = values.layout(described, "__int128_t").pack
    assert (-5).to_bytes(16, "little", signed=True) == pack(-5, Launch(0))


def put(x, out):
    """Store a number."""
    out[0] = x


def test_a_number_without_a_row_is_refused():
    """A number that C has not is no failure of the table."""
    other = pytest.importorskip("numba_cuda_mlir.numba_cuda.types")
    with pytest.raises(pl.AbiError, match="The types that have one: booleans"):
        abi.c_type(other.complex32)


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"e{form.exponent}m{form.mantissa}")
def test_floats_are_rounded_to_the_nearest(form):
    """Each value of a format, each middle of two and numbers beside it become what NumPy makes of them."""
    dtype = np.dtype(FORMATS[form])
    every = np.arange(1 << 8 * dtype.itemsize, dtype=f"u{dtype.itemsize}").view(dtype)
    with np.errstate(invalid="ignore"):
        bits = every.astype(np.float64)
    exact = sorted({*bits[np.isfinite(bits)].tolist()})
    pairs = [*itertools.pairwise(exact)]
    pairs = pairs[:: 1 + len(pairs) // 1000] + pairs[-2:]
    middles = [(low + high) / 2 for low, high in pairs]
    given = [*(low for low, _ in pairs), *middles, 0.0, -0.0, math.nan]
    given += [math.inf, -math.inf] if form.infinite else []
    expected = [int.from_bytes(np.array(number).astype(dtype).tobytes(), "little") for number in given]
    assert expected == [form.encode(number) for number in given]
    # Not by way of a smaller float, which would make them the middle.
    for (low, high), middle in zip(pairs, middles, strict=True):
        assert form.encode(low) == form.encode(math.nextafter(middle, -math.inf)) or not low
        assert form.encode(high) == form.encode(math.nextafter(middle, math.inf)) or not high


def test_floats_of_the_language_are_pythons():
    """Formats of 32 and 64 bits agree with struct, subnormal and refused numbers included."""
    generator = random.Random(11)  # noqa: S311 - it makes examples
    for form, code, size in ((FloatFormat(8, 23), "<f", 4), (FloatFormat(11, 52), "<d", 8)):
        for _ in range(500):
            number = struct.unpack("<d", generator.randbytes(8))[0] * generator.choice([1, 2.0**-900, 1e-40])
            if math.isnan(number):
                continue
            try:
                expected = struct.pack(code, number)
            except OverflowError:
                with pytest.raises(OverflowError):
                    form.encode(number)
                continue
            assert expected == form.encode(number).to_bytes(size, "little"), number


@pytest.mark.parametrize("form", FORMATS, ids=lambda form: f"e{form.exponent}m{form.mantissa}")
def test_a_finite_number_never_becomes_infinite(form):
    """What is rounded beyond the largest value is refused, and the largest value is not."""
    largest = float(ml_dtypes.finfo(FORMATS[form]).max)
    assert form.encode(largest) == form.encode(math.nextafter(largest, math.inf))
    for number in (largest * 1.5, -largest * 1.5, 1e300):
        with pytest.raises(OverflowError):
            form.encode(number)
