"""PTX of Triton, Warp and nvcc calls Python functions and is called, with the calls inlined."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import environments
import processes
import pytest
from linkcases import CALLER, KERNEL, find_nvcc

import numba_ptxlink as pl
from numba_ptxlink.cli import main

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
EXAMPLE = HERE.parents[1] / "examples" / "triton" / "damped.py"


@pytest.fixture(scope="module")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with PTX of Triton and Warp."""
    folder = tmp_path_factory.mktemp("foreign")
    try:
        with environments.environment("inlined") as python:
            inherited = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
            variables = {"TRITON_CACHE_DIR": str(folder / "triton"), "NUMBA_PTXLINK_CACHE": "0"}
            script = HERE / "programs" / "foreign.py"
            for arguments in ([str(script), str(folder)], [str(EXAMPLE), "--out-dir", str(folder)]):
                processes.run(python, "-W", "ignore", *arguments, env=inherited | variables)
    except environments.Unavailable as reason:
        pytest.skip(f"no environment with Triton and Warp: {reason}")
    return folder


def damped(folder: Path, symbol: str) -> Path:
    """Export a Python function as PTX, under *symbol*."""

    @pl.udf("float32(float32)", name=symbol)
    def damp(x):
        return x / (1 + abs(x))

    exported = pl.export([damp], folder, arch="sm_90", emit=["ptx"], name="damp")
    return exported.artifacts["ptx", "sm_90"]


def together(capsys: pytest.CaptureFixture[str], arch: str, *paths: Path) -> tuple[str, str]:
    """Link *paths* by the command line, all calls inlined; return the PTX, which assembles, and the log."""
    output = paths[0].with_name("together.ptx")
    inputs = [str(path) for path in paths]
    options = ["--inline", "all", "--emit", "ptx", "-o", str(output), "--arch", arch]
    assert main(["link", *inputs, *options]) == 0
    text = output.read_text()
    assert pl.assemble(text, arch).code
    return text, capsys.readouterr().out


def calls(text: str) -> int:
    """Return how many calls there are."""
    return len(re.findall(r"^\s*(?:@\S+\s+)?call\b", text, re.MULTILINE))


@pytest.mark.long
def test_triton_calls_python_by_the_command_line(foreign, tmp_path, capsys):
    """PTX that declares the function, and sections for debuggers."""
    text, output = together(capsys, "sm_90a", foreign / "kernel.ptx", damped(tmp_path, "damp"))
    assert (0, True) == (calls(text), "2 calls inlined" in output)


@pytest.mark.long
def test_a_function_of_triton_is_inlined(foreign, capsys):
    """Triton leaves a call of a function that is marked as not to be inlined."""
    path = foreign / "triton_parts.ptx"
    assert calls(path.read_text()) == 1
    text, output = together(capsys, "sm_90a", path)
    assert (0, True) == (calls(text), "1 call inlined" in output)


@pytest.mark.long
def test_warp_calls_python(foreign, tmp_path, capsys):
    """Warp declares the function in C++, so the export has the mangled name."""
    path = foreign / "warp_calls.ptx"
    assert calls(path.read_text()) > 0
    text, _ = together(capsys, "sm_90", path, damped(tmp_path, "_Z4dampf"))
    assert calls(text) == 0


def test_ptx_of_nvcc_calls_and_is_called(tmp_path, capsys):
    """A kernel of nvcc calls PTX written by hand and a Python function, and PTX calls a function of nvcc."""
    nvcc = find_nvcc()
    if nvcc is None:
        pytest.skip("there is no nvcc, or no g++ for it")

    @pl.udf("int32(int32)", name="f")
    def three_times(x):
        return x * 3

    artifact = pl.export([three_times], tmp_path, arch="sm_80", emit=["ptx"], name="f").artifacts
    sources = {"caller": CALLER, "callee": 'extern "C" __device__ int f(int a) { return a + 9; }\n'}
    for name, source in sources.items():
        (tmp_path / f"{name}.cu").write_text(source)
        command = [nvcc, "-rdc=true", "-ptx", "-arch=sm_80", str(tmp_path / f"{name}.cu")]
        subprocess.run([*command, "-o", str(tmp_path / f"{name}.ptx")], check=True)
    (tmp_path / "kernel.ptx").write_text(KERNEL)
    for pair in (
        (tmp_path / "caller.ptx", artifact["ptx", "sm_80"]),
        (tmp_path / "caller.ptx", tmp_path / "callee.ptx"),
        (tmp_path / "kernel.ptx", tmp_path / "callee.ptx"),
    ):
        text, output = together(capsys, "sm_80", *pair)
        assert (0, True) == (calls(text), "1 call inlined" in output)
