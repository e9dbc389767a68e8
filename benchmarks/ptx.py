"""
Time reading PTX beside assembling it: the same texts in turns, in one run.

A module alone is its functions' prototypes, its variables and its directives; everything is that with every
statement of every body. The texts are this benchmark's own kernels, what NVRTC makes of a source with and
without debug information, declarations alone, which the assembler drops, and what the command line names.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING

os.environ["NUMBA_PTXLINK_CACHE"] = "0"

import _compilers
import _harness
from cuda.bindings import nvrtc

from numba_ptxlink import assemble
from numba_ptxlink._formats import ptx
from numba_ptxlink.assembler import compiler_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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


def measure(name: str, text: str, bench: _harness.Bench) -> None:
    """Measure *text*."""
    debug = "debug" in ptx.read_header(text).target
    contenders: dict[str, Callable[[], object]] = {
        "assemble": lambda: assemble(text, ARCH, relocatable=True, debug=debug),
        "header": lambda: ptx.read_header(text),
        "module": lambda: ptx.parse(text),
        "lines": lambda: ptx.has_line_numbers(text),
        "everything": lambda: read_everything(text),
    }
    turns = bench.options.repeats if len(text) < 100_000 else 3
    timed = {each: functools.partial(_harness.timed, call) for each, call in contenders.items()}
    # The first turn loads libraries.
    times = bench.in_turns(timed, turns, warmup=1)["time"]
    bench.row({"text": name, "bytes": len(text), **_harness.compare(times)})


def modules(bench: _harness.Bench) -> None:
    """Measure each text."""
    kernels = {
        f"kernel of {size // 1000} kB": functools.partial(_compilers.generate_ptx, size)
        for size in (3_000, 50_000, 500_000, 2_000_000)
    }
    large = [*kernels][2:]
    texts = {
        **{name: make for name, make in kernels.items() if name not in large},
        "NVRTC": compiled,
        "NVRTC, lines": functools.partial(compiled, "-lineinfo"),
        "NVRTC, debug": functools.partial(compiled, "-G"),
        "declarations": functools.partial(declarations, 100),
    }
    for path in bench.options.files:
        texts[path.name] = functools.partial(path.read_text, errors="surrogateescape")
    # Assembling these takes longer than all of the others.
    texts |= {name: kernels[name] for name in large if not bench.options.quick}
    for name, make in bench.each(texts.items()):
        measure(name, make(), bench)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the comparison."""
    sections = {"modules": modules}
    parser = _harness.make_parser(__doc__, sections, repeats=(15, 5))
    parser.add_argument("--files", nargs="+", type=Path, default=[], help=f"further PTX for {ARCH}")
    bench = _harness.run(parser, sections, argv, nvptxcompiler="{}.{}".format(*compiler_version()))
    slow = [row["text"] for row in bench.report["rows"] if row["module/assemble"]["median"] > TARGET]
    print(f"\nmodules that take more than {TARGET:.0%} of assembling: {', '.join(slow) or 'none'}")


if __name__ == "__main__":
    main()
