"""Groups of functions, done by workers or not: the same bytes, whatever becomes of a worker."""

from __future__ import annotations

import json
import os
import pickle
import re
import signal
import struct
import subprocess
import sys
import threading
from collections import deque
from concurrent.futures import BrokenExecutor, Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from caches import open_cache

import numba_ptxlink as pl
from numba_ptxlink import cache
from numba_ptxlink._export import extended, function_keys, groups, lowering, schedule, units
from numba_ptxlink._front_end.protocol import CompileOptions
from numba_ptxlink._imports.source_loader import Imported
from numba_ptxlink._tools import workers
from numba_ptxlink._tools.processes import Processes
from numba_ptxlink.cache import tiered

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = """\
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
    return helper(x) + {0} + x ** 0.5
"""
COUNT = 5


class Pickling(Executor):
    """Do the work at once, with what a worker in another process would get and send."""

    def __init__(self, failing: Callable[[int], bool] = lambda _: False) -> None:
        self.failing, self.count = failing, 0

    def submit(self, call, /, *args, **kwargs):
        """Return a future that has its result, or the end of its worker."""
        future: Future = Future()
        self.count += 1
        if self.failing(self.count):
            future.set_exception(BrokenExecutor("killed"))
            return future
        try:
            call, args = pickle.loads(pickle.dumps((call, args)))  # noqa: S301 - as a pool does
            future.set_result(pickle.loads(pickle.dumps(call(*map(elsewhere, args), **kwargs))))  # noqa: S301
        except Exception as error:  # noqa: BLE001 - the future raises it
            future.set_exception(error)
        return future


def elsewhere(unit):
    """Return *unit* as a process sees it that makes other exports."""
    return replace(unit, program=replace(unit.program, export=f"not {unit.program.export}"))


