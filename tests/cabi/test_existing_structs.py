"""Structs that C++ defines, in place of those that a header would define for dtypes and named tuples."""

from __future__ import annotations

import ast
import json
import shutil
import time
from typing import NamedTuple

import front_ends
import numba
import numpy as np
import pytest
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink import cache
from numba_ptxlink._config import Config
from numba_ptxlink._tools import find
from numba_ptxlink.cache import Cache

HEADER = """
#pragma once
#include <cstdint>
namespace ns {
struct Vec { float x, y, z; };
enum class Kind : std::uint8_t { a, b };
struct alignas(16) Particle { Vec pos; float mass; std::int64_t id; Kind kind; };
}
struct plain { double a; int b; };
"""
vec = np.dtype([("x", "f4"), ("y", "f4"), ("z", "f4")], align=True)
particle = np.dtype(
    {
        "names": ["pos", "mass", "id", "kind"],
        "formats": [vec, "f4", "i8", "u1"],
        "offsets": [0, 12, 16, 24],
        "itemsize": 32,
    }
)
flat = np.dtype([("mass", "f4"), ("id", "i8")], align=True)


class Plain(NamedTuple):
    """Named otherwise in C++."""

    a: float64  # noqa: F821 - a type of the front end that compiles it
    b: int32  # noqa: F821


STRUCTS = {particle: "alignas(16) ns::Particle", vec: "::ns::Vec", Plain: "struct plain"}


def weigh(p, v):
    """Read a struct in a struct."""
    return p.mass * p.pos.x * v.z + p.id


def pick(one, other, weight):
    """Return one of two structs."""
    return one if weight > 0 else other


def mass(p):
    """Return a member."""
    return p.mass


@pytest.fixture
def folder(tmp_path):
    """Return a folder with the header."""
    (tmp_path / "particle.h").write_text(HEADER)
    return tmp_path


def marked(front_end):
    """Return functions of the structs."""
    common = {"structs": STRUCTS, "include": "particle.h", "front_end": front_end}
    return [
        pl.udf("float32(particle, vec)", **common)(weigh),
        pl.udf("Plain(Plain, Plain, float32)", **common)(pick),
        pl.kernel("void(particle[::1], Plain)", name="fill", **common)(fill),
    ]


def fill(ps, value):
    """Write to a member."""
    ps[0].mass = value.a


@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_cxx_calls_with_its_own_structs(front_end, folder):
    """The header includes the definition, C++ passes its structs, and the call is inlined where LTO is on."""
    front_ends.get(front_end)
    exported = pl.export(
        marked(front_end), folder, name="udfs", arch="sm_90", emit=["ptx", "ltoir"], include_dirs=[folder]
    )
    text = exported.header.read_text()
    assert '#include "particle.h"\n' in text
    assert "typedef struct" not in text
    assert "float weigh(ns::Particle p, ::ns::Vec v)" in text
    source = """
        #include "udfs.h"
        extern "C" __global__ void use(ns::Particle* p, plain* out) {
          out[0] = pick(out[1], out[2], weigh(p[0], ns::Vec{1, 2, 3}));
        }
    """
    for kind in ("ptx", "ltoir"):
        linked = pl.link(
            source,
            exported.artifacts[kind, "sm_90"],
            arch="sm_90",
            include_dirs=[folder],
        )
        assert b"use" in linked.cubin


def test_the_manifest_knows_the_layout(folder):
    """A kernel that is loaded packs the struct by the dtype, as if the header defined it."""
    exported = pl.export(
        marked("numba-cuda"), name="udfs", arch="sm_90", emit=["kernels"], include_dirs=[folder]
    )
    types = json.loads(exported.contents["udfs.json"])["types"]
    assert (32, 16) == (types["ns::Particle"]["size"], types["ns::Particle"]["align"])
    assert ["pos", "mass", "id", "kind"] == [member["name"] for member in types["ns::Particle"]["members"]]
    assert {"x", "y", "z"} == {member["name"] for member in types["::ns::Vec"]["members"]}
    assert "fill" in pl.load(exported)


def export_of(dtype, name, folder, text, out_dir=None):
    """Export a function of a pointer to *dtype*, which C++ has as *name* in a header."""
    header, text = folder / "p.h", f"#include <stdint.h>\n#include <vector_types.h>\n{text}\n"
    if not header.exists() or header.read_text() != text:
        header.write_text(text)
    function = pl.udf((of_pointer(dtype),), structs={dtype: name}, include="p.h")(nothing)
    return pl.export(function, out_dir, emit=["ptx"], include_dirs=[folder])


