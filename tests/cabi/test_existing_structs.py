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
from numba_ptxlink._tools import nvrtc
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
        marked(front_end), folder, name="udfs", archs=["sm_90"], emit=["ptx", "ltoir"], include_dirs=[folder]
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
        marked("numba-cuda"), name="udfs", archs=["sm_90"], emit=["kernels"], include_dirs=[folder]
    )
    types = json.loads(exported.contents["udfs.json"])["types"]
    assert (32, 16) == (types["ns::Particle"]["size"], types["ns::Particle"]["align"])
    assert ["pos", "mass", "id", "kind"] == [each["name"] for each in types["ns::Particle"]["members"]]
    assert {"x", "y", "z"} == {each["name"] for each in types["::ns::Vec"]["members"]}
    assert "fill" in pl.load(exported)


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


def export_of(dtype, name, folder, text, *, pointer=True):
    """Export a function of *dtype*, or of a pointer to it, which C++ has as *name* in a header."""
    (folder / "p.h").write_text(f"#include <stdint.h>\n#include <vector_types.h>\n{text}\n")
    function = pl.udf((of_pointer(dtype) if pointer else dtype,), structs={dtype: name}, include="p.h")(
        nothing
    )
    return pl.export(function, emit=["ptx"], include_dirs=[folder])


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
NO_VALUE = "has structs .*: P is not trivially copyable"
COMPARED = "cannot compare .*"
REFUSED = {
    "size": ("v f4, w i4", "struct P { double v; int w; };", "the size of P::v is not 4"),
    "float": ("v f4, w i4", "struct P { int v; int w; };", "P::v is not floating point"),
    "integer": ("v f4, w i4", "struct P { float v; float w; };", "P::w is not of the kind int"),
    "unsigned": ("v f4, w i4", "struct P { float v; unsigned w; };", "P::w is not of the kind int"),
    "signed": ("v f4, w u4", "struct P { float v; int w; };", "P::w is not of the kind uint"),
    "enum": ("v f4, w u4", "enum class E { a }; struct P { float v; E w; };", "P::w is not of the kind uint"),
    "order": (
        "v f4, w i4",
        "struct P { int w; float v; };",
        "offset of P::v is not 0; the offset of P::w",
    ),
    "more": ("v f4, w i4", "struct P { float v; int w, x; };", "the size of P is not 8"),
    "alignment": (
        "v f4, w i4",
        "struct alignas(8) P { float v; int w; };",
        r"the alignment of P is not 4\. .*alignas\(N\)",
    ),
    "padding": ("n i4, z c16", "struct P { int n; alignas(16) double z[2]; };", "the size of P is not 24"),
    "class for an array": ("v f4 (4,)", "struct P { float4 v; };", "P::v is not floating point"),
    "shape": ("m f4 (2,3)", "struct P { float m[3][2]; };", r"the size of P::m\[0\] is not 12"),
    "elements": ("s i2 (4,)", "struct P { int s[2]; };", r"the size of P::s\[0\] is not 2"),
    "nested": (
        "nested",
        "struct In { float v[3]; int k; }; struct P { int id; In in[2]; };",
        r"the offset of P::in\[0\]\.k is not 4",
    ),
    "reference": ("v u8, w i8", "struct P { float& v; long long w; };", "P"),
    "virtual": (
        "v f4, w i4",
        "struct P { float v; int w; virtual float f() const { return v; } };",
        NO_VALUE,
    ),
    "destructor": ("v f4, w i4", "struct P { float v; int w; ~P() {} };", NO_VALUE),
    "private": ("v f4, w i4", "class P { float v; int w; };", f"{COMPARED}inaccessible.* private members"),
    "bit field": ("v f4, w i4", "struct P { float v; int w : 3; };", f"{COMPARED}bit field"),
    "declared": ("v f4, w i4", "struct P;", f"{COMPARED}incomplete"),
    "member": ("v f4, w i4", "struct P { float u; int w; };", f'{COMPARED}has no member "v"'),
    "name": ("v f4, w i4", "struct Q { float v; int w; };", f'{COMPARED}identifier "P" is undefined'),
    "template": ("v f4, w i4", "template <class T> struct P { T v; int w; };", f"{COMPARED}argument list"),
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
    """The export says what differs, by the names in Python, before C++ is compiled."""
    fields, definition, reason = REFUSED[case]
    dtype = NESTED if fields == "nested" else dtype_of(fields)
    with pytest.raises(pl.AbiError, match=f"(?s){reason}") as caught:
        export_of(dtype, "P", tmp_path, definition)
    assert "P stands for Record(" in str(caught.value)


AGREES = {
    "nested": ("struct In { int k; float v[3]; }; struct P { int id; In in[2]; };", None),
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
    "base": ("struct B { float v; }; struct P : B { int w; };", "v f4, w i4"),
    "union": ("struct P { union { float v; int u; }; int w; };", "v f4, w i4"),
}


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.slow) for case in AGREES])
def test_what_agrees_is_exported(case, tmp_path):
    """Signs of char, bool and enums without a type do not matter; nor do const, bases and unions."""
    definition, fields = AGREES[case]
    dtype = dtype_of(fields) if fields else NESTED
    assert export_of(dtype, "P", tmp_path, definition).signatures


Word_ = np.dtype([("Word_", "f4"), ("float_", "i4")])


def test_members_keep_the_names_that_cxx_has(tmp_path):
    """A generated header would rename a member that is called like its record."""
    inner = np.dtype([("in", Word_)])
    definition = "struct Word { float Word_; int float_; }; struct Has { Word in; };"
    assert export_of(inner, "Has", tmp_path, definition).signatures


def put(ps, p):
    """Write a struct."""
    ps[0] = p


def test_a_header_that_is_missing_is_named(tmp_path):
    """The error names the header and where it was looked for."""
    function = pl.udf("float32(flat)", structs={flat: "ns::P"}, include="p.h")(mass)
    with pytest.raises(pl.AbiError, match=r'"p.h", which is to define ns::P, is not found in .*include_dirs'):
        pl.export(function, emit=["ptx"], include_dirs=[tmp_path])


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
        ({"structs": {flat: "alignas(32) P"}}, "itemsize of 16: give it 32"),
        ({"structs": {np.float32: "P"}}, "give it for a structured dtype"),
        ({"structs": ["P"]}, "pass a dict"),
        ({"include": 3}, "pass a name or several"),
    ],
)
def test_what_names_no_struct_is_refused(options, reason):
    """So are alignments that C++ does not have, and types that are no structs."""
    with pytest.raises(pl.AbiError, match=reason):
        pl.export(pl.udf("float32(flat)", **options)(mass), emit=["ptx"])


def test_what_is_not_copied_is_no_value(tmp_path):
    """A deleted copy constructor is told, with what to pass instead."""
    definition = "struct P { float v; int w; P(const P&) = delete; };"
    with pytest.raises(pl.AbiError, match=r"deleted.*copied: .*by types\.CPointer"):
        export_of(dtype_of("v f4, w i4"), "P", tmp_path, definition, pointer=False)


def test_one_name_for_two_layouts_is_refused(tmp_path):
    """C++ has one struct of a name."""
    (tmp_path / "p.h").write_text("struct P { float mass; long long id; };\n")
    one = pl.udf("float32(flat)", name="one", structs={flat: "P"}, include="p.h")(mass)
    other = pl.udf("float32(particle)", name="other", structs={particle: "P"}, include="p.h")(mass)
    with pytest.raises(
        pl.AbiError,
        match=r"Two structs would be named P: .* of one, with the members .* and .* of other, with",
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
