"""
What the cache costs and saves.

hits: a hit for cubins of 5 kB, 50 kB and 5 MB in a process that has used the cache before, beside reading a
file of that size.
growth: hits and writes of 50 kB in a cache of 10 to 100,000 entries, beside one of 10.
herd: processes that start at one time and want one kernel, with and without a common cache: how long all of
them took, and how often the kernel was compiled. On a device also beside numba-cuda's own linker.
start: a fresh process up to the end of its first launch on cold caches, and the one after it on warm ones,
with and without a link file, with and without `cache=True`, beside numba-cuda without this package's hook and
with the driver's cache; on a device then numba-cuda-mlir, without the plugin and with it. "all" is the
import and the first launch, "cpu" the processor time up to there, which other programs disturb less; what the
first launch consists of follows it. A table of both ends the section.
mlir: what numba-cuda-mlir does after its front end for distinct kernels, in a fresh process on a cold cache
and in the one after it, beside numba-cuda-mlir without the plugin, which keeps nothing. No device is used.

Without a device a stand-in takes its place, in a checkout: all is compiled, linked and cached, nothing is
loaded or launched.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import _harness

from numba_ptxlink._config import Config
from numba_ptxlink.cache import Cache, Entry, Key

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZES = {"5 kB": 5_000, "50 kB": 50_000, "5 MB": 5_000_000}
SMALLEST = 10

LAUNCH = """
import collections, json, os, sys, time
import _numba_ptxlink_hook
if os.environ["NUMBA_PTXLINK"] == "0":
    _numba_ptxlink_hook.remove()
begin = time.perf_counter()
import numpy as np
{imports}
imported = time.perf_counter()
spent = collections.Counter()

def timed(owner, name, label):
    original = getattr(owner, name)
    def call(*args, **kwargs):
        started, inner = time.perf_counter(), sum(spent.values())
        try:
            return original(*args, **kwargs)
        finally:
            spent[label] += time.perf_counter() - started - (sum(spent.values()) - inner)
    setattr(owner, name, call)

{timed}
if {stand_in!r}:
    sys.path.insert(0, {stand_in!r})
    import fakedevice
    fakedevice.install()
    fakedevice.ignore_launches()
SOURCE = 'extern "C" __device__ float twice(float a) {{ return 2 * a; }}'
link = {link}
twice = cuda.declare_device("twice", "float32(float32)", abi="c"{declared})
array = cuda.to_device(np.ones(1024, dtype=np.float32))
context = time.perf_counter()

@cuda.jit(cache={cache}{jitted})
def kernel(a, n):
    i = cuda.grid(1)
    if i < a.size:
        x = a[i]
        for j in range(n):
            x = {call} * a[(i * j) % a.size] + np.float32(1) / (x + j)
        a[i] = x

kernel[8, 128](array, 8)
cuda.synchronize()
first, cpu = time.perf_counter() - context, time.process_time()
misses = -1
if "numba_ptxlink" in sys.modules:
    import numba_ptxlink as pl
    misses = pl.status().cache_misses if pl.status().active else -1
parts = {{label: spent[label] for label in ("front end", "NVVM", "link", "load")}}
print(json.dumps({{"all": imported - begin + first, "import": imported - begin, "context": context - imported,
                  "cpu": cpu, "first launch": first, **parts, "rest": first - sum(parts.values()),
                  "misses": misses}}))
"""
LINKS = {
    "no link file": {"link": "None", "call": "x"},
    "link file": {"link": 'CUSource(SOURCE, name="twice.cu")', "call": "twice(x)"},
}
# How a front end is imported, and its functions whose time is told apart. numba-cuda-mlir's optimize makes
# MLIR into LLVM IR, and calls the ones that follow; what loads is not Python.
NUMBA_CUDA = {
    "imports": """
from numba import cuda
from numba.cuda import codegen, dispatcher
from numba.cuda.cudadrv.linkable_code import CUSource
""",
    # It cannot keep a kernel on disk whose function declares what it links.
    "declared": "",
    "jitted": ", link=link and [link]",
    "timed": """
timed(dispatcher, "compile_cuda", "front end")
timed(codegen.nvvm, "compile_ir", "NVVM")
timed(codegen.CUDACodeLibrary, "get_cubin", "link")
timed(codegen.CUDACodeLibrary, "get_cufunc", "load")
""",
}
NUMBA_CUDA_MLIR = {
    "imports": """
