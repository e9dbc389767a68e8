"""Functions compiled in groups, by this process or by workers: the same bytes, also if a worker fails."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import processes
import pytest

import numba_ptxlink as pl
from numba_ptxlink import cli
from numba_ptxlink._export.jobs import _environment_digest, functions_of
from numba_ptxlink._tools import find

if TYPE_CHECKING:
    from collections.abc import Callable

HEAD = """\
from numba import cuda
from numba_ptxlink import udf

import shared


@cuda.jit(device=True)
def helper(x):
    if x > 3:
        raise ValueError
    return x * shared.FACTOR
"""
FUNCTION = """

@udf("float32(float32)")
def f{0}(x):
    return helper(x) + {0}
"""
COUNT = 20


class AtOnce(Executor):
    """An executor that runs each job at once, but drops those for which *failing* is true."""

    def __init__(
        self, failing: Callable[[int], bool] = lambda _: False, before: Callable[[], object] = lambda: None
    ) -> None:
        self.failing, self.before, self.count = failing, before, 0

    def submit(self, call, /, *args, **kwargs):
        """Return a future that has its result, or the end of its worker."""
        future: Future = Future()
        self.count += 1
        if self.failing(self.count):
            future.set_exception(BrokenExecutor("killed"))
            return future
        self.before()
        try:
            future.set_result(call(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 - the future raises it
            future.set_exception(error)
        return future


@pytest.fixture
def program(tmp_path):
    """Return a file of functions that are several groups."""
    (tmp_path / "shared.py").write_text("FACTOR = 3\n")
    path = tmp_path / "udfs.py"
    path.write_text(HEAD + "".join(FUNCTION.format(number) for number in range(COUNT)))
    return path


def export(program, arch="sm_80", **options):
    """Return the contents of an export of *program*, by name."""
    return dict(pl.export(program, None, arch=arch, **options).contents)


def test_the_bytes_do_not_depend_on_the_workers(program, caplog):
    """Workers that do all, some or none of the work leave the same files as none at all."""
    expected = export(program)
    for lost in (set(), {2}, {1, 2, 3, 4, 5, 6}):
        executor = AtOnce(lost.__contains__)
        caplog.clear()
        assert expected == export(program, executor=executor)
        assert 2 < executor.count < COUNT
        assert len(caplog.messages) == len(lost.intersection(range(1, executor.count + 1)))


@pytest.mark.slow
def test_processes_leave_the_same_bytes(program):
    """A pool of processes runs pickled jobs."""
    expected = export(program)
    with ProcessPoolExecutor(1) as processes:
        assert expected == export(program, executor=processes)


def test_a_worker_of_a_pool_gets_its_share(program):
    """If the number of workers is known, each imports the file once, and the bytes are the same."""
    executor = AtOnce({2}.__contains__)
    executor._max_workers = 3  # type: ignore[attr-defined] # as Python's own pools have it
    archs = ["sm_80", "sm_90"]
    assert export(program, archs) == export(program, archs, executor=executor)
    assert executor.count == 3


def test_a_worker_that_finds_other_files_does_nothing(program, caplog):
    """The exporting process compiles an edited file again: a worker with other files compiles nothing."""
    shared = program.with_name("shared.py")

    def edit():
        shared.write_text("FACTOR = 4\n")

    executor = AtOnce(before=edit)
    artifacts = export(program, emit=["ptx"], executor=executor)
    assert caplog.text.count("the worker has other files") == executor.count
    assert artifacts == export(program, emit=["ptx"])


@pl.udf("int32(int32)")
def marked(x):
    """Be exported."""
    return x


def test_another_libnvvm_makes_another_result(monkeypatch):
    """Environments with different libraries of the same release have different digests."""
    functions = functions_of(marked, None)
    digest = _environment_digest(*functions)
    monkeypatch.setattr(find, "build_id", lambda _: "another")
    assert digest != _environment_digest(*functions)


@pytest.mark.numba_cuda
@pytest.mark.parametrize("executor", [None, AtOnce()])
def test_all_functions_that_fail_are_told(program, executor):
    """An export names each function that a compiler refuses, in order."""
    text = program.read_text()
    # Lines of two and of three digits.
    for number in (3, 19):
        text = text.replace(f"helper(x) + {number}\n", "nowhere\n")
    program.write_text(text)
    with pytest.raises(pl.ExportError) as error:
        export(program, emit=["ptx"], executor=executor)
    assert ["f3", "f19"] == re.findall(r"could not compile (\w+)", str(error.value))


def test_a_function_with_shared_memory_is_in_one_program(program):
    """Functions of two groups that call it share its array, as if they were of one group."""
    array = "    a = cuda.shared.array(8, 'float32')\n    a[cuda.threadIdx.x] = x\n    x = a[0]\n"
    program.write_text(program.read_text().replace("    return x * shared", f"{array}    return x * shared"))
    ptx = export(program, emit=["ptx"])["udfs.sm_80.ptx"].decode()
    assert ptx.count(".shared .align") == 1


@pytest.mark.slow
def test_a_dask_cluster_leaves_the_same_bytes(program):
    """A cluster that loses a worker in the middle exports the same bytes as this process."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    script = Path(__file__).parents[1] / "helpers" / "dask_export.py"
    done = processes.run(sys.executable, script, program)
    assert json.loads(done.stdout.splitlines()[-1]) == {"equal": True, "killed": 1}


