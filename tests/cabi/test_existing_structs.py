"""Structs that C++ defines, in place of those that a header would define for dtypes and named tuples."""

from __future__ import annotations

import ast
import json
import logging
import re
import shutil
import subprocess
from typing import NamedTuple

import front_ends
import numpy as np
import pytest
from linkcases import find_nvcc

import numba_ptxlink as pl
from numba_ptxlink._tools import host_compiler, nvrtc
from numba_ptxlink.linker import INCLUDE_DIR

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


def pick(ps, i):
    """Return one struct of the elements of another."""
    return Plain(ps[i].mass, ps[i].id)


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
        pl.udf("Plain(CPointer(particle), int32)", **common)(pick),
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
        marked(front_end), folder, name="udfs", archs=["sm_90"], emit=["ptx", "ltoir"], include_dirs=[folder]
    )
    text = exported.header.read_text()
    assert '#include "particle.h"\n' in text
    assert "typedef struct" not in text
    assert "float weigh(ns::Particle p, ::ns::Vec v)" in text
    source = """
        #include "udfs.h"
        extern "C" __global__ void use(ns::Particle* p, plain* out) {
          out[0] = pick(p, weigh(p[0], ns::Vec{1, 2, 3}));
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
    symbols = {each.name: each for each in pl.inspect(linked.cubin, sass=False).symbols}
    assert not symbols["use"].calls


def test_the_manifest_knows_the_layout(folder):
    """A kernel that is loaded packs the struct by the dtype, as if the header defined it."""
    exported = pl.export(
        marked("numba-cuda"), name="udfs", archs=["sm_90"], emit=["kernels"], include_dirs=[folder]
    )
    types = json.loads(exported.contents["udfs.json"])["types"]
    assert (32, 16) == (types["ns::Particle"]["size"], types["ns::Particle"]["align"])
    assert ["pos", "mass", "id", "kind"] == [each["name"] for each in types["ns::Particle"]["members"]]
    assert {"x", "y", "z"} == {each["name"] for each in types["::ns::Vec"]["members"]}
    assert "fill" in pl.load(exported)


def test_the_header_is_a_dependency(folder):
    """An edit of the definition exports again: it is in the depfile, with what it includes."""
    (folder / "particle.h").write_text('#include "inner.h"\n' + HEADER)
    (folder / "inner.h").write_text("")
    depfile = folder / "udfs.d"
    pl.export(marked("numba-cuda"), folder, name="udfs", emit=["ptx"], include_dirs=[folder], depfile=depfile)
    assert str(folder / "particle.h") in depfile.read_text()
    assert str(folder / "inner.h") in depfile.read_text()


def test_the_header_beside_the_python_file_is_found(tmp_path):
    """Without include_dirs, the folder of the Python file is searched."""
    (tmp_path / "particle.h").write_text("struct P { float mass; long long id; };")
    (tmp_path / "udfs.py").write_text(
        "import numpy as np\nfrom numba_ptxlink import udf\n"
        'p = np.dtype([("mass", "f4"), ("id", "i8")], align=True)\n'
        '@udf("float32(p)", structs={p: "P"}, include="particle.h")\ndef mass(p):\n    return p.mass\n'
    )
    exported = pl.export(tmp_path / "udfs.py", emit=["ptx"])
    assert "float mass(P p)" == str(exported.signatures[0])


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        pytest.param(
            "struct P { double mass; int64_t id; };", "the size of P::mass is not 4", marks=pytest.mark.slow
        ),
        ("struct P { int mass; int64_t id; };", "P::mass is not floating point"),
        pytest.param(
            "struct P { float mass; double id; };", "P::id is not an integer", marks=pytest.mark.slow
        ),
        (
            "struct P { int64_t id; float mass; };",
            "the offset of P::mass is not 0; the offset of P::id is not 8",
        ),
        pytest.param(
            "struct P { float mass; int64_t id; ~P() {} };",
            "P is not trivially copyable",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "struct P { float mass; int64_t id, more; };", "the size of P is not 16", marks=pytest.mark.slow
        ),
        pytest.param(
            "struct alignas(16) P { float mass; int64_t id; };",
            "the alignment of P is not 8",
            marks=pytest.mark.slow,
        ),
        ("struct P { float weight; int64_t id; };", 'class "P" has no member "mass"'),
        pytest.param("class P { float mass; int64_t id; };", "is inaccessible", marks=pytest.mark.slow),
        pytest.param(
            "struct Q { float mass; int64_t id; };", 'identifier "P" is undefined', marks=pytest.mark.slow
        ),
    ],
)
def test_another_layout_is_refused(definition, reason, tmp_path):
    """The export says what differs, in Python's words, before C++ is compiled."""
    (tmp_path / "p.h").write_text(f"#include <stdint.h>\n{definition}\n")
    function = pl.udf("float32(flat)", structs={flat: "P"}, include="p.h")(mass)
    with pytest.raises(pl.AbiError) as caught:
        pl.export(function, emit=["ptx"], include_dirs=[tmp_path])
    assert reason in str(caught.value)
    assert "P stands for Record(mass: float32, id: int64)" in str(caught.value)


