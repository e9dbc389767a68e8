"""The launchers of an export: C++ that a host compiler accepts, and what it asks of the driver."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import launches
import numpy as np
import processes
import pytest
from cuda_toolkit import host_includes
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl

EXAMPLE = Path(__file__).parents[2] / "examples" / "launcher"
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wold-style-cast")
STRICT = ("-std=c++17", "-O1", *WARNINGS, "-Wpedantic", "-Werror")
particle = np.dtype([("mass", "f8"), ("charge", "i2")], align=True)

MAIN = """
#include <cstdio>
#include "made.launch.h"
int main(int count, char** words) {
  CUstream_st* stream = reinterpret_cast<CUstream_st*>(0x50);
  if (count > 1 && *words[1] == 'l') {
    const int error = made_kernels::load();
    std::printf("%d %s\\n", error, numba_ptxlink::error_name(error));
    return 0;
  }
  particle one{0.5, -3};
  numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> array(reinterpret_cast<float*>(0x7000), 7);
  const dim3 block(64);
  const int errors[] = {
    made_kernels::mixed(stream, {2, 3}, block, 0, -1, array, one, {1, 2, 3, 4}),
    made_kernels::mixed(nullptr, 5, 128, 50000, -1, array, one, {1, 2, 3, 4}),
    made_kernels::load(stream, 1, 1, 0),
    made_kernels::load(stream, 4, 1, numba_ptxlink::attributes(64ul).cluster(2).programmatic_dependent()),
    made_kernels::load(stream, 16, 1, numba_ptxlink::attributes().cooperative().cluster({4, 4})),
    made_kernels::load(),
  };
  for (int error : errors) std::printf("%d %s\\n", error, numba_ptxlink::error_name(error));
}
"""
SIGNATURE = (types.int8, types.float32[::1], from_dtype(particle), vector_types["float32x4"])


def build(folder: Path, source: str, *flags: str, name: str = "program") -> Path:
    """Compile *source* with g++ and every warning an error; return the program."""
    (folder / f"{name}.cpp").write_text(source)
    includes = [f"-I{folder}", *host_includes()]
    program = folder / name
    command = ["g++", *STRICT, *includes, str(folder / f"{name}.cpp"), "-o", str(program), "-ldl", *flags]
    processes.run(*command, quiet=True)
    return program


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Return a program that launches kernels, beside the export that it is made of."""
    folder = tmp_path_factory.mktemp("made")
    kernels = [launches.kernel_of(*SIGNATURE, name="mixed"), launches.kernel_of(name="load")]
    exported = pl.export(kernels, folder, arch=["sm_80", "sm_90"], emit=["kernels", "launcher"], name="made")
    struct = re.search(r"record2_\w+", exported.header.read_text())[0]
    return build(folder, MAIN.replace("particle", struct)), exported


def run(program: Path, *words: str, **environ: str) -> list[str]:
    """Return the lines that *program* prints."""
    return subprocess.check_output([program, *words], text=True, env=environ).splitlines()


def test_launches_reach_the_driver(made, tmp_path, monkeypatch):
    """The driver sees the configuration and the arguments that Python's launch of the kernel has."""
    program, exported = made
    lines = run(program, **launches.fake_driver(tmp_path, sizes="1,24,16,16", plain="load"))
    assert ["0 CUDA_ERROR_OTHER"] * 6 == lines
    noted = launches.stand_in(monkeypatch)
    array = launches.array(7, "<f4")
    pl.load(exported).mixed[1, 1](-1, array, (0.5, -3), (1, 2, 3, 4))
    buffer, offsets = noted[0].buffer, noted[0].offsets
    parts = [buffer[at : at + size].hex() for at, size in zip(offsets, (1, 24, 16, 16), strict=True)]
    arguments = " ".join(parts)
    assert [
        # No context is the thread's own: it becomes that of the stream.
        "context 0x51",
        "load ba55ed50 0",
        f"launch mixed 2,3,1 64,1,1 0 0x50 0 {arguments} ",
        "attribute 8 232448 mixed 5",
        f"launch mixed 5,1,1 128,1,1 50000 (nil) 0 {arguments} ",
        "launch load 1,1,1 1,1,1 0 0x50 0 ",
        "attribute 8 232448 load 5",
        "programmatic cluster 2,1,1 launch load 4,1,1 1,1,1 64 0x50 0 ",
        "attribute 14 1 load 5",
        "cooperative cluster 4,4,1 launch load 16,1,1 1,1,1 0 0x50 0 ",
    ] == launches.log_of(tmp_path)


