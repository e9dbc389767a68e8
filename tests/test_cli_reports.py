"""What the commands say: as text, in the least words, as JSON, on a terminal, and to what is mistyped."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from ptx_kernels import make_kernel

from numba_ptxlink import cli, doctor
from numba_ptxlink._cli import arguments as args
from numba_ptxlink._cli import report
from numba_ptxlink._config import Config

ROOT = Path(__file__).parents[1]
UDFS = "from numba_ptxlink import udf\n\n@udf('int32(int32)')\ndef twice(x):\n    return 2 * x\n"
COMMANDS = ("export", "link", "inspect", "doctor")
CACHE_COMMANDS = ("stats", "clear", "path")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the working directory, with a file of each kind."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "udfs.py").write_text(UDFS)
    (tmp_path / "kernel.ptx").write_text(make_kernel())
    return tmp_path


def said(capsys, *arguments, status=0):
    """Run the command; return its two outputs."""
    assert status == cli.main([*map(str, arguments)])
    return capsys.readouterr()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    ("arguments", "keys"),
    [
        (
            ("export", "udfs.py", "-o", "out", "--emit", "ptx"),
            {"functions", "files", "host compiler", "left out"},
        ),
        (
            ("link", "kernel.ptx", "--arch", "sm_90", "-o", "a.cubin"),
            {"file", "size", "backend", "reason", "log", "inlined", "names"},
        ),
    ],
)
def test_what_was_written_is_told_in_each_form(capsys, arguments, keys):
    """JSON has names and bytes, text a size in units, and --quiet nothing."""
    found = json.loads(said(capsys, *arguments, "--json").out)
    assert keys == set(found)
    (path, size), *_ = found.get("files", {found.get("file"): found.get("size")}).items()
    assert size == Path(path).stat().st_size
    assert re.search(r" \d+(\.\d)? (bytes|KiB)", said(capsys, *arguments).out)
    assert ("", "") == said(capsys, *arguments, "-q")


@pytest.mark.usefixtures("folder")
def test_the_names_alone(capsys):
    """`inspect --quiet` prints the symbols, one a line."""
    assert "kernel\n" == said(capsys, "inspect", "kernel.ptx", "--quiet").out


@pytest.mark.usefixtures("folder")
def test_verbosity_shows_the_log():
    """-v shows decisions and -vv each step, whatever NUMBA_PTXLINK_LOG is; without them there is silence."""
    command = [
        sys.executable,
        "-m",
        "numba_ptxlink",
        "link",
        "kernel.ptx",
        "--arch",
        "sm_90",
        "-o",
        "a.cubin",
    ]
    errors = [
        subprocess.run([*command, *more], check=True, capture_output=True, text=True).stderr
        for more in ((), ("-v",), ("-vv",))
    ]
    assert "" == errors[0]
    # The plan of the link.
    assert (
        "link kernel.ptx for sm_90: nvptxcompiler, one PTX and nothing to link it with; flags: " in errors[1]
    )
    assert len(errors[2].splitlines()) >= len(errors[1].splitlines())


def test_every_command_takes_the_three_options():
    """Each command that can be named has --verbose, --quiet and --json, and a sentence on what it does."""
    commands = args.commands_of(cli.make_parser())
    assert {*COMMANDS, "cache"} == set(commands)
    its = args.commands_of(commands.pop("cache"))
    assert set(CACHE_COMMANDS) == set(its)
    for parser in (*commands.values(), *its.values()):
        assert {"-v", "-q", "--json"} <= set(parser._option_string_actions)
        assert parser.description.endswith(".")
        assert [] == [action.dest for action in parser._actions if not action.help]


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (["xport", "udfs.py"], "'xport' is unknown; did you mean export?"),
        (["cache", "stat"], "'stat' is unknown; did you mean stats?"),
        (["doctor", "--stict"], "--stict is unknown; did you mean --strict?"),
        (["cache", "stats", "--jsno"], "--jsno is unknown; did you mean --json?"),
        (
            ["link", "a", "--arch", "sm_90", "-o", "b", "--inline", "atuo"],
            "'atuo' is unknown; did you mean auto?",
        ),
        (
            ["link", "a", "--arch", "sm_90", "-o", "b", "--checks", "nome"],
            "'nome' is unknown; did you mean none?",
        ),
        (["export", "a", "-o", "b", "--emit", "ptx,ltoirr"], "'ltoirr' is unknown; did you mean ltoir?"),
        (["-v", "doctor"], "-v belongs after the command: numba-ptxlink doctor -v"),
        (["--json", "cache", "stats"], "--json belongs after the command: numba-ptxlink cache stats --json"),
        (["--versoin"], "--versoin is unknown; did you mean --version?"),
        (["doctor", "nothing-like-it"], "nothing-like-it is unknown\n"),
        (["inspect", "a.ptx", "b.ptx"], "b.ptx is unknown\n"),
        (["link", "a", "--arch", "sm_90", "b", "-o", "c", "--ich"], "--ich is unknown"),
        (["export", "udfs.py", "-o", "out", ""], "'' is an argument without text; leave it out\n"),
        (
            ["link", "a", "--arch", "sm_90", "-o", "c", "b", ""],
            "'' is an argument without text; leave it out\n",
        ),
    ],
)
def test_what_is_mistyped_is_answered_with_what_was_meant(capsys, arguments, answer):
    """Commands, options and values are compared with those that there are."""
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    assert 2 == left.value.code
    assert answer in capsys.readouterr().err


@pytest.mark.usefixtures("folder")
def test_quiet_outweighs_the_variable():
    """With -q a build sees warnings and errors alone, whatever NUMBA_PTXLINK_LOG is."""
    command = [
        sys.executable,
        "-m",
        "numba_ptxlink",
        "link",
        "kernel.ptx",
        "--arch",
        "sm_90",
        "-o",
        "a.cubin",
    ]
    env = {**os.environ, "NUMBA_PTXLINK_LOG": "debug"}
    done = subprocess.run([*command, "-q"], check=True, capture_output=True, text=True, env=env)
    assert ("", "") == (done.stdout, done.stderr)


def test_inputs_need_not_stand_together():
    """Those behind an option are inputs too, in the order in which they stand."""
    words = "link a.cu -I build b.ltoir c.ptx --arch sm_90 d.py -o e.cubin"
    arguments = cli.make_parser().parse_args(words.split())
    assert ["a.cu", "b.ltoir", "c.ptx", "d.py"] == [str(path) for path in arguments.inputs]
    assert ["build"] == [str(path) for path in arguments.include_dirs]


def test_the_page_is_what_the_parser_has():
    """`docs/reference/cli.md` is what the script beside it makes of the parser."""
    script = ROOT / "docs" / "reference" / "cli.py"
    if not script.exists():
        pytest.skip("there is no documentation beside these tests")
    scope: dict[str, object] = {"__file__": str(script), "__name__": "cli_page"}
    exec(compile(script.read_text(), str(script), "exec"), scope)  # noqa: S102 - our own script
    assert script.with_suffix(".md").read_text() == scope["page"]()


@pytest.mark.parametrize(
    ("count", "text"),
    [
        (0, "0 bytes"),
        (1023, "1023 bytes"),
        (1024, "1.0 KiB"),
        (2304, "2.2 KiB"),
        (1 << 20, "1.0 MiB"),
        (2 << 30, "2.0 GiB"),
        (150 << 30, "150 GiB"),
        (1 << 60, "1048576 TiB"),
    ],
)
def test_sizes_are_in_units(count, text):
    """A number of bytes is told in the unit that it fills."""
    assert text == report.size(count)


def on_terminal(columns, *arguments):
    """Return the lines that the command prints on a terminal of *columns*."""
    master, terminal = pty.openpty()
    env = {**os.environ, "COLUMNS": str(columns)}
    done = subprocess.Popen([sys.executable, "-m", "numba_ptxlink", *arguments], stdout=terminal, env=env)
    os.close(terminal)
    text = b""
    while True:
        try:
            part = os.read(master, 4096)
        except OSError:  # the command has ended
            break
        if not part:
            break
        text += part
    os.close(master)
    assert 0 == done.wait()
    return text.decode().splitlines()


@pytest.mark.slow
def test_a_table_fits_the_terminal():
    """Paths and lists are wrapped below their columns, and words are kept."""
    lines = on_terminal(72, "doctor")
    assert max(map(len, lines)) <= 72
    assert "".join(line[-30:].strip() for line in lines if "libNVVM" in line)


@pytest.mark.parametrize("columns", [40, 80, 200])
def test_long_cells_are_wrapped_in_their_columns(monkeypatch, columns):
    """Whichever column is too long for a terminal is wrapped, and nothing is lost; elsewhere none is."""
    rows = [
        ("entry", "functions", "made by"),
        ("11f011e5", "_Z" + 50 * "name", "NVRTC 13.5 feebac3bea344e6c"),
    ]
    assert [f"{row[0]:8}  {row[1]:202}  {row[2]}" for row in rows] == [*report.table(rows)]
    monkeypatch.setattr(report, "width", lambda: columns)
    lines = [*report.table(rows)]
    assert max(map(len, lines)) <= columns
    assert rows[1][1] in "".join(line[lines[0].index("f") : lines[0].index("m")].strip() for line in lines)
    assert [] == [*report.table([])]


def test_a_cache_that_is_off_is_not_called_empty(capsys, monkeypatch):
    """`cache stats` says that it is off; `path` and `clear` refuse."""
    from numba_ptxlink import cache
    from numba_ptxlink.cache import tiered

    monkeypatch.setattr(cache, "default", lambda: tiered.Cache(Config(cache=False)))
    off = "the cache is off: NUMBA_PTXLINK_CACHE=0; unset it"
    assert f"not used: {off}\n" == said(capsys, "cache", "stats").out
    assert [off] == json.loads(said(capsys, "cache", "stats", "--json").out)["not used"]
    for command in ("path", "clear"):
        assert off in said(capsys, "cache", command, status=1).err


def diagnosed(monkeypatch, *problems):
    """Let `doctor` find *problems*."""
    found = doctor.Diagnosis((), True, "", "", (), "", problems, {"Python": "3"})
    monkeypatch.setattr(doctor, "diagnose", lambda: found)


def test_strict_is_a_status_for_ci(capsys, monkeypatch):
    """With --strict, a problem that has a cure is status 1, one without is not; --quiet prints the former."""
    harmless = doctor.Problem("no-driver", "there is no driver", "")
    diagnosed(monkeypatch, harmless)
    assert "" == said(capsys, "doctor", "--strict", "--quiet").out
    diagnosed(monkeypatch, harmless, doctor.Problem("tool-missing", "NVRTC is missing", "pip install it"))
    assert (
        "problem: NVRTC is missing\n   cure: pip install it\n"
        == said(capsys, "doctor", "--strict", "--quiet", status=1).out
    )
    said(capsys, "doctor")


def test_doctor_tells_the_machine(capsys):
    """Operating system and Python are part of the diagnosis."""
    system = json.loads(said(capsys, "doctor", "--json").out)["system"]
    assert ["Python", "operating system"] == sorted(system)
    assert ".".join(map(str, sys.version_info[:3])) in system["Python"]
    assert "Linux" in system["operating system"]


def test_completion_wants_an_extra(capsys, monkeypatch):
    """Without shtab, the extra is named."""
    monkeypatch.setitem(sys.modules, "shtab", None)
    with pytest.raises(SystemExit):
        cli.main(["--print-completion", "bash"])
    assert "pip install 'numba-ptxlink[completion]'" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--include-dir", "--print-completion"])
def test_options_that_print_stand_outputs_that_take_nothing(option):
    """A full disk is an error in one line, and a reader that has quit is none, for options too."""
    if option == "--print-completion":
        pytest.importorskip("shtab", reason="shtab is not installed")
    command = [sys.executable, "-m", "numba_ptxlink", option, *(["bash"] if "print" in option else [])]
    with open("/dev/full", "w") as full:  # noqa: PTH123 - a device
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    said = "numba-ptxlink: error: The output: No space left on device; check path and disk.\n"
    assert (1, said) == (done.returncode, done.stderr)
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (0, "") == (done.returncode, done.stderr)


def test_completion_knows_commands_and_paths(capsys):
    """With shtab, the script has each command, and completes files."""
    pytest.importorskip("shtab", reason="shtab is not installed")
    with pytest.raises(SystemExit) as left:
        cli.main(["--print-completion", "bash"])
    assert 0 == left.value.code
    script = capsys.readouterr().out
    assert all(command in script for command in (*COMMANDS, "cache"))
    assert "_shtab_compgen_files" in script or "compgen_files" in script
    assert 0 == subprocess.run([shutil.which("bash"), "-n"], input=script, text=True, check=False).returncode
