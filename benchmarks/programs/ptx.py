"""
Compile PTX by assemble(), nvJitLink, a process of ptxas, or the driver; or parse it by this package.

Each PTX is compiled once in a process, after a small PTX, for which the tool is loaded. The driver also loads
the machine code that it compiles.
"""

from __future__ import annotations

import os
import resource
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import texts
import timing

import tools

if TYPE_CHECKING:
    from collections.abc import Callable

ARCH = "sm_90"
# The number of characters of each PTX, by the name of the figure.
SIZES = {"8 kB": 8_000, "50 kB": 50_000, "500 kB": 500_000}
AT_ONCE = "8 kB, as many at once as there are cores"


def assemble(ptx: bytes, *, debug: bool = False) -> object:
    """Compile with this package."""
    import numba_ptxlink

    return numba_ptxlink.assemble(ptx, ARCH, debug=debug)


def read(ptx: bytes, **_: Any) -> object:
    """Parse *ptx*, as a link does to check prototypes and variables."""
    from numba_ptxlink._formats import ptx as reader

    return reader.parse(ptx.decode())


TOOLS: dict[str, Callable[..., object]] = {
    "assemble()": assemble,
    "nvJitLink": lambda ptx: tools.link_by_nvjitlink((ptx,), ARCH),
    "ptxas": lambda ptx: tools.compile_by_ptxas(ptx, ARCH),
    "the driver": tools.compile_by_driver,
    "reading": read,
}


def main(tool: str) -> None:
    """Compile PTX of several sizes by *tool*."""
    call = TOOLS[tool]
    if tool == "the driver":
        from cuda.core import Device

        Device(0).set_current()
    call(texts.generate_ptx(600).encode())
    figures = {}
    for name, size in SIZES.items():
        ptx = texts.generate_ptx(size).encode()
        figures[name] = time_with_children(lambda ptx=ptx: call(ptx))
    if tool in {"assemble()", "nvJitLink"}:
        cores = len(os.sched_getaffinity(0))
        inputs = [texts.generate_ptx(8_000 + number).encode() for number in range(cores)]
        with ThreadPoolExecutor(cores) as pool:
            figures[AT_ONCE] = timing.time_call(lambda: [*pool.map(call, inputs)])
    timing.print_figures(figures)


def compare_with_reading(tool: str) -> None:
    """Read or assemble, as *tool* says, several kinds of PTX."""
    inputs = {
        "a kernel of 50 kB": texts.generate_ptx(50_000).encode(),
        "NVRTC's": texts.compile_cxx(texts.SOURCE, ARCH),
        "NVRTC's, for debugging": texts.compile_cxx(texts.SOURCE, ARCH, "-G"),
        "100 declarations and tables": texts.declare(100).encode(),
    }
    call = TOOLS[tool]
    call(texts.generate_ptx(600).encode())
    timing.print_figures(
        {
            name: timing.time_call(lambda name=name, ptx=ptx: call(ptx, debug="debugging" in name))
            for name, ptx in inputs.items()
        }
    )


def time_with_children(call: Callable[[], object]) -> timing.Seconds:
    """Return the seconds of *call*; the processor time includes child processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall, cpu = timing.time_call(call)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, cpu + after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


if __name__ == "__main__":
    {"compile": main, "read": compare_with_reading}[sys.argv[1]](sys.argv[2])
