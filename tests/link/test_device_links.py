"""Objects of exports in programs that nvcc builds: device functions and kernels, of every architecture."""

from __future__ import annotations

import pytest
from cuda_toolkit import lay_out, linked_functions, shell

import numba_ptxlink as pl

UDFS = """
from numba import cuda
from numba_ptxlink import kernel, udf

@udf("float32(float32, int32)", name="{name}_damp")
def damp(value, step):
    return value * step

@kernel("void(float32[::1], float32)", name="{name}_scale")
def scale(array, factor):
    index = cuda.grid(1)
    if index < array.size:
        array[index] *= factor
"""
PROGRAM = """
#include "first.h"
#include "second.h"
__global__ void apply(float* p) { *p = first_damp(p[1], 2) + second_damp(p[2], 3); }
int main() {
  float factor = 2, *p;
  cudaMalloc(&p, 128);
  numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> view(p, 32);
  void* arguments[] = {&view, &factor};
  apply<<<1, 1>>>(p);
  first_scale<<<1, 32>>>(view, 2);
  cudaLaunchKernel((void*)second_scale, dim3(1), dim3(32), arguments, 0, 0);
  return cudaDeviceSynchronize();
}
"""
BOTH = "-gencode arch=compute_80,code=sm_80 -gencode arch=compute_90,code=sm_90"
KERNELS = {"first_scale", "second_scale"}


@pytest.fixture(scope="module")
def toolkit(tmp_path_factory):
    """Return the toolkit of the wheels."""
    return lay_out(tmp_path_factory.mktemp("toolkit"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a folder with a program and two exports that it uses."""
    folder = tmp_path_factory.mktemp("program")
    (folder / "main.cu").write_text(PROGRAM)
    host = PROGRAM.replace("first_damp(p[1], 2) + second_damp(p[2], 3)", "1")
    (folder / "host.cu").write_text(host)
    for name in ("first", "second"):
        (folder / f"{name}.py").write_text(UDFS.format(name=name))
        kinds = ["object", "library"]
        pl.export(folder / f"{name}.py", folder, archs=["sm_80", "sm_90"], emit=kinds)
    return folder


@pytest.mark.slow
def test_nvcc_links_two_exports_for_two_architectures(toolkit, folder):
    """`nvcc -rdc=true` links the functions and kernels of two objects, for both architectures at once."""
    shell(f"nvcc -rdc=true {BOTH} main.cu first.o second.o -o app", folder, toolkit)
    functions = KERNELS | {"first_damp", "second_damp", "_Z5applyPf"}
    assert linked_functions(folder / "app") == {"sm_80": functions, "sm_90": functions}


@pytest.mark.slow
@pytest.mark.parametrize("extension", ["o", "a"])
@pytest.mark.parametrize("options", ["", "-dlto"])
def test_objects_and_libraries_are_linked(toolkit, folder, extension, options):
    """Both forms link as machine code, and as LTO-IR, whose functions are inlined."""
    files = f"first.{extension} second.{extension}"
    shell(f"nvcc -rdc=true {options} -arch=sm_90 main.cu {files} -o app", folder, toolkit)
    functions = linked_functions(folder / "app")["sm_90"]
    assert functions >= {*KERNELS, "_Z5applyPf"}
    assert ("first_damp" in functions) is not bool(options)


@pytest.mark.slow
def test_an_architecture_between_the_exported_ones(toolkit, folder):
    """A link for another architecture takes the machine code or the PTX that serves it."""
    for arch in ("sm_86", "sm_100"):
        shell(f"nvcc -rdc=true -arch={arch} main.cu first.o second.o -o app", folder, toolkit)
        assert linked_functions(folder / "app")[arch] >= KERNELS


@pytest.mark.slow
def test_a_shared_library_holds_an_export(toolkit, folder):
    """The host code is position-independent, and leaves no symbol of its own visible."""
    shell(
        "nvcc -rdc=true -arch=sm_90 -Xcompiler -fPIC -shared main.cu first.o second.o -o libapp.so"
        " && ! nm -D --defined-only libapp.so | grep -E 'first_|second_'",
        folder,
        toolkit,
    )