from numba_cuda_mlir import cuda, linker, mlir_compiler, mlir_optimization
from numba_cuda_mlir.numba_cuda.cudadrv.linkable_code import CUSource
""",
    "declared": ", link=link",
    "jitted": "",
    "timed": """
timed(mlir_compiler, "compile_mlir", "front end")
timed(mlir_optimization, "optimize", "front end")
timed(mlir_optimization, "_compile_to_ptx", "NVVM")
timed(mlir_optimization, "_compile_to_ltoir", "NVVM")
timed(mlir_optimization, "_call_llvm70_capi", "NVVM")
timed(linker.Linker, "complete", "link")
""",
}
# The kernels of "start": whether they have a link file, and whether numba-cuda keeps them on disk, which it
# cannot do with the last.
ROWS = {
    "plain": ("no link file", False),
    "linked": ("link file", False),
    "kept": ("no link file", True),
    "linked-kept": ("link file", True),
}
PARTS = ("all", "cpu", "import", "context", "first launch", "front end", "NVVM", "link", "load", "rest")
LINKERS = {"stock": "0", "plugin": "1"}
# Likewise, with numba-cuda-mlir.
MLIR_LINKERS = {"mlir": "0", "mlir plugin": "1"}
STAND_IN = Path(__file__).resolve().parents[1] / "tests" / "helpers"

HERD = """
import sys
import numba_ptxlink as pl
# Part of every process that uses numba-cuda, and dearer than a small compile.
import cuda.core.utils
print("ready", flush=True)
sys.stdin.readline()
pl.assemble(open(sys.argv[1]).read(), "sm_90")
print(pl.status().cache_misses)
"""


MLIR = """
import json, os, time
import numba_ptxlink as pl
from numba_cuda_mlir import cuda, mlir_optimization, types
from numba_cuda_mlir import tools
if os.environ["NUMBA_PTXLINK"] == "1":
    pl.enable()
tools._cached_cc = (9, 0)
optimize, spent = mlir_optimization.optimize, []

def timed(compiled):
    wall, cpu = time.perf_counter(), time.process_time()
    optimize(compiled)
    spent.append((time.perf_counter() - wall, time.process_time() - cpu))

mlir_optimization.optimize = timed
for number in range({kernels}):
    names = {{"cuda": cuda}}
    body = f" i = cuda.grid(1)\\n if i < x.size:\\n  y[i] = x[i] * {{number}}.5 + y[i]"
    exec("def kernel(x, y):\\n" + body, names)
    cuda.jit(names["kernel"]).compile((types.float32[::1], types.float32[::1]))
