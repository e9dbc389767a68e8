"""The table of numbers: a row is all that an exported number needs; and the packing of floats to bytes."""

from __future__ import annotations

import json
import math

import ml_dtypes
import numpy as np
import pytest
from numba.cuda import types
from numba.cuda._internal import cuda_fp8

import numba_ptxlink as pl
from numba_ptxlink import abi
from numba_ptxlink._cabi.descriptions import TypeDescription
from numba_ptxlink._cabi.numbers import NUMBERS, NumberType
from numba_ptxlink._launch import values
from numba_ptxlink._launch.arrays import DeviceArrayReader, WrongArgumentError

# A type that the export does not know, while CUDA and both compilers have it.
ROW = NumberType("__nv_fp8_e4m3", "fp8_e4m3", 1, 1, "e4m3", "i8", "V", 10, header="cuda_fp8.h", in_c=False)


@pytest.fixture
def row(monkeypatch):
    """Return a type of Numba whose C type only a row and a name define."""
    ty = cuda_fp8._type_fp8_e4m3
    with pytest.raises(pl.AbiError):
        abi.c_type(ty)
    monkeypatch.setitem(NUMBERS, ROW.name, ROW)
    monkeypatch.setitem(abi._C_NAMES_OF_FLOATS, ty.name, ROW.name)
    return ty


def store(x, out, pair):
    """Store one of three numbers to each element."""
    out[0], out[1], out[2] = x, pair[0], pair[1]


def test_a_row_is_all_that_a_number_needs(row, tmp_path):
    """Layout, header, manifest and numba-cuda's code follow from one row of the table."""
    pair = types.UniTuple(row, 2)
    marked = [
        pl.udf(row(row), name="same")(lambda x: x),
        pl.udf(pair(row, row), name="both")(lambda x, y: (x, y)),
        pl.kernel(types.void(row, row[::1], pair), name="store")(store),
    ]
    emit = ["ptx", "ltoir", "kernels"]
    exported = pl.export(marked, tmp_path, arch="sm_90", emit=emit, name="small")
    header = exported.header.read_text()
    assert "#include <cuda_fp8.h>" in header
    assert "NUMBA_PTXLINK_DEVICE __nv_fp8_e4m3 same(__nv_fp8_e4m3 x);" in header
    assert "tuple2_e4m3_e4m3 both(__nv_fp8_e4m3 x, __nv_fp8_e4m3 y);" in header
    user = """
        #include "small.h"
        __global__ void call(__nv_fp8_e4m3* p) { *p = both(same(*p), p[1]).f1; }
    """
    assert pl.link(user, exported.artifacts["ptx", "sm_90"], arch="sm_90", include_dirs=[tmp_path]).cubin
    described = json.loads(exported.manifest.read_text())["types"]
    assert {"kind": "fp8_e4m3", "size": 1, "align": 1} == described["__nv_fp8_e4m3"]


FLOATS = {"float16": np.float16, "bfloat16": ml_dtypes.bfloat16, "float": np.float32}


@pytest.mark.parametrize("kind", FLOATS)
def test_floats_are_rounded_to_the_nearest(kind):
    """Values, middles of two, subnormal numbers, infinities and NaN are rounded as by NumPy."""
    dtype = np.dtype(FLOATS[kind])
    name = {"float16": "__half", "bfloat16": "__nv_bfloat16"}.get(kind, kind)
    pack = values.packer({name: TypeDescription(kind, dtype.itemsize, 1)}, name)
    largest = float(ml_dtypes.finfo(dtype).max)
    smallest = float(ml_dtypes.finfo(dtype).smallest_subnormal)
    steps = [1 + number * float(ml_dtypes.finfo(dtype).eps) / 2 for number in range(5)]
    for number in (*steps, 0.0, -0.0, largest, -largest, smallest, 3 * smallest / 2, math.inf, -math.inf):
        assert np.array(number).astype(dtype).tobytes() == pack(number, DeviceArrayReader(0)), number
    assert np.isnan(np.frombuffer(pack(math.nan, DeviceArrayReader(0)), dtype)[0])
    for number in (largest * 1.5, -largest * 1.5, 1e300):
        with pytest.raises(WrongArgumentError, match=f"too large for {name}; pass less, or math.inf"):
            pack(number, DeviceArrayReader(0))