inner = np.dtype([("pos", "f4", 3), ("kind", "i4")])
NESTED = """
namespace n {
struct Inner { float pos[3]; int kind; };
struct Swapped { int kind; float pos[3]; };
struct Has { int id; Inner in; };
struct HasOther { int id; Swapped in; };
struct Two { Inner in[2]; };
struct TwoOther { Swapped in[2]; };
struct Matrix { float m[2][3]; };
struct Transposed { float m[3][2]; };
struct Flat { float m[6]; };
struct Half { __half h; };
struct Bits { unsigned short h; };
struct Shorts { short s[4]; };
struct Ints { int s[2]; };
}
"""
INSIDE = {
    "Has": np.dtype([("id", "i4"), ("in", inner)]),
    "Two": np.dtype([("in", inner, 2)]),
    "Matrix": np.dtype([("m", "f4", (2, 3))]),
    "Half": np.dtype([("h", "f2")]),
    "Shorts": np.dtype([("s", "i2", 4)]),
}


def export_of(dtype, name, folder, inside):
    """Export a function of *dtype*, which C++ has as *name*, and as *inside* the struct in it."""
    (folder / "n.h").write_text("#include <cuda_fp16.h>\n" + NESTED)
    structs = {dtype: f"n::{name}", inner: f"n::{inside}"}
    function = pl.udf((of_pointer(dtype),), structs=structs, include="n.h")(nothing)
    return pl.export(function, emit=["ptx"], include_dirs=[folder])


def of_pointer(dtype):
    """Return numba-cuda's type of a pointer to *dtype*."""
    from numba.cuda import types
    from numba.cuda.np.numpy_support import from_dtype

    return types.CPointer(from_dtype(dtype))


def nothing(p):
    """Read nothing."""


