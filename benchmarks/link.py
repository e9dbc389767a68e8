"""
Compiling and linking Numba kernels: numba-cuda's own linker and this package's, side by side in one run.

Each measurement is a process of its own, and the two linkers take turns. A process compiles distinct kernels
from Python to code that is ready to launch; the first one is reported apart, since it also loads the tools.
Of the others it also says what comes after Numba's front end, which is the same Python with both linkers.
The caches, which are the driver's and with the plugin this package's too, are off; on and empty; or full of
the same kernels. Then comes the first link of a large library in a process, with every cache empty. The last
part links the same PTX in one thread and in two.

Needs a device, or --no-device, which puts a stand-in in its place and leaves out the loading.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

LINKERS = ("stock", "plugin")
CASES = ("no link files", "one .cu", "one LTO library")
CACHES = ("off", "empty", "full")
ROUNDS = 3
PARTS = ("first", "next", "its back end")
LIBRARIES = ("fat binary", "fat binary, PTX alone", "LTO-IR")
FUNCTIONS = 300
FUNCTION = """\
extern "C" __device__ float f{number}(float a, int n) {{
  float r = a;
  for (int i = 0; i < n; ++i) {{
    r = r * a + sinf(r + {number});
    if (r > 100.f) r = sqrtf(r) - expf(-a * {number});
  }}
  return r;
}}
"""
CALLER = """\
extern "C" __device__ float f7(float, int);
extern "C" __global__ void kernel(float* x) { *x = f7(x[1], 3); }
"""
SOURCE = """\
extern "C" __device__ float blend(float a, float b) {
  float r = a;
  for (int i = 0; i < 8; ++i) r = r * b + a;
  return r;
}
"""
KERNEL = """\
def kernel(x, y):
    i = cuda.grid(1)
    if i < x.size:
        value = x[i]
        for step in range({number} % 7 + 3):
            value = value * y[i] + math.sin(value) * {number}.5
        y[i] = {call}
"""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--processes", type=int, default=5, help="processes of each kind")
    parser.add_argument("--kernels", type=int, default=8, help="kernels in each process")
    parser.add_argument("--links", type=int, default=48, help="links for the comparison of threads")
    parser.add_argument("--no-device", action="store_true", help="compile and link, and load nothing")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(json.loads(options.child))
        return
    results = {"kernels": kernels(options), "libraries": libraries(options), "threads": threads(options)}
    if options.json:
        print(json.dumps(results, indent=2))
    else:
        show(results)


def kernels(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one row for each state of the caches and each case."""
    rows = []
    for caches in CACHES:
        for case in CASES:
            times: dict[str, dict[str, list[float]]] = {
                each: {part: [] for part in PARTS} for each in LINKERS
            }
            with tempfile.TemporaryDirectory() as scratch:
                # Where the caches are to be full, a run that fills them comes first.
                for turn in range(options.processes + (caches == "full")):
                    for linker in LINKERS:
                        task = {
                            "linker": linker,
                            "case": case,
                            "kernels": options.kernels,
                            "no_device": options.no_device,
                        }
                        folder = Path(scratch, linker, "" if caches == "full" else str(turn))
                        made = run(task, None if caches == "off" else folder)
                        if caches != "full" or turn:
                            times[linker]["first"].append(made["times"][0])
                            times[linker]["next"] += made["times"][1:]
                            times[linker]["its back end"] += made["back_ends"][1:]
            row: dict[str, Any] = {"case": case, "caches": caches}
            for part in PARTS:
                stock, plugin = (1e3 * statistics.median(times[each][part]) for each in LINKERS)
                row[part] = {"stock_ms": stock, "plugin_ms": plugin, "ratio": plugin / stock}
            rows.append(row)
    return rows


def libraries(options: argparse.Namespace) -> list[dict[str, Any]]:
    """Return one row for each kind of a large library: its first link, with every cache empty."""
    rows = []
    with tempfile.TemporaryDirectory() as scratch:
        for case in LIBRARIES:
            times: dict[str, list[float]] = {each: [] for each in LINKERS}
            made = Path(scratch, case)
            run({"linker": "plugin", "make": case, "to": str(made), "no_device": options.no_device}, None)
            for turn in range(options.processes):
                for linker in LINKERS:
                    task = {
                        "linker": linker,
                        "library": case,
                        "from": str(made),
                        "no_device": options.no_device,
                    }
                    folder = Path(scratch, f"{case} {linker} {turn}")
                    times[linker] += run(task, folder, driver_cache=False)["times"]
            stock, plugin = (1e3 * statistics.median(times[each]) for each in LINKERS)
            size = Path(made, "library").stat().st_size
            rows.append(
                {
                    "library": case,
                    "bytes": size,
                    "stock_ms": stock,
                    "plugin_ms": plugin,
                    "ratio": plugin / stock,
                }
            )
    return rows


