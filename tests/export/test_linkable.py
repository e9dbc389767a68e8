"""Link files of an export: included in it and compared with the calls, or named in a warning."""

from __future__ import annotations

import functools
import re

import front_ends
import pytest

import numba_ptxlink as pl

DEFINED = """
extern "C" __device__ int numbas(float* r, float a) { *r = a; return 0; }
extern "C" __device__ float added(float a, float b) { return a + b; }
"""
DOUBLED = 'extern "C" __device__ float doubled(float x) { return x + x; }\n'
CALLER = """
extern "C" __device__ float calls(float);
extern "C" __global__ void caller(float* x) { *x = calls(*x); }
"""
WRONG = {
    "result": ("added", "float64(float32, float32)", "c"),
    "parameter": ("added", "float32(float32, float64)", "c"),
    "count": ("added", "float32(float32)", "c"),
    "convention": ("added", "float32(float32)", "numba"),
    "numbas": ("numbas", "float64(float64)", "numba"),
}


@pytest.fixture(params=front_ends.NAMES)
def name(request):
    """Return the name of a front end."""
    return request.param


@functools.cache
def compiled(kind):
    """Return an export's code of *kind* with the function `doubled`."""
    udf = pl.udf("float32(float32)", name="doubled")(lambda x: x * 2)
    return pl.export([udf], arch="sm_90", emit=[kind], name="doubled").read(kind)


def calling(name, symbol, signature, abi="c", **link):
    """Return a marked function `calls` of the front end *name* that calls a declared function."""
    types = front_ends.get(name).types
    args, result = front_ends.get(name).normalize(signature)
    function = front_ends.cuda(name).declare_device(symbol, result(*args), abi=abi, **link)
    body = (lambda x: function(x, x)) if len(args) > 1 else (lambda x: +function(x))
    return pl.udf(types.float32(types.float32), name="calls")(body)


def export(udf, *kinds):
    """Export *udf* to memory."""
    return pl.export([udf], arch="sm_90", emit=list(kinds), name="calls")


def undefined(exported):
    """Return the functions that the PTX leaves undefined."""
    return re.findall(r"^\.extern \.func.*?(\w+)\s*$", exported.read("ptx").decode(), re.MULTILINE)


@pytest.mark.parametrize(
    "wrong",
    [pytest.param(wrong, marks=[pytest.mark.slow] * (wrong in ("parameter", "count"))) for wrong in WRONG],
)
def test_another_prototype_than_the_cxx_has_is_refused(name, wrong, tmp_path):
    """Both prototypes are named, with the file and the Python function."""
    (tmp_path / "lib.cu").write_text(DEFINED)
    symbol, signature, abi = WRONG[wrong]
    udf = calling(name, symbol, signature, abi, link=str(tmp_path / "lib.cu"))
    with pytest.raises(pl.ExportError, match=f"{symbol} has two prototypes") as caught:
        export(udf, "ptx")
    assert "defined in lib.cu" in str(caught.value)
    assert "declared in calls (test_linkable.py:" in str(caught.value)


@pytest.mark.parametrize("symbol", ["added", "elsewhere"])
def test_two_declarations_of_one_function_are_refused(name, symbol):
    """Whether a link file has the function or C++ is to define it."""
    cuda = front_ends.cuda(name)
    link = {"link": cuda.CUSource(DEFINED)} if symbol == "added" else {}
    udfs = [
        calling(name, symbol, signature, **link)
        for signature in ("float32(float32, float32)", "float64(float64, float32)")
    ]
    udfs = [pl.udf(udf.signature, name=f"calls_{number}")(udf.function) for number, udf in enumerate(udfs)]
    with pytest.raises(pl.ExportError, match=f"{symbol} has two prototypes") as caught:
        pl.export(udfs, arch="sm_90", emit=["ptx"], name="calls")
    assert "calls_1 (test_linkable.py:" in str(caught.value)


@pytest.mark.parametrize("form", ["doubled.ltoir", "doubled.cu", "memory"])
def test_what_is_compiled_of_a_link_file_is_part_of_every_artifact(name, form, tmp_path):
    """A link file that is CUDA C++ or LTO-IR leaves nothing undefined, wherever it is."""
    path = tmp_path / form
    path.write_bytes(DOUBLED.encode() if path.suffix == ".cu" else compiled("ltoir"))
    link = front_ends.cuda(name).LTOIR(path.read_bytes()) if form == "memory" else str(path)
    exported = export(calling(name, "doubled", "float32(float32)", link=link), "ptx", "ltoir", "cubin")
    assert [] == undefined(exported)
    assert "doubled" not in exported.contents["calls.h"].decode()
    for kind in ("ptx", "ltoir", "cubin"):
        assert b"caller" in pl.link(CALLER, exported.read(kind), arch="sm_90", lto=kind == "ltoir").cubin


@pytest.mark.parametrize("kind", ["ptx", "cubin", pytest.param("fatbin", marks=pytest.mark.slow)])
def test_what_is_no_part_of_an_export_is_told(name, kind, tmp_path, caplog):
    """The warning names file and kind, and the artifact links beside the file."""
    path = tmp_path / f"doubled.{kind}"
    path.write_bytes(compiled(kind))
    exported = export(calling(name, "doubled", "float32(float32)", link=str(path)), "ptx")
    assert f"link= lists {path.name}, of kind {kind}, and an export includes" in caplog.text
    assert ["doubled"] == undefined(exported)
    assert b"caller" in pl.link(CALLER, exported.read("ptx"), path, arch="sm_90").cubin