@pytest.mark.parametrize(
    ("expected", "name", "inside", "reason"),
    [
        ("Has", "HasOther", "Swapped", "the offset of n::HasOther::in.pos is not 4"),
        pytest.param(
            "Has", "Has", "Swapped", "the offset of n::Swapped::pos is not 0", marks=pytest.mark.slow
        ),
        ("Has", "Has", "NoSuchThing", 'has no member "NoSuchThing"'),
        pytest.param(
            "Two",
            "TwoOther",
            "Inner",
            "the offset of n::TwoOther::in[0].pos is not 0",
            marks=pytest.mark.slow,
        ),
        ("Matrix", "Transposed", "Inner", "the shape of n::Transposed::m is not (2, 3)"),
        ("Half", "Bits", "Inner", "n::Bits::h is not a class such as __half"),
        pytest.param(
            "Shorts",
            "Ints",
            "Inner",
            "the elements of n::Ints::s do not have the size 2",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_differs_inside_is_refused(expected, name, inside, reason, tmp_path):
    """Structs in structs and in arrays, shapes, and numbers of another kind."""
    with pytest.raises(pl.AbiError) as caught:
        export_of(INSIDE[expected], name, tmp_path, inside=inside)
    assert reason in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*INSIDE, "Flat"])
def test_what_agrees_inside_is_exported(name, tmp_path):
    """An array of numbers may lie in one dimension in C++."""
    assert export_of(INSIDE.get(name, INSIDE["Matrix"]), name, tmp_path, inside="Inner").signatures


NUMBERS = """
#include <vector_types.h>
#include <cuComplex.h>
#include <stdint.h>
enum Open { x };
enum Fixed : uint8_t { y };
enum class Scoped { z };
union Either { int i; float f; };
struct Inner { int k; };
struct Signs { int i; const unsigned u[2]; signed char b; Inner in[2]; Scoped s; Fixed f; long l; };
struct Signless {
  char c[2]; bool b; char d; Open o[2]; Either e; void* p; char s[3];
  const volatile int cv; const float m[2][2];
};
struct Vector { float4 v; };
struct Complex { int n; cuDoubleComplex z; };
struct Pointers { int* p; const float* q; double r; void* s; };
struct Word { float Word_; int float_; };
"""


def named(*fields):
    """Return a dtype of fields with their names and types in turn."""
    return np.dtype(
        [tuple(field.split()) if isinstance(field, str) else field for field in fields], align=True
    )


def reasons(dtype, name, folder):
    """Return what an export says of C++'s struct *name* for *dtype*, "" for nothing."""
    (folder / "n.h").write_text(NUMBERS)
    args = (dtype if isinstance(dtype, type) else of_pointer(dtype),)
    try:
        pl.export(
            pl.udf(args, structs={dtype: name}, include="n.h")(nothing), emit=["ptx"], include_dirs=[folder]
        )
    except pl.AbiError as error:
        return str(error)
    return ""


def signs(*types):
    """Return a dtype for Signs."""
    fields = list(zip("iubksfl", types, strict=True))
    fields[1] = (*fields[1], 2)
    fields[3] = ("in", [fields[3]], 2)
    return named(*fields)


def test_signs_are_compared(tmp_path):
    """Each integer that C++ has of the other sign is named with the type to give it; the right ones pass."""
    text = reasons(signs("u4", "i4", "u1", "u4", "u4", "i1", "u8"), "Signs", tmp_path)
    for member, sign, python, cure in (
        ("i", "signed", "uint32", "int32"),
        ("u", "unsigned", "int32", "uint32"),
        ("b", "signed", "uint8", "int8"),
        ("in[0].k", "signed", "uint32", "int32"),
        ("s", "signed", "uint32", "int32"),
        ("f", "unsigned", "int8", "uint8"),
        ("l", "signed", "uint64", "int64"),
    ):
        assert f"Signs::{member} is {sign} and not {python}" in text
        assert f"give Signs::{member} the type {cure}" in text
    assert "" == reasons(signs("i4", "u4", "i1", "i4", "i4", "u1", "i8"), "Signs", tmp_path)


@pytest.mark.parametrize("sign", "iu")
def test_what_has_no_sign_may_be_either(sign, tmp_path):
    """So are char, bool, an enum without a type, unions, and addresses; const and volatile do not matter."""
    one, four, eight = (f"{sign}{size}" for size in (1, 4, 8))
    members = [("c", one, 2), ("b", one), ("d", one), ("o", four, 2), ("e", four), ("p", eight), "s S3"]
    assert "" == reasons(named(*members, "cv i4", ("m", "f4", (2, 2))), "Signless", tmp_path)


def test_a_class_is_not_an_array(tmp_path):
    """The error proposes the dtype of CUDA's vector, which the export takes."""
    text = reasons(named(("v", "f4", 4)), "Vector", tmp_path)
    assert "Vector::v is a class and not 4 times float32" in text
    assert "is not floating point" not in text
    assert 'write "alignas(N) Vector" in structs' in text
    fields = '[("x", "float32"), ("y", "float32"), ("z", "float32"), ("w", "float32")]'
    assert f"for float4 {fields}" in text
    (tmp_path / "n.h").write_text(NUMBERS)
    vector = np.dtype([("v", ast.literal_eval(fields))])
    function = pl.udf((of_pointer(vector),), structs={vector: "alignas(16) Vector"}, include="n.h")(nothing)
    assert pl.export(function, emit=["ptx"], include_dirs=[tmp_path]).signatures


def test_complex_members_come_with_the_dtype_that_c_has(tmp_path):
    """NumPy's align=True is none for them; what is proposed is exported."""
    dtype = named("n i4", "z c16")
    text = reasons(dtype, "Complex", tmp_path)
    assert "the offset of Complex::z is not 8" in text
    code = text.partition("replace its dtype d by ")[2].removesuffix(".")
    proposed = eval(code, {"np": np, "d": dtype})  # noqa: S307 - the cure
    assert "" == reasons(proposed, "Complex", tmp_path)


class Pointers(NamedTuple):
    """Addresses."""

    p: CPointer(int32)  # noqa: F821 - a type of the front end that compiles it
    q: CPointer(float32)  # noqa: F821
    r: CPointer(float32)  # noqa: F821
    s: CPointer(uint32)  # noqa: F821


class Others(NamedTuple):
    """Addresses of other types."""

    p: CPointer(uint32)  # noqa: F821
    q: CPointer(int32)  # noqa: F821
    r: uint64  # noqa: F821
    s: CPointer(float64)  # noqa: F821


def test_what_pointers_lead_to_is_compared(tmp_path):
    """Numbers alone are; void may be anything, and floating point is no address."""
    right = reasons(Pointers, "Pointers", tmp_path)
    assert "than in Python: Pointers::r is not an address. " in right
    wrong = reasons(Others, "Pointers", tmp_path)
    for reason in (
        "Pointers::p does not point to uint32",
        "Pointers::q does not point to int32",
        "r is not an integer",
    ):
        assert reason in wrong
    assert "Pointers::s" not in wrong


class Parts(NamedTuple):
    """Vectors and complex numbers."""

    v: float32x4  # noqa: F821 - a type of the front end that compiles it
    z: complex64  # noqa: F821
    w: complex64  # noqa: F821
    a: complex64  # noqa: F821
    u: complex64  # noqa: F821


def test_what_vectors_and_complex_numbers_are_made_of_is_compared(tmp_path):
    """Another vector and one number are refused; two floats, and a class without a member x, are complex."""
    (tmp_path / "v.h").write_text(
        "#include <vector_types.h>\nstruct Own { static const int x = 1; float re, im; };\n"
        "struct Right { float4 v; float2 z; float w[2]; Own a; Own u; };\n"
        "struct Wrong { int4 v; uint2 z; double w; long long a; Own u; };\n"
    )
    for name in ("Right", "Wrong"):
        function = pl.udf((Parts,), structs={Parts: f"alignas(16) {name}"}, include="v.h")(nothing)
        try:
            pl.export(function, emit=["ptx"], include_dirs=[tmp_path])
            text = ""
        except pl.AbiError as error:
            text = str(error)
        wrong = {"v": "float32", "z": "float32", "w": "float32", "a": "float32"} if name == "Wrong" else {}
        for member, number in wrong.items():
            assert f"Wrong::{member} is not made of {number}" in text
        assert len(wrong) == text.count("is not made of")


@pytest.mark.parametrize(("part", "reason"), [("i4", "Vector::v is not an integer"), ("u1", "")])
def test_integers_are_no_vector_of_floats(part, reason, tmp_path):
    """Bytes may stand for any class."""
    (tmp_path / "n.h").write_text(NUMBERS)
    dtype = np.dtype([("v", part, 16 // np.dtype(part).itemsize)])
    function = pl.udf((of_pointer(dtype),), structs={dtype: "alignas(16) Vector"}, include="n.h")(nothing)
    if reason:
        with pytest.raises(pl.AbiError, match=reason):
            pl.export(function, emit=["ptx"], include_dirs=[tmp_path])
    else:
        assert pl.export(function, emit=["ptx"], include_dirs=[tmp_path]).signatures


Word_ = np.dtype([("Word_", "f4"), ("float_", "i4")])


def test_members_keep_the_names_that_cxx_has(tmp_path):
    """A generated header would rename a member that is called like its record."""
    inner = np.dtype([("in", Word_)])
    (tmp_path / "n.h").write_text(NUMBERS + "struct Has { Word in; };")
    function = pl.udf((of_pointer(inner),), structs={inner: "Has"}, include="n.h")(nothing)
    assert pl.export(function, emit=["ptx"], include_dirs=[tmp_path]).signatures


def test_a_header_of_the_working_directory_is_not_meant(tmp_path, monkeypatch):
    """The folders that are named are searched, wherever the export runs."""
    (tmp_path / "p.h").write_text("struct P { float mass; long long id; };")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "p.h").write_text("struct P { double mass; long long id; };")
    monkeypatch.chdir(tmp_path / "elsewhere")
    function = pl.udf("float32(flat)", structs={flat: "P"}, include="p.h")(mass)
    assert pl.export(function, emit=["ptx"], include_dirs=[tmp_path]).signatures
    with pytest.raises(pl.AbiError, match="the size of P::mass is not 4"):
        pl.export(function, emit=["ptx"], include_dirs=[tmp_path / "elsewhere"])


@pytest.mark.slow
def test_a_folder_may_be_relative_for_objects(tmp_path, monkeypatch):
    """The compiler of the host finds the header too, wherever it runs."""
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "p.h").write_text("struct P { float mass; long long id; };")
    kernel = pl.kernel("void(flat[::1], flat)", structs={flat: "P"}, include="p.h")(put)
    monkeypatch.chdir(tmp_path)
    exported = pl.export(kernel, "out", emit=["object", "library"], include_dirs=["inc"])
    assert exported.artifacts["object", ""].exists()


@pytest.mark.slow
@pytest.mark.parametrize("compiler", ["nvcc", "another"])
def test_a_header_may_be_cuda_cxx(tmp_path, monkeypatch, compiler):
    """The host's part of a kernel takes a header that nvcc takes in a file that includes nothing else."""
    text = "struct P { float mass; long long id; __host__ __device__ float2 both() const; };"
    (tmp_path / "p.h").write_text(text)
    if compiler == "another":
        monkeypatch.setattr(host_compiler, "find_tools", lambda _: iter(()))
    kernel = pl.kernel("void(flat[::1], flat)", structs={flat: "P"}, include="p.h")(put)
    exported = pl.export(kernel, tmp_path / "out", emit=["object"], include_dirs=[tmp_path])
    assert exported.host_compiler.startswith("nvcc") == (compiler == "nvcc")


def put(ps, p):
    """Write a struct."""
    ps[0] = p


def test_a_header_that_is_missing_is_named(tmp_path):
    """The error names the header and where it was looked for."""
    function = pl.udf("float32(flat)", structs={flat: "ns::P"}, include="p.h")(mass)
    with pytest.raises(pl.AbiError, match=r'"p.h", which is to define ns::P, is not found in .*include_dirs'):
        pl.export(function, emit=["ptx"], include_dirs=[tmp_path])


def test_a_folder_is_searched_once(tmp_path):
    """It may be named, and be that of the Python file."""
    (tmp_path / "udfs.py").write_text(
        "import numpy as np\nfrom numba_ptxlink import udf\n"
        'p = np.dtype([("mass", "f4"), ("id", "i8")], align=True)\n'
        '@udf("float32(p)", structs={p: "P"}, include="p.h")\ndef mass(p):\n    return p.mass\n'
    )
    with pytest.raises(pl.AbiError, match="is not found in") as caught:
        pl.export(tmp_path / "udfs.py", emit=["ptx"], include_dirs=[tmp_path])
    assert f"is not found in {tmp_path}; " in str(caught.value)
    assert 1 == caught.value.flags.count(f"--include-path={tmp_path}")


def test_a_header_that_nvrtc_cannot_read_is_left_to_cxx(tmp_path, caplog):
    """Where it needs the host's standard library, the log says that the header is not compiled."""
    (tmp_path / "p.h").write_text("#include <vector>\nstruct P { float mass; long long id; };\n")
    function = pl.udf("float32(flat)", structs={flat: "P"}, include="p.h")(mass)
    with caplog.at_level(logging.WARNING):
        exported = pl.export(function, emit=["ptx"], include_dirs=[tmp_path])
    assert "The header is not compiled" in caplog.text
    assert b"static_assert(sizeof(P) == 16" in exported.contents["mass.h"]


def test_a_header_that_fails_is_no_other_layout(tmp_path, caplog):
    """What follows from an error in a header of C++ is not told as a wrong layout."""
    (tmp_path / "p.h").write_text("struct P { float mass; nowhere_t id; };\n")
    function = pl.udf("float32(flat)", structs={flat: "P"}, include="p.h")(mass)
    assert pl.export(function, emit=["ptx"], include_dirs=[tmp_path]).signatures
    assert re.search(r"is not compiled(.|\n)*nowhere_t", caplog.text)


def test_functions_for_the_host_hide_no_layout(tmp_path):
    """A struct whose functions have no execution space, as C++ has them, is compared all the same."""
    (tmp_path / "p.h").write_text(
        "struct P { float mass; int id; P() = default; P(float m) : mass(m) {} static int count(); };\n"
        "inline int next() { static int value = 0; return ++value; }\n"
    )
    function = pl.udf("float32(flat)", structs={flat: "P"}, include="p.h")(mass)
    with pytest.raises(pl.AbiError, match="the size of P is not 16"):
        pl.export(function, emit=["ptx"], include_dirs=[tmp_path])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"structs": {flat: "ns::P<int>"}}, "names no struct"),
        ({"structs": {flat: "alignas(3) P"}}, "powers of two"),
        ({"structs": {flat: "alignas(32) P"}}, "itemsize of 16: give it 32"),
        ({"structs": {np.float32: "P"}}, "give it for a structured dtype"),
        ({"structs": ["P"]}, "pass a dict"),
        ({"include": 'a"b'}, "is no header"),
        ({"include": 3}, "pass a name or several"),
    ],
)
def test_what_names_no_struct_is_refused(options, reason):
    """So are alignments that C++ does not have, and types that are no structs."""
    with pytest.raises(pl.AbiError, match=reason):
        pl.export(pl.udf("float32(flat)", **options)(mass), emit=["ptx"])


