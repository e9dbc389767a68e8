"""The command line where something is wrong: one line, a status, and no file half written."""

from __future__ import annotations

import errno
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink import cli
from numba_ptxlink._artifacts import outputs

COMMAND = (sys.executable, "-m", "numba_ptxlink.cli")
UDFS = "from numba_ptxlink import udf\n\n@udf('int32(int32)')\ndef twice(x):\n    return 2 * x\n"
KERNEL = 'extern "C" __device__ int twice(int);\nextern "C" __global__ void k(int* p) { *p = twice(*p); }\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Return the working directory, with inputs of each verb."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "udfs.py").write_text(UDFS)
    (tmp_path / "kernel.cu").write_text(KERNEL)
    (tmp_path / "kernel.ptx").write_text(make_kernel())
    (tmp_path / "empty.py").write_text("")
    (tmp_path / "empty.ptx").write_text("")
    (tmp_path / "folder.py").mkdir()
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "file").write_text("mine")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere" / "else")
    return tmp_path


def state(folder: Path) -> dict[str, bytes | None]:
    """Return the contents of the files below *folder* by their paths, None for folders."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


def error_line(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run the command, which fails, and return its one line."""
    assert cli.main(arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("numba-ptxlink: error: ")
    assert captured.err.count("\n") == 1
    return captured.err


EXPORT = ["export", "udfs.py", "--emit", "ptx", "-o"]
LINK = ["--arch", "sm_90"]
WRONG_PATHS = {
    "export missing.py -o out": "missing.py is not a file; give the path of a Python file.",
    "link missing.ptx --arch sm_90 -o out": "missing.ptx not found; check the path.",
    "export udfs.py --emit ptx -o file": "file is not a folder; give the path of a folder.",
    "export udfs.py --emit ptx -o file/below": "file",
    "export pipe.py -o out": "pipe.py is not a file; give the path of a Python file.",
    "export folder.py -o out": "folder.py is a folder; give the path of a Python file.",
    "export empty.py -o out": "empty defines no UDF; mark functions with @udf(signature).",
    "export kernel.cu -o out": "cannot be imported as Python; give the path of a .py file.",
    f"export {'x' * 300}.py -o out": "could not be read: File name too long",
    "export -m no.such -o out": "no.such failed while it was imported: ModuleNotFoundError",
    "export -m ../x -o out": "'../x' is not the name of a module; write it like package.module.",
    "export -m empty -o out": "empty defines no UDF",
    "export udfs.py --arch , -o out": "'' is not a GPU architecture",
    "export udfs.py --emit elf -o out": "Cannot emit elf; the kinds are ptx, ",
    "link folder.py --arch sm_90 -o out": "folder.py is a folder; give the path of a Python file.",
    "link empty.py --arch sm_90 -o out": "empty defines no UDF",
    "link empty.ptx --arch sm_90 -o out": "empty.ptx is ptx by its extension, and its content is empty",
    "link . --arch sm_90 -o out": "could not be read: Is a directory",
    **{
        f"link kernel.ptx --arch sm_90 -o {out}": f"{out} could not be written; give the path of a file in"
        for out in ("folder.py", "no/out", "dangling", "file/out")
    },
    "link kernel.cu --arch sm_90 -o ./kernel.cu": "kernel.cu is an input, too; pass another output.",
    "inspect udfs.py": "its content is Python; pass a file of ptx",
}


@pytest.mark.parametrize("command", WRONG_PATHS)
def test_wrong_paths(folder, capsys, command):
    """A path of a wrong kind is reported in one line, and nothing is written."""
    before = state(folder)
    assert WRONG_PATHS[command] in error_line(command.split(), capsys)
    assert before == state(folder)


@pytest.mark.numba_cuda
def test_an_error_in_a_file_begins_with_its_place(folder, capsys):
    """Editors and build tools find it as they find those of compilers."""
    (folder / "udfs.py").write_text(UDFS.replace("2 * x", "y"))
    assert cli.main([*EXPORT, "out"]) == 1
    assert capsys.readouterr().err.startswith(f"{folder / 'udfs.py'}:3: error: numba-cuda could not compile")


WRONG_USAGE = """
export udfs.py
export -o out
export udfs.py -m udfs -o out
export '' -o out
export udfs.py -o ''
export udfs.py -o out --emit ''
export udfs.py -o out --arch ''
export udfs.py -o out --cuda ''
export udfs.py -o out --ptx-isa ''
link kernel.ptx --arch sm_90 -o out --checks many
link kernel.ptx --arch sm_90 -o out --max-registers few
link kernel.ptx --arch sm_90
link '' --arch sm_90 -o out
link kernel.ptx --arch sm_90 -o ''
link kernel.cu --arch sm_90 -o out -I ''
link kernel.cu --arch sm_90 -o out -D ''
link kernel.cu --arch sm_90 -o out --std ''
link kernel.cu --arch sm_90 -o out --name-expression ''
link kernel.cu --arch sm_90 -o out --inline ''
link kernel.cu --arch sm_90 -o out --emit ''
link kernel.cu --arch sm_90 -o out --backend ''
link kernel.ptx --arch '' -o out
inspect kernel.ptx --arch ''
"""


@pytest.mark.parametrize("command", WRONG_USAGE.strip().splitlines())
def test_wrong_usage(folder, command):
    """A missing or an empty value, and one outside of a fixed list, is wrong usage."""
    before = state(folder)
    with pytest.raises(SystemExit) as caught:
        cli.main(shlex.split(command))
    assert caught.value.code == 2
    assert before == state(folder)


def deny(monkeypatch: pytest.MonkeyPatch, error: OSError, *, reading: bool = False) -> None:
    """Let every file that is written, or the file that is read, fail with *error*."""

    def failing(*_arguments, **_options):
        raise error

    monkeypatch.setattr(Path if reading else outputs, "open" if reading else "_create", failing)


@pytest.mark.parametrize("arguments", [[*EXPORT, "."], ["link", "kernel.ptx", *LINK, "-o", "out"]])
def test_a_folder_that_cannot_be_written(folder, capsys, monkeypatch, arguments):
    """A folder without space is reported in one line, and no file remains."""
    before = state(folder)
    deny(monkeypatch, OSError(errno.ENOSPC, "No space left on device"))
    assert "could not be written: No space left on device" in error_line(arguments, capsys)
    assert before == state(folder)


def test_a_file_that_cannot_be_read(folder, capsys, monkeypatch):
    """A file without permission is reported in one line."""
    deny(monkeypatch, PermissionError(errno.EACCES, "Permission denied"), reading=True)
    message = error_line([*EXPORT, str(folder / "out")], capsys)
    assert "udfs.py could not be read: Permission denied; check the path." in message


def run(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    """Run the command in a new process."""
    return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, **options)


@pytest.mark.usefixtures("folder")
@pytest.mark.numba_cuda
def test_the_simulator_is_said():
    """With Numba's simulator an export is one line of error."""
    done = run(*EXPORT, "out", env={**os.environ, "NUMBA_ENABLE_CUDASIM": "1"})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "numba-ptxlink: error: the CUDA simulator is in use; unset NUMBA_ENABLE_CUDASIM.\n"
    )


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("closed", ["2>&-", "<&- 2>&-"])
def test_errors_are_no_output_where_the_standard_error_is_closed(closed):
    """Nothing that is opened takes its place, and a reader of the output gets no message."""
    command = ["sh", "-c", f'exec "$@" {closed}', "sh", *COMMAND, "link", "missing.ptx", *LINK, "-o", "out"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    assert (1, b"") == (done.returncode, done.stdout)


INTERRUPT = "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n"


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c(folder):
    """Ctrl-C ends the command with status 130, without a traceback and without a file."""
    (folder / "udfs.py").write_text(INTERRUPT + UDFS)
    for arguments in ((*EXPORT, "out"), ("link", "udfs.py", *LINK, "-o", "out")):
        before = state(folder)
        done = run(*arguments, env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
        assert (done.returncode, done.stdout, done.stderr) == (130, "", "numba-ptxlink: interrupted\n")
        assert before == state(folder)


@pytest.mark.numba_cuda
def test_a_module_is_exported_by_its_name(folder, capsys):
    """`-m package.module` finds the module from the working directory, with its package, and forgets it."""
    (folder / "pack").mkdir()
    (folder / "pack" / "__init__.py").write_text("")
    (folder / "pack" / "values.py").write_text("K = 7\n")
    text = UDFS.replace("2 *", "K *").replace("import udf\n", "import udf\nfrom .values import K\n")
    (folder / "pack" / "udfs.py").write_text(text)
    assert cli.main(["export", "-m", "pack.udfs", "-o", "out", "--emit", "ptx"]) == 0
    assert "int32_t twice(int32_t x);" in capsys.readouterr().out
    assert {path.name for path in Path("out").iterdir()} == {"udfs.h", "udfs.json", "udfs.sm_75.ptx"}
    assert not {"pack", "pack.udfs", "pack.values"} & set(sys.modules)
    by_name = Path("out/udfs.sm_75.ptx").read_bytes()
    assert cli.main(["export", "pack/udfs.py", "-o", "out", "--emit", "ptx"]) == 0
    assert by_name == Path("out/udfs.sm_75.ptx").read_bytes()


@pytest.mark.numba_cuda
def test_a_python_file_is_an_input_of_a_link(folder):
    """`link udfs.py` links the file's UDFs, also if it is named twice."""
    for inputs in (["kernel.cu", "udfs.py"], ["udfs.py", "kernel.cu", "udfs.py", "./kernel.cu"]):
        assert cli.main(["link", *inputs, *LINK, "-o", "app.cubin"]) == 0
        linked = pl.inspect("app.cubin", sass=False)
        assert [symbol.name for symbol in linked.symbols if symbol.kind == "entry"] == ["k"]
    linked = pl.link("kernel.cu", "udfs.py", arch="sm_90")
    assert linked.inputs == ("kernel.cu", "udfs.py")
    assert folder.exists()
