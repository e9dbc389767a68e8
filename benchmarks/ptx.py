"""
Time reading PTX beside assembling it: the same texts in turns, in one run.

A module alone is its functions' prototypes, its variables and its directives; everything is that with every
statement of every body. The texts are this benchmark's own kernels, what NVRTC makes of a source with and
without debug information, declarations alone, which the assembler drops, and what the command line names.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

os.environ["NUMBA_PTXLINK_CACHE"] = "0"

from assemble import generate_ptx
from cuda.bindings import nvrtc

from numba_ptxlink import assemble
from numba_ptxlink._formats import ptx
from numba_ptxlink.assembler import compiler_version

if TYPE_CHECKING:
    from collections.abc import Callable

ARCH = "sm_90"
TARGET = 0.05
SOURCE = """\
template <class T> __device__ __noinline__ T recurse(T x, int n) { return n ? recurse(x * x, n - 1) + x : x; }
__constant__ int table[256] = {1, 2, 3, 4};
extern "C" __global__ void kernel(float* p, double* q, int n) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    switch (n) {
        case 0: p[i] = sinf(p[i]); break;
        case 1: p[i] = recurse(p[i], 3); break;
        case 2: q[i] = sin(q[i]) / pow(q[i], 3.3); break;
        default: atomicAdd(p, table[i & 255]);
    }
}
"""


class Row(NamedTuple):
    """What was measured of one text: seconds for each thing that was done with it."""

    name: str
    size: int
    seconds: dict[str, float]

    def share(self, name: str) -> float:
        """Return what *name* took, with the time of assembling for a unit."""
        return self.seconds[name] / self.seconds["assemble"]


def declarations(count: int) -> str:
    """Return a module of little code and *count* functions and tables, which are hard on reading modules."""
    head = f".version 8.0\n.target {ARCH}\n.address_size 64\n"
    functions = "".join(
        f".extern .func (.param .b32 r) f{i}\n(\n\t.param .b64 f{i}_p0,\n\t.param .b32 f{i}_p1\n)\n;\n"
        for i in range(count)
    )
    values = ", ".join(str(i % 256) for i in range(400))
    tables = "".join(f".global .align 8 .b8 t{i}[400] = {{{values}}};\n" for i in range(count))
    return f"{head}{functions}{tables}.visible .entry kernel()\n{{\nret;\n}}\n"


def compiled(*flags: str) -> str:
    """Return what NVRTC makes of a source."""
    options = [f"--gpu-architecture={ARCH.replace('sm', 'compute')}", "-rdc=true", *flags]
    _, program = nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"source.cu", 0, [], [])
    try:
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [each.encode() for each in options])
        if int(status):
            raise SystemExit(f"NVRTC failed: {status.name}")
        _, size = nvrtc.nvrtcGetPTXSize(program)
        text = b"\0" * size
        nvrtc.nvrtcGetPTX(program, text)
        return text.decode().rstrip("\0")
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def read_everything(text: str) -> None:
    """Read a module and every body in it."""
    for function in ptx.parse(text).functions:
        function.body  # noqa: B018 - it is read when it is asked for


def measure(name: str, text: str, repeats: int) -> Row:
    """Return the median of each contender; they take turns, so that a busy machine slows all of them."""
    debug = "debug" in ptx.read_header(text).target
    contenders: dict[str, Callable[[], object]] = {
        "assemble": lambda: assemble(text, ARCH, relocatable=True, debug=debug),
        "header": lambda: ptx.read_header(text),
        "module": lambda: ptx.parse(text),
        "lines": lambda: ptx.parse(text).has_line_numbers,
        "everything": lambda: read_everything(text),
    }
    samples: dict[str, list[float]] = {contender: [] for contender in contenders}
    for _ in range(repeats + 1):
        for contender, run in contenders.items():
            start = time.perf_counter()
            run()
            samples[contender].append(time.perf_counter() - start)
    # The first round loads libraries.
    return Row(name, len(text), {each: statistics.median(times[1:]) for each, times in samples.items()})


def cell(row: Row, name: str) -> str:
    """Return milliseconds, megabytes a second and the share of assembling."""
    seconds = row.seconds[name]
    return f"{1000 * seconds:7.2f} {row.size / seconds / 1e6:6.1f} ({row.share(name):5.1%})"


def main() -> None:
    """Run the comparison and print it as it goes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, help=f"further PTX for {ARCH}")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--quick", action="store_true", help="fewer and smaller texts, for less than 10 s")
    options = parser.parse_args()

    texts = {f"kernel of {size // 1000} kB": generate_ptx(size) for size in (3_000, 50_000)}
    texts |= {"NVRTC": compiled(), "NVRTC, lines": compiled("-lineinfo"), "NVRTC, debug": compiled("-G")}
    texts |= {"declarations": declarations(100)}
    if not options.quick:
        texts |= {f"kernel of {size // 1000} kB": generate_ptx(size) for size in (500_000, 2_000_000)}
    texts |= {path.name: path.read_text(errors="surrogateescape") for path in options.files}

    print(f"nvptxcompiler {'{}.{}'.format(*compiler_version())}, Python {platform.python_version()}")
    print("\nmedian ms; MB/s; in parentheses the share of assembling\n")
    titles = f"{'header':>7} {'module':>22} {'has lines':>15} {'bodies':>22}"
    print(f"{'text':>18} {'kB':>7} {'assemble':>9} {titles}")
    shares: dict[str, float] = {}
    for name, text in texts.items():
        repeats = 5 if options.quick else max(3, options.repeats if len(text) < 100_000 else 3)
        row = measure(name, text, repeats)
        shares[name] = row.share("module")
        cells = [cell(row, each) for each in ("module", "everything")]
        lines = f"{1000 * row.seconds['lines']:6.2f} ({row.share('lines'):5.1%})"
        times = f"{1000 * row.seconds['assemble']:9.2f} {1000 * row.seconds['header']:7.3f}"
        print(
            f"{name:>18} {row.size / 1000:7.1f} {times} {cells[0]:>22} {lines:>15} {cells[1]:>22}", flush=True
        )
    slow = ", ".join(name for name, share in shares.items() if share > TARGET) or "none"
    print(f"\nof more than {TARGET:.0%} of assembling: {slow}")


if __name__ == "__main__":
    main()