@pytest.mark.parametrize(
    ("definition", "size", "reason", "cure"),
    [
        (
            "struct alignas(32) P { float v; };",
            32,
            "alignment of P",
            r'write "alignas\(N\) P" in structs',
        ),
        ("struct P { float v; };", 32, "size of P", r'itemsize": 4'),
        ("struct P { float v; P(const P&) = delete; };", 4, "deleted", "copied: .*by types.CPointer"),
        ("struct R { float v; };", 4, "cannot compare.* undefined", "Correct the name in structs="),
        ("struct P { float w; };", 4, 'cannot compare.* has no member "v"', "the fields' names"),
    ],
    ids=["aligned", "padded", "not copied", "no such struct", "no such member"],
)
def test_the_cure_is_that_of_the_fault(tmp_path, definition, size, reason, cure):
    """What C++ has otherwise comes with what helps against it, and nothing else."""
    dtype = np.dtype({"names": ["v"], "formats": ["f4"], "offsets": [0], "itemsize": size})
    (tmp_path / "p.h").write_text(definition)
    function = pl.udf((dtype,), structs={dtype: "P"}, include="p.h")(nothing)
    with pytest.raises(pl.AbiError, match=f"(?s){reason}.*{cure}") as caught:
        pl.export(function, emit=["ptx"], include_dirs=[tmp_path])
    assert "Rename it" not in str(caught.value)


