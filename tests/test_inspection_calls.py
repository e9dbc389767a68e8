"""The calls that are left in machine code, beside what nvdisasm shows of the instructions."""

from __future__ import annotations

import json
import re

import pytest
from linkcases import KERNEL, function, ltoir

import numba_ptxlink as pl
from numba_ptxlink._tools import nvjitlink, nvrtc
from numba_ptxlink.cli import main
from numba_ptxlink.inspection import find_tool

SOURCE = """
extern "C" __device__ int printf(const char*, ...);
extern "C" __device__ __noinline__ int leaf(int x) { return x * 3 + 1; }
extern "C" __device__ __noinline__ int middle(int x) { return leaf(x) + leaf(x + 1); }
static __device__ __noinline__ int own(int x) { return leaf(x ^ 5); }
__device__ int (*table)(int) = leaf;
extern "C" __global__ void many(int* p, int n) {
    p[0] = middle(p[1]); p[2] = own(p[3]);
    if (n) p[4] = table(p[5]);
    if (n > 3) printf("%d", n);
}
extern "C" __global__ void none(int* p) { p[0] = p[0] * p[1]; }
extern "C" __global__ void one(int* p) { p[0] = leaf(p[0]); }
extern "C" __global__ void divides(double* p) { p[0] = p[0] / p[1]; }
"""
# What nvdisasm shows: a section's name, and the direct target of a call.
_SECTION = re.compile(r'^\s*\.section\s+\.text\.([^,\s"]+)|^\.text\.(\S+):')
_CALL = re.compile(r"\bCALL\S*\s+(?:R\d+\s+)?`\((\S+?)\)")


def ptx(arch: str) -> bytes:
    """Return the source as PTX."""
    return nvrtc.compile_source(SOURCE, "calls.cu", pl.Arch.of(arch), output="ptx").code.rstrip(b"\0")


def cubins(arch: str) -> dict[str, bytes]:
    """Return machine code of the source by each way to it."""
    text, flags = ptx(arch), [f"-arch={arch}"]
    code = nvrtc.compile_source(SOURCE, "calls.cu", pl.Arch.of(arch), output="ltoir").code
    return {
        "relocatable": pl.assemble(text, arch, relocatable=True).code,
        "assembled": pl.assemble(text, arch).code,
        "linked": nvjitlink.link([("ptx", "calls", text)], flags).code,
        "optimised": nvjitlink.link([("ltoir", "calls", code)], [*flags, "-lto"]).code,
    }


def disassembled(sass: str) -> dict[str, set[str]]:
    """Return the targets of the direct calls in each function, without the name of the section's own."""
    targets: dict[str, set[str]] = {}
    owner = ""
    for line in sass.splitlines():
        if section := _SECTION.match(line):
            owner = section[1] or section[2]
        for name in _CALL.findall(line):
            if name not in (owner, "__UFT_OFFSET"):
                plain = re.sub(r"^\$__internal_\d+_\$", "", name.removeprefix(f"${owner}$"))
                targets.setdefault(owner, set()).add(plain)
    return targets


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_120"])
def test_the_calls_are_those_that_nvdisasm_shows(arch):
    """In relocatable and linked code, with and without link-time optimisation."""
    if find_tool("nvdisasm") is None:
        pytest.skip("there is no nvdisasm")
    for way, cubin in cubins(arch).items():
        report = pl.inspect(cubin)
        shown = disassembled(report.sass)
        told = {symbol.name: set(symbol.calls) for symbol in report.symbols}
        private = {name: callees for name, callees in shown.items() if name not in told}
        for name, callees in told.items():
            # The calls of private functions count as their callers'.
            inner = set().union(*(private.get(callee, set()) for callee in shown.get(name, set())))
            # What a register holds has no name in linked code.
            assert callees - {"vprintf"} == (shown.get(name, set()) | inner) - {"vprintf"}, (way, name)
        assert {"leaf", "middle", "vprintf"} <= told["many"], way
        assert any("div_rn_f64" in name for name in told["divides"]), way
        assert (set(), {"leaf"}) == (told["none"], told["one"]), way


def test_calls_through_pointers_are_told_where_they_are_recorded():
    """Relocatable code has them, and what nvJitLink links of it."""
    told = {
        way: [symbol.name for symbol in pl.inspect(cubin, sass=False).symbols if symbol.calls_pointers]
        for way, cubin in cubins("sm_90").items()
    }
    assert {"relocatable": ["many"], "assembled": [], "linked": ["many"], "optimised": []} == told


POINTERS = """
extern "C" __device__ float sq(float);
extern "C" __device__ int printf(const char*, ...);
static __device__ __noinline__ float own(float (*f)(float), float x) { return f(x) + 1; }
extern "C" __global__ void k(float* x, float (*f)(float)) { x[0] = sq(x[0]); x[1] = f(x[1]); }
extern "C" __global__ void within(float* x, float (*f)(float)) { x[0] = own(f, x[0]); }
extern "C" __global__ void prints(float* x) { printf("%f", sq(x[0])); }
"""
SQUARE = 'extern "C" __device__ __noinline__ float sq(float x) { return x * x; }'


@pytest.mark.parametrize(
    "arch", ["sm_90", *(pytest.param(arch, marks=pytest.mark.slow) for arch in ("sm_75", "sm_100", "sm_120"))]
)
def test_calls_through_pointers_are_read_out_of_finished_code(tmp_path, capsys, arch):
    """Its instructions tell them, and not those of functions that the driver brings."""
    if find_tool("nvdisasm") is None:
        pytest.skip("there is no nvdisasm")
    path = tmp_path / "k.cubin"
    path.write_bytes(pl.link(POINTERS, SQUARE, arch=arch, lto=False).cubin)
    assert main(["inspect", "--json", str(path)]) == 0
    told = {each["name"]: each for each in json.loads(capsys.readouterr().out)["symbols"]}
    assert {"k", "within"} == {name for name, each in told.items() if each["calls_pointers"]}
    assert main(["inspect", str(path)]) == 0
    assert "what a pointer points to\n" in capsys.readouterr().out


@pytest.mark.parametrize(("inline", "left"), [("none", ["f"]), ("all", [])])
def test_the_report_says_whether_a_call_was_inlined(tmp_path, capsys, inline, left):
    """As text and as JSON."""
    path = tmp_path / "k.cubin"
    path.write_bytes(pl.link(KERNEL, function(), arch="sm_80", inline=inline).cubin)
    assert main(["inspect", "--no-sass", "--json", str(path)]) == 0
    symbols = json.loads(capsys.readouterr().out)["symbols"]
    assert [left] == [symbol["calls"] for symbol in symbols if symbol["name"] == "k"]
    assert main(["inspect", "--no-sass", str(path)]) == 0
    assert bool(left) == ("      calls f\n" in capsys.readouterr().out)


def test_ptx_and_ltoir_tell_calls_too():
    """They are compiled to tell resources."""
    for code in (ptx("sm_90"), ltoir(SOURCE, "sm_90")):
        report = pl.inspect(code, arch="sm_90", sass=False)
        assert ("leaf",) == {symbol.name: symbol.calls for symbol in report.symbols}["one"]
