"""The example of launchers, on a device: a C++ program that finds no Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_toolkit import lay_out, shell
from devices import runtime_library
from grid_kernel import EXCHANGE

import numba_ptxlink as pl
from numba_ptxlink.linker import INCLUDE_DIR

EXAMPLE = Path(__file__).parents[2] / "examples" / "launcher"
KERNELS = """
import numpy as np
from numba import cuda, float32
from numba_ptxlink import kernel

Body = np.dtype([("id", "i8"), ("place", "f4", 3)], align=True)

@kernel("void(float32[::1])")
def through_shared(out):
    held = cuda.shared.array(0, float32)
    i = cuda.threadIdx.x
    held[14999 - i] = i
    cuda.syncthreads()
    out[i] = held[14999 - i]

@kernel("void(float64[:, ::1], Body, Tuple((int8, float64)), boolean)")
def members(out, body, pair, flag):
    i, j = cuda.grid(2)
    if i < out.shape[0] and j < out.shape[1]:
        out[i, j] = body.id + body.place[2] + pair[0] * pair[1] + (100 if flag else 0) + 10 * i + j
"""
KERNELS += EXCHANGE
LAUNCHES = """
#include <cuda_runtime.h>
#include <cstdio>
#include "kernels.launch.h"
using namespace kernels_kernels;
void check(const char* what, int error, bool right) {
  std::printf("%s: %d%s\\n", what, error, right ? "" : ", wrong");
}
int main() {
  int* numbers; float* floats; double* doubles;
  cudaMalloc(&numbers, 128 * sizeof(int));
  cudaMalloc(&floats, 64 * sizeof(float));
  cudaMalloc(&doubles, 12 * sizeof(double));
  int capability = 0;
  cudaDeviceGetAttribute(&capability, cudaDevAttrComputeCapabilityMajor, 0);
  int host[64]; float values[64]; double plane[12];

  int error = exchange(nullptr, 64, 1, 0, {numbers, 64}, {numbers + 64, 64});
  cudaMemcpy(host, numbers + 64, sizeof host, cudaMemcpyDeviceToHost);
  bool right = true;
  for (int i = 0; i < 64; ++i) right = right && host[i] == 63 - i;
  check("grid", error, right);
  check("too many", exchange(nullptr, 1 << 20, 1, 0, {numbers, 64}, {numbers, 64}), true);

  error = through_shared(nullptr, 1, 64, 60000, {floats, 64});
  cudaMemcpy(values, floats, sizeof values, cudaMemcpyDeviceToHost);
  right = true;
  for (int i = 0; i < 64; ++i) right = right && values[i] == i;
  check("shared", error, right);

  if (capability >= 9) {
    error = through_shared(nullptr, 4, 64, numba_ptxlink::attributes(60000).cluster(2), {floats, 64});
    const auto early = numba_ptxlink::attributes(60000).programmatic_dependent();
    error |= through_shared(nullptr, 1, 64, early, {floats, 64});
  }
  check("attributes", error, true);
  check("4 GiB", through_shared(nullptr, 1, 64, (1ull << 32) + 60000, {floats, 64}), true);

  error = members(nullptr, {1, 1}, dim3(8, 8), 0, {doubles, 3, 4}, {-7, {1, 2, 0.5f}}, {-4, 0.25}, true);
  cudaMemcpy(plane, doubles, sizeof plane, cudaMemcpyDeviceToHost);
  right = true;
  for (int i = 0; i < 12; ++i) right = right && plane[i] == -7 + 0.5 - 1 + 100 + 10 * (i / 4) + i % 4;
  check("members", error, right);
  check("block", members(nullptr, 1, 2048, 0, {doubles, 3, 4}, {}, {}, false), true);
  std::printf("%s\\n", cudaGetErrorName(cudaDeviceSynchronize()));
}
"""


def without_python() -> dict[str, str]:
    """Return an environment that finds the driver, or the CPU device, and no Python in PATH."""
    names = ("NUMBA_PTXLINK_", "PYTHONPATH", "LD_LIBRARY_PATH")
    return {"PATH": "", **{name: value for name, value in os.environ.items() if name.startswith(names)}}


@pytest.mark.parametrize("sm", ["", pytest.param("sm_75", marks=pytest.mark.gpu)])
def test_the_example_launches_without_python(tmp_path, arch, sm):
    """Four threads launch, from machine code and from PTX of an older architecture, with an empty PATH."""
    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    if not (home / "include" / "cuda_runtime_api.h").exists() or not shutil.which("make"):
        pytest.skip(f"no make, or no CUDA toolkit in {home}")
    sm = sm or arch.sm
    ptx = pl.export(EXAMPLE / "udfs.py", arch=[sm], emit=["ptx"]).read("ptx")
    if sm != arch.sm and not pl.driver_can_load_ptx(ptx):
        pytest.skip("the driver is older than the toolkit, and reads none of its PTX")
    command = [shutil.which("make"), "-s", "-C", str(EXAMPLE), f"OUT={tmp_path}", f"ARCHS=--arch {sm}"]
    subprocess.run(
        [*command, f"CUDA_HOME={home}", f"PTXLINK={sys.executable} -m numba_ptxlink.cli"], check=True
    )
    environ = without_python()
    # The runtime of the CPU device is found before the toolkit's.
    libraries = os.pathsep.join(filter(None, (environ.get("LD_LIBRARY_PATH"), str(home / "lib64"))))
    done = subprocess.run(
        [tmp_path / "saxpy"],
        env={**environ, "LD_LIBRARY_PATH": libraries},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "4 threads, 100001 elements each: right\n") == (done.returncode, done.stdout), done.stderr


def test_grids_shared_memory_and_structs(tmp_path, arch):
    """Launchers launch a grid cooperatively, ask for shared memory, pass structs, and return errors."""
    toolkit = lay_out(tmp_path, installed=True)
    (tmp_path / "kernels.py").write_text(KERNELS)
    (tmp_path / "main.cpp").write_text(LAUNCHES)
    pl.export(tmp_path / "kernels.py", tmp_path, arch=[arch], emit=["launcher"])
    includes = f"-I. -I{INCLUDE_DIR} -isystem {toolkit}/include"
    libraries = runtime_library(toolkit)
    shell(f"g++ -std=c++17 -Wall -Werror {includes} main.cpp {libraries} -o main", tmp_path, toolkit)
    output = subprocess.check_output([tmp_path / "main"], text=True, env=without_python())
    # CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, and CUDA_ERROR_INVALID_VALUE.
    assert (
        output
        == "grid: 0\ntoo many: 720\nshared: 0\nattributes: 0\n4 GiB: 1\nmembers: 0\nblock: 1\ncudaSuccess\n"
    )