NO_VALUE = (
    "than in Python: P is not trivially copyable. P stands for .* take virtual functions and bases out of P"
)
POINTED = r"than in Python: P::v is a reference and not a value\. .* make P::v a pointer"
PUBLIC = r"P::v: .* is inaccessible\. .* Make the member public, or leave it out of the dtype"


@pytest.mark.parametrize(
    ("definition", "reason"),
    [
        ("struct P { float v; int w; virtual float f() const { return v; } };", NO_VALUE),
        pytest.param(
            "struct B { int w; }; struct P : virtual B { float v; };", NO_VALUE, marks=pytest.mark.slow
        ),
        pytest.param("struct P { float v; int w; ~P() {} };", NO_VALUE, marks=pytest.mark.slow),
        pytest.param(
            "struct P { float v; int w; __device__ P(const P& p) : v(p.v), w(p.w) {} };",
            NO_VALUE,
            marks=pytest.mark.slow,
        ),
        ("struct P { float& v; int w; };", POINTED),
        pytest.param("struct P { float&& v; int w; };", POINTED, marks=pytest.mark.slow),
        ("struct P { int w; private: float v; };", PUBLIC),
        pytest.param("struct P { int w; protected: float v; };", PUBLIC, marks=pytest.mark.slow),
        pytest.param(
            "struct B { float v; }; struct P : private B { int w; };", PUBLIC, marks=pytest.mark.slow
        ),
        ("struct P { float v; int w : 3; };", "P::w: .* bit field .* Leave the bit field out of the dtype"),
        ("struct P;", "P: .*incomplete.* Name the header that defines the struct in include="),
        pytest.param(
            "template <class T> struct P { T v; int w; };",
            "P: argument list .* Give the template a name by `using`",
            marks=pytest.mark.slow,
        ),
        pytest.param("typedef long long P;", "P::v: .* Name a struct or a class", marks=pytest.mark.slow),
        pytest.param("struct B { float v; }; struct P : B { int w; };", "", marks=pytest.mark.slow),
        pytest.param("struct P { union { float v; int u; }; int w; };", "", marks=pytest.mark.slow),
    ],
)
def test_what_no_dtype_is_like_is_told_as_the_cause(tmp_path, definition, reason):
    """No other dtype is proposed for virtual functions, references, private members and bit fields."""
    dtype = np.dtype([("v", "f4"), ("w", "i4")])
    (tmp_path / "p.h").write_text(definition)
    function = pl.udf((of_pointer(dtype),), structs={dtype: "P"}, include="p.h")(nothing)
    if not reason:
        assert pl.export(function, emit=["ptx"], include_dirs=[tmp_path]).signatures
        return
    with pytest.raises(pl.AbiError, match=reason) as caught:
        pl.export(function, emit=["ptx"], include_dirs=[tmp_path])
    assert not re.search(r"replace its dtype|alignas|Correct the name", str(caught.value))


