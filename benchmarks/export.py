"""
Exporting many Python functions, beside a loop of stock `cuda.compile` and `ptxas` over the same functions.

Times are CPU seconds of the process and of its workers, which a busy machine leaves as they are. Beside them
is the time that passed. Every measurement is a process of its own, and the caches are off but for edits.

growth: 1 to 1,000 functions, one architecture: PTX, LTO-IR, machine code and a fat binary of each. The
exponent is that of the growth from each number to ten times as many, without what one function takes.
archs: the same functions for four architectures.
jobs: the same export by two processes. With as many cores, it takes as long as the busiest of them, and what
the process that exports does after them: that is the path, whose ratio to one process tells the gain.
edits: one function of a hundred was edited, the cache has the others.
structs: one function that takes and returns a struct of 4 to 64 kB.
"""

from __future__ import annotations

import json
import math
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import _harness

FUNCTION = """

@udf("float32(float32, float32)")
def f{0}(x, y):
    r = x
    for step in range({1}):
        r = r * y + math.sin(r) * {2}
    if r > 100.0:
        r = math.sqrt(r) - math.exp(-y * {2})
    return r
"""
HEAD = "import math\nfrom numba_ptxlink import udf\n"
STRUCT = """\
import numpy as np
from numba_ptxlink import udf

Big = np.dtype([(f"m{{i}}", np.float32) for i in range({0})], align=True)


@udf("Big(Big, float32)")
def change(big, x):
    big.m0 = x
    big.m{1} = x + big.m1
    return big
"""
ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
COUNTS = (1, 10, 100, 1000)


def main() -> None:
    """Run the benchmark, or one of its processes."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(**json.loads(sys.argv[2]))))
        return
    sections = {"growth": growth, "archs": archs, "jobs": jobs, "edits": edits, "structs": structs}
    parser = _harness.make_parser(__doc__, sections, repeats=(3, 1))
    parser.add_argument("--most", type=int, default=(1000, 10), help="functions at most, %(default)s")
    _harness.run(parser, sections)


def source(count: int, edited: int = -1) -> str:
    """Return the text of a file of *count* functions, one of which may be *edited*."""
    constants = (number + (0.25 if number == edited else 0.5) for number in range(count))
    return HEAD + "".join(FUNCTION.format(n, n % 7 + 3, constant) for n, constant in enumerate(constants))


def child(path: str, how: str, archs: list[str], jobs: int = 1, edited: str = "") -> dict[str, float]:
    """Export *path* in this process, or compile it with what numba-cuda has; return the seconds."""
    if how == "stock":
        return stock(path, archs)
    import numba_ptxlink as pl
    from numba_ptxlink._tools import workers

    if edited:
        # Imports are a part of neither export.
        first = Path(path).with_name("first.py")
        first.write_text(source(1))
        pl.export(first, None, archs=archs)
    started, before = time.perf_counter(), time.process_time()
    with workers.chosen(jobs) as executor:
        pl.export(path, None, archs=archs, executor=executor)
        own, waited = time.process_time() - before, time.perf_counter() - started
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = {"cpu": own, "waited": waited, "workers": children.ru_utime + children.ru_stime}
    if edited:
        Path(path).write_text(Path(edited).read_text())
        before = time.process_time()
        pl.export(path, None, archs=archs)
        seconds["edited"] = time.process_time() - before
    return seconds


def stock(path: str, archs: list[str]) -> dict[str, float]:
    """Compile each function with `cuda.compile` to PTX and LTO-IR, and the PTX with ptxas."""
    os.environ["NUMBA_PTXLINK"] = "0"
    started, before = time.perf_counter(), time.process_time()
    from numba import cuda
    from numba.cuda import types

    from numba_ptxlink import assembler
    from numba_ptxlink._tools import ptxas

    scope: dict[str, object] = {}
    text = Path(path).read_text().replace("from numba_ptxlink import udf", "udf = lambda _: lambda f: f")
    exec(compile(text, path, "exec"), scope)  # noqa: S102 - the file is this benchmark's
    functions = {name: value for name, value in scope.items() if name[0] == "f" and name[1:].isdigit()}
    tool = ptxas.find((assembler.compiler_version()[0], 99))
    if tool is None:
        raise SystemExit("no ptxas is installed")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "code.ptx")
        for arch in archs:
            cc = divmod(int(arch[3:]), 10)
            for name, function in functions.items():
                for output in ("ptx", "ltoir"):
                    code, _ = cuda.compile(
                        function,
                        types.float32(types.float32, types.float32),
                        device=True,
                        cc=cc,
                        abi="c",
                        abi_info={"abi_name": name},
                        output=output,
                    )
                    if output == "ptx":
                        file.write_text(code)
                command = [tool[0], "-c", f"-arch={arch}", str(file), "-o", str(file.with_suffix(".cubin"))]
                subprocess.run(command, check=True)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = time.process_time() - before + children.ru_utime + children.ru_stime
    return {"cpu": cpu, "waited": time.perf_counter() - started, "workers": 0.0}


def measured(
    text: str, how: str, archs: tuple[str, ...], jobs: int = 1, edited: str = ""
) -> dict[str, float]:
    """Run one process over a file of *text*; return its seconds."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "udfs.py")
        path.write_text(text)
        other = Path(folder, "edited.txt")
        other.write_text(edited)
        options = {"path": str(path), "how": how, "archs": [*archs], "jobs": jobs}
        cache = str(Path(folder, "cache")) if edited else "0"
        command = [
            sys.executable,
            __file__,
            "--child",
            json.dumps({**options, "edited": str(other) if edited else ""}),
        ]
        environ = {**os.environ, "NUMBA_PTXLINK_CACHE": cache, "CUDA_CACHE_DISABLE": "1"}
        done = subprocess.run(command, env=environ, check=True, stdout=subprocess.PIPE, text=True)
    seconds: dict[str, float] = json.loads(done.stdout)
    return seconds


