"""Exports for a toolkit and driver that are older than the compilers."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
from numba import cuda
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink import cli
from numba_ptxlink._tools import find, nvvm, programs


@pl.udf("float16(float16, float16)")
def fused(a, b):
    """Multiply and add."""
    return a * b + a


@pl.kernel(types.void(types.Array(types.float32, 1, "C"), types.float32))
def scale(values, factor):
    """Multiply each element."""
    values[cuda.grid(1)] *= factor


@pl.kernel("void(float32[::1])")
def fast(values):
    """Compute an expression that fast math changes."""
    values[0] = math.sin(values[1]) / values[2]


@pytest.fixture
def _newer():
    """Skip where the libNVVM of this environment is not newer than CUDA 13.0."""
    if nvvm.version() <= (13, 0):
        pytest.skip(f"NVVM is of CUDA {nvvm.version()}")


@pytest.fixture
def _no_ptxas(monkeypatch):
    known = find.programs
    monkeypatch.setattr(
        find,
        "programs",
        lambda name, **options: iter(()) if name == "ptxas" else known(name, **options),
    )


def versions(code):
    """Return the versions of the PTX in a fat binary or text."""
    texts = [code] if code.startswith(b"//") else []
    texts = texts or [piece.code for piece in programs.pieces(code, "code") if piece.kind == "ptx"]
    return [re.search(rb"\.version (\S+)", text)[1].decode() for text in texts]


def described(exported):
    """Return the release of each artifact, and of the tools, from the manifest."""
    manifest = json.loads(exported.contents[exported.manifest.name])
    ages = {(entry["kind"], entry["arch"] or ""): entry["oldest"] for entry in manifest["artifacts"]}
    return ages, manifest["tools"]


@pytest.mark.usefixtures("_no_ptxas")
def test_half_arithmetic_and_kernels_get_old_ptx():
    """The default leaves out impossible artifacts; all PTX has the oldest version that its text allows."""
    exported = pl.export([fused, scale], arch=["sm_80", "sm_90"], cuda="12.4", name="old")
    assert {"ptx", "fatbin", "kernels"} == {kind for kind, _ in exported.artifacts}
    assert ["7.0"] == versions(exported.read("ptx", "sm_80"))
    assert ["7.8"] == versions(exported.read("ptx", "sm_90"))
    assert ["7.0", "7.8"] == versions(exported.read("fatbin")) == versions(exported.read("kernels"))
    ages, tools = described(exported)
    assert {"toolkit": "11.0", "driver": "11.0"} == ages["ptx", "sm_80"]
    assert {"toolkit": None, "driver": "11.8"} == ages["kernels", ""]
    assert {"nvvm", "nvrtc", "nvjitlink", "nvfatbin", "nvptxcompiler"} <= tools.keys()


@pytest.mark.usefixtures("_no_ptxas")
@pytest.mark.parametrize(("release", "packed"), [("12.4", False), ("12.8", False), ("12.9", True)])
def test_no_nvlink_gets_a_compression_that_it_does_not_read(release, packed):
    """The one of CUDA 12.4 ends with "Uncompress failed" at zstd, which the drivers of its release read."""
    exported = pl.export([fused, scale], arch="sm_80", cuda=release, emit=["ptx", "fatbin"], name="packed")
    ages, _ = described(exported)
    assert packed is (b"\x28\xb5\x2f\xfd" in exported.read("fatbin"))
    assert ages["fatbin", ""]["toolkit"] == ("12.9" if packed else ages["ptx", "sm_80"]["toolkit"])


def test_a_manifest_states_the_age_of_everything():
    """Without a release, the artifacts have the releases of the tools, which the manifest states."""
    exported = pl.export([scale], arch="sm_80", name="new")
    ages, tools = described(exported)
    release = tools["nvvm"]
    assert {"toolkit": release, "driver": None} == ages["ltoir", "sm_80"]
    assert {"toolkit": release, "driver": release} == ages["ptx", "sm_80"]
    assert tools["nvptxcompiler"].partition(".")[0] + ".0" == ages["cubin", "sm_80"]["driver"]
    assert ages["fatbin", ""]["toolkit"]
    assert ages["kernels", ""]["driver"]
    assert "nvjitlink" not in tools


@pytest.mark.usefixtures("_no_ptxas")
@pytest.mark.parametrize(
    ("options", "cause"),
    [
        (["--emit", "ltoir", "--cuda", "12.4"], "No ltoir for CUDA 12.4"),
        (["--emit", "cubin", "--ptx-isa", "8.4"], "pip install 'nvidia-cuda-nvcc-cu12==12.4.*'"),
        (
            ["--emit", "ptx", "--cuda", "12.4", "--arch", "sm_80,sm_100"],
            "the code for sm_100 has .target sm_100",
        ),
    ],
)
def test_what_cannot_be_made_is_one_line(tmp_path, capsys, options, cause):
    """The command ends with the cause and the cure, and writes nothing."""
    source = tmp_path / "f.py"
    source.write_text("from numba_ptxlink import udf\n\n@udf('int32(int32)')\ndef f(x):\n    return x\n")
    assert 1 == cli.main(["export", str(source), "-o", str(tmp_path / "out"), *options])
    assert cause in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_kernels_that_are_left_out_are_said_with_what_they_lack(tmp_path, caplog):
    """A missing function of the same export is named as the reason, whatever the file does to logging."""
    (tmp_path / "udfs.py").write_text(
        "import logging\nlogging.disable(logging.WARNING)\n"
        "from numba import cuda\nfrom numba_ptxlink import kernel, udf\n"
        "look = cuda.declare_device('look', 'int32(int32)', abi='c')\n"
        "@udf('int32(int32)')\ndef f(x):\n    return look(x)\n"
        "@kernel('void(int32[::1])')\ndef k(x):\n    x[0] = 1\n"
    )
    assert cli.main(["export", str(tmp_path / "udfs.py"), "-o", str(tmp_path), "--arch", "sm_80"]) == 0
    assert "Left out of udfs: kernels (look is not defined; link" in caplog.text


def older(monkeypatch, library):
    """Pretend that *library* is the libNVVM of a toolkit of CUDA 13.0."""
    libdevice = next(Path(find.library("nvvm")).parents[1].glob("**/libdevice.10.bc"))
    monkeypatch.setattr(
        nvvm, "toolkits", lambda: [nvvm.Nvvm(str(library), str(libdevice), (13, 0), (2, 0, 3, 2))]
    )


@pytest.mark.usefixtures("_newer")
@pytest.mark.parametrize("front_end", ["numba-cuda", "numba-cuda-mlir"])
def test_ltoir_is_by_the_nvvm_of_a_toolkit(monkeypatch, front_end):
    """The manifest names its release, and the code equals that of the same library used directly."""
    options = {"name": "f", "arch": "sm_80", "emit": "ltoir", "front_end": front_end, "fastmath": True}
    newest = pl.export([fast], **options)
    older(monkeypatch, find.library("nvvm"))
    exported = pl.export([fast], cuda="13.0", **options)
    ages, tools = described(exported)
    assert ("13.0", "NVVM 13.0") == (ages["ltoir", "sm_80"]["toolkit"], tools["ltoir"])
    cubins = [pl.link(export.read("ltoir", "sm_80"), arch="sm_80").cubin for export in (newest, exported)]
    assert cubins[0] == cubins[1]


@pytest.mark.usefixtures("_newer")
def test_what_the_nvvm_of_a_toolkit_refuses_is_left_out(tmp_path, monkeypatch):
    """The cause is in the result, or is the error if LTO-IR was requested by name."""
    (tmp_path / "libnvvm.so").touch()
    older(monkeypatch, tmp_path / "libnvvm.so")
    exported = pl.export([scale], arch="sm_80", cuda="13.0")
    cause = f"NVVM 13.0, {tmp_path / 'libnvvm.so'}, could not compile scale for sm_80"
    assert [True] == [cause in omission.why for omission in exported.left_out if omission.kind == "ltoir"]
    with pytest.raises(pl.ExportError, match=re.escape(cause)):
        pl.export([scale], arch="sm_80", cuda="13.0", emit="ltoir")