@pytest.mark.slow
def test_an_interrupted_export_is_one_line_and_no_file(tmp_path, program):
    """Ctrl-C ends the command and its children, with one line and without a file."""
    out = tmp_path / "out"
    more = "".join(FUNCTION.format(number) for number in range(20, 80))
    program.write_text(f"print('here', flush=True)\n{program.read_text()}{more}")
    # A shell's background job ignores Ctrl-C, and children would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for jobs in ("1", "2"):
        command = [sys.executable, "-m", "numba_ptxlink", "export", program, "-o", out, "-j", jobs]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        assert process.stderr is not None
        first = process.stderr.readline()
        os.killpg(process.pid, signal.SIGINT)
        _, stderr_text = process.communicate()
        assert first == "here\n"
        lines = [line for line in stderr_text.splitlines() if line != "here"]
        assert lines == ["numba-ptxlink: interrupted"]
        assert process.returncode == 130
        assert not out.exists()


@pytest.mark.slow
def test_children_end_with_their_owner(tmp_path):
    """Child processes of a killed export end, too, and close their files."""
    (tmp_path / "udfs.py").write_text("import time\nprint('here', flush=True)\ntime.sleep(600)\n")
    command = [sys.executable, "-c", "import numba_ptxlink as pl; pl.export('udfs.py')"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert process.stderr.readline() == "here\n"
    process.kill()
    # Reading returns when no process has the pipe open any more.
    assert process.communicate(timeout=60)[1] == ""


MANY = """\
from numba_ptxlink import udf
import own_{0}


@udf("int32(int32)")
def f{0}(x):
    return x + own_{0}.K
"""


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Return the names of files in the working directory, each with a module of its own."""
    monkeypatch.chdir(tmp_path)
    names = [f"u{number}.py" for number in range(3)]
    for number, name in enumerate(names):
        (tmp_path / name).write_text(MANY.format(number))
        (tmp_path / f"own_{number}.py").write_text(f"K = {number}\n")
    return names


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_one_command_exports_several_files(files, tmp_path, capsys, jobs):
    """Each file has the export of a command for it alone, and one depfile lists all sources."""
    command = ["-o", "many", "-j", jobs, "--emit", "ptx", "--depfile", "many/all.d"]
    assert 0 == cli.main(["export", *files, *command]), capsys.readouterr().err
    output = capsys.readouterr().out
    for name in files:
        assert 0 == cli.main(["export", name, "-o", "single", "--emit", "ptx"])
        assert f"int32_t f{name[1]}(int32_t x);" in output
    folders = (tmp_path / "many", tmp_path / "single")
    together, single = ({path.name: path.read_bytes() for path in folder.iterdir()} for folder in folders)
    rule = together.pop("all.d").decode()
    assert together == single
    assert rule.startswith("many/u0.json:")
    assert all(f"own_{number}.py" in rule for number in range(3))


@pytest.mark.numba_cuda
def test_files_that_fail_are_told_and_the_others_written(files, tmp_path, capsys):
    """The status says that some files failed, and the errors name them."""
    for name in files[:2]:
        (tmp_path / name).write_text("1 / 0\n")
    command = ["export", *files, "-o", "out", "--emit", "ptx", "-j", "2"]
    assert 1 == cli.main(command)
    errors = capsys.readouterr().err
    assert [f"{tmp_path / name}:1: error: {name} failed" in errors for name in files] == [True, True, False]
    written = {"u2.h", "u2.json", "u2.sm_75.ptx"}
    assert written == {path.name for path in (tmp_path / "out").iterdir()}
    # The target of a depfile is none of them: a build tool would take all for done.
    (tmp_path / files[0]).write_text(MANY.format(0))
    assert 1 == cli.main([*command, "--depfile", "out/all.d"])
    assert written == {path.name for path in (tmp_path / "out").iterdir()}


def test_several_files_of_one_name_are_refused(files, tmp_path, capsys):
    """An error says that the files would overwrite each other, as they would with a single --name."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / files[0]).write_text("")
    for more in ([f"inner/{files[0]}"], ["--name", "mine"]):
        assert 1 == cli.main(["export", *files, *more, "-o", "out"])
        assert "export them one by one" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