def test_one_name_for_two_layouts_is_refused(tmp_path):
    """C++ has one struct of a name."""
    (tmp_path / "p.h").write_text("struct P { float mass; long long id; };\n")
    one = pl.udf("float32(flat)", name="one", structs={flat: "P"}, include="p.h")(mass)
    other = pl.udf("float32(particle)", name="other", structs={particle: "P"}, include="p.h")(mass)
    with pytest.raises(
        pl.AbiError,
        match=r"P is given for .* which are laid out in two ways: 16 bytes aligned to 8 in one, 32 bytes "
        r"aligned to 8 in other\. C\+\+ has one struct",
    ):
        pl.export([one, other], emit=["ptx"], include_dirs=[tmp_path])


@pytest.mark.parametrize("turn", [1, -1])
def test_what_is_inside_may_be_named_in_one_function_alone(tmp_path, turn):
    """C++ has one struct, whether a function names what is in it or not; both headers are there."""
    (tmp_path / "i.h").write_text("#pragma once\nstruct I { float v[2]; };\n")
    (tmp_path / "o.h").write_text(
        '#include "i.h"\nnamespace n { struct O { I i[2]; I* next; double z; }; }\n'
    )
    inner = np.dtype([("v", "f4", 2)])
    outer = np.dtype([("i", inner, 2), ("next", "u8"), ("z", "f8")], align=True)
    pointer = of_pointer(outer)
    both = pl.udf((pointer,), name="a", structs={outer: "n::O", inner: "I"}, include=["i.h", "o.h"])(nothing)
    one = pl.udf((pointer,), name="b", structs={outer: "n::O"}, include="o.h")(nothing)
    made = pl.export([both, one][::turn], tmp_path, name="udfs", emit=["ptx"], include_dirs=[tmp_path])
    text = made.header.read_text()
    assert "sizeof(n::O) == 32" in text
    assert "sizeof(I) == 8" in text
    assert {'"i.h"', '"o.h"'} == set(re.findall(r"#include (\"[io]\.h\")", text))
    assert text.count("the offset of n::O::i[0].v ") == 1


