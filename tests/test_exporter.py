"""Exports: from a Python file to symbols that C++ can link, without a driver."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import numba_ptxlink as pl

MODULE = Path(__file__).parent / "helpers" / "udfs_module.py"
COMMAND = (sys.executable, "-m", "numba_ptxlink.cli")
SYMBOLS = ["blend", "scale_in_place", "every_type", "negate", "checked", "calls_another"]
CALLER = """
#include "udfs_module.h"
extern "C" __global__ void caller(float* p, int n, double* out) {
    int8_t every = every_type(-1, 2, -3, 4, -5, 6, -7, 8, negate(true), 1.5f, 2.5, p);
    scale_in_place(p, n);
    out[n] = blend(p[n], every) + checked(n) + calls_another(out[n]);
}
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> pl.Export:
    """Return an export of every kind for two architectures."""
    return pl.export(MODULE, tmp_path_factory.mktemp("export"), arch=["sm_80", "sm_90"])


def write(folder: Path, body: str, name: str = "mine.py") -> Path:
    """Write a Python file that imports `udf`."""
    path = folder / name
    path.write_text(f"from numba_ptxlink import udf\n{body}\n")
    return path


@pytest.mark.parametrize("kind", ["ptx", "ltoir", "cubin", "fatbin"])
def test_every_kind_links_with_an_nvrtc_kernel(exported, kind):
    """A kernel that NVRTC built from the header links with each kind of artifact."""
    artifact = exported.artifacts[kind, "" if kind == "fatbin" else "sm_90"]
    linked = pl.link(CALLER, artifact, arch="sm_90", include_dirs=[exported.header.parent])
    assert linked.cubin[:4] == b"\x7fELF"
    assert b"caller" in linked.cubin
    assert linked.lto is (kind == "ltoir")


def test_the_manifest_describes_the_files(exported):
    """The manifest lists functions with their C declarations, files with their hashes, and tool versions."""
    manifest = json.loads(exported.manifest.read_text())
    assert SYMBOLS == [function["symbol"] for function in manifest["functions"]]
    assert manifest["functions"][0]["declaration"] == "float blend(float x, int8_t n);"
    assert manifest["functions"][0]["prototype"] == ".func (.b32) blend(.b32, .b32)"
    assert manifest["functions"][0]["source"].startswith("udfs_module.py:")
    assert "cooperative" not in manifest["functions"][0]
    assert manifest["archs"] == ["sm_80", "sm_90"]
    assert manifest["externs"] == []
    assert {"nvptxcompiler", "numba-ptxlink", "numba-cuda", "nvidia-nvvm"} <= set(manifest["tools"])
    for file in (manifest["header"], *manifest["artifacts"]):
        content = (exported.header.parent / file["file"]).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (file["bytes"], file["sha256"])
    assert len(manifest["artifacts"]) == len(exported.artifacts)


def test_another_process_exports_the_same_bytes(exported, tmp_path):
    """Exports are reproducible: another process, with another hash seed, writes the same files."""
    subprocess.run(
        [*COMMAND, "export", str(MODULE), "-o", str(tmp_path), "--arch", "sm_80", "--arch", "sm_90"],
        check=True,
        capture_output=True,
        cwd=tmp_path,
        env={**os.environ, "PYTHONHASHSEED": "1"},
    )
    names = {"udfs_module.h", "udfs_module.json", "udfs_module.fatbin"}
    names |= {f"udfs_module.{a}.{k}" for a in ("sm_80", "sm_90") for k in ("ptx", "ltoir", "cubin")}
    assert names == {path.name for path in exported.header.parent.iterdir()}
    for name in names:
        assert (exported.header.parent / name).read_bytes() == (tmp_path / name).read_bytes(), name


def test_a_udf_stays_callable():
    """A marked function is called as plain Python, with its name and docstring."""

    @pl.udf("int32(int32)", name="plus_one")
    def successor(x):
        """Add one."""
        return x + 1

    assert (successor(1), successor.__name__, successor.__doc__, successor.name) == (
        2,
        "successor",
        "Add one.",
        "plus_one",
    )


