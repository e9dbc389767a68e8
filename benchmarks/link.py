"""
Compiling and linking Numba kernels: front ends with their own linkers and with this package's, in one run.

Each measurement is a process of its own, and the linkers take turns. Where numba-cuda-mlir is installed, it
has turns beside numba-cuda: without the plugin as "mlir", with it as "mlir plugin".

kernels: a process compiles distinct kernels from Python to code that is ready to launch. The first one also
loads the tools. Of the later ones there is also what comes after Numba's front end, which is the same Python
with both linkers. The caches, which are the driver's and with the plugin this package's too, are off; on and
empty; or full of the same kernels.
text: a process compiles distinct kernels to PTX, which needs no link. The caches are off, or empty.
pairs: two PTX, a kernel and what it calls, linked by nvJitLink, and made one PTX with the calls inlined and
assembled; and what making one PTX takes of that, beside assembling. Every cache is off.

Without a device, or with --no-device, a stand-in takes its place and nothing is loaded.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import _harness
import _pairs

if TYPE_CHECKING:
    from collections.abc import Sequence


LINKERS = ("stock", "plugin")
MLIR = ("mlir", "mlir plugin")
CASES = ("no link files", "one .cu", "one LTO library")
CACHES = ("off", "empty", "full")
# What --quick measures of them.
QUICK = {*((CASES[0], state) for state in CACHES), ("one .cu", "off")}
ROUNDS = 3
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


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark, or one of its processes."""
    if argv is None and sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
        return
    sections = {"kernels": kernels, "text": text, "pairs": pairs}
    parser = _harness.make_parser(__doc__, sections, repeats=(5, 1))
    parser.add_argument("--kernels", type=int, default=(8, 4), help="kernels in each process, %(default)s")
    parser.add_argument("--no-device", action="store_true", help="compile and link, and load nothing")
    _harness.run(parser, sections, argv)


def kernels(bench: _harness.Bench) -> None:
    """Measure kernels without and with something to link, in each state of the caches."""
    announce(bench)
    for case in bench.each(CASES):
        task = {"do": "compile", "case": case, "kernels": bench.options.kernels}
        with tempfile.TemporaryDirectory() as scratch:
            # The processes that find their caches full come after the ones that filled them.
            for state in bench.each(CACHES):
                if bench.options.quick and (case, state) not in QUICK:
                    bench.leave_out(f"{case}, caches {state}", "--quick")
                    continue
                contenders = {
                    linker: functools.partial(
                        compile_kernels, bench, {**task, "linker": linker}, state, Path(scratch, linker)
                    )
                    for linker in linkers(bench)
                }
                for part, times in bench.in_turns(contenders, bench.options.repeats).items():
                    bench.row({"kernels": case, "caches": state, "time of": part, **compare(times)})


def linkers(bench: _harness.Bench) -> tuple[str, ...]:
    """Return the contenders: those of numba-cuda-mlir too, where it is installed."""
    if importlib.util.find_spec("numba_cuda_mlir") is None:
        leave_out_mlir(bench)
        return LINKERS
    return (*LINKERS, *MLIR)


@functools.cache
def leave_out_mlir(bench: _harness.Bench) -> None:
    """Say once that numba-cuda-mlir is not there."""
    bench.leave_out("numba-cuda-mlir", "it is not installed")


def compare(times: dict[str, list[float]]) -> dict[str, object]:
    """Return how the linkers of each front end compare."""
    pairs = [{name: times[name] for name in pair if name in times} for pair in (LINKERS, MLIR)]
    return {name: cell for pair in pairs if pair for name, cell in _harness.compare(pair).items()}


def text(bench: _harness.Bench) -> None:
    """Measure compilations to PTX."""
    announce(bench)
    task = {"do": "compile to PTX", "kernels": bench.options.kernels}
    for state in bench.each(("off", "empty")):
        with tempfile.TemporaryDirectory() as scratch:
            contenders = {
                linker: functools.partial(
                    compile_texts, bench, {**task, "linker": linker}, state, Path(scratch, linker)
                )
                for linker in linkers(bench)
            }
            for part, times in bench.in_turns(contenders, bench.options.repeats).items():
                bench.row({"output": "PTX", "caches": state, "time of": part, **compare(times)})


