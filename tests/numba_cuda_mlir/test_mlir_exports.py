"""Exports by numba-cuda-mlir: kinds of artifacts, options, helpers, link files, and equal bytes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import abi_rows as rows
import front_ends
import pytest

import numba_ptxlink as pl
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._tools import nvjitlink

# Each is an export in a process of its own.
pytestmark = pytest.mark.slow
NAME = "numba-cuda-mlir"
cuda, types = front_ends.cuda(NAME), front_ends.get(NAME).types
MODULE = Path(__file__).parents[1] / "helpers" / "mlir_udfs.py"
WORKER = """
import sys
import numba_ptxlink as pl
pl.export(sys.argv[1], sys.argv[2], archs=["sm_80", "sm_100"], lineinfo=True)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return the folder of the module's export by a process of its own."""
    return export_elsewhere(tmp_path_factory.mktemp("seed1"), "1")


def export_elsewhere(folder, seed):
    """Export the module to *folder* in a process with this hash seed, the cache off."""
    environ = {**os.environ, "PYTHONHASHSEED": seed, "NUMBA_PTXLINK_CACHE": "0"}
    command = [sys.executable, "-c", WORKER, str(MODULE), str(folder)]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.slow
def test_two_processes_write_the_same_bytes(exported, tmp_path):
    """Every artifact, the header and the manifest depend on the functions and the tools alone."""
    first, second = (
        {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        for folder in (exported, export_elsewhere(tmp_path, "2"))
    )
    assert {path.rpartition(".")[2] for path in first} == {"h", "json", "ptx", "ltoir", "cubin", "fatbin"}
    assert [] == [name for name in first if first[name] != second.get(name)]


@pytest.mark.parametrize("front_end", ["numba-cuda", NAME])
def test_line_numbers_are_those_of_a_file_that_tools_find(tmp_path, monkeypatch, front_end):
    """PTX names the source by its absolute path, also where the export was given a relative one."""
    pytest.importorskip(front_end.replace("-", "_"))
    for name in ("first", 'odd "Größe"'):
        folder = tmp_path / name / "sub"
        folder.mkdir(parents=True)
        (folder / "at.py").write_text(
            "from numba_ptxlink import udf\n"
            f'@udf("float32(float32)", front_end="{front_end}")\n'
            "def at(x):\n    return x / 3\n"
        )
        monkeypatch.chdir(folder.parent)
        exported = pl.export("sub/at.py", archs=["sm_90", "sm_100"], emit="ptx", lineinfo=True)
        for arch in ("sm_90", "sm_100"):
            ptx = exported.read("ptx", arch)
            files = re.findall(rb'^\s*\.file\s+\d+ "(.*)"', ptx, re.MULTILINE)
            plain = [
                re.sub(rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]), each).replace(b"\\", b"")
                for each in files
            ]
            assert [os.fsencode(folder / "at.py")] == plain, ptx


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_the_code_is_what_the_functions_say(exported, arch):
    """Launch bounds, constants, both kinds of shared memory, and lines of the source."""
    ptx = (exported / f"mlir_udfs.{arch}.ptx").read_text()
    module = parse(ptx)
    assert {".maxntid 128", ".minnctapersm 2"} <= {line.partition(",")[0] for line in ptx.splitlines()}
    assert any(each.space == "const" for each in module.variables)
    assert ".extern .shared .align 16 .b8 numba_ptxlink_dynamic_shared[];" in ptx
    assert re.search(r"\.shared .*\[512\];", ptx)
    assert 'mlir_udfs.py"' in ptx
    assert len(re.findall(r"^\s*\.loc\s", ptx, re.MULTILINE)) > 10
    visible = {each.name for each in module.functions if each.defined and each.linkage == "visible"}
    assert {"power", "weighted", "called", "reversed_blocks"} == visible
    assert not re.search(r"\d{12}", " ".join(each.name for each in module.functions))


def test_the_artifacts_can_be_linked(exported, tmp_path):
    """C++ that supplies what is missing links with PTX, and with LTO-IR into one kernel without a call."""
    header = (exported / "mlir_udfs.h").read_text()
    assert "cuFloatComplex supplied(__half arg0, cuFloatComplex arg1);" in header
    (tmp_path / "mlir_udfs.h").write_text(header)
    source = """
        #include "mlir_udfs.h"
        extern "C" __device__ cuFloatComplex supplied(__half h, cuFloatComplex z) { return z; }
        extern "C" __global__ void all(float* out) {
            *out = weighted(3, *out) + called(__float2half(*out), make_cuFloatComplex(*out, 1)).x;
        }
    """
    for kind, flags in (("ptx", []), ("ltoir", ["-lto"])):
        caller = rows.nvrtc(source, "sm_80", tmp_path, kind)
        code = (exported / f"mlir_udfs.sm_80.{kind}").read_bytes()
        inputs = [(kind, "caller", caller), (kind, "udfs", code)]
        assert nvjitlink.link(inputs, ["-arch=sm_80", *flags], output="cubin").code
    linked = nvjitlink.link(inputs, ["-arch=sm_80", "-lto", "-ptx"], output="ptx").code.decode()
    body = linked[linked.index(".entry all") :].partition("\n}")[0]
    assert ["factorial"] != re.findall(r"call.*?\b(supplied|weighted|called)\b", body, re.DOTALL) == []


