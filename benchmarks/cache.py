"""
What the cache costs and saves.

hits: time of a hit for cubins of 5 kB, 50 kB and 5 MB, in a process that has used the cache before.
growth: the same for 50 kB, and the time of a write, in a cache of 10 to 100,000 entries.
herd: processes that start at one time on an empty cache and want one kernel: how often it was compiled, and
how long all of them took. On a device also with numba-cuda's own linker.
start: a fresh process up to the end of its first launch on cold caches, and the one after it on warm ones,
with and without a link file, with and without `cache=True`, beside numba-cuda's own linker and the driver's
cache. What the first launch consists of follows it. Needs a device.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from numba_ptxlink._config import Config
from numba_ptxlink.cache import Cache, Entry, Key

SIZES = {"5 kB": 5_000, "50 kB": 50_000, "5 MB": 5_000_000}

LAUNCH = """
import collections, json, sys, time
begin = time.perf_counter()
import numpy as np
from numba import cuda
from numba.cuda import codegen, dispatcher
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

timed(dispatcher, "compile_cuda", "front end")
timed(codegen.nvvm, "compile_ir", "NVVM")
timed(codegen.CUDACodeLibrary, "get_cubin", "link")
timed(codegen.CUDACodeLibrary, "get_cufunc", "load")
SOURCE = 'extern "C" __device__ int twice(float* out, float a) {{ *out = 2 * a; return 0; }}'
twice = cuda.declare_device("twice", "float32(float32)")
array = cuda.to_device(np.ones(1024, dtype=np.float32))
context = time.perf_counter()

@cuda.jit(link={link}, cache={cache})
def kernel(a, n):
    i = cuda.grid(1)
    if i < a.size:
        x = a[i]
        for j in range(n):
            x = {call} * a[(i * j) % a.size] + np.float32(1) / (x + j)
        a[i] = x

kernel[8, 128](array, 8)
cuda.synchronize()
first = time.perf_counter() - context
misses = -1
if "numba_ptxlink" in sys.modules:
    import numba_ptxlink as pl
    misses = pl.status().cache_misses if pl.status().active else -1
parts = {{label: spent[label] for label in ("front end", "NVVM", "link", "load")}}
print(json.dumps({{"import": imported - begin, "context": context - imported, "first launch": first, **parts,
                  "rest": first - sum(parts.values()), "misses": misses}}))
"""
LINKS = {
    "no link file": {"link": "None", "call": "x"},
    "link file": {"link": '[cuda.CUSource(SOURCE, name="twice.cu")]', "call": "twice(x)"},
}
COLUMNS = ("import", "context", "first launch", "front end", "NVVM", "link", "load", "rest")

HERD = """
import sys
import numba_ptxlink as pl
from numba_ptxlink import cache
# Part of every process that uses numba-cuda, and dearer than a small compile.
import cuda.core.utils
print("ready", flush=True)
sys.stdin.readline()
pl.assemble(open(sys.argv[1]).read(), "sm_90")
print(cache.counters().misses)
"""


def main() -> None:
    """Run the parts that were asked for."""
    parts = {"hits": hits, "growth": growth, "herd": herd, "start": start}
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(parts)} (default: all)")
    parser.add_argument("--processes", type=int, default=32)
    parser.add_argument("--entries", type=int, default=100_000, help="the largest cache of growth")
    parser.add_argument("--repeats", type=int, default=3, help="of each kind of start")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    unknown = set(arguments.parts) - parts.keys()
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: no such part")
    results = {}
    for name in arguments.parts or parts:
        rows = results[name] = parts[name](arguments)
        if not arguments.json:
            print(f"\n{name}")
            for label, row in rows.items():
                print(f"  {label:40} " + "  ".join(f"{column}: {value}" for column, value in row.items()))
            sys.stdout.flush()
    if arguments.json:
        print(json.dumps(results, indent=2))


def hits(_: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Time hits by size, with the key that a cubin of that size would have."""
    rows: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        cache = Cache(Config(cache_dirs=(str(Path(folder, "cache")),)))
        for label, size in SIZES.items():
            code, ptx = os.urandom(size), os.urandom(size)
            cache.through(Key.of("assemble", {"ptx": ptx}), lambda code=code: Entry({"log": ""}, code))
            turns = 500 if size < 1_000_000 else 30
            found = timed(turns, lambda ptx=ptx: cache.through(Key.of("assemble", {"ptx": ptx}), unexpected))
            rows[label] = found
    return rows


