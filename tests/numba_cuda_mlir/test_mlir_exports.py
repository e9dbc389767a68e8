"""Exports by numba-cuda-mlir: kinds of artifacts, options, helpers, link files, and equal bytes."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import abi_rows as rows
import front_ends
import processes
import pytest

import numba_ptxlink as pl
from numba_ptxlink._formats.ptx import parse

NAME = "numba-cuda-mlir"
cuda, types = front_ends.cuda(NAME), front_ends.get(NAME).types
MODULE = Path(__file__).parents[1] / "helpers" / "mlir_udfs.py"
WORKER = """
import sys
import numba_ptxlink as pl
pl.export(sys.argv[1], sys.argv[2], arch=["sm_80", "sm_100"], lineinfo=True)
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return the folder of the module's export by a new process."""
    return export_elsewhere(tmp_path_factory.mktemp("seed1"), "1")


def export_elsewhere(folder, seed):
    """Export the module to *folder* in a process with this hash seed, the cache off."""
    environ = {**os.environ, "PYTHONHASHSEED": seed, "NUMBA_PTXLINK_CACHE": "0"}
    command = [sys.executable, "-c", WORKER, str(MODULE), str(folder)]
    processes.run(*command, env=environ)
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


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
def test_the_code_is_what_the_functions_say(exported, arch):
    """Launch bounds, constants, both kinds of shared memory, and lines of the source."""
    ptx = (exported / f"mlir_udfs.{arch}.ptx").read_text()
    module = parse(ptx)
    assert {".maxntid 128", ".minnctapersm 2"} <= {line.partition(",")[0] for line in ptx.splitlines()}
    assert any(variable.space == "const" for variable in module.variables)
    assert ".extern .shared .align 16 .b8 numba_ptxlink_dynamic_shared[];" in ptx
    assert re.search(r"\.shared .*\[512\];", ptx)
    assert 'mlir_udfs.py"' in ptx
    assert len(re.findall(r"^\s*\.loc\s", ptx, re.MULTILINE)) > 10
    visible = {
        function.name for function in module.functions if function.defined and function.linkage == "visible"
    }
    assert {"power", "weighted", "called", "reversed_blocks"} == visible
    assert not re.search(r"\d{12}", " ".join(function.name for function in module.functions))


@pytest.mark.parametrize("arch", ["sm_90", pytest.param("sm_100", marks=pytest.mark.slow)])
def test_kernels_outlive_link_time_optimisation(arch, tmp_path):
    """A link of LTO-IR alone keeps a kernel, though no code refers to it."""

    def clear(out):
        shared = cuda.shared.array(0, dtype=types.float32)
        out[cuda.threadIdx.x] = shared[0]

    def fill(out):
        out[cuda.threadIdx.x] = 1

    kernels = [pl.kernel("void(float32[::1])")(function) for function in (clear, fill)]
    exported = pl.export(
        kernels, tmp_path, arch=[arch], emit=["ptx", "ltoir"], name="kernels", front_end=NAME
    )
    assert ".extern .shared" in exported.artifacts["ptx", arch].read_text()
    (tmp_path / "linked.cubin").write_bytes(
        pl.link(exported.artifacts["ltoir", arch], arch=arch, lto=True).cubin
    )
    symbols = pl.inspect(tmp_path / "linked.cubin").symbols
    assert {("clear", "entry"), ("fill", "entry")} == {(symbol.name, symbol.kind) for symbol in symbols}


def test_narrow_arguments_of_what_cxx_defines_are_refused(tmp_path):
    """numba-cuda-mlir leaves the upper bits of a register as they are, which C++ relies on."""
    narrow = cuda.declare_device("narrow", "int32(int8)", abi="c")
    udf = pl.udf("int32(int8)", name="f")(lambda x: narrow(x))  # noqa: PLW0108
    with pytest.raises(pl.ExportError, match=r"arguments of narrow .* declare the parameters as int32"):
        pl.export([udf], tmp_path, arch="sm_90", emit=["ptx"], name="narrow", front_end=NAME)


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_what_a_program_prints_is_not_edited(arch):
    """Texts that look like LLVM IR are in the PTX as they are."""
    text = "a nuw b emissionKind: , -i64:64:64-f32 @f numba_ptxlink_inner !{i32 2,"

    def says(x):
        print("a nuw b emissionKind: , -i64:64:64-f32 @f numba_ptxlink_inner !{i32 2,", x)  # noqa: T201

    udf = pl.udf("void(int32)", name="f", front_end=NAME)(says)
    ptx = pl.export([udf], arch=arch, emit="ptx").read("ptx", arch).decode()
    assert ", ".join(str(byte) for byte in text.encode()) in ptx


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_a_missing_value_is_zero_without_a_branch(arch):
    """NVVM compiles the choice between a value and zeros in both of its dialects."""
    echoes = [rows.Echo((("optional", spec),)) for spec in ("boolean", "float16", ("vector", "float32x3"))]
    ptx = rows.build(rows.lower(echoes, arch, NAME), arch, "ptx").artifacts["ptx"].decode()
    bodies = ptx.split(".visible .func")[1:]
    assert [True] * 3 == [("selp" in body or "and" in body) and "bra" not in body for body in bodies]
