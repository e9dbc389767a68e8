"""Callees of exported functions: resolved into the artifacts, or left to C++ with a warning."""

from __future__ import annotations

import json
import os
import re
import sys

import processes
import pytest
from numba import cuda
from numba.cuda import types
from numba.cuda._internal.cuda_bf16 import nv_bfloat16

import numba_ptxlink as pl
from numba_ptxlink._tools import nvjitlink, nvvm

SQUARE = cuda.CUSource('extern "C" __device__ float squared(float x) { return x * x; }')
squared = cuda.declare_device("squared", "float32(float32)", abi="c", link=[SQUARE])
supplied = cuda.declare_device("supplied", "float64(float64, int8)")
CALLS_LINKED = """
extern "C" __device__ float linked(float x);
extern "C" __global__ void kernel(float *x) { *x = linked(*x); }
"""


def triple(value):
    """Multiply by three in the type of the argument."""
    return value + value + value


def quadruple(value):
    """Call CUDA C++ that comes along."""
    return squared(value) * 4


def asks(value):
    """Call CUDA C++ that somebody else has."""
    return supplied(value, -1)


def export(folder, *udfs, name="mine", arch=("sm_90",)):
    """Export *udfs* as PTX, LTO-IR and cubin."""
    return pl.export(udfs, folder, arch=arch, emit=["ptx", "ltoir", "cubin"], name=name)


def undefined(exported, arch="sm_90"):
    """Return the functions that the PTX leaves undefined."""
    return re.findall(r"^\.extern .*", exported.artifacts["ptx", arch].read_text(), re.MULTILINE)


def converted(value):
    """Convert, which has shims named unlike those of functions."""
    return types.int32(nv_bfloat16(value))


@pytest.mark.parametrize(
    ("signature", "function"),
    [
        (types.float16(types.float16), triple),
        (types.bfloat16(types.bfloat16), triple),
        (types.int32(types.float32), converted),
    ],
    ids=["float16", "bfloat16", "conversion"],
)
def test_half_arithmetic_is_part_of_the_ptx(tmp_path, signature, function):
    """Numba's shims are optimised into the function on either dialect: nothing is called, nothing missing."""
    exported = export(tmp_path, pl.udf(signature, name="triple")(function), arch=("sm_80", "sm_100"))
    for arch in ("sm_80", "sm_100"):
        assert [] == undefined(exported, arch)
        assert "call" not in exported.artifacts["ptx", arch].read_text()


def test_the_same_export_has_the_same_bytes_whatever_came_before(tmp_path):
    """Shims for other functions of this process are not in an export."""
    udf = pl.udf(types.float16(types.float16), name="triple")(triple)
    first = export(tmp_path / "a", udf).artifacts
    export(tmp_path / "b", pl.udf(types.float16(types.float16), name="other")(lambda x: x * x / x - x))
    second = export(tmp_path / "c", udf).artifacts
    assert {key: path.read_bytes() for key, path in first.items()} == {
        key: path.read_bytes() for key, path in second.items()
    }


def test_what_cxx_supplies_is_declared_and_listed(tmp_path):
    """An extern without code is declared in the header as C++ defines it, and listed in the manifest."""
    exported = export(tmp_path, pl.udf("float64(float64)")(asks))
    (extern,) = json.loads(exported.manifest.read_text())["externs"]
    declaration = "int32_t supplied(double* result, double arg0, int8_t arg1);"
    assert ("supplied", declaration) == (extern["name"], extern["declaration"])
    assert f"NUMBA_PTXLINK_DEVICE {declaration}" in exported.header.read_text()
    source = """
        #include "mine.h"
        extern "C" __device__ int32_t supplied(double* result, double a, int8_t b) {
            *result = a + b;
            return 0;
        }
        extern "C" __global__ void caller(double* p) { *p = asks(*p); }
    """
    linked = pl.link(
        source, exported.artifacts["ptx", "sm_90"], arch="sm_90", lto=False, include_dirs=[tmp_path]
    )
    assert b"caller" in linked.cubin


