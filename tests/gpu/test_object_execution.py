"""Programs with exported objects in them, on a device: built by nvcc, by a host compiler and by CMake."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import cuda_cxx
import processes
import pytest
from artifact_page import CALLS, command_of, possible, write_sources
from cuda_toolkit import environment, lay_out, release, shell
from devices import runtime_library

import numba_ptxlink as pl
from numba_ptxlink.linker import INCLUDE_DIR

EXAMPLE = Path(__file__).parents[2] / "examples" / "cmake"
UDFS = """
from numba import cuda
from numba_ptxlink import kernel, udf

@udf("float32(float32, int32)", name="{name}_damp")
def damp(value, step):
    return value / (step + {number})

@kernel("void(float32[::1], float32)", name="{name}_add")
def add(array, number):
    index = cuda.grid(1)
    if index < array.size:
        array[index] += number + {number}
"""
# Elements are i + 1; the functions divide by i + 1 and i + 2 and add up; the kernels add 10 + 1 and 20 + 2.
MAIN = """
#include <cstdio>
#include "first.h"
#include "second.h"
#if defined(WITH_FUNCTIONS)
__global__ void apply(float* p) { int i = threadIdx.x; p[i] = first_damp(p[i], i) + second_damp(p[i], i); }
#endif
int main() {
  float host[4] = {1, 2, 3, 4}, *p, number = 20;
  cudaMalloc(&p, sizeof host);
  cudaMemcpy(p, host, sizeof host, cudaMemcpyHostToDevice);
#if defined(WITH_FUNCTIONS)
  apply<<<1, 4>>>(p);
#endif
  numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> view(p, 4);
#if defined(__CUDACC__)
  first_add<<<1, 32>>>(view, 10.0f);
#else
  float ten = 10;
  void* first[] = {&view, &ten};
  cudaLaunchKernel((void*)first_add, dim3(1), dim3(32), first, 0, 0);
#endif
  void* second[] = {&view, &number};
  cudaLaunchKernel((void*)second_add, dim3(1), dim3(32), second, 0, 0);
  cudaError_t error = cudaMemcpy(host, p, sizeof host, cudaMemcpyDeviceToHost);
  std::printf("%s %g %g %g %g\\n", cudaGetErrorName(error), host[0], host[1], host[2], host[3]);
  return 0;
}
"""
LAUNCHED = [value + 33 for value in (1, 2, 3, 4)]
CALLED = [(i + 1) / (i + 1) + (i + 1) / (i + 2) + 33 for i in range(4)]


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory):
    """Return the toolkit of the wheels or of the machine."""
    return lay_out(tmp_path_factory.mktemp("toolkit"), installed=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory, arch, toolkit):
    """Return a folder with two exports, for the device and an older architecture, and a program."""
    folder = tmp_path_factory.mktemp("objects")
    (folder / "main.cu").write_text(MAIN)
    (folder / "main.cpp").write_text(f"#include <cuda_runtime.h>\n{MAIN}")
    for number, name in enumerate(("first", "second"), start=1):
        (folder / f"{name}.py").write_text(UDFS.format(name=name, number=number))
        options = {"emit": "object", "cuda": release(toolkit)}
        pl.export(folder / f"{name}.py", folder, arch=["sm_80", arch], **options)
    return folder


def run(program: Path) -> tuple[str, list[float]]:
    """Run *program* without Python on its paths; return its error text and its elements."""
    done = processes.run(program, env={**os.environ, "PATH": "/usr/bin:/bin"})
    name, *numbers = done.stdout.split()
    return name, [float(number) for number in numbers]


@pytest.mark.gpu  # nvcc links relocatable code as machine code
@pytest.mark.parametrize("options", ["-rdc=true", "-rdc=true -dlto"])
def test_functions_and_kernels(toolkit, folder, arch, options):
    """Functions are called, and kernels launched both ways, out of two objects."""
    shell(f"nvcc -DWITH_FUNCTIONS {options} -arch={arch.sm} main.cu first.o second.o -o app", folder, toolkit)
    name, elements = run(folder / "app")
    assert name == "cudaSuccess"
    assert CALLED == pytest.approx(elements, rel=1e-5)


def test_kernels_by_a_host_compiler(toolkit, folder):
    """Kernels are launched from C++ that no nvcc has seen."""
    command = (
        f"g++ -std=c++17 -I{toolkit}/include main.cpp first.o second.o {runtime_library(toolkit)} -o host"
    )
    shell(command, folder, toolkit)
    assert run(folder / "host") == ("cudaSuccess", LAUNCHED)


@pytest.mark.gpu
def test_the_example_of_build_systems(toolkit, tmp_path, arch, monkeypatch):
    """The programs of examples/cmake, without and with link-time optimisation, have the results of C++."""
    if not shutil.which("cmake", path=environment(toolkit)["PATH"]):
        pytest.skip("there is no CMake")
    shutil.copytree(EXAMPLE, tmp_path / "example")
    monkeypatch.setenv("CMAKE_PREFIX_PATH", str(INCLUDE_DIR / "cmake"))
    command = f"cmake -G Ninja -S . -B build -DCMAKE_CUDA_ARCHITECTURES={arch.number} && cmake --build build"
    shell(command, tmp_path / "example", toolkit)
    for program in ("damping", "damping_lto"):
        printed = subprocess.check_output([tmp_path / "example" / "build" / program], text=True)
        assert printed.startswith("1000 elements, greatest error ")


def without_machine_code(kind: str) -> Any:
    """Return a kind of artifact as a parameter; it needs a GPU if it has only machine code."""
    return pytest.param(kind, marks=[pytest.mark.gpu] if kind in {"cubin", "object"} else [])


@pytest.mark.parametrize("kind", [without_machine_code(kind) for kind in possible("driver API")])
def test_the_driver_links_and_loads(tmp_path, arch, kind):
    """Artifacts for the driver API are linked with a caller, and kernels are loaded."""
    from cuda.bindings import driver as api

    def call(function, *arguments):
        status, *values = function(*arguments)
        assert not int(status), f"{function.__name__}: {status.name}"
        return values[0] if len(values) == 1 else values

    write_sources(tmp_path)
    pl.export(tmp_path / "udfs.py", tmp_path / "build", arch=[arch], emit=[kind])
    text = command_of("driver API", kind).replace("sm_90", arch.sm)
    form, path = re.fullmatch(r'cuLinkAddFile\(state, (\w+), "(.*)", 0, 0, 0\)', text).groups()
    if kind in ("cubin", "fatbin"):
        module = call(api.cuModuleLoad, str(tmp_path / path).encode())
        assert call(api.cuModuleGetFunction, module, b"scale")
    toolchain = pl.toolchain()
    if (toolchain.driver or (0, 0)) < toolchain.nvrtc:
        pytest.skip("the driver is older than the toolkit, and links nothing that is newer than itself")
    ptx = cuda_cxx.compiled(CALLS, arch.sm, "-rdc=true", folders=(tmp_path / "build",)) + b"\0"
    state = call(api.cuLinkCreate, 0, [], [])
    call(api.cuLinkAddData, state, api.CUjitInputType.CU_JIT_INPUT_PTX, ptx, len(ptx), b"calls", 0, [], [])
    call(
        api.cuLinkAddFile, state, getattr(api.CUjitInputType, form), str(tmp_path / path).encode(), 0, [], []
    )
    image, _ = call(api.cuLinkComplete, state)
    module = call(api.cuModuleLoadData, image)
    kernel = call(api.cuModuleGetFunction, module, b"apply")
    memory = call(api.cuMemAlloc, 8)
    host = (ctypes.c_float * 2)(0, 3)
    call(api.cuMemcpyHtoD, memory, ctypes.addressof(host), 8)
    parameters = ((int(memory),), (ctypes.c_void_p,))
    call(api.cuLaunchKernel, kernel, 1, 1, 1, 1, 1, 1, 0, 0, parameters, 0)
    call(api.cuMemcpyDtoH, ctypes.addressof(host), memory, 8)
    assert host[0] == 6