print(json.dumps({{"active": pl.status().active, "back ends": spent}}))
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the sections that were asked for."""
    sections = {"hits": hits, "growth": growth, "herd": herd, "start": start, "mlir": mlir}
    parser = _harness.make_parser(__doc__, sections, repeats=(3, 1))
    parser.add_argument("--processes", type=int, default=(32, 8), help="of a herd, %(default)s")
    parser.add_argument(
        "--entries", type=int, default=(100_000, 1_000), help="the largest cache of growth, %(default)s"
    )
    parser.add_argument("--kernels", type=int, default=(10, 4), help="kernels of mlir, %(default)s")
    parser.add_argument("--alternations", type=int, default=(10, 1), help="turns of start, %(default)s")
    parser.add_argument("--without-mlir", action="store_true", help="start numba-cuda alone")
    parser.add_argument(
        "--rows",
        type=_row_names,
        default=(tuple(ROWS)[:3], tuple(ROWS)[:2]),
        help=f"kernels of start, separated by commas: {', '.join(ROWS)} (no stock), %(default)s",
    )
    _harness.run(parser, sections, argv)


def hits(bench: _harness.Bench) -> None:
    """Measure hits by size, with the key that a cubin of that size would have."""
    with tempfile.TemporaryDirectory() as folder:
        cache = open_cache(Path(folder, "cache"))
        for label, size in bench.each(SIZES.items()):
            code, ptx = os.urandom(size), os.urandom(size)
            cache.through(Key.of("assemble", {"ptx": ptx}), functools.partial(Entry, {"log": ""}, code))
            file = Path(folder, "file")
            file.write_bytes(code)
            look_up = functools.partial(look_up_ptx, cache, ptx)
            measured = measure(
                bench, {"read": file.read_bytes, "hit": look_up}, 500 if size < 1_000_000 else 30
            )
            bench.row({"size": label, **measured})


def look_up_ptx(cache: Cache, ptx: bytes) -> None:
    """Have a hit as the assembler has one: the key is made from the PTX."""
    cache.through(Key.of("assemble", {"ptx": ptx}), unexpected)


def growth(bench: _harness.Bench) -> None:
    """Measure hits and writes in caches of more and more entries, beside one that stays small."""
    with tempfile.TemporaryDirectory() as folder:
        paths = {"small": Path(folder, "small"), "grown": Path(folder, "grown")}
        fill(paths["small"], 0, SMALLEST)
        count = 0
        sizes = (10, 100, 1_000, 10_000, 100_000)
        for entries in bench.each(size for size in sizes if size <= bench.options.entries):
            fill(paths["grown"], count, entries)
            count = entries
            code = os.urandom(50_000)
            key = Key.of("link", {"number": "large"})
            caches = {name: open_cache(path) for name, path in paths.items()}
            for cache in caches.values():
                cache.put(key, Entry({}, code))
            operations = {
                "open and hit": (functools.partial(look_up_first, path) for path in paths.values()),
                "hit": (functools.partial(cache.found, key) for cache in caches.values()),
                "write": (functools.partial(cache.put, key, Entry({}, code)) for cache in caches.values()),
            }
            for operation, calls in bench.each(operations.items()):
                contenders = dict(zip((f"{SMALLEST} entries", "grown"), calls, strict=True))
                turns = {"hit": 200}.get(operation, 50)
                bench.row({"operation": operation, "grown to": entries, **measure(bench, contenders, turns)})


def open_cache(path: Path) -> Cache:
    """Return the cache in *path* as a process sees it that has not used it yet."""
    return Cache(Config(cache_dirs=(str(path),), cache_size=1 << 40))


def fill(path: Path, begin: int, end: int) -> None:
    """Put small entries with the numbers from *begin* up to *end* into the cache in *path*."""
    cache = open_cache(path)
    for number in range(begin, end):
        cache.put(Key.of("link", {"number": str(number)}), Entry({}, b"x" * 1000))


def look_up_first(path: Path) -> None:
    """Open the cache in *path* and have a hit."""
    open_cache(path).found(Key.of("link", {"number": "0"}))


def measure(bench: _harness.Bench, calls: dict[str, Callable[[], object]], turns: int) -> dict[str, object]:
    """Return how *calls* compare, and the 99th percentile of the last."""
    contenders = {name: functools.partial(_harness.timed, call) for name, call in calls.items()}
    times = bench.in_turns(contenders, turns)["time"]
    last, ordered = [*times.items()][-1]
    p99 = sorted(ordered)[int(0.99 * (len(ordered) - 1))]
    return {**_harness.compare(times), f"{last} p99 ms": 1e3 * p99}


def herd(bench: _harness.Bench) -> None:
    """Start many processes at one time."""
    count = bench.options.processes
    contenders = {
        "cache off": functools.partial(assemble_at_once, count, cached=False),
        "cache": functools.partial(assemble_at_once, count, cached=True),
    }
    show_herd(bench, "assemble", bench.in_turns(contenders, bench.options.repeats))
    if _harness.missing_device():
        bench.leave_out("kernels", _harness.missing_device())
        return
    contenders = {linker: functools.partial(launch_at_once, count, linker) for linker in LINKERS}
    show_herd(bench, "first kernel", bench.in_turns(contenders, bench.options.repeats))


def show_herd(bench: _harness.Bench, label: str, samples: dict[str, dict[str, list[float]]]) -> None:
    """Print one row for each time, and how often the processes compiled in all."""
    compiles = {
        f"compiles, {name}": int(statistics.median(counts))
        for name, counts in samples.pop("compiles").items()
    }
    for figure, times in samples.items():
        row = {"program": label, "time": figure, "processes": bench.options.processes}
        bench.row({**row, **_harness.compare(times), **compiles})


def assemble_at_once(processes: int, *, cached: bool) -> dict[str, list[float]]:
    """Let *processes* assemble one large kernel at one time."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        ptx = Path(folder, "large.ptx")
        ptx.write_text(large_kernel())
        environ = {**os.environ, "NUMBA_PTXLINK_CACHE": str(Path(folder, "cache")) if cached else "0"}
        command = [sys.executable, "-c", HERD, str(ptx)]
        started = []
        for _ in range(processes):
            # Elsewhere, lest a checkout be imported in place of what is installed.
            process = subprocess.Popen(
                command,
                env=environ,
                cwd=folder,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
            stack.callback(process.kill)
            started.append(process)
        for process in started:
            process.stdout.readline()
        begin = time.perf_counter()
        for process in started:
            process.stdin.write("go\n")
        compiles = [int(process.communicate()[0]) for process in started]
        wall = time.perf_counter() - begin
        # A cache that is off counts nothing.
        return {"all of them": [wall], "compiles": [sum(compiles) if cached else processes]}


def launch_at_once(processes: int, linker: str) -> dict[str, list[float]]:
    """Let *processes* compile and launch one kernel at one time."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        begin = time.perf_counter()
        started = []
        for _ in range(processes):
            started.append(launch("link file", linker, Path(folder)))
            stack.callback(started[-1].kill)
        outcomes = [read_outcome(process, linker) for process in started]
        figures = {
            "all of them": [time.perf_counter() - begin],
            "first launch": [statistics.median(outcome["first launch"] for outcome in outcomes)],
        }
        if linker == "plugin":
            figures["compiles"] = [sum(outcome["misses"] for outcome in outcomes)]
        return figures


def start(bench: _harness.Bench) -> None:
    """Measure the first launch of fresh processes, and of the processes that come after them."""
    if _harness.missing_device() and not STAND_IN.is_dir():
        raise _harness.LeftOutError(_harness.missing_device())
    if not bench.options.quick:
        # The first processes read files that are not in memory yet.
        for linker in LINKERS:
            launch_twice("link file", linker, jit_cache=False)
    table = []
    # numba-cuda-mlir comes after all of numba-cuda: each of its starts takes three times as long.
    front_ends = [LINKERS, MLIR_LINKERS] if can_launch_mlir(bench) else [LINKERS]
    for linkers, name in bench.each(itertools.product(front_ends, bench.options.rows)):
        link, jit_cache = ROWS[name]
        contenders = {
            linker: functools.partial(launch_twice, link, linker, jit_cache=jit_cache)
            for linker in linkers
            # The front ends keep no such kernel.
            if name != "linked-kept" or linker.endswith("plugin")
        }
        kernel = f"{link}{', cache=True' * jit_cache}"
        samples = bench.in_turns(contenders, bench.options.alternations)
        for figure, times in samples.items():
            caches, _, part = figure.partition(" ")
            bench.row({"kernel": kernel, "caches": caches, "part": part, **_harness.compare(times)})
        table += [summary(kernel, caches, samples) for caches in ("cold", "warm")]
    print("\n  medians in ms, and plugin/stock turn by turn")
    print(*table, sep="\n", flush=True)


def can_launch_mlir(bench: _harness.Bench) -> bool:
    """Return whether numba-cuda-mlir launches a kernel here; tell why not."""
    reason = "--without-mlir" if bench.options.without_mlir else _harness.missing_device()
    if importlib.util.find_spec("numba_cuda_mlir") is None:
        reason = "it is not installed"
    if not reason:
        try:
            for linker in MLIR_LINKERS:
                launch_twice("link file", linker, jit_cache=False)
        except _harness.LeftOutError as failed:
            reason = str(failed)
    if reason:
        bench.leave_out("numba-cuda-mlir", reason)
    return not reason


def summary(kernel: str, caches: str, samples: dict[str, dict[str, list[float]]]) -> str:
    """Return a line with the time and the processor time of one kernel on cold or warm caches."""
    cells = [f"  {kernel:26} {caches}"]
    for part in ("all", "cpu"):
        times = samples[f"{caches} {part}"]
        compared = _harness.compare(times)
        medians = ", ".join(f"{linker} {compared[f'{linker} ms']:6.0f}" for linker in times)
        ratios = [f", {cell['median']:.3f}" for cell in compared.values() if isinstance(cell, dict)]
        cells.append(f"{part}: {medians}{''.join(ratios)}")
    return "   ".join(cells)


def _row_names(text: str) -> list[str]:
    names = text.split(",")
    if not {*names} <= ROWS.keys():
        raise argparse.ArgumentTypeError(f"{text!r}: rows are {', '.join(ROWS)}")
    return names


def launch_twice(link: str, linker: str, *, jit_cache: bool) -> dict[str, list[float]]:
    """Return the times of a process on cold caches and of one after it, by "cold" or "warm" and the part."""
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        for caches in ("cold", "warm"):
            with launch(link, linker, Path(folder), jit_cache=jit_cache) as process:
                outcome = read_outcome(process, linker)
            times |= {f"{caches} {part}": [outcome[part]] for part in PARTS}
    return times


def launch(link: str, linker: str, folder: Path, *, jit_cache: bool = False) -> subprocess.Popen[str]:
    """Start a process that launches one kernel, with all its caches in *folder*."""
    environ = {
        **os.environ,
        # Installed packages are compiled; those of a checkout are, unless this forbids it.
        "PYTHONDONTWRITEBYTECODE": "",
        "NUMBA_PTXLINK": (LINKERS | MLIR_LINKERS)[linker],
        "NUMBA_PTXLINK_CACHE": str(folder / "ptxlink"),
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "CUDA_CACHE_PATH": str(folder / "driver"),
    }
    # Numba wants the source of what it compiles, and its own cache looks at the source's time.
    program = folder / "program.py"
    stand_in = str(STAND_IN) if _harness.missing_device() else ""
    front_end = NUMBA_CUDA_MLIR if linker in MLIR_LINKERS else NUMBA_CUDA
    text = LAUNCH.format(**front_end, **LINKS[link], cache=jit_cache, stand_in=stand_in)
    if not program.exists():
        program.write_text(text)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", str(program)], env=environ, stdout=subprocess.PIPE, text=True
    )


def read_outcome(process: subprocess.Popen[str], linker: str) -> dict[str, float]:
    """Return what a process that `launch` started has measured."""
    printed = process.communicate()[0]
    if process.returncode:
        raise _harness.LeftOutError(f"a process with {linker} ended with {process.returncode}")
    outcome: dict[str, float] = json.loads(printed.splitlines()[-1])
    if (outcome["misses"] >= 0) != linker.endswith("plugin"):
        sys.exit(
            "the plugin is not active where it should be, or the other way round; is its .pth file read?"
        )
    return outcome


def mlir(bench: _harness.Bench) -> None:
    """Measure the back end of numba-cuda-mlir on cold and warm caches."""
    if importlib.util.find_spec("numba_cuda_mlir") is None:
        bench.leave_out("numba-cuda-mlir", "it is not installed")
        return
    contenders = {linker: functools.partial(compile_twice, bench, linker) for linker in MLIR_LINKERS}
    for figure, times in bench.in_turns(contenders, bench.options.alternations).items():
        caches, _, part = figure.partition(" ")
        bench.row({"caches": caches, "back end of a kernel": part, **_harness.compare(times)})


def compile_twice(bench: _harness.Bench, linker: str) -> dict[str, list[float]]:
    """Return the times of the back end, the first kernel's apart, on cold and on warm caches."""
    times = {}
    with tempfile.TemporaryDirectory() as folder:
        environ = {**os.environ, "NUMBA_PTXLINK": MLIR_LINKERS[linker], "NUMBA_PTXLINK_CACHE": folder}
        command = [sys.executable, "-W", "ignore", "-c", MLIR.format(kernels=bench.options.kernels)]
        for caches in ("cold", "warm"):
            # Not in a checkout, whose package has no extension.
            done = subprocess.run(
                command, cwd=folder, env=environ, stdout=subprocess.PIPE, text=True, check=True
            )
            outcome = json.loads(done.stdout.splitlines()[-1])
            if outcome["active"] != linker.endswith("plugin"):
                sys.exit("the plugin is not active where it should be, or the other way round")
            walls, cpus = zip(*outcome["back ends"][1:], strict=True)
            times |= {f"{caches} wall": list(walls), f"{caches} cpu": list(cpus)}
    return times


def large_kernel(operations: int = 5_000) -> str:
    """Return PTX that keeps the compiler busy for a while."""
    body = [f"ld.global.f32 %f{i}, [%rd1+{4 * i}];" for i in range(32)]
    body += [
        f"fma.rn.f32 %f{i % 32}, %f{(i + 7) % 32}, %f{(i + 13) % 32}, %f{i % 32};" for i in range(operations)
    ]
    body += [f"st.global.f32 [%rd1+{4 * i}], %f{i};" for i in range(32)]
    return (
        ".version 8.0\n.target sm_75\n.address_size 64\n.visible .entry large(.param .u64 out)\n{\n"
        ".reg .b64 %rd<2>;\n.reg .f32 %f<34>;\nld.param.u64 %rd1, [out];\n" + "\n".join(body) + "\nret;\n}\n"
    )


def unexpected() -> Entry:
    """Fail: a hit was expected."""
    raise AssertionError


if __name__ == "__main__":
    main()
