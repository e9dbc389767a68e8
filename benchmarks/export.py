"""
Exporting many Python functions, beside a loop of stock `cuda.compile` and `ptxas` over the same functions.

Times are CPU seconds, which a busy machine leaves as they are: a module is exported, by the process that is
measured. Every measurement is a process of its own, and the caches are off but for edits.

growth: 1 to 1,000 functions, one architecture: PTX, LTO-IR, machine code and a fat binary of each. The
exponent is that of the growth from each number to ten times as many, without what one function takes, and
the ratio that of the time for each function.
jobs: a file of functions, exported by one process and by two, in the time that passes.
edits: one function of a hundred was edited, the cache has what the others became.
"""

from __future__ import annotations

import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

import _harness

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

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
ARCHS = ("sm_80", "sm_90", "sm_100", "sm_120")
COUNTS = (1, 10, 100, 1000)


def main() -> None:
    """Run the benchmark, or one of its processes."""
    if sys.argv[1:2] == ["--child"]:
        print(json.dumps(child(**json.loads(sys.argv[2]))))
        return
    sections = {"growth": growth, "jobs": jobs, "edits": edits}
    parser = _harness.make_parser(__doc__, sections, repeats=(3, 1))
    parser.add_argument("--most", type=int, default=(1000, 10), help="functions at most, %(default)s")
    parser.add_argument("--archs", type=int, default=(4, 1), help="architectures at most, %(default)s")
    _harness.run(parser, sections)


def source(count: int, edited: int = -1) -> str:
    """Return the text of a file of *count* functions, one of which may be *edited*."""
    constants = (number + (0.25 if number == edited else 0.5) for number in range(count))
    return HEAD + "".join(FUNCTION.format(n, n % 7 + 3, constant) for n, constant in enumerate(constants))


def child(path: str, how: str, archs: list[str], jobs: int = 0, edited: str = "") -> dict[str, float]:
    """Export *path*, by *jobs* processes or as a module of this one, or use stock; return the seconds."""
    if how == "stock":
        return stock(path, archs)
    if jobs:
        import numba_ptxlink as pl

        with ThreadPoolExecutor(jobs) as threads:
            started = time.perf_counter()
            pl.export(path, None, arch=archs, executor=threads if jobs > 1 else None)
            return {"waited": time.perf_counter() - started}
    if edited:
        # Imports are a part of neither export.
        first = Path(path).with_name("first.py")
        first.write_text(source(1))
        export_module(first, archs)
    seconds = {"cpu": export_module(path, archs)}
    if edited:
        Path(path).write_text(Path(edited).read_text())
        seconds["edited"] = export_module(path, archs)
    return seconds


def export_module(path: str | Path, archs: list[str]) -> float:
    """Import *path* and export it in this process; return the CPU seconds."""
    import numba_ptxlink as pl

    before = time.process_time()
    module = ModuleType("udfs")
    module.__file__ = str(path)
    exec(compile(Path(path).read_text(), path, "exec"), vars(module))  # noqa: S102 - this benchmark's file
    pl.export(module, None, arch=archs)
    return time.process_time() - before


def stock(path: str, archs: list[str]) -> dict[str, float]:
    """Compile each function with `cuda.compile` to PTX and LTO-IR, and the PTX with ptxas."""
    os.environ["NUMBA_PTXLINK"] = "0"
    before = time.process_time()
    from numba import cuda
    from numba.cuda import types

    from numba_ptxlink import assembler
    from numba_ptxlink._tools import programs

    scope: dict[str, object] = {}
    text = Path(path).read_text().replace("from numba_ptxlink import udf", "udf = lambda _: lambda f: f")
    exec(compile(text, path, "exec"), scope)  # noqa: S102 - the file is this benchmark's
    functions = {name: value for name, value in scope.items() if name[0] == "f" and name[1:].isdigit()}
    tool = programs.newest_ptxas((assembler.compiler_version()[0], 99))
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
    return {"cpu": time.process_time() - before + children.ru_utime + children.ru_stime}


