"""C++ programs of nvcc, CMake, make, Meson and setuptools run without a GPU, and call exported functions."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import doc_blocks
import environments
import numpy as np
import processes
import pytest
from cuda_toolkit import environment, lay_out, shell

import numba_ptxlink as pl
from numba_ptxlink._cpu import device
from numba_ptxlink.linker import INCLUDE_DIR

pytestmark = pytest.mark.slow

HERE, ROOT = Path(__file__).parent, Path(__file__).parents[2]
CPU = f"{sys.executable} -m numba_ptxlink cpu"
CMAKE_OPTIONS = f"-DCMAKE_PREFIX_PATH={INCLUDE_DIR / 'cmake'} -DNumbaPtxlink_CPU=ON"
# Functions of README and of the page about CMake, and one that reads an array.
UDFS = """
import math
import numpy as np
from numba import types
from numba_ptxlink import udf

@udf("float32(float32, float32)")
def damp(value, time):
    return value * math.exp(np.float32(-0.1) * time)

@udf("float32(float32[::1], int64)")
def third(array, index):
    return array[index] / 3  # line 13
"""
MAIN = """
#include <cstdio>
#include <cstdlib>
#include "udfs.h"
extern "C" __global__ void apply(float* x, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        x[i] = damp(x[i], 0.5f * i);
}
__global__ void read(numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> x, float* sum, int last)
{
    atomicAdd(sum, third(x, threadIdx.x == 7 ? last : threadIdx.x));
}
int main(int, char** arguments)
{
    float *x, *sum;
    cudaMallocManaged(&x, 100 * sizeof *x);
    cudaMallocManaged(&sum, sizeof *sum);
    *sum = 0;
    for (int i = 0; i < 100; ++i) x[i] = 1 + i;
    read<<<1, 8>>>({x, 100}, sum, std::atoi(arguments[1]));
    apply<<<2, 64>>>(x, 100);
    cudaError_t error = cudaDeviceSynchronize();
    std::printf("%.9g\\n", *sum);
    for (int i = 0; i < 100; ++i) std::printf("%.9g\\n", x[i]);
    return error != cudaSuccess;
}
"""
CTEST = """
cmake_minimum_required(VERSION 3.24)
project(three LANGUAGES CXX CUDA)
find_package(NumbaPtxlink CONFIG REQUIRED)
enable_testing()
numba_ptxlink_add_library(udfs SOURCES udfs.py ARCHITECTURES 90)
add_executable(app main.cu)
set_target_properties(app PROPERTIES CUDA_SEPARABLE_COMPILATION ON CUDA_ARCHITECTURES 90)
target_link_libraries(app PRIVATE udfs)
foreach(last IN ITEMS 0 99 100)
  add_test(NAME read_${last} COMMAND app ${last})