def of_pointer(dtype):
    """Return numba-cuda's type of a pointer to *dtype*."""
    from numba.cuda import types
    from numba.cuda.np.numpy_support import from_dtype

    return types.CPointer(from_dtype(dtype))


def nothing(p):
    """Read nothing."""


def dtype_of(fields):
    """Return the dtype with the fields "name type" or "name type count"."""
    parts = [field.split() for field in fields.split(", ")]
    return np.dtype([(name, code, *map(ast.literal_eval, shape)) for name, code, *shape in parts], align=True)


NESTED = np.dtype([("id", "i4"), ("in", [("k", "i4"), ("v", "f4", 3)], 2)])
NO_VALUE = "Structs of .* have other layouts than in Python: P is not trivially copyable"
COMPARED = "cannot compare structs: .*"
REFUSED = {
    "float": ("v f4, w i4", "struct P { int v; int w; };", "P::v is not floating point"),
    "unsigned": ("v f4, w i4", "struct P { float v; unsigned w; };", "P::w is not of the kind int"),
    "order": (
        "v f4, w i4",
        "struct P { int w; float v; };",
        "offset of P::v is not 0; the offset of P::w",
    ),
    "alignment": (
        "v f4, w i4",
        "struct alignas(8) P { float v; int w; };",
        r"the alignment of P is not 4\. .*alignas\(N\)",
    ),
    "class for an array": ("v f4 (4,)", "struct P { float4 v; };", "P::v is not floating point"),
    "shape": ("m f4 (2,3)", "struct P { float m[3][2]; };", r"the size of P::m\[0\] is not 12"),
    "nested": (
        "nested",
        "struct In { float v[3]; int k; }; struct P { int id; In in[2]; };",
        r"the offset of P::in\[0\]\.k is not 4",
    ),
    "virtual": (
        "v f4, w i4",
        "struct P { float v; int w; virtual float f() const { return v; } };",
        NO_VALUE,
    ),
    "bit field": ("v f4, w i4", "struct P { float v; int w : 3; };", f"{COMPARED}bit field"),
    "member": ("v f4, w i4", "struct P { float u; int w; };", f'{COMPARED}has no member "v"'),
    "name": ("v f4, w i4", "struct Q { float v; int w; };", f'{COMPARED}identifier "P" is undefined'),
}


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(
            case, marks=() if case in {"float", "unsigned", "order", "shape", "member"} else pytest.mark.slow
        )
        for case in REFUSED
    ],
)
def test_another_struct_is_refused(case, tmp_path):
    """The export names the difference, by the names in Python, before C++ is compiled."""
    fields, definition, reason = REFUSED[case]
    dtype = NESTED if fields == "nested" else dtype_of(fields)
    with pytest.raises(pl.AbiError, match=rf"(?s)^\S+\.py:\d+: error: .*{reason}") as caught:
        export_of(dtype, "P", tmp_path, definition)
    assert "P is the struct of Record(" in str(caught.value)


AGREES = {
    "numbers": (
        (
            "enum F : uint8_t { y }; enum class Z { z }; "
            "struct P { int i; const unsigned u[2]; signed char b; Z s; F f; long l; };"
        ),
        "i i4, u u4 (2,), b i1, s i4, f u1, l i8",
    ),
    "signless": (
        (
            "enum O { x }; union E { int i; float f; }; struct P { char c[2]; bool b; char d; O o[2]; "
            "E e; void* p; char s[3]; const volatile int cv; };"
        ),
        "c u1 (2,), b u1, d u1, o u4 (2,), e i4, p i8, s S3, cv i4",
    ),
    "bytes for a class": ("struct P { float3 v; int w; };", "v u1 (12,), w i4"),
}


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.slow) for case in AGREES])
def test_what_agrees_is_exported(case, tmp_path):
    """Signs of char, bool and enums without a type do not matter; nor does const."""
    definition, fields = AGREES[case]
    assert export_of(dtype_of(fields), "P", tmp_path, definition).signatures