def growth(arguments: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Time hits and writes in caches of more and more entries."""
    rows: dict[str, dict[str, object]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "cache")
        small = b"x" * 1000
        count = 0
        for entries in (10, 100, 1_000, 10_000, 100_000):
            if entries > arguments.entries:
                break
            cache = Cache(Config(cache_dirs=(str(path),), cache_size=1 << 40))
            while count < entries:
                cache.put(Key.of("link", {"number": str(count)}), Entry({}, small))
                count += 1
            fresh = Cache(Config(cache_dirs=(str(path),), cache_size=1 << 40))
            begin = time.perf_counter()
            fresh.get(Key.of("link", {"number": "0"}))
            first = time.perf_counter() - begin
            key, code = Key.of("link", {"number": "large"}), os.urandom(50_000)
            fresh.put(key, Entry({}, code))
            found = timed(200, lambda fresh=fresh, key=key: fresh.get(key))
            written = timed(50, lambda fresh=fresh, key=key, code=code: fresh.put(key, Entry({}, code)))
            rows[f"{entries} entries"] = {
                "first hit of a process": ms(first),
                "hit": found["median"],
                "write": written["median"],
            }
    return rows


def herd(arguments: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Start many processes on an empty cache."""
    rows = {"assemble, this cache": herd_of(arguments.processes, one_key=True)}
    rows["assemble, cache off"] = herd_of(arguments.processes, one_key=False)
    if missing_device():
        rows["kernels"] = {"left out": missing_device()}
        return rows
    for label, plugin in (("first kernel, this cache", "1"), ("first kernel, stock", "0")):
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            processes = [launch("link file", plugin, Path(folder)) for _ in range(arguments.processes)]
            found = [outcome(process, plugin) for process in processes]
            made = [each["misses"] for each in found]
            rows[label] = {
                "wall": ms(time.perf_counter() - begin),
                "compiles": sum(made) if plugin == "1" else "not counted",
                "first launch, median": ms(statistics.median(each["first launch"] for each in found)),
            }
    return rows


def herd_of(processes: int, *, one_key: bool) -> dict[str, object]:
    """Let *processes* assemble one large kernel at one time."""
    with tempfile.TemporaryDirectory() as folder:
        ptx = Path(folder, "large.ptx")
        ptx.write_text(large_kernel())
        environ = {**os.environ, "NUMBA_PTXLINK_CACHE": str(Path(folder, "cache")) if one_key else "0"}
        command = [sys.executable, "-c", HERD, str(ptx)]
        started = [
            subprocess.Popen(
                command, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
            )
            for _ in range(processes)
        ]
        for process in started:
            process.stdout.readline()
        gun = time.perf_counter()
        for process in started:
            process.stdin.write("go\n")
        made = [int(process.communicate()[0]) for process in started]
        return {
            "processes": processes,
            "compiles": sum(made) if one_key else processes,
            "wall": ms(time.perf_counter() - gun),
        }


def start(arguments: argparse.Namespace) -> dict[str, dict[str, object]]:
    """Time the first launch of fresh processes, and of the processes that come after them."""
    reason = missing_device()
    if reason:
        return {"left out": {"reason": reason}}
    rows: dict[str, dict[str, object]] = {}
    for link in LINKS:
        for jit_cache in (False, True):
            for plugin, name in (("0", "stock"), ("1", "plugin")):
                label = f"{link}, {'cache=True, ' if jit_cache else ''}{name}"
                if link == "link file" and jit_cache and plugin == "0":
                    rows[label] = {"left out": "numba-cuda cannot keep kernels with link files"}
                    continue
                found: dict[str, list[dict[str, float]]] = {"cold": [], "warm": []}
                for _ in range(arguments.repeats):
                    with tempfile.TemporaryDirectory() as folder:
                        for each in found.values():
                            process = launch(link, plugin, Path(folder), jit_cache=jit_cache)
                            each.append(outcome(process, plugin))
                for state, each in found.items():
                    rows[f"{label}, {state}"] = {
                        column: ms(statistics.median(one[column] for one in each)) for column in COLUMNS
                    }
    return rows


def launch(link: str, plugin: str, folder: Path, *, jit_cache: bool = False) -> subprocess.Popen[str]:
    """Start a process that launches one kernel, with all its caches in *folder*."""
    environ = {
        **os.environ,
        "NUMBA_PTXLINK": plugin,
        "NUMBA_PTXLINK_CACHE": str(folder / "ptxlink"),
        "NUMBA_CACHE_DIR": str(folder / "numba"),
        "CUDA_CACHE_PATH": str(folder / "driver"),
    }
    # Numba wants the source of what it compiles, and its own cache looks at the source's time.
    program = folder / "program.py"
    text = LAUNCH.format(**LINKS[link], cache=jit_cache)
    if not program.exists():
        program.write_text(text)
    return subprocess.Popen([sys.executable, str(program)], env=environ, stdout=subprocess.PIPE, text=True)


def outcome(process: subprocess.Popen[str], plugin: str) -> dict[str, float]:
    """Return what a process that `launch` started has measured."""
    found: dict[str, float] = json.loads(process.communicate()[0].splitlines()[-1])
    if (found["misses"] >= 0) != (plugin == "1"):
        sys.exit(
            "the plugin is not active where it should be, or the other way round; is its .pth file read?"
        )
    return found


def missing_device() -> str:
    """Return why there is no device, "" where there is one."""
    program = "from cuda.core import Device; Device(0).set_current()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    return f"no CUDA device ({done.stderr.strip().splitlines()[-1][:80]})" if done.returncode else ""


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


def timed(turns: int, call: object) -> dict[str, object]:
    """Return the median and the 99th percentile of the time of *call*."""
    times = []
    for _ in range(turns):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    times.sort()
    return {"median": ms(statistics.median(times)), "p99": ms(times[int(0.99 * (turns - 1))])}


def unexpected() -> Entry:
    """Fail: a hit was expected."""
    raise AssertionError


def ms(seconds: float) -> str:
    """Return *seconds* in milliseconds, as text."""
    return f"{1e3 * seconds:.3f} ms" if seconds < 0.01 else f"{1e3 * seconds:.1f} ms"


if __name__ == "__main__":
    main()