def _medians(bench: _harness.Bench, *arguments: Any, **options: Any) -> dict[str, float]:
    runs = [measured(*arguments, **options) for _ in range(bench.options.repeats)]
    return {name: _harness.spread([run[name] for run in runs])["median"] for name in runs[0]}


def growth(bench: _harness.Bench) -> None:
    """Measure an export of more and more functions, beside stock."""
    known: dict[str, dict[int, float]] = {"export": {}, "stock": {}}
    for count in (count for count in COUNTS if count <= bench.options.most):
        for how, totals in known.items():
            if bench.out_of_time():
                raise _harness.LeftOutError("--quick has no more time")
            seconds = _medians(bench, source(count), how, ARCHS[1:2])
            totals[count] = seconds["cpu"]
            cells = {"functions": count, "way": how, "cpu s": seconds["cpu"], "waited s": seconds["waited"]}
            if count >= 100:
                rest = [totals[each] - totals[1] for each in (count // 10, count)]
                cells["exponent"] = math.log10(rest[1] / rest[0])
            bench.row(cells)


def archs(bench: _harness.Bench) -> None:
    """Measure an export for one architecture and for four."""
    for count in (count for count in COUNTS[1:3] if count <= bench.options.most):
        one, four = (_medians(bench, source(count), "export", ARCHS[:number])["cpu"] for number in (1, 4))
        bench.row({"functions": count, "one cpu s": one, "four cpu s": four, "four/one": four / one})


def jobs(bench: _harness.Bench) -> None:
    """Measure an export by one process and by two."""
    cases = [(100, ARCHS[:1]), (100, ARCHS), (1000, ARCHS[:1])]
    for count, of in cases if bench.options.most >= 100 else [(10, ARCHS[:2])]:
        if count > bench.options.most:
            continue
        one = _medians(bench, source(count), "export", of)
        two = _medians(bench, source(count), "export", of, 2)
        path = two["workers"] / 2 + two["cpu"]
        bench.row(
            {
                "functions": count,
                "archs": len(of),
                "one cpu s": one["cpu"],
                "two: workers cpu s": two["workers"],
                "two: own cpu s": two["cpu"],
                "one/path": one["cpu"] / path,
                "one/two waited": one["waited"] / two["waited"],
            }
        )


def edits(bench: _harness.Bench) -> None:
    """Measure an export after one function was edited."""
    count = min(100, bench.options.most)
    for of in (ARCHS[1:2], ARCHS):
        seconds = _medians(bench, source(count), "export", of, edited=source(count, edited=count // 2))
        ratio = seconds["edited"] / seconds["cpu"]
        bench.row(
            {
                "functions": count,
                "archs": len(of),
                "all cpu s": seconds["cpu"],
                "edited cpu s": seconds["edited"],
                "edited/all": ratio,
            }
        )


def structs(bench: _harness.Bench) -> None:
    """Measure a function over larger and larger structs."""
    for size in (4096, 8192) if bench.options.quick else (4096, 8192, 16384, 32768, 65536):
        if bench.out_of_time():
            raise _harness.LeftOutError("--quick has no more time")
        seconds = _medians(bench, STRUCT.format(size // 4, size // 4 - 1), "export", ARCHS[1:2])
        bench.row({"bytes": size, "cpu s": seconds["cpu"], "cpu ms/kB": seconds["cpu"] / size * 1024e3})


if __name__ == "__main__":
    main()