endforeach()
"""


FAULT = "udfs.py:13: error: read, in third, block (0, 0, 0), thread (7, 0, 0): 4 bytes at "


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the toolkit of the wheels."""
    if not device._libpython():
        pytest.skip("this Python has no shared library")
    return lay_out(tmp_path_factory.mktemp("toolkit"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the program and its exported functions."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "udfs.py").write_text(UDFS)
    (folder / "main.cu").write_text(MAIN)
    pl.export(folder / "udfs.py", folder, arch="sm_75", emit="object", lineinfo=True)
    return folder


def check_values(printed: str) -> None:
    """Check that the program printed NumPy's values."""
    values = np.arange(1, 101, dtype=np.float32)
    expected = values * np.exp(np.float32(-0.1) * (np.float32(0.5) * np.arange(100, dtype=np.float32)))
    total, *elements = map(float, printed.split())
    assert total == pytest.approx(values[:8].sum() / 3, rel=1e-6)
    np.testing.assert_allclose(elements, expected, rtol=1e-6)


@pytest.mark.parametrize("options", ["-arch=compute_75", "-arch=sm_75", "-dlto -arch=sm_75"])
def test_exported_functions(toolkit, folder, options):
    """A kernel calls functions of an object; a fault in Python has its line, and ends the program's work."""
    shell(f"nvcc -rdc=true {options} -cudart shared main.cu udfs.o -o app", folder, toolkit)
    check_values(shell(f"{CPU} -- ./app 7", folder, toolkit))
    failed = subprocess.run(
        [*CPU.split(), "--", "./app", "100"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert failed.returncode == 1
    assert FAULT in failed.stderr


def test_the_static_runtime_is_named(toolkit, folder):
    """A program with NVIDIA's static runtime ends with the option that links the shared one."""
    shell("nvcc -rdc=true -arch=compute_75 main.cu udfs.o -o static", folder, toolkit)
    failed = subprocess.run(
        [*CPU.split(), "--", "./static", "7"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert failed.returncode
    assert "static contains NVIDIA's static CUDA runtime" in failed.stderr
    assert "link it with nvcc -cudart shared (CMAKE_CUDA_RUNTIME_LIBRARY=Shared)" in failed.stderr


def test_a_fault_fails_one_test_of_ctest(toolkit, tmp_path):
    """CMake builds for the CPU by one variable, and ctest has three programs, of which one faults."""
    (tmp_path / "udfs.py").write_text(UDFS)
    (tmp_path / "main.cu").write_text(MAIN)
    (tmp_path / "CMakeLists.txt").write_text(CTEST)
    shell(f"cmake -G Ninja -S . -B build {CMAKE_OPTIONS} && cmake --build build", tmp_path, toolkit)
    command = [*CPU.split(), "--", "ctest", "--test-dir", "build", "--output-on-failure"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(toolkit), capture_output=True, text=True, check=False
    )
    assert "67% tests passed, 1 tests failed out of 3" in done.stdout
    assert "read_100 (Failed)" in done.stdout
    assert FAULT in done.stdout
    check_values(shell(f"{CPU} -- ./build/app 7", tmp_path, toolkit))


@pytest.mark.parametrize(
    ("build", "programs"),
    [
        (
            f"cmake -S . -B build {CMAKE_OPTIONS}; cmake --build build",
            ["build/damping", "build/damping_lto"],
        ),
        ("make CUDA={} ARCHS=75", ["damping"]),
        ("meson setup build -Darchs=75; ninja -C build", ["build/damping"]),
    ],
    ids=["cmake", "make", "meson"],
)
def test_the_example_of_build_systems(toolkit, tmp_path, build, programs):
    """The programs print the results of C++; nvcc's variable is enough if a build has no option."""
    shutil.copytree(
        ROOT / "examples" / "cmake", tmp_path / "example", ignore=shutil.ignore_patterns("build*")
    )
    added = (
        ""
        if "cmake" in build
        else "export NVCC_APPEND_FLAGS='-cudart shared -gencode arch=compute_75,code=compute_75'; "
    )
    shell(added + build.format(toolkit), tmp_path / "example", toolkit)
    for program in programs:
        printed = shell(f"{CPU} -- ./{program}", tmp_path / "example", toolkit)
        assert printed == "1000 elements, greatest error 0\n"


PAGES = {
    "docs/start/cpp.md": ["particle 7 is at 8\n"] * 2,
    "docs/how-to/cmake.md": ["value 9 is 1\n"] * 2,
    "docs/how-to/package.md": ["[1.0, 0.5, 0.3333333432674408, 0.25]\n" * 2],
    "docs/how-to/replace.md": ["equal for 1000 particles\n"],
}
# Changes of a page for the CPU: the shared runtime, and PTX beside machine code.
CHANGES = (
    (r"code=sm_(\w+|\{arch\}|\$\(arch\))", r"code=[sm_\1,compute_\1]"),
    (r"\bnvcc -", "nvcc -cudart shared -"),
    (r"\$\(NVCC\) -", "$(NVCC) -cudart shared -"),
    ("cudart_static", "cudart"),
    (r"PYTHONPATH=(\S+) python", r"PYTHONPATH=\1:$PYTHONPATH python"),
    (r"cmake -S \. -B build", "cmake -S . -B build -DNumbaPtxlink_CPU=ON -DNumbaPtxlink_CPU_ARCHITECTURE=90"),
)


@pytest.mark.parametrize("page", PAGES)
def test_the_programs_of_a_page_run(toolkit, tmp_path, page):
    """Each program of a page computes on the CPU, built with the shared runtime and PTX."""
    inherited = doc_blocks.environment(toolkit, tmp_path / "cache")
    inherited["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    inherited["CMAKE_PREFIX_PATH"] = str(INCLUDE_DIR / "cmake")
    inherited["SKBUILD_CMAKE_DEFINE"] = "NumbaPtxlink_CPU=ON;NumbaPtxlink_CPU_ARCHITECTURE=90"
    environ = device.child_environment(device.checked_settings("9.0"), inherited)
    runner, printed = doc_blocks.Runner(tmp_path, environ), ""
    for block in doc_blocks.blocks(ROOT / page):
        if block.language != "text":
            text = block.text
            for pattern, replacement in CHANGES:
                text = re.sub(pattern, replacement, text)
            runner.run(block._replace(text=text))
            printed += runner.output or ""
    for expected in set(PAGES[page]):
        assert printed.count(expected) == PAGES[page].count(expected), printed
    assert "not run" not in printed.replace("not run: CUDA_ERROR", "")
    for program in ("app", "app_lto"):
        if (tmp_path / program).exists():
            processes.run(tmp_path / program, env=environ)


def test_algorithms_of_thrust_and_cub(toolkit, tmp_path):
    """Algorithms have the results of the standard library."""
    shell(
        f"nvcc -arch=compute_75 -cudart shared {HERE / 'algorithms.cu'} -o {tmp_path / 'app'}",
        tmp_path,
        toolkit,
    )
    assert shell(f"{CPU} -- ./app", tmp_path, toolkit) == "0 failures\n"


def test_a_program_with_the_headers_of_cuda_12(toolkit, tmp_path):
    """A program of CUDA 12 finds its library, and its structures in it. The index has no nvcc of CUDA 12."""
    packages = ("nvidia-cuda-runtime-cu12==12.9.79",)
    with environments.locked(f"runtime-{environments.digest(*packages)}") as environment:
        if not environment.exists():
            pip = ["install", "--quiet", "--no-deps", "--target", str(environment), *packages]
            try:
                environments.pip(Path(sys.executable), *pip)
            except environments.Unavailable as error:
                pytest.skip(str(error))
    runtime = environment / "nvidia" / "cuda_runtime"
    (tmp_path / "libcudart.so").symlink_to(runtime / "lib" / "libcudart.so.12")
    options = f"-arch=compute_75 -cudart shared -I{runtime / 'include'} -L{tmp_path}"
    shell(f"nvcc {options} {HERE / 'runtime_program.cu'} -o app", tmp_path, toolkit)
    printed = shell(f"{CPU} -- ./app values", tmp_path, toolkit)
    assert "7.5, warps of 32, 49152 bytes, a bus of 256 bits\nvalues: cudaSuccess\n" in printed