@pytest.mark.parametrize("arch", ["sm_90", pytest.param("sm_100", marks=pytest.mark.slow)])
def test_kernels_outlive_link_time_optimisation(arch, tmp_path):
    """A kernel is in the code that is made of LTO-IR alone, though no code refers to it."""

    def clear(out):
        out[cuda.threadIdx.x] = 0

    def fill(out):
        out[cuda.threadIdx.x] = 1

    kernels = [pl.kernel("void(float32[::1])")(function) for function in (clear, fill)]
    made = pl.export(kernels, tmp_path, archs=[arch], emit=["ltoir"], name="kernels", front_end=NAME)
    (tmp_path / "linked.cubin").write_bytes(pl.link(made.artifacts["ltoir", arch], arch=arch, lto=True).cubin)
    symbols = pl.inspect(tmp_path / "linked.cubin").symbols
    assert {("clear", "entry"), ("fill", "entry")} == {(each.name, each.kind) for each in symbols}


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_options_change_the_code(arch, tmp_path):
    """Approximate division with fastmath, which numba-cuda-mlir itself ignores below sm_100; none without."""
    udf = pl.udf("float32(float32, float32)", name="ratio", front_end=NAME)(lambda x, y: x / y)
    texts = {}
    for fastmath in (False, True):
        made = pl.export([udf], tmp_path, archs=[arch], emit=["ptx"], fastmath=fastmath)
        texts[fastmath] = made.artifacts["ptx", arch].read_text()
    assert "div.rn.f32" in texts[False]
    assert re.search(r"div\.(approx|full)\.ftz\.f32", texts[True])
    plain = pl.export([udf], tmp_path, archs=[arch], emit=["ptx"], opt=False)
    assert "div.rn.f32" in plain.artifacts["ptx", arch].read_text()


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_link_files_are_merged_in(arch, tmp_path):
    """CUDA C++ that `declare_device(link=)` names is part of every artifact, under a private name."""
    file = tmp_path / "half.cu"
    lines = ["#include <cuda_fp16.h>", 'extern "C" __device__ __half twice(__half x) { return x + x; }', ""]
    file.write_text("\n".join(lines))
    twice = cuda.declare_device("twice", "float16(float16)", link=str(file), abi="c")

    def four_times(x):
        return twice(twice(x))

    udf = pl.udf("float16(float16)")(four_times)
    made = pl.export([udf], tmp_path, archs=[arch], emit=["ptx", "ltoir", "cubin"], front_end=NAME)
    module = parse(made.artifacts["ptx", arch].read_text())
    assert ["four_times"] == [each.name for each in module.functions if each.linkage == "visible"]
    assert [] == [each.name for each in module.functions if not each.defined]


@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_100", marks=pytest.mark.slow)])
def test_declared_functions_have_the_prototypes_of_nvrtc(arch, tmp_path):
    """`cuda.declare_device(abi="c")` declares what C++ does, for a parameter and a result of each row."""
    udfs, wanted = [], {}
    specs = [spec for spec in rows.ROWS.values() if rows.Echo((spec,)).compiles(NAME)]
    for number, spec in enumerate(specs):
        ty = rows.numba_type(spec, NAME)
        extern = cuda.declare_device(f"e{number}", ty(ty, types.int8, ty), abi="c")
        udfs.append(pl.udf(types.void(types.CPointer(types.int8), ty), name=f"f{number}")(calling(extern)))
    made = pl.export(udfs, tmp_path, archs=[arch], emit=["ltoir"], name="calls", front_end=NAME)
    declared = [line for line in made.header.read_text().splitlines() if re.search(r"\be\d+\(", line)]
    assert len(specs) == len(declared)
    callers = re.sub(r"NUMBA_PTXLINK_DEVICE (.*) (e\d+)\((.*)\);", _caller, "\n".join(declared))
    wanted = rows.prototypes(rows.nvrtc(f'#include "calls.h"\n{callers}', arch, tmp_path))
    from numba_ptxlink._front_end.protocol import CompileOptions

    compiled = rows.program(udfs, NAME, pl.Arch.of(arch), CompileOptions())
    front_end = compiled.front_end
    modules = [text for each in compiled.lowered for text in each.modules]
    ptx = front_end.compile_ir(modules, compiled.arch, CompileOptions(), lto=False)
    found = rows.prototypes(ptx.rstrip(b"\0"))
    names = [f"e{number}" for number in range(len(specs))]
    assert {name: str(wanted[name]) for name in names} == {name: str(found[name]) for name in names}


def calling(extern):
    """Return a function that calls *extern*, and writes that it did."""

    def calls(out, value):
        extern(extern(value, 1, value), 2, value)
        out[0] = 1

    return calls


def _caller(match: re.Match[str]) -> str:
    result, name, params = match.groups()
    names = ", ".join(re.findall(r"\barg\d+\b", params))
    return f'extern "C" __device__ {result} calls_{name}({params}) {{ return {name}({names}); }}'