ALLOCATES = """
import numpy as np
import numba_ptxlink as pl

def total(values):
    doubled = np.empty(4, np.float32)
    for i in range(4):
        doubled[i] = values[i] * 2
    return doubled[0] + doubled[3]

try:
    pl.export([pl.udf("float32(float32[::1])", name="first")(total)], arch="sm_90", emit=["ptx"])
except pl.ExportError as error:
    print(error)
"""


@pytest.mark.slow
def test_memory_management_is_refused():
    """A function that allocates by Numba's memory manager is an error with the cure."""
    environment = {**os.environ, "NUMBA_CUDA_ENABLE_NRT": "1"}
    command = [sys.executable, "-c", ALLOCATES]
    done = processes.run(*command, env=environment)
    assert "does not contain Numba's memory manager; export without NUMBA_CUDA_ENABLE_NRT" in done.stdout


@pytest.mark.parametrize("ty", [types.float16, types.bfloat16], ids=["float16", "bfloat16"])
def test_ltoir_is_left_out_where_nothing_merges_it(tmp_path, monkeypatch, caplog, ty):
    """If nvJitLink merges no LTO-IR, an export with halves has all other kinds, and emit="ltoir" fails."""
    monkeypatch.setattr(nvjitlink, "merges_ltoir", lambda: False)
    plain = pl.udf("float32(float32)", name="plain")(triple)
    half = pl.udf(ty(ty), name="halved")(triple)
    linked = pl.udf("float32(float32)", name="linked")(quadruple)
    exported = pl.export([plain, half, linked], tmp_path, arch="sm_90", name="mine")
    uses = r"ltoir \(halved \(\S+\) uses float16 or bfloat16, linked \(\S+\) uses .*: nvJitLink"
    assert re.search(uses, caplog.text)
    assert {"ptx", "cubin", "fatbin"} == {kind for kind, _ in exported.artifacts}
    assert ["ltoir"] == [omission.kind for omission in exported.left_out]
    with pytest.raises(
        pl.ExportError, match=f"^{half.location}: error: .* export these functions from a separate file"
    ):
        pl.export([half], tmp_path, arch="sm_90", emit="ltoir", name="other")
    assert not list(tmp_path.glob("other*"))
    relinked = pl.link(linked, CALLS_LINKED, arch="sm_90", lto=True)
    assert re.search("<udfs> goes into the link as PTX, and its calls are not inlined: linked", caplog.text)
    assert "nvjitlink" == relinked.backend


def test_what_this_nvvm_refuses_as_ltoir_is_an_error(monkeypatch):
    """LTO-IR is left out where link files or the NVVM of a toolkit stand in its way, for nothing else."""
    compile_ir = nvvm.compile_ir

    def refuse(modules, options, *arguments):
        if "-gen-lto" in options:
            raise pl.ExportError("unsupported")
        return compile_ir(modules, options, *arguments)

    monkeypatch.setattr(nvvm, "compile_ir", refuse)
    with pytest.raises(pl.ExportError, match=r"plain.* unsupported"):
        pl.export([pl.udf("float32(float32)", name="plain")(triple)], arch="sm_90")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("float own(float x) { return y; }", r"NVRTC could not compile (mine|a)\.cu"),
        ("float own(double x) { return x; }", "own has two prototypes"),
        ("float own(float x) { return x; }", "nvJitLink failed to link"),
    ],
)
def test_errors_of_link_files_are_at_the_function(code, message):
    """An error in a link file, or a conflict of two, is reported at the function that links it."""
    links = [cuda.CUSource(f'extern "C" __device__ {code}', name=name) for name in ("mine.cu", "a.cu")]
    declared = cuda.declare_device("own", "float32(float32)", abi="c", link=links)
    plain = pl.udf("float32(float32)", name="plain")(triple)
    calls = pl.udf("float32(float32)", name="calls")(lambda x: declared(x) + x)
    with pytest.raises(pl.ExportError, match=f"^{calls.location}: error: {message}"):
        pl.export([plain, calls], arch="sm_90", emit="ptx", name="mine")
