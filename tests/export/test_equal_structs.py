"""Functions of one export whose structs are equal in all but name, called from C++ and linked as LTO-IR."""

from __future__ import annotations

import abi_rows
import front_ends
import numpy as np
import pytest

import numba_ptxlink as pl
from numba_ptxlink._tools import nvjitlink

CALLER = """
#include "apart.h"
extern "C" __global__ void both(const char* in, char* out)
{
    numba_ptxlink::array_view<record2_x_f32_y_f32, 1, numba_ptxlink::layout_c> vectors;
    numba_ptxlink::array_view<record2_u_f32_v_f32, 1, numba_ptxlink::layout_c> points;
    memcpy(&vectors, in, sizeof vectors);
    memcpy(&points, in + sizeof vectors, sizeof points);
    vectors = of_vectors(vectors);
    points = of_points(points);
    memcpy(out, &vectors, sizeof vectors);
    memcpy(out + sizeof vectors, &points, sizeof points);
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
@pytest.mark.parametrize("name", front_ends.NAMES)
def test_arrays_of_equal_structs_are_passed_without_a_call(tmp_path, name, arch):
    """No call is left, though LLVM makes one type of equal structs in different modules."""
    front_end = front_ends.get(name)
    udfs = []
    for function, members in (("of_vectors", "xy"), ("of_points", "uv")):
        dtype = np.dtype([(member, "f4") for member in members], align=True)
        view = front_end.types.Array(front_end.from_dtype(dtype), 1, "C", aligned=True)
        udfs.append(pl.udf(view(view), name=function, front_end=name)(lambda a: a))
    made = pl.export(udfs, tmp_path, archs=[arch], emit=["ltoir"], name="apart")
    caller = abi_rows.nvrtc(CALLER, arch, tmp_path, output="ltoir")
    # The caller first: the other way round no call is left without any care.
    inputs = [("ltoir", "caller", caller), ("ltoir", "apart", made.artifacts["ltoir", arch].read_bytes())]
    linked = nvjitlink.link(inputs, [f"-arch={arch}", "-lto", "-ptx"], output="ptx").code
    assert [] == [line for line in linked.decode().splitlines() if "call" in line]
