"""What a link file means does not depend on the private names that its symbols get."""

from __future__ import annotations

import logging
import re
import struct

import pytest
from numba import cuda

import numba_ptxlink as pl
from numba_ptxlink._arch import Arch
from numba_ptxlink._export import private_names
from numba_ptxlink._export.build import tag
from numba_ptxlink._link import inputs, symbols
from numba_ptxlink._tools import working_directory

CALLER = """
extern "C" __device__ float first(float);
extern "C" __device__ float second(float);
extern "C" __global__ void caller(float* x) { x[0] = first(x[1]) + second(x[2]); }
"""
ENTRY = 'extern "C" __device__ float entry(float x) { return '


def exported(folder, source, name="first", result=1):
    """Export a function *name* that calls `entry` of *source*, a text or the path of a file."""
    file = source if source.endswith(".cu") else cuda.CUSource(source, name="file.cu")
    entry = cuda.declare_device("entry", "float32(float32)", abi="c", link=[file])

    def calls(x):
        return entry(x) + result

    function = pl.udf("float32(float32)", name=name)(calls)
    return pl.export([function], folder, archs=["sm_90"], emit=["ptx", "ltoir"])


def artifact(export, kind):
    """Return the path of the artifact of *kind*."""
    return export.artifacts[kind, "sm_90"]


def public(export):
    """Return what the LTO-IR of *export* defines under names that other exports may have."""
    table = symbols.table(inputs.read(artifact(export, "ltoir")), Arch.of("sm_90"))
    names = {symbol.name for symbol in table.symbols if symbol.defined and not symbol.weak}
    return {name for name in names if tag(["first"]) not in name} - {"first"}


@pytest.mark.parametrize(
    ("source", "constant", "kept"),
    [
        ("#ifdef bias\n#define B 100\n#else\n#define B 7\n#endif\n"
         "__device__ __noinline__ float bias(float x) { return x + B; }\n" + ENTRY + "bias(x); }", 7, set()),
        ("#define S(a) #a\n#define N(a) S(a)\n__device__ __noinline__ float bias(float x) { return x; }\n"
         + ENTRY + "bias(x) + sizeof(N(bias)); }", 5, set()),
        ("__device__ __noinline__ float bias(float x) { return x + sizeof(__func__); }\n"
         + ENTRY + "bias(x); }", 5, {"_Z4biasf"}),
    ],
    ids=["ifdef", "string", "func"],
)  # fmt: skip
def test_a_name_that_the_code_asks_for_is_in_a_namespace(tmp_path, caplog, source, constant, kept):
    """The result is that of plain C++; the name is private all the same, unless a namespace shows in it."""
    with caplog.at_level(logging.WARNING):
        export = exported(tmp_path, f"__device__ int other = 3;\n{source}", result=0)
    added = re.findall(r"add(?:\.rn)?\.f32.*0f(\w{8})", artifact(export, "ptx").read_text())
    assert {bits_of(constant)} == {*added} - {bits_of(0)}
    assert kept == public(export)
    assert [("bias(float)" in record.getMessage()) for record in caplog.records] == [True] * len(kept)


def bits_of(value):
    """Return the bits of a float32 as PTX has them."""
    return struct.pack(">f", value).hex().upper()


