"""What a run consists of: each part is one of the benchmarks in a process of its own."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

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
    """

    name: str
    title: str
    script: str
    weights: tuple[int, int]
    arguments: tuple[str, ...] = ()
    headlines: tuple[str, ...] = ("",)

    def weight(self, *, quick: bool) -> int:
        """Return the share of the time."""
        return self.weights[quick]

    def shows(self, label: str) -> bool:
        """Return whether the plot has the figure that is called *label*."""
        return any(re.search(pattern, label) for pattern in self.headlines)


ALL = (
    Part("noise", "How far equal contenders are apart", "noise", (10, 3), headlines=()),
    Part("activation", "What the import hook costs a start of Python", "activation", (30, 8)),
    Part(
        "read",
        "Reading PTX, beside assembling it",
        "ptx",
        (15, 5),
        headlines=(r"(kernel of 50 kB|NVRTC, debug): module/",),
    ),
    Part(
        "assemble",
        "PTX to a cubin",
        "assemble",
        (50, 12),
        headlines=(r"(8\d{3}|5\d{5}) bytes, 1 thread: ", r"8\d{3} bytes, 16 threads: "),
    ),
    Part(
        "jit",
        "PTX to a module on the device",
        "jit",
        (50, 6),
        headlines=(r"5\d{4} bytes,.*assemble/driver",),
    ),
    Part(
        "link",
        "Python to code that is ready to launch, with something to link",
        "link",
        (200, 20),
        ("pairs", "kernels"),
        (r"(one \.cu|no link files), caches (empty|full), later", r"link\(\)/"),
    ),
    Part("compile", "Python to PTX", "link", (30, 10), ("text",), (r"caches off, later kernels: ",)),
    Part(
        "cache",
        "What the cache costs and saves",
        "cache",
        (40, 6),
        ("hits", "growth", "herd", "--entries", "1000"),
        (r"growth, hit, grown to 1000: ", "all of them, .* processes"),
    ),
    Part("mlir", "The back end of numba-cuda-mlir", "cache", (20, 10), ("mlir",), ("wall",)),
    Part(
        "start",
        "Python's start to the end of the first kernel",
        "cache",
        (130, 16),
        ("start", "--rows", "kept,linked"),
        (r"caches \w+, all: ",),
    ),
    Part("load", "A kernel without Numba", "load", (30, 6), ("python", "kernel"), (r"load.*/",)),
    Part(
        "export",
        "Many functions to artifacts",
        "export",
        (150, 12),
        ("edits", "structs", "jobs", "growth"),
        ("edited/all", "64 kB/4 kB", "CPU path.*2 jobs/1 job", r"functions: numba_ptxlink/stock"),
    ),
    Part(
        "call",
        "A Python function called from C++",
        "udf_call",
        (70, 12),
        ("size", "time"),
        ("inlined/one",),
    ),
    Part("memory", "Main memory", "memory", (30, 12)),
)


def present() -> tuple[Part, ...]:
    """Return the parts whose benchmark is there."""
    return tuple(part for part in ALL if (HERE / f"{part.script}.py").is_file())