def compile_texts(
    bench: _harness.Bench, task: dict[str, object], state: str, caches: Path
) -> dict[str, list[float]]:
    """Return the times of a process that compiles kernels to PTX."""
    shutil.rmtree(caches, ignore_errors=True)
    figures = run(bench, task, None if state == "off" else caches)
    return {"later kernels": figures["times"][1:], "later kernels, cpu": figures["cpu"][1:]}


def compile_kernels(
    bench: _harness.Bench, task: dict[str, object], state: str, caches: Path
) -> dict[str, list[float]]:
    """Return the times of a process that compiles kernels, by part."""
    if state == "empty":
        shutil.rmtree(caches, ignore_errors=True)
    figures = run(bench, task, None if state == "off" else caches)
    return {
        "first kernel": figures["times"][:1],
        "later kernels": figures["times"][1:],
        "after the front end": figures["back_ends"][1:],
    }


def pairs(bench: _harness.Bench) -> None:
    """Measure links of two PTX, and the steps of this package's."""
    announce(bench)
    task = {"do": "link pairs", "linker": "plugin", "quick": bench.options.quick}
    samples = bench.in_turns({"": functools.partial(run, bench, task, None)}, min(3, bench.options.repeats))
    names = dict.fromkeys(figure.partition(": ")[0] for figure in samples)
    for name in names:
        times = {step: samples[f"{name}: {step}"][""] for step in ("nvJitLink", "link()")}
        steps = {step: samples[f"{name}: {step}"][""] for step in ("assembling", "inlining")}
        bench.row({"pair": name, **_harness.compare(times), **_harness.compare(steps)})


@functools.cache
def announce(bench: _harness.Bench) -> None:
    """Say once where there is no device."""
    if bench.options.no_device or _harness.missing_device():
        bench.leave_out("loading on a device", _harness.missing_device() or "--no-device")
        bench.options.no_device = True


def run(bench: _harness.Bench, task: dict[str, object], folder: Path | None) -> dict[str, list[float]]:
    """Run one process of this script with its caches in *folder*, None for no caches; return its figures."""
    environ = {
        **os.environ,
        "NUMBA_PTXLINK": "1" if str(task["linker"]).endswith("plugin") else "0",
        "NUMBA_PTXLINK_CACHE": str(folder / "ptxlink") if folder else "0",
        "CUDA_CACHE_DISABLE": "0" if folder else "1",
    }
    if folder:
        folder.mkdir(exist_ok=True)
        environ["CUDA_CACHE_PATH"] = str(folder / "driver")
    command = [
        sys.executable,
        __file__,
        "--child",
        json.dumps({**task, "no_device": bench.options.no_device}),
    ]
    done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    figures: dict[str, list[float]] = json.loads(done.stdout.splitlines()[-1])
    return figures


def child(task: dict[str, Any]) -> None:
    """Measure one thing in a fresh process, and print it as JSON."""
    import numba_ptxlink as pl

    with_plugin, mlir = task["linker"].endswith("plugin"), task["linker"] in MLIR
    if mlir:
        from numba_cuda_mlir import cuda, tools
    else:
        from numba import cuda
    if with_plugin:
        pl.enable()
    if not task["no_device"]:
        cuda.current_context()
    elif mlir:
        tools._cached_cc = (9, 0)  # noqa: SLF001 - what it asks the device for
    else:
        stand_in()
    tasks = {
        "compile": mlir_compilations if mlir else compilations,
        "compile to PTX": texts,
        "link pairs": link_pairs,
    }
    figures = tasks[task["do"]](task)
    if pl.status().active is not with_plugin:
        sys.exit(f"{task['linker']} was asked for, and the plugin says: {pl.status().reason}")
    print(json.dumps(figures))