class Threads(Executor):
    """Do the work in threads of this process, with what passed through a pickle."""

    def submit(self, call, /, *args, **kwargs):
        """Return the future of a thread's result."""
        future: Future = Future()
        unit = pickle.loads(pickle.dumps(args[0]))  # noqa: S301 - as a cluster does
        threading.Thread(target=lambda: future.set_result(call(unit, **kwargs)), daemon=True).start()
        return future


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a file of functions, each two of which are a group."""
    monkeypatch.setattr(groups, "_MOST", 2)
    monkeypatch.setattr(groups, "_USUAL", 1 << 40)
    # What other tests have added to the front end makes all source count.
    monkeypatch.setattr(extended, "of_program", lambda *_: iter(()))
    (tmp_path / "shared.py").write_text("FACTOR = 3\n")
    path = tmp_path / "udfs.py"
    path.write_text(SOURCE + "".join(FUNCTION.format(number) for number in range(COUNT)))
    return path


def export(program, **options):
    """Return what an export of *program* holds, by name."""
    return dict(pl.export(program, None, archs=["sm_80"], **options).contents)


def test_the_bytes_do_not_depend_on_the_workers(program):
    """Workers that do all, some or none of the work leave the same files as none at all."""
    expected = export(program)
    for failing in (lambda _: False, lambda number: number == 2, lambda _: True):
        executor = Pickling(failing)
        assert expected == export(program, executor=executor)
        assert executor.count == 3


def test_threads_do_the_work_while_their_process_exports(program, monkeypatch):
    """A thread compiles what another thread has imported from a file, and does not wait for it."""
    expected = export(program)
    compiled, threads = units.compile_here, set()

    def note(*args):
        threads.add(threading.current_thread())
        return compiled(*args)

    monkeypatch.setattr(units, "compile_here", note)
    made: list[dict] = []
    exporting = threading.Thread(target=lambda: made.append(export(program, executor=Threads())), daemon=True)
    exporting.start()
    exporting.join(60)
    assert made == [expected]
    assert len(threads) == 3
    assert exporting not in threads


@pytest.mark.slow
def test_a_thread_exports_with_the_pool_it_is_of(program):
    """What no thread of a pool has time for is compiled by the thread that exports."""
    pool = ThreadPoolExecutor(1)
    made = pool.submit(export, program, executor=pool)
    assert export(program) == made.result(60)


def test_a_worker_that_finds_another_function_does_nothing(program, monkeypatch, caplog):
    """A worker compiles only what depends on the same as in the process that exports."""
    expected = export(program)
    run = units.run

    def run_another(unit):
        path = next(path for path in unit.program.imported.sources if path.endswith("shared.py"))
        unit.program.imported.sources[path] = b"FACTOR = 4\n"
        return run(elsewhere(unit))

    monkeypatch.setattr(units, "run", run_another)

    class Other(Pickling):
        def submit(self, call, /, *args, **kwargs):
            future: Future = Future()
            future.set_result(call(*pickle.loads(pickle.dumps(args)), **kwargs))  # noqa: S301
            return future

    assert expected == export(program, executor=Other())
    assert "differs in a worker" in caplog.text


def test_the_files_need_not_exist_where_a_worker_is(program, monkeypatch):
    """A worker imports what the export has read, not what is on its own disk."""
    expected = export(program)

    class Remote(Pickling):
        def submit(self, call, /, *args, **kwargs):
            hidden = [path.rename(path.with_suffix(".hidden")) for path in program.parent.glob("*.py")]
            try:
                return super().submit(call, *args, **kwargs)
            finally:
                for path in hidden:
                    path.rename(path.with_suffix(".py"))

    done: list[units.Done] = []
    monkeypatch.setattr(schedule, "_result", lambda future, _: done.append(future.result()) or done[-1])
    assert expected == export(program, executor=Remote())
    assert [each.refusal for each in done] == ["", "", ""]


def test_the_largest_groups_are_given_away_first(program, monkeypatch):
    """What is left in the end is small, and the files are those of the order of the functions."""
    monkeypatch.setattr(groups, "split", lambda *_: [range(1), range(1, 4), range(4, 5)])
    given = []

    class Noting(Pickling):
        def submit(self, call, unit, /):
            given.append(unit.names)
            return super().submit(call, unit)

    assert export(program) == export(program, executor=Noting())
    assert given == [("f1", "f2", "f3"), ("f0",), ("f4",)]


def test_a_worker_that_is_done_gets_more_at_once(program, monkeypatch):
    """The exporting process begins with no group while a worker waits for one."""
    monkeypatch.setattr(groups, "split", lambda names, _: [range(n, n + 1) for n in range(len(names))])
    program.write_text(program.read_text() + FUNCTION.format(5))
    compiled = units.compile_here

    class Slow(Processes):
        sent = ()

        def submit(self, call, unit, /):
            future: Future = Future()
            self.sent = (*self.sent, (future, call, unit))
            return future

    pool, here = Slow(1), []

    def compile_here(unit, functions):
        if not here or here[-1] == "done":
            # What was sent is done while this one is compiled.
            sent, pool.sent = pool.sent, ()
            assert len(sent) == 2
            here.append("begun")
            for future, call, other in sent:
                future.set_result(call(other))
            here.append("done")
        return compiled(unit, functions)

    expected = export(program)
    monkeypatch.setattr(units, "compile_here", compile_here)
    assert expected == export(program, executor=pool)
    assert here == ["begun", "done"] * 2


@pytest.mark.parametrize(
    ("under_way", "waiting", "left"), [(0, 1, 0), (1, 1, 1), (1, 3, 2), (0, 3, 1), (2, 3, 3)]
)
def test_the_last_group_is_for_whoever_is_free(under_way, waiting, left):
    """A process gets two groups while there are more, and none that the exporting one could begin with."""

    class Counting(Processes):
        def submit(self, _call, _unit, /):
            return Future()

    groups_left = deque(range(waiting))
    schedule._send(groups_left, Counting(1), {Future(): number for number in range(under_way)})
    assert len(groups_left) == left


def test_workers_find_out_once_what_surrounds_the_functions(program, monkeypatch):
    """What all functions of an export depend on is the same for each group of it."""
    found = []
    environment = function_keys.environment
    monkeypatch.setattr(function_keys, "environment", lambda *of: found.append(of) or environment(*of))
    executor = Pickling()
    export(program, executor=executor)
    assert executor.count == 3
    # The export itself, and the worker.
    assert len(found) == 2


def test_what_travels_fits_into_a_pipe():
    """Source and code are compressed between processes, and the same there."""
    source = "".join(FUNCTION.format(number) for number in range(4000)).encode()
    known = Imported("", "udfs.py", "/", sources={"udfs.py": source})
    done = units.Done(code=groups.GroupCode(source), refusal="none")
    for value in (units.Program("numba-cuda", ("udfs",), known), done):
        sent = pickle.dumps(value)
        assert len(sent) < 1 << 16 < len(source)
        assert value == pickle.loads(sent)  # noqa: S301 - its own


@pytest.mark.slow
def test_link_files_are_read_where_the_export_is(program, tmp_path, monkeypatch):
    """A worker needs no link file, and a relative path is one from the working directory of the export."""
    monkeypatch.chdir(tmp_path)
    linked = tmp_path / "g.cu"
    linked.write_text('extern "C" __device__ float g(float x) { return x * 3; }\n')
    program.write_text(
        program.read_text().replace("return x *", "return g(x) *")
        + '\n\ng = cuda.declare_device("g", "float32(float32)", link="g.cu", abi="c")\n'
    )
    expected = export(program, emit=["ptx"])

    class Remote(Pickling):
        def submit(self, call, /, *args, **kwargs):
            hidden = linked.rename(tmp_path / "hidden")
            try:
                return super().submit(call, *args, **kwargs)
            finally:
                hidden.rename(linked)

    assert expected == export(program, emit=["ptx"], executor=Remote())


def test_progress_is_told_after_each_group(program):
    """What shows progress hears of each group once, with their number."""
    told = []
    export(program, progress=lambda *step: told.append(step))
    assert told == [(1, 3, "sm_80: f0 and 1 more"), (2, 3, "sm_80: f2 and 1 more"), (3, 3, "sm_80: f4")]


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("executor", 3, "executor is 3; pass an instance"),
        ("executor", 0, "executor is 0; pass an instance"),
        ("executor", SimpleNamespace(get_executor=print), ".*; pass its get_executor"),
        ("executor", ThreadPoolExecutor, "executor is the class ThreadPoolExecutor; pass an instance"),
        ("progress", 3, "progress is 3; pass a function of done, total and title"),
    ],
)
def test_what_can_do_no_work_is_refused(program, option, value, reason):
    """It is told before all else, whether the cache has the result or not."""
    program.write_text("raise AssertionError\n")
    with pytest.raises(pl.ExportError, match=f"^{reason}"):
        export(program, **{option: value})


def test_a_pool_that_was_shut_down_leaves_the_work_here(program, caplog):
    """The bytes are the same, as with a full cache, and the log says who did the work."""
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    made = export(program, executor=pool)
    assert "given to the workers: RuntimeError: cannot schedule new futures after shutdown" in caplog.text
    assert made == export(program)


def test_a_refused_function_is_named_by_its_worker(program):
    """What a compiler refuses in a worker is the same error as here."""
    program.write_text(program.read_text() + FUNCTION.format(9).replace("x ** 0.5", "nowhere"))
    with pytest.raises(pl.ExportError, match="could not compile f9"):
        export(program, executor=Pickling())


@pytest.mark.slow
def test_only_what_was_edited_is_lowered_again(program, tmp_path, monkeypatch):
    """After an edit of one function the others come out of the cache, and the bytes are as without one."""
    mine = open_cache(tmp_path / "cache")
    lowered = []
    lower = lowering._lower
    monkeypatch.setattr(
        lowering, "_lower", lambda each, *rest: lowered.append(each.udf.name) or lower(each, *rest)
    )

    def edited(source: str) -> list[str]:
        program.write_text(source)
        lowered.clear()
        with monkeypatch.context() as patch:
            # First: where it was never read, it would be read from what the other one replaces, and put back.
            patch.setattr(cache, "default", lambda: mine)
            patch.setattr(tiered, "default", lambda: mine)
            kept, again = export(program), [*lowered]
        assert export(program) == kept
        return again

    source = program.read_text()
    everything = [f"f{number}" for number in range(COUNT)]
    assert edited(source) == everything
    assert edited(source) == []
    assert edited(source.replace("+ 3 +", "- 3 +")) == ["f3"]
    assert edited(source) == []
    # The header tells that a function raises, and the manifest where.
    assert edited(f"# Another line.\n{source}") == everything
    assert edited(source.replace("> 3", "> 4")) == everything


def test_a_function_with_shared_memory_is_in_one_program(program):
    """Functions of two groups that call it share its array, as if they were of one group."""
    array = "    a = cuda.shared.array(8, 'float32')\n    a[cuda.threadIdx.x] = x\n    x = a[0]\n"
    program.write_text(program.read_text().replace("    return x * shared", f"{array}    return x * shared"))
    ptx = export(program)["udfs.sm_80.ptx"].decode()
    assert ptx.count(".shared .align") == 1


def test_groups_stay_where_a_function_is_added():
    """A new function changes the group that it is in, and no other."""
    names = [f"function_{number}" for number in range(200)]
    options = CompileOptions()

    def members(of):
        return {tuple(of[place] for place in group) for group in groups.split(of, options)}

    before, after = members(names), members([*names[:77], "another", *names[77:]])
    assert sorted(name for group in before for name in group) == sorted(names)
    assert max(map(len, before)) <= 16
    assert len(before - after) <= 2


def test_lines_keep_functions_in_one_group():
    """With line numbers, which refer to one table of files, there is one group."""
    assert groups.split([f"f{n}" for n in range(99)], CompileOptions(lineinfo=True)) == [range(99)]


def _end_once(folder: str, number: int) -> int:
    marker = os.path.join(folder, "ended")  # noqa: PTH118 - the simplest in a worker
    if number == 3 and not os.path.exists(marker):  # noqa: PTH110
        open(marker, "w").close()  # noqa: PTH123
        os.kill(os.getpid(), signal.SIGKILL)
    return number


@pytest.mark.slow
def test_what_a_killed_process_had_begun_is_done_again(tmp_path):
    """The pool starts other processes in the place of one that was killed."""
    with Processes(2) as pool:
        futures = [pool.submit(_end_once, str(tmp_path), number) for number in range(6)]
        assert [future.result() for future in futures] == [*range(6)]
    assert (tmp_path / "ended").exists()


@pytest.mark.slow
def test_processes_leave_the_same_bytes(program):
    """An export by two processes is that of this one."""
    with Processes(2) as pool:
        assert export(program) == export(program, executor=pool)


@pytest.mark.slow
def test_the_exporting_process_takes_its_share(program, monkeypatch):
    """Beside processes of this machine the exporting one compiles, too, and each group is compiled once."""
    here = []
    compiled = units.compile_here
    monkeypatch.setattr(units, "compile_here", lambda unit, *rest: here.append(unit) or compiled(unit, *rest))
    titles = []
    with workers.chosen(2, prepare=units.prepare) as pool:
        export(program, executor=pool, progress=lambda done, of, title: titles.append((done, of, title)))
    assert 0 < len(here) < len(titles)
    assert len({title for *_, title in titles}) == len(titles) == titles[-1][0] == titles[-1][1]


def test_there_are_no_more_processes_than_cores(monkeypatch):
    """Whatever number is asked for."""
    monkeypatch.setattr(workers, "_cores", lambda: 3)
    with workers.chosen(999_999) as pool:
        assert 2 == pool.count


@pytest.mark.slow
def test_processes_ignore_ctrl_c_from_their_start(capfd):
    """One that has just been started, and imports, neither ends nor says anything."""
    with workers.chosen(2) as pool:
        started = pool.submit(os.getpid)
        (process,) = pool._pool._processes
        os.kill(process, signal.SIGINT)
        assert started.result() == process
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_processes_without_work_end_at_once(tmp_path):
    """Started and prepared processes that nobody asks for anything are not waited for."""
    started = tmp_path / "started"
    with workers.chosen(2, prepare=partial(_start_and_sleep, str(started))) as pool:
        processes = list(pool._pool._processes.values())
        assert len(processes) == 1
        while not started.exists():
            processes[0].join(0.01)
    processes[0].join()
    assert processes[0].exitcode == -signal.SIGTERM


def _start_and_sleep(path: str) -> None:
    open(path, "w").close()  # noqa: PTH123
    signal.pause()


@pytest.mark.slow
def test_processes_end_with_their_owner():
    """The processes of a pool whose owner is killed end, too, and close what they have open."""
    program = (
        "import os, signal, sys, time\n"
        "from numba_ptxlink._tools.processes import Processes\n"
        "if __name__ == '__main__':\n"
        "    pool = Processes(2)\n"
        "    assert pool.submit(os.getpid).result() != os.getpid()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # It returns when nobody has the pipe open any more.
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.slow
def test_a_dask_cluster_leaves_the_same_bytes(tmp_path):
    """A cluster that loses a worker in the middle exports what this process does."""
    pytest.importorskip("distributed", reason="Dask is not installed")
    path = tmp_path / "udfs.py"
    functions = "".join(FUNCTION.format(number) for number in range(40))
    path.write_text(SOURCE.replace("import shared\n", "").replace("shared.FACTOR", "3") + functions)
    script = Path(__file__).parents[1] / "helpers" / "dask_export.py"
    done = subprocess.run([sys.executable, script, path], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout.splitlines()[-1]) == {"equal": True, "killed": 1}


@pytest.mark.slow
def test_an_interrupted_export_is_one_line_and_no_file(tmp_path):
    """Ctrl-C ends the command and its processes, with one line and without a file."""
    path, out = tmp_path / "udfs.py", tmp_path / "out"
    functions = "".join(FUNCTION.format(number) for number in range(60))
    path.write_text(SOURCE.replace("import shared\n", "").replace("shared.FACTOR", "3") + functions)
    command = [sys.executable, "-m", "numba_ptxlink", "export", path, "-o", out, "-j", "2"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stderr is not None
    # The workers are at it.
    first = process.stderr.readline()
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate()
    assert first.startswith("[1/")
    assert [line for line in said.splitlines() if not line.startswith("[")] == ["numba-ptxlink: interrupted"]
    assert process.returncode == 130
    assert not out.exists()


def bodies(ptx: str) -> dict[str, str]:
    """Return the text of each function by name."""
    starts = [*re.finditer(r"^\.visible \.func[^(]*\(.*?\) (\w+)\(", ptx, re.MULTILINE)]
    return {start[1]: ptx[start.start() : ptx.index("\n}", start.start())] for start in starts}


def test_groups_have_the_code_of_single_functions(tmp_path):
    """What is joined of several groups is, function by function, the code that each has alone."""
    path = tmp_path / "many.py"
    head = "import math\nfrom numba_ptxlink import udf\n"
    functions = [
        f'\n\n@udf("float32(float32)")\ndef f{number}(x):\n    return math.sqrt(x) * {number} + x / 3\n'
        for number in range(20)
    ]
    path.write_text(head + "".join(functions))
    assert len(groups.split([f"f{number}" for number in range(20)], CompileOptions())) > 1
    joined = pl.export(path, None, archs=["sm_80"], emit=["ptx", "cubin"])
    texts, machine = bodies(joined.read("ptx").decode()), text_sections(joined.read("cubin"))
    assert len(texts) == len(machine) == 20
    for number in (0, 7, 19):
        path.write_text(head + functions[number])
        alone = pl.export(path, None, archs=["sm_80"], emit=["ptx", "cubin"])
        assert bodies(alone.read("ptx").decode()) == {f"f{number}": texts[f"f{number}"]}
        assert text_sections(alone.read("cubin")) == {f".text.f{number}": machine[f".text.f{number}"]}


def text_sections(cubin: bytes) -> dict[str, bytes]:
    """Return the machine code of each exported function by the name of its section."""
    start, count, names = *struct.unpack_from("<Q", cubin, 0x28), *struct.unpack_from("<HH", cubin, 0x3C)
    headers = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + 64 * place) for place in range(count)]
    strings = headers[names][4]
    found = {
        cubin[strings + name : cubin.index(b"\0", strings + name)].decode(): cubin[at : at + size]
        for name, _, _, _, at, size, *_ in headers
    }
    return {name: code for name, code in found.items() if re.fullmatch(r"\.text\.f\d+", name)}
