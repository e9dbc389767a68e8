"""
PTX to a module that the driver has loaded: assemble() and a load, beside what else compiles PTX, in turns.

"driver" is cuModuleLoadData of the PTX, which the driver's own compiler compiles; nvJitLink and a process of
ptxas make a cubin that is loaded. Each state of the caches is a process of its own, which has a context
before anything is timed: off, no cache; cold, the driver's cache and this package's, both empty; warm, the
process after that on the same PTX. Every contender has texts of its own, each used once. Needs a device.
"""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import _compilers
import _harness

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

SIZES = (8_000, 50_000, 500_000)
STATES = ("off", "cold", "warm")


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark, or one of its processes."""
    if argv is None and sys.argv[1:2] == ["--child"]:
        child(json.loads(sys.argv[2]))
        return
    sections = {str(size): functools.partial(measure, size) for size in SIZES}
    parser = _harness.make_parser(__doc__, sections, repeats=(5, 1))
    parser.add_argument("--texts", type=int, default=(5, 2), help="texts of each process, %(default)s")
    _harness.run(parser, sections, argv)


def measure(size: int, bench: _harness.Bench) -> None:
    """Measure PTX of about *size* characters in each state of the caches."""
    if reason := _harness.missing_device():
        raise _harness.LeftOutError(reason)
    samples: dict[str, dict[str, list[float]]] = {}
    turns = bench.in_turns({"": functools.partial(run, size, bench.options.texts)}, bench.options.repeats)
    for figure, values in turns.items():
        state, _, name = figure.partition(" ")
        samples.setdefault(state, {})[name] = values[""]
    for state, times in samples.items():
        bench.row({"bytes": size, "caches": state, **_harness.compare(times, ours="assemble")})


def run(size: int, texts: int) -> dict[str, list[float]]:
    """Return the seconds of each contender in caches of its own, by their state and its name."""
    figures = {}
    with tempfile.TemporaryDirectory() as folder:
        for state in STATES:
            environ = {
                **os.environ,
                "CUDA_CACHE_DISABLE": str(int(state == "off")),
                "CUDA_CACHE_PATH": str(Path(folder, "driver")),
                "NUMBA_PTXLINK_CACHE": "0" if state == "off" else str(Path(folder, "ptxlink")),
            }
            task = json.dumps({"size": size, "texts": texts, "folder": folder})
            command = [sys.executable, __file__, "--child", task]
            done = subprocess.run(command, env=environ, stdout=subprocess.PIPE, text=True, check=True)
            times = json.loads(done.stdout.splitlines()[-1])
            figures |= {f"{state} {name}": values for name, values in times.items()}
    return figures


def child(task: dict[str, Any]) -> None:
    """Time each contender on texts of its own in a fresh process, and print the seconds as JSON."""
    from cuda.bindings import driver
    from cuda.core import Device

    from numba_ptxlink import assemble

    device = Device(0)
    device.set_current()
    arch = "sm_{}{}".format(*device.compute_capability)
    file = Path(task["folder"], "kernel.ptx")

    def load(image: bytes) -> Any:
        status, module = driver.cuModuleLoadData(image)
        if int(status):
            raise RuntimeError(status.name)
        return module

    def ptxas(ptx: bytes) -> bytes:
        file.write_bytes(ptx)
        return _compilers.run_ptxas(file, arch)

    contenders: dict[str, Callable[[bytes], Any]] = {
        # A C string.
        "driver": lambda ptx: load(ptx + b"\0"),
        "assemble": lambda ptx: load(assemble(ptx, arch).code),
        "nvjitlink": lambda ptx: load(_compilers.link(ptx, arch)),
    }
    if _compilers.find_ptxas():
        contenders["ptxas"] = lambda ptx: load(ptxas(ptx))
    # The first round loads libraries, on texts that are not used again.
    small, text = map(_compilers.generate_ptx, (600, task["size"]))
    times: dict[str, list[float]] = {name: [] for name in contenders}
    for number in range(-1, task["texts"]):
        for name in [*contenders][:: -1 if number % 2 else 1]:
            ptx = f"{small if number < 0 else text}// {name} {number}\n".encode()
            begin = time.perf_counter()
            contenders[name](ptx)
            if number >= 0:
                times[name].append(time.perf_counter() - begin)
    print(json.dumps(times))


if __name__ == "__main__":
    main()