HALF = "#include <cuda_fp16.h>\n"
OPERATORS = {
    "static": ("static __device__ __noinline__ float f(float x) { return x + 1; }\n"
               "namespace {\n__device__ __noinline__ float g(float x) "
               "{ static __device__ int n; return f(x) + n++; }\n}\n"
               + ENTRY + "g(x); }", set()),
    "class": ("struct Vec { float x; };\n__device__ Vec operator*(Vec a, Vec b) { return {a.x * b.x}; }\n"
              + ENTRY + "(Vec{x} * Vec{x}).x; }", set()),
    "half_and_class": (
        HALF + "struct Vec { __half x; };\n"
        "__device__ Vec operator*(__half a, Vec b) { return {__hmul(a, b.x)}; }\n"
        + ENTRY + "float((__half(x) * Vec{__half(x)}).x); }", set()),
    "half": (HALF + "__device__ __half operator&(__half a, __half b) { return __hadd(a, b); }\n"
             + ENTRY + "float(__half(x) & __half(x)); }", set()),
    "vector": ("__device__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y); }\n"
               + ENTRY + "(make_float2(x, x) + make_float2(x, x)).x; }", set()),
    "literal": ('__device__ float operator""_k(long double v) { return float(v) * 3; }\n'
                + ENTRY + "x + 2.0_k; }", set()),
    "member": ("__device__ float x;\n__device__ float y_of(float v) { return v + threadIdx.x; }\n"
               + ENTRY.replace("float x)", "float v)") + "y_of(v) + x; }", set()),
    "pair": ("template<class T> struct V { T a; };\n"
             "__device__ V<float> operator*(V<float> a, float2 b) { return {a.a * b.x}; }\n"
             "__device__ float2 operator*(float2 a, float2 b) { return {a.x * b.x, V<float>{a.y}.a}; }\n"
             + ENTRY + "(V<float>{x} * (make_float2(x, x) * make_float2(x, x))).a; }", set()),
    "conditional": ("#ifdef __CUDACC__\n#include <cuda_fp16.h>\n#endif\n"
                    "__device__ float2 operator+(float2 a, float2 b) { return {a.x + b.x, __LINE__}; }\n"
                    + ENTRY + "(make_float2(x, x) + make_float2(x, x)).y; }", set()),
    "c_name": ('extern "C" { __device__ float x; }\n'
               "__device__ float y_of(float v) { return v + threadIdx.x; }\n"
               + ENTRY.replace("float x)", "float v)") + "y_of(v) + x; }", {"x"}),
    "hidden": ("__device__ float max(float a, float b, float2 c) { return max(max(a, b), c.x); }\n"
               "__device__ float2 operator+(float2 a, float2 b) { return {max(a.x, b.x, a), b.y}; }\n"
               + ENTRY + "(make_float2(x, x) + make_float2(x, x)).x; }",
               {"_Zpl6float2S_", "_Z3maxff6float2"}),
    "shown": ("using ::max;\n"
              "__device__ float max(float a, float b, float2 c) { return max(max(a, b), c.x); }\n"
               "__device__ float2 operator+(float2 a, float2 b) { return {max(a.x, b.x, a), b.y}; }\n"
               + ENTRY + "(make_float2(x, x) + make_float2(x, x)).x; }",
               set()),
    "spelled": ("__device__ __noinline__ float2 operator+(float2 a, float2 b) "
                "{ return {a.x + sizeof(__PRETTY_FUNCTION__), b.x}; }\n"
                + ENTRY + "(make_float2(x, x) + make_float2(x, x)).x; }", {"_Zpl6float2S_"}),
}  # fmt: skip


# Exported, linked or explained by the tests below, too, or like another one.
ALIKE = ("class", "half", "half_and_class", "pair", "shown", "spelled", "vector")


@pytest.mark.parametrize(
    "name", [pytest.param(each, marks=pytest.mark.slow if each in ALIKE else ()) for each in OPERATORS]
)
def test_one_name_costs_only_itself(tmp_path, caplog, name):
    """What cannot be renamed is named in one warning; the rest is private, and every artifact links."""
    source, kept = OPERATORS[name]
    with caplog.at_level(logging.WARNING):
        export = exported(tmp_path, source)
    assert kept == public(export)
    assert len(caplog.records) == bool(kept)
    for kind in ("ptx", "ltoir"):
        files = artifact(export, kind)
        caller = CALLER.replace("second(x[2])", "0")
        assert b"caller" in pl.link(caller, files, arch="sm_90", lto=kind == "ltoir").cubin


@pytest.mark.parametrize(
    "name",
    [
        "half_and_class",
        "vector",
        *(pytest.param(each, marks=pytest.mark.slow) for each in ("literal", "member")),
    ],
)
def test_two_exports_with_an_operator_link_as_ltoir(tmp_path, name):
    """An operator is private by a class of the file among its operands, or by a namespace around the file."""
    made = [exported(tmp_path, OPERATORS[name][0], symbol) for symbol in ("first", "second")]
    files = [artifact(export, "ltoir") for export in made]
    assert b"caller" in pl.link(CALLER, *files, arch="sm_90", lto=True).cubin


def test_what_a_header_of_the_file_defines_is_private(tmp_path, caplog):
    """A header beside the file is in the namespace, or before it where it includes a toolkit's header."""
    (tmp_path / "vector.cuh").write_text(
        "__device__ float2 operator+(float2 a, float2 b) { return {a.x + b.x, a.y}; }\n"
    )
    (tmp_path / "half.cuh").write_text(f"{HALF}inline __device__ float one() {{ return __half(1); }}\n")
    for header, more in (("vector", ""), ("half", OPERATORS["vector"][0].partition("\n")[0])):
        text = f'#include "{header}.cuh"\n{more}\n{ENTRY}(make_float2(x, x) + make_float2(x, x)).x; }}'
        (tmp_path / f"{header}.cu").write_text(text)
        export = exported(tmp_path / "out", str(tmp_path / f"{header}.cu"))
        assert set() == public(export)
    assert [] == caplog.records


