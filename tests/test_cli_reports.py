"""Output of the commands: as text, in the least words, as JSON, on a terminal, and for mistyped arguments."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import processes
import pytest
from ptx_kernels import make_kernel

from numba_ptxlink import cli, doctor

ROOT = Path(__file__).parents[1]
UDFS = "from numba_ptxlink import udf\n\n@udf('int32(int32)')\ndef twice(x):\n    return 2 * x\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the working directory, with a file of each kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "udfs.py").write_text(UDFS)
    (tmp_path / "kernel.ptx").write_text(make_kernel())
    return tmp_path


def outputs_of(capsys, *arguments, status=0):
    """Run the command; return its two outputs."""
    assert status == cli.main([*map(str, arguments)])
    return capsys.readouterr()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("command", "keys"),
    [
        ("export udfs.py -o out --emit ptx", {"functions", "files", "host compiler", "left out"}),
        (
            "link kernel.ptx --arch sm_90 -o a.cubin",
            {"file", "size", "backend", "reason", "log", "inlined", "names"},
        ),
    ],
)
def test_what_was_written_is_told_in_each_form(capsys, command, keys):
    """JSON has names and bytes, text a size in units, and --quiet nothing."""
    arguments = command.split()
    report = json.loads(outputs_of(capsys, *arguments, "--json").out)
    assert keys == set(report)
    (path, size), *_ = report.get("files", {report.get("file"): report.get("size")}).items()
    assert size == Path(path).stat().st_size
    assert re.search(r" \d+(\.\d)? (bytes|KiB)", outputs_of(capsys, *arguments).out)
    assert ("", "") == outputs_of(capsys, *arguments, "-q")


@pytest.mark.usefixtures("folder")
def test_verbosity_shows_the_log():
    """-v shows decisions and -vv each step, whatever NUMBA_PTXLINK_LOG; without them nothing is shown."""
    command = [
        sys.executable,
        *["-m", "numba_ptxlink", "link", "kernel.ptx", "--arch", "sm_90", "-o", "a.cubin"],
    ]
    errors = [processes.run(*command, *more).stderr for more in ((), ("-v",), ("-vv",))]
    assert "" == errors[0]
    # The plan of the link.
    assert (
        "link kernel.ptx for sm_90: nvptxcompiler, one PTX and nothing to link it with; flags: " in errors[1]
    )
    assert len(errors[2].splitlines()) >= len(errors[1].splitlines())


@pytest.mark.parametrize(
    ("command", "answer"),
    [
        ("xport udfs.py", "invalid choice: 'xport'"),
        ("doctor --stri", "unrecognized arguments: --stri\n"),
        ("run a.json f -1e3", "-1e3; put values that begin with a minus after --\n"),
        ("link a --arch sm_90 -o b --inline atuo", "invalid choice: 'atuo'"),
        ("link a --arch sm_90 b -o c --ich", "unrecognized arguments: b --ich\n"),
        ("link a --arch sm_90 -o c b", "unrecognized arguments: b; put all values before the options\n"),
    ],
)
def test_what_is_mistyped_is_told_in_one_line(capsys, command, answer):
    """Commands, options and values that there are not are wrong usage, with where to look."""
    with pytest.raises(SystemExit) as caught:
        cli.main(command.split())
    assert 2 == caught.value.code
    error = capsys.readouterr().err
    assert answer in error
    assert 2 == error.count("\n")


def test_the_page_is_what_the_parser_has():
    """`docs/reference/cli.md` is the output of the script beside it."""
    script = ROOT / "docs" / "reference" / "cli.py"
    if not script.exists():
        pytest.skip("there is no documentation beside these tests")
    scope: dict[str, object] = {"__file__": str(script), "__name__": "cli_page"}
    exec(compile(script.read_text(), str(script), "exec"), scope)  # noqa: S102 - our own script
    assert script.with_suffix(".md").read_text() == scope["page"]()


def diagnosed(monkeypatch, *problems):
    """Let `doctor` find *problems*."""
    diagnosis = doctor.Diagnosis((), True, "", "", (), "", problems, {"Python": "3"})
    monkeypatch.setattr(doctor, "diagnose", lambda: diagnosis)


def test_strict_is_a_status_for_ci(capsys, monkeypatch):
    """With --strict, a problem is status 1; --quiet prints only problems."""
    diagnosed(monkeypatch)
    assert "" == outputs_of(capsys, "doctor", "--strict", "--quiet").out
    diagnosed(monkeypatch, doctor.Problem("tool-missing", "NVRTC is missing", "pip install it"))
    assert (
        "problem: NVRTC is missing\n   cure: pip install it\n"
        == outputs_of(capsys, "doctor", "--strict", "--quiet", status=1).out
    )
    outputs_of(capsys, "doctor")