def make_library(case: str, folder: Path) -> dict[str, list[float]]:
    """Write a kernel and a library of several hundred functions to *folder*."""
    from numba import cuda

    from numba_ptxlink import Arch, _fatbin, _nvrtc

    arch = Arch.of(tuple(cuda.get_current_device().compute_capability))
    functions = "".join(FUNCTION.format(number=number) for number in range(FUNCTIONS))
    kinds = {"LTO-IR": ("ltoir",), "fat binary": ("cubin", "ptx"), "fat binary, PTX alone": ("ptx",)}[case]
    codes = [_nvrtc.compile_source(functions, "f.cu", arch, output=kind).code for kind in kinds]
    caller = "ltoir" if case == "LTO-IR" else "ptx"
    packed = [(kind, arch, "f", code) for kind, code in zip(kinds, codes, strict=True)]
    folder.mkdir()
    Path(folder, "library").write_bytes(codes[0] if case == "LTO-IR" else _fatbin.pack(packed))
    Path(folder, "kernel").write_bytes(_nvrtc.compile_source(CALLER, "k.cu", arch, output=caller).code)
    return {"times": []}


def link_library(case: str, folder: Path) -> dict[str, list[float]]:
    """Return the seconds of the first link of the library in *folder*."""
    from cuda.bindings import nvjitlink
    from numba import cuda
    from numba.cuda.cudadrv import driver

    # The two linkers load it at other moments.
    nvjitlink.version()
    kernel, library = (Path(folder, each).read_bytes() for each in ("kernel", "library"))
    cc = tuple(cuda.get_current_device().compute_capability)
    started = time.perf_counter()
    lto = case == "LTO-IR"
    linker = driver._Linker(cc=cc, lto=lto)  # noqa: SLF001 - the class that the plugin replaces
    (linker.add_ltoir if lto else linker.add_ptx)(kernel)
    (linker.add_ltoir if lto else linker.add_fatbin)(library)
    linker.complete()
    return {"times": [time.perf_counter() - started]}


def threads(options: argparse.Namespace) -> list[dict[str, object]]:
    """Return, for each linker, the time of the same links in one thread and in two."""
    rows = []
    for kind in ("one PTX", "two PTX"):
        for linker in LINKERS:
            task = {
                "linker": linker,
                "threads": kind,
                "links": options.links,
                "no_device": options.no_device,
            }
            measured = [run(task, None) for _ in range(min(3, options.processes))]
            one, two = (
                1e3 * statistics.median(time for each in measured for time in each[workers])
                for workers in ("1", "2")
            )
            rows.append(
                {"inputs": kind, "linker": linker, "one_ms": one, "two_ms": two, "speedup": one / two}
            )
    return rows


