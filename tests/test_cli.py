"""The command line: arguments to calls, errors to one line."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import processes
import pytest

import numba_ptxlink as pl
from numba_ptxlink import cli

MODULE = Path(__file__).parent / "helpers" / "udfs_module.py"


@pytest.mark.numba_cuda
def test_export_writes_what_was_asked_for(tmp_path, capsys):
    """`export` writes header, manifest and the kinds of --emit for each --arch; both may be repeated."""
    status = cli.main(
        [
            *("export", str(MODULE), "-o", str(tmp_path), "--arch", "sm_80", "--arch", "sm_90a,sm_100"),
            *("--emit", "ptx", "--emit", "cubin", "--name", "mine", "--fastmath", "--lineinfo"),
        ]
    )
    assert status == 0
    archs = ("sm_80", "sm_90a", "sm_100")
    names = {"mine.h", "mine.json", *(f"mine.{a}.{k}" for a in archs for k in ("ptx", "cubin"))}
    assert names == {path.name for path in tmp_path.iterdir()}
    printed = capsys.readouterr().out
    assert "float blend(float x, int8_t n);" in printed
    assert all(name in printed for name in names)
    manifest = json.loads((tmp_path / "mine.json").read_text())
    assert manifest["options"] == {"opt": True, "fastmath": True, "lineinfo": True}
    assert ".loc" in (tmp_path / "mine.sm_80.ptx").read_text()


@pytest.mark.numba_cuda
def test_what_a_module_prints_goes_to_stderr(tmp_path, capfd):
    """The standard output of `export --json` is JSON, also if the exported file and its programs print."""
    source = tmp_path / "loud.py"
    loud = (
        "import os, subprocess\nprint('hello')\nos.write(1, b'direct')\nsubprocess.run(['echo', 'beside'])\n"
    )
    source.write_text(loud + MODULE.read_text())
    assert cli.main(["export", str(source), "-o", str(tmp_path / "out"), "--emit", "ptx", "--json"]) == 0
    output = capfd.readouterr()
    assert json.loads(output.out)["functions"]
    assert all(word in output.err for word in ("hello\n", "direct", "beside\n"))


def test_link_takes_sources_defines_and_include_dirs(tmp_path):
    """`link` compiles CUDA C++ with -I and -D."""
    (tmp_path / "include").mkdir()
    (tmp_path / "include" / "value.h").write_text("#define VALUE 7\n")
    source = tmp_path / "kernel.cu"
    source.write_text(
        '#include "value.h"\nstatic_assert(VALUE == OTHER, "");\nextern "C" __global__ void empty() {}\n'
    )
    out = tmp_path / "kernel.cubin"
    arguments = ["link", str(source), "-o", str(out), "--arch", "sm_90"]
    assert cli.main([*arguments, "-I", str(tmp_path / "include"), "-D", "OTHER=7"]) == 0
    assert b"empty" in out.read_bytes()


@pytest.mark.parametrize("command", ["export", "link", "inspect", "doctor"])
def test_help_has_examples(capsys, command):
    """The examples of --help are commands that the parser takes."""
    with pytest.raises(SystemExit):
        cli.main([command, "--help"])
    _, _, text = capsys.readouterr().out.partition("examples:\n")
    examples = [line.split()[1:] for line in text.splitlines()]
    assert examples
    for example in examples:
        assert example[0] == command
        assert cli.make_parser().parse_args(example).run is not None


def test_the_installed_command_runs(capsys):
    """The installed script is the command; --version and --include-dir print version and folder."""
    script = Path(sys.executable).with_name("numba-ptxlink")
    run = processes.run(script, "--version")
    assert run.stdout.strip() == f"numba-ptxlink {pl.__version__}"
    assert cli.main(["--include-dir"]) == 0
    assert Path(capsys.readouterr().out.strip()).is_dir()


def test_no_command_is_wrong_usage(capsys):
    """Without a command the help is shown and the status is 2."""
    assert cli.main([]) == 2
    assert "export" in capsys.readouterr().out


def test_a_reader_that_stops_early_is_no_error():
    """A pipe that is closed before all is written ends the command without a traceback."""
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-I", "-m", "numba_ptxlink.cli", "doctor"]
    run = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (run.returncode, run.stderr) == (0, "")