def test_the_alignment_of_one_struct_is_one(tmp_path):
    """Two records of one dtype that are said to be aligned in two ways tell these."""
    (tmp_path / "p.h").write_text("struct alignas(16) P { float mass; int id; long long more; };\n")
    dtype = np.dtype([("mass", "f4"), ("id", "i4"), ("more", "i8")])
    one, other = (
        pl.udf((of_pointer(dtype),), name=name, structs={dtype: struct}, include="p.h")(nothing)
        for name, struct in (("one", "alignas(16) P"), ("other", "P"))
    )
    with pytest.raises(pl.AbiError, match="16 bytes aligned to 16 in one, 16 bytes aligned to 8 in other"):
        pl.export([one, other], emit=["ptx"], include_dirs=[tmp_path])


def test_c_has_a_struct_by_its_tag(tmp_path):
    """A header of C is included in C too, where `struct plain` names what has no typedef."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed")
    (tmp_path / "plain.h").write_text("struct plain { double a; int b; };\n")
    function = pl.udf("float64(Plain)", structs={Plain: "struct plain"}, include="plain.h")(first)
    pl.export(function, tmp_path, name="udfs", emit=["ptx"], include_dirs=[tmp_path])
    source = tmp_path / "use.c"
    source.write_text('#include "udfs.h"\ndouble use(struct plain p) { return first(p); }\n')
    searched = [f"-isystem{path}" for path in (INCLUDE_DIR, *nvrtc.toolkit_include_dirs())]
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", *searched]
    command = ["gcc", *flags, str(source)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (0, "") == (run.returncode, run.stderr)


derived = np.dtype([("id", "i4"), ("w", "f4")], align=True)
closed = np.dtype({"names": ["a", "next"], "formats": ["f4", "u8"], "offsets": [0, 8], "itemsize": 24})
OPEN = {derived: "Derived", closed: "Closed"}


def widest(d, c):
    """Read a member of a class with a base, and one of a class with private members."""
    return d.w * c[0].a


@pytest.mark.parametrize("program", ["g++", "clang++", "nvcc"])
def test_derived_and_private_members_are_no_warning(program, tmp_path):
    """Structs with bases or private members are compared without warnings, which users' code still has."""
    command, suffix = (find_nvcc(), ".cu") if program == "nvcc" else (shutil.which(program), ".cpp")
    if command is None:
        pytest.skip(f"{program} is not installed")
    (tmp_path / "d.h").write_text(
        "struct Base { int id; };\n"
        "struct Derived : Base { float w; };\n"
        "struct Closed { float a; double get() const { return b; } Closed* next; private: double b; };\n"
    )
    function = pl.udf("float32(derived, CPointer(closed))", structs=OPEN, include="d.h")(widest)
    pl.export(function, tmp_path, name="udfs", emit=["ptx"], include_dirs=[tmp_path])
    strict = {".cpp": ["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"]}
    strict[".cu"] = ["-Werror", "all-warnings", "-Xcompiler", "-Wall,-Wextra,-Werror", "-arch=sm_90"]
    strict[".cu"] += ["-cuda", "-o", str(tmp_path / "out")]
    searched = [part for path in (INCLUDE_DIR, *nvrtc.toolkit_include_dirs()) for part in ("-isystem", path)]
    source = tmp_path / f"use{suffix}"
    said = []
    for after in ("", "unsigned long after = __builtin_offsetof(Derived, w);\n"):
        source.write_text(f'#include "udfs.h"\n{after}')
        run = subprocess.run(
            [command, "-std=c++17", *strict[suffix], *searched, source],
            capture_output=True,
            text=True,
            check=False,
        )
        said.append((run.returncode == 0, "offsetof" in run.stderr, "udfs.h" in run.stderr))
    assert [(True, False, False), (False, True, False)] == said


