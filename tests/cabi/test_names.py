"""Names that a compiler has taken are refused or replaced, and each accepted name compiles."""

from __future__ import annotations

import shutil
from collections import namedtuple

import linkcases
import numpy as np
import pytest
from cuda_toolkit import check_header
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl

F32 = types.float32
# Keywords, types, functions and variables, of CUDA, C and the generated headers.
HOSTILE = """
float3 size_t int32_t __half half dim3 threadIdx sin gamma major signbit new int restrict asm typeof bool true
__x _Bad cudaMalloc numba_ptxlink NUMBA_PTXLINK_DEVICE padding0_ padding1_ I complex
"""


@pytest.fixture(scope="module")
def nvcc():
    """Return the path of nvcc, with the compilers of the host beside it."""
    path = linkcases.find_nvcc()
    if path is None or shutil.which("gcc") is None:
        pytest.skip("there is no nvcc, or no gcc")
    return path


@pytest.mark.parametrize("name", ["fdivide", "powi", "printf", "size_t", "param0", "func_retval0"])
def test_the_compiler_tells_which_names_cuda_has(tmp_path, name):
    """A function that C++ would mistake for its own, or refuses, is refused by the export, which names it."""
    function = pl.udf(F32(F32, F32), name=name)(lambda value, _: value)
    with pytest.raises(pl.PtxlinkError, match=rf"\b{name}\b"):
        pl.export([function], tmp_path, arch="sm_90", emit="ptx")
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("stem", ["math", "stdint", "features", "strings", "cuda_runtime", "vector_types"])
def test_a_header_hides_no_other(tmp_path, stem):
    """`math.py` makes no `math.h`, which CUDA's headers would include in place of the standard one."""
    (tmp_path / f"{stem}.py").write_text(
        "from numba_ptxlink import udf\n\n@udf('float32(float32)')\ndef f(x):\n    return x\n"
    )
    with pytest.raises(
        pl.AbiError, match=rf"header {stem}\.h would hide .*; give the export .* '{stem}_udfs'"
    ):
        pl.export(tmp_path / f"{stem}.py", emit="ptx")


def export_and_compile(tmp_path, nvcc, marked) -> str:
    """Export functions, whose header NVRTC then compiles, and compile it with all other compilers."""
    exported = pl.export(marked, tmp_path / "out", arch="sm_90", emit="ptx", name="udfs")
    for compiler, standard in (
        (nvcc, "-std=c++17"),
        ("g++", "-std=c++17"),
        ("gcc", "-std=gnu11"),
        ("gcc", "-std=c11"),
    ):
        check_header(tmp_path, exported.header, compiler, standard)
    return exported.header.read_text()


def defined(source: str, **scope):
    """Return the function f that *source* defines."""
    exec(source, scope)  # noqa: S102 - parameters of any name
    return scope["f"]


@pytest.mark.slow
def test_parameters_of_any_name_compile(tmp_path, nvcc):
    """Macros and keywords as parameters get other names; names that C++ allows stay."""
    allowed = [name for name in HOSTILE.split() if name.isidentifier() and name != "assert"]
    function = defined(f"def f({', '.join(allowed)}): return {' + '.join(allowed)}")
    text = export_and_compile(tmp_path, nvcc, [pl.udf(F32(*[F32] * len(allowed)))(function)])
    assert "float gamma, float major, float signbit" in text
    assert "float restrict_" in text


@pytest.mark.slow
def test_fields_of_any_name_compile(tmp_path, nvcc):
    """Fields of records, plain and packed, may be called anything."""
    plain = np.dtype([(name, np.float32) for name in HOSTILE.split()], align=True)
    packed = np.dtype(
        {
            "names": HOSTILE.split(),
            "formats": [np.int8] * len(HOSTILE.split()),
            "offsets": [2 * n for n in range(len(HOSTILE.split()))],
        }
    )
    marked = []
    for name, dtype in (("plain", plain), ("packed", packed)):
        record = from_dtype(dtype)
        marked.append(pl.udf(F32(record), name=name)(lambda p: p["sin"]))
    text = export_and_compile(tmp_path, nvcc, marked)
    assert "float sin;" in text
    assert "int8_t sin;" in text


def parameter_hides():
    """Return a function whose parameters have the names of types that later parameters have."""
    float3, wire = vector_types["float32x3"], types.NamedTuple([F32], namedtuple("wire", "x"))  # noqa: PYI024
    function = defined("def f(float3, wire, int64_t, vector, sent, number): return number")
    return pl.udf(types.int64(F32, F32, F32, float3, wire, types.int64), name="parameter")(function)


def field_hides():
    """Return a function of a record whose fields have the names of its types."""
    inner = np.dtype([("float", np.float32), ("int64_t", np.int64)], align=True)
    outer = np.dtype(
        [("inner", inner), ("outer", np.int32), ("int32_t", np.int32), ("n", np.int64)], align=True
    )
    function = defined("def f(p): return p.n", inner=inner, outer=outer)
    return pl.udf(types.int64(from_dtype(outer)), name="field")(function)


def test_a_name_does_not_hide_a_type(tmp_path, nvcc):
    """A parameter may be called like the type of a later one, a field like a type in the struct."""
    text = export_and_compile(tmp_path, nvcc, [parameter_hides(), field_hides()])
    assert "float3 vector, wire sent, int64_t number" in text
    assert "inner inner_2;" in text