def test_the_bytes_do_not_tell_where_the_file_is(tmp_path, monkeypatch):
    """Neither the folder of a link file and its headers nor the one an export runs in is in the code."""
    monkeypatch.setenv("NUMBA_PTXLINK_CACHE", "0")
    codes = []
    for name in ("a", "much/longer"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "own.cuh").write_text("__device__ __noinline__ float twice(float x) { return 2 * x; }\n")
        (folder / "own.cu").write_text(f'#include "own.cuh"\n{HALF}{ENTRY}twice(__hadd(x, x)); }}\n')
        monkeypatch.chdir(folder)
        export = exported(tmp_path / name / "out", str(folder / "own.cu"))
        codes.append([artifact(export, kind).read_bytes() for kind in ("ptx", "ltoir")])
    if working_directory.available():
        assert codes[0] == codes[1]


def test_a_clash_of_exports_names_both_and_the_cure(tmp_path):
    """The error of a link names the symbol as C++ spells it, both artifacts, and what helps."""
    files = []
    for symbol in ("first", "second"):
        export = exported(tmp_path / symbol, OPERATORS["spelled"][0], symbol)
        files.append(artifact(export, "ltoir"))
    with pytest.raises(pl.LinkError) as error:
        pl.link(CALLER, *files, arch="sm_90", lto=True)
    message = str(error.value)
    for part in ("operator+(float2, float2)", files[0].name, files[1].name, "static", "inline", "PTX"):
        assert part in message
    assert {file.name for file in files} <= {*error.value.inputs}
    files = [file.with_suffix(".ptx") for file in files]
    assert b"caller" in pl.link(CALLER, *files, arch="sm_90").cubin


@pytest.mark.parametrize(
    ("symbol", "names"),
    [
        ("_ZN5steps4nextEj", ("steps", "next")),
        ("_Zml6__half3Vec", ("Vec",)),
        ("_Zrm13__nv_bfloat16S_", ()),
        ("_ZrmN4cuda3std3__47complexIfEEf", ()),
        ("_ZrmN4cuda3std3__47complexI3FooEEf", ("Foo",)),
        ("_ZN4cuda4mine2goEf", ("mine", "go")),
        ("_Z3mix7__half2S_", ("mix",)),
        ("_Z3mix6__halfS_", ("mix",)),
        ("_Z10float4_add6float4", ("float4_add",)),
        ("_Z4make4dim3", ("make",)),
        ("curand_own", ("curand_own",)),
        ("_Zpl6float2S_", ()),
        ("_Zpl10ulong4_32aS_", ()),
        ("_Zli2_ke", ()),
    ],
)
def test_the_identifiers_to_rename(symbol, names):
    """What the toolkit defines is never renamed."""
    assert names == private_names.candidates(symbol)


def test_the_names_are_found_by_halves():
    """Each bad name is left out, and a symbol of several names gets the next."""
    asked = []

    def usable(names):
        asked.append(names)
        return names.isdisjoint({"ns", "bad"})

    chosen = private_names.choose(["_ZN2ns2goEv", "_Z3badv", "a", "b", "c", "d"], ["d"], usable)
    assert chosen == {"go", "a", "b", "c"}
    assert len(asked) <= 10


MOVED = ".version 9.0\n.target sm_90\n.address_size 64\n.visible .global .u32 {0};\n{1}"
USE = ".visible .func f()\n{{\n// begin inline asm\nst.global.u32 [{0}], 0;\n// end inline asm\nret;\n}}\n"


@pytest.mark.parametrize(
    ("used", "moved"),
    [("_ZN1t1xE", {"x": "_ZN1t1xE"}), ("x", None), ("_ZN1t1yE", None), ("_ZN1u1xE", None)],
)
def test_a_symbol_that_stays_in_places_is_not_moved(used, moved):
    """Assembly code keeps the name that it spells, so that nothing can move which it refers to."""
    plain, changed = (MOVED.format(x, USE.format(y)) for x, y in (("x", "x"), ("_ZN1t1xE", used)))
    assert moved == private_names.moved(plain, changed, {}, "t")


def test_a_definition_that_is_lost_is_an_error(tmp_path, monkeypatch):
    """An export whose link file does not define what it should is no success."""
    monkeypatch.setattr(private_names, "choose", lambda *_: frozenset({"__half"}))
    with pytest.raises(pl.ExportError, match=r"undefined after file"):
        exported(tmp_path, OPERATORS["half_and_class"][0])
