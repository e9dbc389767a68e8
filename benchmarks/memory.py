"""
The main memory that the tools need, beside NVIDIA's own.

peak: the most that a fresh process had resident: imports; PTX of 500 kB to a cubin; and kernels from Python
to code that is ready to launch, by each front end without and with the plugin, on a stand-in for a device. No
figure is below that of a bare interpreter, which is the first row.
growth: what a process keeps of each further call, after as many calls that loaded and reserved what it needs.
Every cache is off.
"""

from __future__ import annotations

import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import _compilers
import _harness

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent
LINKERS = {"numba-cuda": ("stock", "plugin"), "numba-cuda-mlir": ("mlir", "mlir plugin")}
IMPORTS = {
    "bare interpreter": {"python": "pass"},
    "import": {
        "numba.cuda": "import numba.cuda",
        "numba_ptxlink": "import numba_ptxlink",
        "cuda.core": "import cuda.core",
    },
}
ASSEMBLE = """
import sys, numba_ptxlink
numba_ptxlink.assemble(open(sys.argv[1]).read(), "sm_90")
"""
LINK = """
import sys
sys.path.insert(0, sys.argv[2])
import _compilers
_compilers.link(open(sys.argv[1], "rb").read(), "sm_90")
"""
GROWTH = """
import sys
sys.path.insert(0, {here!r})
import _compilers
def resident():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return 1024 * int(line.split()[1])
ptx = _compilers.generate_ptx(8_000).encode()
if {tool!r} == "assemble":
    import numba_ptxlink
    call = lambda: numba_ptxlink.assemble(ptx, "sm_90")
else:
    call = lambda: _compilers.link(ptx, "sm_90")
for _ in range({calls}):
    call()
before = resident()
for _ in range({calls}):
    call()
print((resident() - before) / {calls})
"""


def environment(**more: str) -> dict[str, str]:
    """Return this environment with every cache off."""
    return {**os.environ, "NUMBA_PTXLINK_CACHE": "0", "CUDA_CACHE_DISABLE": "1", **more}


def use(command: Sequence[str], environ: dict[str, str] | None = None) -> dict[str, list[float]]:
    """Return the most bytes that a process of *command* had resident."""
    # Not in the working directory: a checkout has no compiled part.
    process = subprocess.Popen(
        command, env=environ or environment(), stdout=subprocess.DEVNULL, cwd=tempfile.gettempdir()
    )
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return {"memory": [1024 * usage.ru_maxrss]}


def peak(bench: _harness.Bench) -> None:
    """Measure what processes have resident at most."""
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "kernel.ptx")
        file.write_text(_compilers.generate_ptx(500_000))
        python = [sys.executable, "-c"]
        tools = {
            "nvjitlink": [*python, LINK, str(file), str(HERE)],
            "assemble": [*python, ASSEMBLE, str(file)],
        }
        if ptxas := _compilers.find_ptxas():
            tools["ptxas"] = [ptxas, "-arch=sm_90", str(file), "-o", str(file.with_suffix(".cubin"))]
        rows = {
            **{label: {n: [*python, code] for n, code in codes.items()} for label, codes in IMPORTS.items()},
            "PTX of 500 kB": tools,
        }
        for label, commands in bench.each(rows.items()):
            contenders = {name: functools.partial(use, command) for name, command in commands.items()}
            samples = bench.in_turns(contenders, bench.options.repeats)["memory"]
            ours = {"import": "numba_ptxlink", "PTX of 500 kB": "assemble"}.get(label, "")
            bench.row({"process": label, **_harness.compare(samples, ours, "MB", 1e-6)})
    for front_end, linkers in bench.each(LINKERS.items()):
        if importlib.util.find_spec(front_end.replace("-", "_")) is None:
            bench.leave_out(front_end, "it is not installed")
            continue
        contenders = {linker: functools.partial(compile_kernels, linker) for linker in linkers}
        samples = bench.in_turns(contenders, bench.options.repeats)["memory"]
        bench.row({"process": f"kernels of {front_end}", **_harness.compare(samples, "", "MB", 1e-6)})


def compile_kernels(linker: str) -> dict[str, list[float]]:
    """Return the most bytes that a process had resident which compiled and linked kernels."""
    task = {"do": "compile", "case": "one .cu", "kernels": 4, "linker": linker, "no_device": True}
    command = [sys.executable, str(HERE / "link.py"), "--child", json.dumps(task)]
    return use(command, environment(NUMBA_PTXLINK="1" if linker.endswith("plugin") else "0"))


def growth(bench: _harness.Bench) -> None:
    """Measure what further calls keep."""
    contenders = {
        tool: functools.partial(keep, tool, bench.options.calls) for tool in ("assemble", "nvjitlink")
    }
    samples = bench.in_turns(contenders, bench.options.repeats)["bytes"]
    cells = {f"{tool} kB": _harness.spread([each / 1e3 for each in samples[tool]]) for tool in contenders}
    bench.row({"kept of each call": "PTX of 8 kB", **cells})


def keep(tool: str, calls: int) -> dict[str, list[float]]:
    """Return the bytes that each of *calls* calls kept."""
    command = [sys.executable, "-c", GROWTH.format(here=str(HERE), tool=tool, calls=calls)]
    done = subprocess.run(
        command, env=environment(), cwd=tempfile.gettempdir(), stdout=subprocess.PIPE, text=True, check=True
    )
    return {"bytes": [float(done.stdout)]}


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    sections = {"peak": peak, "growth": growth}
    parser = _harness.make_parser(__doc__, sections, repeats=(5, 1))
    parser.add_argument("--calls", type=int, default=(500, 100), help="calls of growth, %(default)s")
    _harness.run(parser, sections, argv)


if __name__ == "__main__":
    main()