def measured(
    text: str, how: str, archs: tuple[str, ...], jobs: int = 0, edited: str = ""
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


def _in_turns(
    bench: _harness.Bench, cases: Mapping[str, Callable[[], dict[str, float]]], turns: int = 0
) -> dict[str, dict[str, list[float]]]:
    """Measure *cases* in turns; return the samples of each figure by case."""
    calls = {
        name: lambda case=case: {figure: [seconds] for figure, seconds in case().items()}
        for name, case in cases.items()
    }
    return bench.in_turns(calls, turns or bench.options.repeats)


def _ratio(above: Sequence[float], below: Sequence[float], scale: float = 1.0) -> dict[str, float]:
    """Return the spread of ratios that are taken turn by turn."""
    return _harness.spread([scale * a / b for a, b in zip(above, below, strict=True)])


def growth(bench: _harness.Bench) -> None:
    """Measure an export of more and more functions, beside stock, and what each function takes."""
    counts = [count for count in COUNTS if count <= bench.options.most]
    before: list[float] = []
    first = 0.0
    for count in bench.each(counts):
        cases = {
            "numba_ptxlink": partial(measured, source(count), "export", ARCHS[1:2]),
            "stock": partial(measured, source(count), "stock", ARCHS[1:2]),
        }
        # Stock takes five times as long for a thousand: it comes where the time allows it.
        apart = {"stock": cases.pop("stock")} if count >= 1000 else {}
        samples = _in_turns(bench, cases)["cpu"]
        own = samples["numba_ptxlink"]
        first = first or statistics.median(own)
        bench.row({"functions": count, **_harness.compare(samples, "numba_ptxlink")})
        if count >= 100:
            # Another turn may have been left out of the larger one.
            before = before[: len(own)]
            rest = [statistics.median(each) - first for each in (before, own)]
            bench.row(
                {
                    "what": "a function",
                    f"{count // 10} functions ms": 1e3 * statistics.median(before) / (count // 10),
                    f"{count} functions ms": 1e3 * statistics.median(own) / count,
                    f"{count} functions/{count // 10} functions": _ratio(own, before, 0.1),
                    "exponent": math.log10(rest[1] / rest[0]),
                }
            )
        if apart and bench.out_of_time():
            bench.leave_out(f"stock, {count} functions", "the time for it is over")
        elif apart:
            samples = {"numba_ptxlink": own[:1], **_in_turns(bench, apart, 1)["cpu"]}
            bench.row({"functions": count, **_harness.compare(samples, "numba_ptxlink")})
        before = own


def jobs(bench: _harness.Bench) -> None:
    """Measure the export of a file by one process and by two."""
    cases = [(100, ARCHS[:1]), (100, ARCHS), (1000, ARCHS[:1])]
    most = bench.options.most, bench.options.archs
    cases = [(count, of) for count, of in cases if count <= most[0] and len(of) <= most[1]]
    cases = cases or [(10, ARCHS[: min(2, most[1])])]
    for count, of in bench.each(cases):
        ways = {
            f"{number} job{'s'[: number - 1]}": partial(measured, source(count), "export", of, number)
            for number in (1, 2)
        }
        waited = _in_turns(bench, ways)["waited"]
        bench.row({"functions": count, "archs": len(of), **_harness.compare(waited)})


def edits(bench: _harness.Bench) -> None:
    """Measure an export after one function was edited."""
    count = min(100, bench.options.most)
    for of in bench.each([of for of in (ARCHS[1:2], ARCHS) if len(of) <= bench.options.archs]):
        both = partial(measured, source(count), "export", of, edited=source(count, edited=count // 2))
        samples = _in_turns(bench, {"both": both})
        seconds = {"all": samples["cpu"]["both"], "edited": samples["edited"]["both"]}
        bench.row({"functions": count, "archs": len(of), **_harness.compare(seconds)})


if __name__ == "__main__":
    main()