def compilations(task: dict[str, Any]) -> dict[str, list[float]]:
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
    for number in range(task["kernels"]):
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


def mlir_compilations(task: dict[str, Any]) -> dict[str, list[float]]:
    """Do what `compilations` does, with numba-cuda-mlir."""
    import math

    from numba_cuda_mlir import cuda, mlir_optimization, tools, types
    from numba_cuda_mlir.numba_cuda.cudadrv.linkable_code import LTOIR, CUSource

    cc = tools.get_gpu_compute_capability(tuple)
    link = None
    if task["case"] == "one .cu":
        link = CUSource(SOURCE, name="blend.cu")
    elif task["case"] == "one LTO library":
        link = LTOIR(library(cc=cc), name="blend.ltoir")
    blend = cuda.declare_device("blend", "float32(float32, float32)", abi="c", link=link) if link else None
    call = "blend(value, y[i])" if link else "value"
    times, back_ends = [], []
    optimize = mlir_optimization.optimize

    def timed(compiled: Any) -> None:
        started = time.perf_counter()
        optimize(compiled)
        back_ends.append(time.perf_counter() - started)

    mlir_optimization.optimize = timed
    for number in range(task["kernels"]):
        names = {"cuda": cuda, "math": math, "blend": blend}
        exec(KERNEL.format(number=number, call=call), names)  # noqa: S102 - kernels that differ in a number
        dispatcher = cuda.jit(names["kernel"])
        started = time.perf_counter()
        dispatcher.compile((types.float32[::1], types.float32[::1]))
        times.append(time.perf_counter() - started)
    return {"times": times, "back_ends": back_ends}


def texts(task: dict[str, Any]) -> dict[str, list[float]]:
    """Return the seconds from Python to PTX, for each kernel, by the wall and by the processor."""
    import math

    if task["linker"] in MLIR:
        from numba_cuda_mlir import cuda, types
    else:
        from numba import cuda, types
    figures: dict[str, list[float]] = {"times": [], "cpu": []}
    for number in range(task["kernels"]):
        names = {"cuda": cuda, "math": math}
        exec(KERNEL.format(number=number, call="value"), names)  # noqa: S102 - kernels that differ in a number
        begin, cpu = time.perf_counter(), time.process_time()
        signature = types.void(types.float32[::1], types.float32[::1])
        cuda.compile(names["kernel"], signature, cc=(9, 0), device=False, abi="numba")
        figures["times"].append(time.perf_counter() - begin)
        figures["cpu"].append(time.process_time() - cpu)
    return figures


def library(output: str = "ltoir", cc: tuple[int, ...] | None = None) -> bytes:
    """Return the C++ function as LTO-IR or PTX for this device, or for *cc*."""
    from numba_ptxlink import Arch

    # The first kernel of a process is to load it itself.
    from numba_ptxlink._tools import nvrtc

    if cc is None:
        from numba import cuda

        cc = tuple(cuda.get_current_device().compute_capability)
    arch = Arch.of(cc)
    code: bytes = nvrtc.compile_source(SOURCE, "blend.cu", arch, output=output).code
    return code


def link_pairs(task: dict[str, Any]) -> dict[str, list[float]]:
    """Return the seconds that each step of linking two PTX took, by pair and step."""
    from numba import cuda

    from numba_ptxlink import Arch

    arch = Arch.of(tuple(cuda.get_current_device().compute_capability))
    figures: dict[str, list[float]] = {}
    for name, pair in _pairs.texts(arch, quick=task["quick"]).items():
        _pairs.steps(pair, arch, 0)
        for turn in range(1 if task["quick"] else ROUNDS):
            for step, seconds in _pairs.steps(pair, arch, turn).items():
                figures.setdefault(f"{name}: {step}", []).append(seconds)
    return figures


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


if __name__ == "__main__":
    main()
