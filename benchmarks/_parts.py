"""What a run consists of: each part is one of the benchmarks in a process of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Part:
    """
    One benchmark, or some of its sections.

    Args:
        name: What --only calls it.
        title: What it measures.
        script: The benchmark's file without its ending.
        weights: Its share of the time: of a full run, and with --quick.
        arguments: What its process gets; the sections, the short ones first, since they share the time.
        headlines: Patterns of the figures that the plot shows, as `Figure.label` spells them.
        full: What it gets besides without --quick.
        alone: It takes as long as all the others, and runs where it is named.
    """

    name: str
    title: str
    script: str
    weights: tuple[int, int]
    arguments: tuple[str, ...] = ()
    headlines: tuple[str, ...] = ("",)
    full: tuple[str, ...] = ()
    alone: bool = False

    def weight(self, *, quick: bool) -> int:
        """Return the share of the time."""
        return self.weights[quick]

    def shows(self, label: str) -> bool:
        """Return whether the plot has the figure that is called *label*."""
        return any(re.search(pattern, label) for pattern in self.headlines)


EXPORTED = ("edited/all", "64 kB/4 kB", "2 jobs.*/1 job", r"functions: numba_ptxlink/stock")
# The figures that are promised come first: the last parts are the ones that a run may not reach.
ALL = (
    Part("noise", "How far equal contenders are apart", "noise", (6, 3), headlines=()),
    Part(
        "call",
        "A Python function called from C++",
        "udf_call",
        (30, 12),
        ("size", "time"),
        ("inlined/one",),
    ),
    Part("load", "A kernel without Numba", "load", (45, 6), ("kernel", "python"), (r"load.*/",)),
    Part("cpu", "Kernels on the CPU", "cpu", (30, 8), headlines=("checked/NumPy",)),
    Part("mlir", "The back end of numba-cuda-mlir", "cache", (40, 10), ("mlir",), ("wall",)),
    Part("compile", "Python to PTX", "link", (45, 10), ("text",), (r"caches off, later kernels: ",)),
    Part(
        "read",
        "Reading PTX, beside assembling it",
        "ptx",
        (14, 5),
        headlines=(r"(kernel of 50 kB|NVRTC, debug): module/",),
    ),
    Part(
        "link",
        "Python to code that is ready to launch, with something to link",
        "link",
        (90, 20),
        ("pairs", "kernels"),
        (r"(one \.cu|no link files), caches (empty|full), later", r"link\(\)/"),
    ),
    Part(
        "start",
        "Python's start to the end of the first kernel",
        "cache",
        (120, 16),
        ("start", "--rows", "kept,linked"),
        (r"caches \w+, all: ",),
    ),
    Part(
        "export",
        "Functions to artifacts",
        "export",
        (55, 12),
        ("edits", "jobs", "growth"),
        EXPORTED,
        full=("--most", "100", "--archs", "1"),
    ),
    Part(
        "exports",
        "Many functions to artifacts",
        "export",
        (500, 12),
        ("growth", "jobs", "edits"),
        EXPORTED,
        alone=True,
    ),
    Part(
        "jit",
        "PTX to a module on the device",
        "jit",
        (20, 6),
        ("8000", "50000"),
        (r"5\d{4} bytes,.*assemble/driver",),
    ),
    Part(
        "assemble",
        "PTX to a cubin",
        "assemble",
        (18, 12),
        headlines=(r"(8\d{3}|5\d{5}) bytes, 1 thread: ", r"8\d{3} bytes, 16 threads: "),
    ),
    Part(
        "cache",
        "What the cache costs and saves",
        "cache",
        (18, 6),
        ("hits", "growth", "herd", "--entries", "1000"),
        (r"growth, hit, grown to 1000: ", "all of them, .* processes"),
    ),
    Part("activation", "What the import hook costs a start of Python", "activation", (10, 8)),
    Part("memory", "Main memory", "memory", (14, 12)),
)


def present() -> tuple[Part, ...]:
    """Return the parts whose benchmark is there."""
    return tuple(part for part in ALL if (HERE / f"{part.script}.py").is_file())


def chosen(names: Sequence[str]) -> list[Part]:
    """Return the parts with *names*, in the order of their worth; without any those that run by default."""
    return [part for part in present() if (part.name in names if names else not part.alone)]
