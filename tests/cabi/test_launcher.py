"""The launchers of an export: C++ that a host compiler accepts, and that launches on the CPU device."""

from __future__ import annotations

import sys
from pathlib import Path

import launches
import loaded_kernels
import numpy as np
import processes
import pytest
from cuda_toolkit import host_includes
from numba import cuda
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl
from numba_ptxlink._cpu.device import LIBRARY_FOLDER

EXAMPLE = Path(__file__).parents[2] / "examples" / "launcher"
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion", "-Wshadow", "-Wold-style-cast")
STRICT = ("-std=c++17", "-O1", *WARNINGS, "-Wpedantic", "-Werror")
DRIVER = LIBRARY_FOLDER / "libcuda.so.1"
particle = np.dtype([("mass", "f8"), ("charge", "i2")], align=True)

MAIN = """
#include <cstdio>
#include <thread>
#include "made.launch.h"
extern "C" {
int cuStreamCreate(CUstream_st**, unsigned);
int cuMemAllocManaged(float**, std::size_t, unsigned);
}
int main() {
  // The thread gets the context of the first device; later ones that of the stream.
  std::printf("%s\\n", numba_ptxlink::error_name(made_kernels::load()));
  CUstream_st* stream = nullptr;
  float* memory = nullptr;
  if (cuStreamCreate(&stream, 0) != 0 || cuMemAllocManaged(&memory, 28, 1) != 0) return 1;
  for (int number = 0; number < 7; ++number) memory[number] = 0;
  particle one{0.5, -3};
  numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> array(memory, 7);
  const dim3 block(64);
  int errors[5] = {};
  std::thread([&] {
    errors[0] = made_kernels::mixed(stream, {2, 3}, block, 0, -1, array, one, {1, 2, 3, 4});
  }).join();
  errors[1] = made_kernels::mixed(nullptr, 5, 128, 50000, -1, array, one, {1, 2, 3, 4});
  const auto attributes = numba_ptxlink::attributes(64ul).programmatic_dependent();
  errors[2] = made_kernels::load(stream, 4, 1, attributes);
  errors[3] = made_kernels::load(stream, 4, 1, numba_ptxlink::attributes().cluster(2));
  errors[4] = made_kernels::load(stream, 16, 1, numba_ptxlink::attributes().cooperative());
  for (int error : errors) std::printf("%d ", error);
  for (int number = 0; number < 7; ++number) std::printf("%g ", static_cast<double>(memory[number]));
}
"""
SIGNATURE = (types.int8, types.float32[::1], from_dtype(particle), vector_types["float32x4"])


def mixed(number, out, body, quad):
    """Count threads, and store the arguments."""
    cuda.atomic.add(out, 0, 1)
    out[1], out[2], out[3], out[4], out[5] = number, body.mass, body.charge, quad.x, quad.w
    out[6] = out.size


def build(folder: Path, source: str, *flags: str, name: str = "program") -> Path:
    """Compile *source* with g++ and every warning an error; return the program."""
    (folder / f"{name}.cpp").write_text(source)
    includes = [f"-I{folder}", *host_includes()]
    program = folder / name
    command = [
        "g++",
        *STRICT,
        *includes,
        str(folder / f"{name}.cpp"),
        "-o",
        str(program),
        str(DRIVER),
        "-ldl",
        *flags,
    ]
    processes.run(*command, quiet=True)
    return program


@pytest.fixture(scope="module")
def launching_program(tmp_path_factory):
    """Return a program that launches kernels."""
    folder = tmp_path_factory.mktemp("made")
    kernels = [pl.kernel(types.void(*SIGNATURE))(mixed), launches.kernel_of(name="load")]
    pl.export(kernels, folder, arch=["sm_80", "sm_90"], emit=["launcher"], name="made")
    return build(folder, MAIN)


def run(program: Path, *, arch: str = "9.0") -> list[str]:
    """Return the lines that *program* prints on the CPU device."""
    command = (sys.executable, "-m", "numba_ptxlink", "cpu", "--arch", arch, "--", program)
    return processes.run(*command, env=processes.environ()).stdout.splitlines()


