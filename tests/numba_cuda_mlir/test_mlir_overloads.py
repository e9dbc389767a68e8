"""Calls of functions that `@overload` implements: they are compiled for the architecture of their caller."""

from __future__ import annotations

import front_ends
import pytest
from mlir_replaced import no_device, replaced  # noqa: F401 - fixtures

import numba_ptxlink as pl
from numba_ptxlink._formats.ptx import parse

NAME = "numba-cuda-mlir"
cuda, types = front_ends.cuda(NAME), front_ends.get(NAME).types
SOURCE = """
from numba_cuda_mlir.extending import overload, typing_registry
from numba_ptxlink import udf

def positive(x): pass

@overload(positive, typing_registry=typing_registry)
def positive_implementation(x):
    def implementation(x):
        if x <= 0:
            raise ValueError
        return x * 2
    return implementation

@udf("void(float32[::1])")
def clear(a):
    a.fill(0)

@udf("int64(int64)")
def twice(x):
    return positive(x) + 1

@udf("int64(int64)", on_error="trap")
def twice_or_trap(x):
    return positive(x)
"""


def fill(a):
    """Call an `@overload` of numba-cuda-mlir's own."""
    a.fill(2)


@pytest.mark.usefixtures("no_device")
def test_an_export_compiles_overloads(tmp_path):
    """Their code is in the artifact under stable names, and their errors are the function's."""
    path = tmp_path / "overloads_m.py"
    path.write_text(SOURCE)
    exports = [
        pl.export(path, None, arch=["sm_80", "sm_100"], emit=["ptx"], front_end=NAME).contents for _ in "ab"
    ]
    for arch in ("sm_80", "sm_100"):
        ptx = exports[0][f"overloads_m.{arch}.ptx"]
        assert ptx == exports[1][f"overloads_m.{arch}.ptx"]
        module = parse(ptx.decode())
        visible = {
            function.name
            for function in module.functions
            if function.defined and function.linkage == "visible"
        }
        assert {"clear", "twice", "twice_or_trap"} == visible
        assert f".target {arch}" in ptx.decode()
        assert 1 == ptx.count(b"trap;")


@pytest.mark.usefixtures("replaced", "no_device")
@pytest.mark.parametrize("abi", ["c", "numba"])
@pytest.mark.parametrize("cc", [(8, 0), (10, 0)])
def test_a_compilation_of_an_overload_needs_no_device(abi, cc):
    """`cuda.compile` compiles callees for its own architecture."""
    ptx, _ = cuda.compile(fill, types.void(types.float32[:]), cc=cc, abi=abi)
    assert f".target sm_{cc[0]}{cc[1]}\n" in ptx
    assert "1073741824" in ptx or "0f40000000" in ptx.lower()
