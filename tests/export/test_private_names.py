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

CALLER = """
extern "C" __device__ float first(float);
extern "C" __device__ float second(float);
extern "C" __global__ void caller(float* x) { x[0] = first(x[1]) + second(x[2]); }
"""
ENTRY = 'extern "C" __device__ float entry(float x) { return '


def exported(folder, source, name="first", result=1):
    """Export a function *name* that calls `entry` of *source*."""
    file = cuda.CUSource(source, name="file.cu")
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
    ("source", "constant"),
    [
        ("#ifdef bias\n#define B 100\n#else\n#define B 7\n#endif\n"
         "__device__ __noinline__ float bias(float x) { return x + B; }\n" + ENTRY + "bias(x); }", 7),
        ("#define S(a) #a\n#define N(a) S(a)\n__device__ __noinline__ float bias(float x) { return x; }\n"
         + ENTRY + "bias(x) + sizeof(N(bias)); }", 5),
        ("__device__ __noinline__ float bias(float x) { return x + sizeof(__func__); }\n"
         + ENTRY + "bias(x); }", 5),
    ],
    ids=["ifdef", "string", "func"],
)  # fmt: skip
def test_a_name_that_the_code_asks_for_stays(tmp_path, caplog, source, constant):
    """The result is that of plain C++; the other names of the file are private all the same."""
    with caplog.at_level(logging.WARNING):
        export = exported(tmp_path, f"__device__ int other = 3;\n{source}", result=0)
    added = re.findall(r"add(?:\.rn)?\.f32.*0f(\w{8})", artifact(export, "ptx").read_text())
    assert {bits_of(constant)} == {*added} - {bits_of(0)}
    assert {"_Z4biasf"} == public(export)
    (message,) = [record.getMessage() for record in caplog.records]
    assert "bias(float)" in message
    assert "entry" not in message


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
             + ENTRY + "float(__half(x) & __half(x)); }", {"_Zan6__halfS_"}),
    "vector": ("__device__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y); }\n"
               + ENTRY + "(make_float2(x, x) + make_float2(x, x)).x; }", {"_Zpl6float2S_"}),
    "literal": ('__device__ float operator""_k(long double v) { return float(v) * 3; }\n'
                + ENTRY + "x + 2.0_k; }", {"_Zli2_ke"}),
    "member": ("__device__ float x;\n__device__ float y_of(float v) { return v + threadIdx.x; }\n"
               + ENTRY.replace("float x)", "float v)") + "y_of(v) + x; }", {"x"}),
}  # fmt: skip


@pytest.mark.parametrize("name", OPERATORS)
def test_one_name_costs_only_itself(tmp_path, caplog, name):
    """What cannot be renamed is named in one warning; the rest is private, and every artifact links."""
    source, kept = OPERATORS[name]
    with caplog.at_level(logging.WARNING):
        export = exported(tmp_path, source)
    assert kept == public(export)
    assert len(caplog.records) == len(kept)
    for kind in ("ptx", "ltoir"):
        files = artifact(export, kind)
        caller = CALLER.replace("second(x[2])", "0")
        assert b"caller" in pl.link(caller, files, arch="sm_90", lto=kind == "ltoir").cubin


@pytest.mark.parametrize("name", ["class", "half_and_class"])
def test_two_exports_with_an_operator_link_as_ltoir(tmp_path, name):
    """An operator is private by a class of the file among its operands."""
    made = [exported(tmp_path, OPERATORS[name][0], symbol) for symbol in ("first", "second")]
    files = [artifact(export, "ltoir") for export in made]
    assert b"caller" in pl.link(CALLER, *files, arch="sm_90", lto=True).cubin


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


def test_a_definition_that_is_lost_is_an_error(tmp_path, monkeypatch):
    """An export whose link file does not define what it should is no success."""
    monkeypatch.setattr(private_names, "choose", lambda *_: frozenset({"__half"}))
    with pytest.raises(pl.ExportError, match=r"undefined after file"):
        exported(tmp_path, OPERATORS["half_and_class"][0])