def test_launches_reach_the_driver(launching_program):
    """The driver gets configuration, attributes and arguments; clusters are CUDA_ERROR_NOT_SUPPORTED."""
    first, second = run(launching_program)
    assert first == "CUDA_SUCCESS"
    assert second.split() == ["0", "0", "0", "801", "0", *["1024", "-1", "0.5", "-3", "1", "4", "7"]]


def test_a_grid_that_synchronises_is_launched_cooperatively(tmp_path):
    """All blocks are resident; the driver's error for too many is returned."""
    kernels = [loaded_kernels.exchange]
    pl.export(kernels, tmp_path, arch="sm_90", emit=["launcher"], name="made")
    use = """
        #include <cstdio>
        #include "made.launch.h"
        extern "C" int cuMemAllocManaged(int**, std::size_t, unsigned);
        int main() {
          int* memory = nullptr;
          if (made_kernels::load() != 0 || cuMemAllocManaged(&memory, 512, 1) != 0) return 1;
          const int error = made_kernels::exchange(nullptr, 64, 1, 0, {memory, 64}, {memory + 64, 64});
          const int many = made_kernels::exchange(nullptr, 1 << 20, 1, 0, {memory, 64}, {memory, 64});
          std::printf("%d %d %d %d\\n", error, many, memory[64], memory[127]);
        }
    """
    assert run(build(tmp_path, use)) == ["0 720 63 0"]


def test_the_drivers_errors_are_returned(launching_program):
    """Code for newer devices is CUDA_ERROR_NO_BINARY_FOR_GPU, for each call again."""
    first, second = run(launching_program, arch="7.5")
    assert first == "CUDA_ERROR_NO_BINARY_FOR_GPU"
    assert second.split()[:5] == ["209"] * 5


THREADS = """
#include <cstdio>
#include <thread>
#include <vector>
#include "made.launch.h"
#include "other.launch.h"
extern "C" int cuMemAllocManaged(int**, std::size_t, unsigned);
int use(int* counter);
int main() {
  std::vector<std::thread> threads;
  int failures[16] = {};
  int* counter = nullptr;
  if (made_kernels::load() != 0 || cuMemAllocManaged(&counter, 4, 1) != 0) return 1;
  *counter = 0;
  for (int number = 0; number < 16; ++number) {
    threads.emplace_back([&failures, number, counter] {
      failures[number] = made_kernels::first(nullptr, 1, 1, 0, {counter, 1});
      failures[number] |= other_kernels::second(nullptr, 1, 1, 0, {counter, 1});
    });
  }
  int failed = use(counter);
  for (std::thread& thread : threads) thread.join();
  for (int failure : failures) failed |= failure;
  std::printf("%d\\n", *counter);
  return failed;
}
"""
USE = """
#include "made.launch.h"
int use(int* counter) { return made_kernels::first(nullptr, 1, 1, 0, {counter, 1}); }
"""


def count(counter):
    """Count a launch."""
    cuda.atomic.add(counter, 0, 1)


def test_threads_and_files_share_what_is_loaded(tmp_path):
    """16 threads and two source files launch kernels of two exports that they load at once."""
    for name, called in (("made", "first"), ("other", "second")):
        kernel = pl.kernel("void(int32[::1])", name=called)(count)
        pl.export([kernel], tmp_path, arch="sm_90", emit=["launcher"], name=name)
    (tmp_path / "use.cpp").write_text(USE)
    assert run(build(tmp_path, THREADS, str(tmp_path / "use.cpp"), "-pthread")) == ["33"]


def test_names_do_not_collide(tmp_path):
    """Kernels, parameters and the export itself may have the names that the launcher uses inside."""
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
    source = f'#include "udfs.launch.h"\nint main() {{\n  int failed = 0;\n{calls}  return failed;\n}}\n'
    run(build(tmp_path, source))