def run(task: dict[str, object], folder: Path | None, *, driver_cache: bool = True) -> dict[str, list[float]]:
    """Run one process of this script with its caches in *folder*, None for no caches; return its figures."""
    environ = {
        **os.environ,
        "NUMBA_PTXLINK": "1" if task["linker"] == "plugin" else "0",
        "NUMBA_PTXLINK_CACHE": str(folder / "ptxlink") if folder else "0",
        "CUDA_CACHE_DISABLE": "0" if folder and driver_cache else "1",
    }
    if folder:
        folder.mkdir(parents=True, exist_ok=True)
        environ["CUDA_CACHE_PATH"] = str(folder / "driver")
    made = subprocess.run(
        [sys.executable, __file__, "--child", json.dumps(task)],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    measured: dict[str, list[float]] = json.loads(made.stdout.splitlines()[-1])
    return measured


def child(task: dict[str, object]) -> None:
    """Measure one thing in a fresh process, and print it as JSON."""
    import numba_ptxlink as pl

    if task["linker"] == "plugin":
        pl.enable()
    from numba import cuda

    if task["no_device"]:
        stand_in()
    else:
        cuda.current_context()
    if "make" in task:
        measured = make_library(str(task["make"]), Path(str(task["to"])))
    elif "library" in task:
        measured = link_library(str(task["library"]), Path(str(task["from"])))
    else:
        measured = links(task) if "threads" in task else compilations(task)
    if pl.status().active is not (task["linker"] == "plugin"):
        sys.exit(f"{task['linker']} was asked for, and the plugin says: {pl.status().reason}")
    print(json.dumps(measured))


def compilations(task: dict[str, object]) -> dict[str, list[float]]:
    """Return the seconds from Python, and from LLVM IR, to code that is ready to launch, for each kernel."""
    import math

    from numba import cuda, types
    from numba.cuda import dispatcher as front_end
    from numba.cuda.cudadrv.linkable_code import LTOIR, CUSource

    link = None
    if task["case"] == "one .cu":
        link = CUSource(SOURCE, name="blend.cu")
    elif task["case"] == "one LTO library":
        link = LTOIR(library(), name="blend.ltoir")
    blend = cuda.declare_device("blend", "float32(float32, float32)", abi="c", link=link) if link else None
    call = "blend(value, y[i])" if link else "value"
    times, back_ends = [], []
    compile_cuda, reached = front_end.compile_cuda, 0.0

    def until_reached(*args: Any, **kwargs: Any) -> Any:
        nonlocal reached
        made = compile_cuda(*args, **kwargs)
        reached = time.perf_counter()
        return made

    front_end.compile_cuda = until_reached
    for number in range(int(str(task["kernels"]))):
        names = {"cuda": cuda, "math": math, "blend": blend}
        exec(KERNEL.format(number=number, call=call), names)  # noqa: S102 - kernels that differ in a number
        signature = (types.float32[::1], types.float32[::1])
        dispatcher = cuda.jit(names["kernel"])
        started = time.perf_counter()
        dispatcher.compile(signature)
        done = time.perf_counter()
        times.append(done - started)
        back_ends.append(done - reached)
    return {"times": times, "back_ends": back_ends}


def library(output: str = "ltoir") -> bytes:
    """Return the C++ function as LTO-IR or PTX for this device."""
    from numba import cuda

    from numba_ptxlink import Arch, _nvrtc

    cc = tuple(cuda.get_current_device().compute_capability)
    return _nvrtc.compile_source(SOURCE, "blend.cu", Arch.of(cc), output=output).code


def links(task: dict[str, object]) -> dict[str, list[float]]:
    """Return the seconds that the same links took in one thread and in two, in turn, by number of threads."""
    import math

    from numba import cuda, types
    from numba.cuda.cudadrv import driver

    linked = task["threads"] != "one PTX"
    external = cuda.declare_device("blend", "float32(float32, float32)", abi="c")
    cc = tuple(cuda.get_current_device().compute_capability)
    callee = library("ptx")
    texts = []
    for number in range(4):
        names = {"cuda": cuda, "math": math, "blend": external}
        call = "blend(value, y[i])" if linked else "value"
        exec(KERNEL.format(number=number, call=call), names)  # noqa: S102 - kernels that differ in a number
        signature = types.void(types.float32[::1], types.float32[::1])
        text, _ = cuda.compile(names["kernel"], signature, cc=cc, device=False, abi="numba")
        texts.append(text.encode())

    def one(number: int) -> None:
        linker = driver._Linker(cc=cc)  # noqa: SLF001 - the class that the plugin replaces
        # A comment makes each text new to every cache.
        linker.add_ptx(texts[number % len(texts)] + f"\n// {number}\n".encode())
        if linked:
            linker.add_ptx(callee + f"\n// {number}\n".encode())
        linker.complete()

    count = int(str(task["links"]))
    one(-1)
    numbers = itertools.count()
    measured: dict[str, list[float]] = {"1": [], "2": []}
    for _ in range(ROUNDS):
        for workers, times in measured.items():
            with ThreadPoolExecutor(int(workers)) as pool:
                started = time.perf_counter()
                list(pool.map(one, itertools.islice(numbers, count)))
                times.append(time.perf_counter() - started)
    return measured


def stand_in() -> None:
    """Put a device in place that loads nothing."""
    import numba.cuda.api
    import numba.cuda.cudadrv.devices
    import numba.cuda.dispatcher
    from numba import cuda

    device = SimpleNamespace(compute_capability=(9, 0), id=0)
    module = SimpleNamespace(initialized=True, setup=lambda: None)
    module.get_function = lambda _: SimpleNamespace(module=module, read_func_attr_all=lambda: None)
    context = SimpleNamespace(device=device, create_module_image=lambda *_: module)
    for owner in (numba.cuda.api, numba.cuda.dispatcher, cuda):
        owner.get_current_device = lambda: device
    numba.cuda.cudadrv.devices.get_context = lambda *_: context


def show(results: dict[str, list[dict[str, Any]]]) -> None:
    """Print tables."""
    print(f"{'kernels':16} {'caches':7} {'':12} {'stock':>10} {'plugin':>10} {'ratio':>6}")
    for row in results["kernels"]:
        for part in PARTS:
            times = row[part]
            print(
                f"{row['case']:16} {row['caches']:7} {part:12} {times['stock_ms']:7.1f} ms "
                f"{times['plugin_ms']:7.1f} ms {times['ratio']:6.2f}"
            )
    print(f"\n{'first link of a':24} {'bytes':>8} {'stock':>10} {'plugin':>10} {'ratio':>6}")
    for row in results["libraries"]:
        print(
            f"{row['library']:24} {row['bytes']:8} {row['stock_ms']:7.1f} ms {row['plugin_ms']:7.1f} ms "
            f"{row['ratio']:6.2f}"
        )
    print(f"\n{'links of':18} {'linker':8} {'1 thread':>11} {'2 threads':>11} {'speedup':>8}")
    for row in results["threads"]:
        print(
            f"{row['inputs']:18} {row['linker']:8} {row['one_ms']:8.1f} ms {row['two_ms']:8.1f} ms "
            f"{row['speedup']:7.2f}x"
        )


if __name__ == "__main__":
    main()