def test_a_grid_that_synchronises_is_launched_cooperatively(tmp_path):
    """The driver is asked for all blocks at once; its error for too many is returned."""

    @pl.kernel("void(int32[::1])")
    def together(out):
        cuda.cg.this_grid().sync()
        out[0] = 1

    pl.export([together], tmp_path, arch="sm_90", emit=["launcher"], name="made")
    use = (
        '#include <cstdio>\n#include "made.launch.h"\nint main() {\n'
        "  int* const none = nullptr;\n"
        "  const int error = made_kernels::together(nullptr, {2, 3}, 64, 0, {none, 0});\n"
        '  std::printf("%d\\n", error);\n}\n'
    )
    program = build(tmp_path, use)
    assert ["0"] == run(program, **launches.fake_driver(tmp_path))
    assert "cooperative launch together 2,3,1 64,1,1 0 (nil) 0 " in launches.log_of(tmp_path)
    environ = launches.fake_driver(tmp_path, fail="cuLaunchKernelEx:720")
    assert ["720"] == run(program, **environ)


@pytest.mark.parametrize("failure", ["cuInit:100", "cuLibraryLoadData:209", "cuLibraryGetKernel:500"])
def test_the_drivers_errors_are_returned(made, tmp_path, failure):
    """What the driver refuses is returned with its number, by each call again."""
    program, _ = made
    code = failure.partition(":")[2]
    lines = run(program, **launches.fake_driver(tmp_path, fail=failure))
    assert [code] * 6 == [line.split()[0] for line in lines]


THREADS = """
#include <thread>
#include <vector>
#include "made.launch.h"
#include "other.launch.h"
int use();
int main() {
  std::vector<std::thread> threads;
  int failures[16] = {};
  for (int number = 0; number < 16; ++number) {
    threads.emplace_back([&failures, number] {
      failures[number] = made_kernels::first(nullptr, 1, 1, 0, 1);
      failures[number] |= other_kernels::second(nullptr, 1, 1, 0, 1.0);
    });
  }
  int failed = use();
  for (std::thread& thread : threads) thread.join();
  for (int failure : failures) failed |= failure;
  return failed;
}
"""
USE = '#include "made.launch.h"\nint use() { return made_kernels::first(nullptr, 1, 1, 0, 1); }\n'


@pytest.mark.parametrize("flags", [(), pytest.param(("-fsanitize=thread",), marks=pytest.mark.slow)])
def test_threads_and_files_share_what_is_loaded(tmp_path, flags):
    """16 threads and two source files load each of two exports once; who comes late unloads again."""
    for name, ty, called in (("made", types.int32, "first"), ("other", types.float64, "second")):
        kernel = launches.kernel_of(ty, name=called)
        pl.export([kernel], tmp_path, arch="sm_90", emit=["launcher"], name=name)
    (tmp_path / "use.cpp").write_text(USE)
    program = build(tmp_path, THREADS, str(tmp_path / "use.cpp"), "-pthread", *flags)
    environ = launches.fake_driver(tmp_path, sizes="4")
    assert run(program, **environ) == []
    lines = launches.log_of(tmp_path)
    kinds = [line.split()[0] for line in lines]
    assert kinds.count("launch") == 33
    assert kinds.count("load") - kinds.count("unload") == 2


def test_names_do_not_collide(tmp_path):
    """Kernels and parameters may be called what the launcher's own names are, also as the export itself."""
    names = ("stream", "grid", "block", "attributes", "arguments", "handle", "error")
    scope: dict[str, object] = {"__name__": __name__}
    kernels = []
    for name in ("code", "image", "kernels", "detail", "udfs", "launch", "extent", "attributes", "library"):
        exec(f"def {name}({', '.join(names)}): pass", scope)  # noqa: S102 - only names are inserted
        kernels.append(pl.kernel(types.void(*[types.int32] * len(names)))(scope[name]))
    pl.export(kernels, tmp_path, arch="sm_90", emit=["launcher"], name="udfs")
    numbers = ", ".join("1" for _ in names)
    calls = "".join(
        f"  failed |= udfs_kernels::{kernel.name}(nullptr, 1, 1, 0, {numbers});\n" for kernel in kernels
    )
    program = build(
        tmp_path, f'#include "udfs.launch.h"\nint main() {{\n  int failed = 0;\n{calls}  return failed;\n}}\n'
    )
    environ = launches.fake_driver(tmp_path, sizes=",".join("4" for _ in names))
    run(program, **environ)
    assert [kernel.name for kernel in kernels] == [
        line.split()[1] for line in launches.log_of(tmp_path) if line.startswith("launch")
    ]