def test_attributes_of_the_function_are_not_the_marks():
    """Attributes that the user sets on a function do not change the export."""

    def square(x):
        return x * x

    square.name, square.signature = "other", "int8(int8)"
    marked = pl.udf("float32(float32)", name="wanted")(square)
    assert "float wanted(float x)" == str(pl.export(marked, arch="sm_90", emit="ptx").signatures[0])


def test_a_failing_export_leaves_the_earlier_one(tmp_path):
    """An export that fails changes none of the files that an earlier one wrote."""
    path = write(tmp_path, "@udf('int32(int32)')\ndef f(x):\n    return x")
    out = tmp_path / "out"
    pl.export(path, out, emit=["ptx"])
    before = {path.name: path.read_bytes() for path in out.iterdir()}
    write(tmp_path, "@udf('int32(int32)')\ndef f(x):\n    return undefined_name(x)")
    with pytest.raises(pl.ExportError):
        pl.export(path, out, emit=["ptx"])
    assert before == {path.name: path.read_bytes() for path in out.iterdir()}


@pytest.mark.parametrize(
    ("body", "error", "message"),
    [
        (
            "@udf('int32(int32)')\ndef f(x):\n    return open(x)",
            pl.ExportError,
            "could not compile f for sm_90",
        ),
        (
            "@udf('int33(int32)')\ndef f(x):\n    return x",
            pl.AbiError,
            "mine.py:2: error: Function f: 'int33(int32)' is not a Numba signature",
        ),
        (
            """@udf('int32(int32)')\ndef f(x):\n    return x
@udf('int64(int64)', name='f')\ndef g(x):\n    return x""",
            pl.AbiError,
            "mine.py:5: error: 'f', the C name of function g, is taken by another function of this export",
        ),
        (
            "@udf('int32(int32)', name='for')\ndef f(x):\n    return x",
            pl.AbiError,
            "'for', the C name of function f, is a reserved word of C, C++ or CUDA C++; use 'for_'",
        ),
        (
            "@udf('float64(float64)')\ndef sin(x):\n    return x",
            pl.AbiError,
            "mine.py:2: error: C++ calls another function of the name sin: one of CUDA, not .func (.b64) sin",
        ),
        (
            "@udf\ndef f(x):\n    return x",
            pl.ExportError,
            'udf() needs a signature: write @udf("float32(float32)").',
        ),
        (
            "udf('int32(int32)')(len)",
            pl.ExportError,
            "udf() decorates Python functions, not builtin_function_or_method",
        ),
        (
            "f = udf('int32(int32)')(lambda x: x)",
            pl.AbiError,
            "'<lambda>', the C name of function <lambda>, is not a C identifier; use 'lambda',",
        ),
        (
            "@udf('int32(int32)', on_error='abort')\ndef f(x):\n    return x",
            pl.ExportError,
            "mine.py:2: error: on_error is 'abort'; the choices are zero, trap.",
        ),
    ],
)
def test_a_module_that_cannot_be_exported(tmp_path, body, error, message):
    """An error in a module names the function, the line and the cure."""
    with pytest.raises(error) as caught:
        pl.export(write(tmp_path, body), tmp_path / "out", arch="sm_90", emit=["ptx"])
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "arch",
    ["sm_80,sm_90", ["sm_80", (9, 0)], (pl.Arch.of("sm_80"), "sm_90"), "sm_90", pl.Arch.of("sm_90"), (9, 0)],
)
def test_architectures_and_kinds_are_one_or_several(arch):
    """Each accepts one value, several, or text with commas as on the command line."""
    function = pl.udf("float32(float32)", name="f")(lambda x: x)
    result = pl.export(function, arch=arch, emit="ptx, cubin")
    single = arch in ("sm_90", pl.Arch.of("sm_90"), (9, 0))
    archs = ["sm_90"] if single else ["sm_80", "sm_90"]
    assert {(kind, arch) for kind in ("ptx", "cubin") for arch in archs} == {*result.artifacts}