def first(p):
    """Return a member."""
    return p.a


integers = np.dtype(
    [
        *[("uintptr", "u8"), ("intptr", "i8"), ("uintmax", "u8"), ("intmax", "i8")],
        *[("uint_least32", "u4"), ("int_least8", "i1"), ("ptrdiff", "i8"), ("size", "u8")],
    ],
    align=True,
)


def second(pointer):
    """Read what a pointer points to."""
    return pointer[0].intptr


@pytest.mark.parametrize("prefix", ["", "std::"])
def test_integers_of_the_standard_headers(prefix, tmp_path):
    """NVRTC, which has no standard headers, knows the integers that <cstdint> and <cstddef> name."""
    members = "".join(f"{prefix}{name}_t {name};" for name in integers.names)
    headers = ("<cstdint>", "<cstddef>") if prefix else ("<stdint.h>", "<stddef.h>")
    text = "".join(f"#include {header}\n" for header in headers)
    (tmp_path / "s.h").write_text(f"{text}struct S {{ {members} }};\n")
    function = pl.udf("float64(CPointer(integers))", structs={integers: "S"}, include="s.h")(second)
    exported = pl.export([function], None, emit=["ptx"], include_dirs=[tmp_path], name="u")
    assert ["double second(S* pointer)"] == [str(signature) for signature in exported.signatures]