@pytest.fixture
def nvcc_runs(tmp_path, monkeypatch):
    """Let CUDACXX name nvcc, and the default cache be a new one; return the compilations so far."""
    if not (nvcc := find.program("nvcc")) or shutil.which("g++") is None:
        pytest.skip("there is no nvcc, or no g++")
    default_cache = Cache(Config(cache_dirs=(str(tmp_path / "cache"),)))
    for home in (cache, cache.tiered):
        monkeypatch.setattr(home, "default", lambda: default_cache)
    log, script = tmp_path / "nvcc.log", tmp_path / "nvcc"
    log.touch()
    script.write_text(f'#!/bin/sh\necho "$@" >> {log}\nexec {nvcc} "$@"\n')
    script.chmod(0o755)
    monkeypatch.setenv("CUDACXX", str(script))
    return lambda: [line for line in log.read_text().splitlines() if line.startswith("-ptx ")]


STREAMED = "#include <ostream>\nstruct P { float v; int w; std::ostream* out() const; };"
AGREEING = np.dtype([("v", "f4"), ("w", "i4")])


def test_a_header_of_the_standard_library_is_compiled_by_nvcc(tmp_path, caplog, monkeypatch, nvcc_runs):
    """A header that NVRTC cannot compile is compared by nvcc; without nvcc, one line says that it is not."""
    out = tmp_path / "out"
    with pytest.raises(pl.AbiError, match="the offset of P::w is not 0"):
        export_of(np.dtype([("w", "i4"), ("v", "f4")]), "P", tmp_path, STREAMED, out)
    assert 1 == len(nvcc_runs())
    assert caplog.text == ""
    monkeypatch.setattr(find, "programs", lambda *_args, **_options: iter(()))
    monkeypatch.delenv("CUDACXX", raising=False)
    assert export_of(AGREEING, "P", tmp_path, STREAMED, out).signatures
    (line,) = caplog.messages
    assert 'p.h(3): cannot open source file "ostream"; nvcc on PATH compiles it' in line


def test_nvcc_compiles_a_header_once(tmp_path, nvcc_runs):
    """The result of nvcc is cached while the headers stay; an export in memory does not call nvcc."""
    (tmp_path / "inner.h").write_text("#define NUMBER int\n")
    text = '#include "inner.h"\n' + STREAMED.replace("int w", "NUMBER w")
    assert export_of(AGREEING, "P", tmp_path, text).signatures
    assert [] == nvcc_runs()
    time.sleep(0.2)  # Headers that changed just now are not kept.
    for _ in range(2):
        assert export_of(AGREEING, "P", tmp_path, text, tmp_path / "out").signatures
        assert 1 == len(nvcc_runs())
    (tmp_path / "inner.h").write_text("#define NUMBER double\n")
    with pytest.raises(pl.AbiError, match="the offset of P::w is not 4"):
        export_of(AGREEING, "P", tmp_path, text, tmp_path / "out")
    assert 2 == len(nvcc_runs())


def test_a_header_that_is_missing_is_named(tmp_path):
    """The error names the header and the cure."""
    function = pl.udf("float32(flat)", structs={flat: "ns::P"}, include="p.h")(mass)
    with pytest.raises(
        pl.AbiError, match=rf'^{function.location}: error: "p.h", the header of .*include_dirs'
    ):
        pl.export(function, emit=["ptx"], include_dirs=[tmp_path])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"structs": {flat: "ns::P<int>"}}, "names no struct"),
        ({"structs": {flat: "alignas(32) P"}}, "itemsize of 16; set itemsize to 32"),
        ({"structs": {np.float32: "P"}}, "the key of P in structs=, is no struct; use a structured dtype"),
    ],
)
def test_what_names_no_struct_is_refused(options, reason):
    """So are alignments that C++ does not have, and types that are no structs."""
    with pytest.raises(pl.AbiError, match=reason):
        pl.export(pl.udf("float32(flat)", **options)(mass), emit=["ptx"])


def test_a_class_in_a_packed_record_is_refused():
    """g++ ignores `packed` for a struct of C++ that has a `__half`, whose offset would be another one."""
    inner = np.dtype([("h", np.float16), ("x", np.float32)], align=True)
    packed = numba.from_dtype(np.dtype([("c", np.int8), ("p", inner)]))
    function = pl.udf(types.float32(types.CPointer(packed)), structs={inner: "P"}, name="f")(
        lambda a: a[0].p.x
    )
    with pytest.raises(pl.AbiError, match=r"C\+\+ aligns P, .* pass align=True"):
        pl.export(function, emit=["ptx"])
