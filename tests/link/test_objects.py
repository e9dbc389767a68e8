"""Object files and static libraries of exports: their host code, and the code that a linker reads."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import processes
import pytest
from numba import cuda

import numba_ptxlink as pl
from numba_ptxlink._cpu import device
from numba_ptxlink._tools import host_compiler, nvrtc, programs
from numba_ptxlink.linker import INCLUDE_DIR

CALLER = '#include "udfs.h"\nextern "C" __global__ void caller(int* p) { *p = twice(*p); }\n'
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="g++ is not installed")


def twice(value):
    """Double *value*."""
    return 2 * value


def tripled(array, factor):
    """Multiply an array."""
    index = cuda.grid(1)
    if index < array.size:
        array[index] *= factor


def gcc(*arguments: str | Path, **options) -> subprocess.CompletedProcess[str]:
    """Run g++."""
    path = shutil.which("g++")
    return subprocess.run([path, "-std=c++17", *arguments], text=True, check=False, **options)


def export(folder: Path, name: str = "udfs", *, kernels: bool = True, **options) -> pl.Export:
    """Export a function and a kernel as an object."""
    prefix = "" if name == "udfs" else f"{name}_"
    marked = [pl.udf("int32(int32)", name=f"{prefix}twice")(twice)]
    if kernels:
        marked.append(pl.kernel("void(float32[::1], float32)", name=f"{prefix}tripled")(tripled))
    return pl.export(marked, folder, name=name, **{"arch": "sm_80", "emit": ["object"], **options})


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return an export of a function and a kernel for two architectures."""
    folder = tmp_path_factory.mktemp("exported")
    return export(folder, arch=["sm_80", "sm_90"])


MAIN = """
#include <cuda_runtime.h>
#include <cstdio>
#include "udfs.h"
extern "C" unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream);
int main() {
  float *memory = nullptr, factor = 4;
  cudaMallocManaged(&memory, 12);
  for (int i = 0; i < 3; ++i) memory[i] = i + 1;
  numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c> view(memory, 3);
  __cudaPushCallConfiguration(1, 32, 0, nullptr);
  tripled(view, 0.5f);
  void* arguments[] = {&view, &factor};
  const int error = cudaLaunchKernel((void*)tripled, dim3(1), dim3(32), arguments, 0, nullptr);
  std::printf("%d %g %g %g\\n", error, memory[0], memory[1], memory[2]);
}
"""


@pytest.mark.parametrize(("release", "functions"), [("12.4", True), ("99.0", True), ("12.4", False)])
def test_an_nvcc_that_cannot_link_the_object_is_reported(release, functions, monkeypatch, caplog):
    """The nvcc of a machine is often older than the compilers of pip. Kernels need no device link."""
    monkeypatch.setattr(host_compiler, "compile_object", lambda *_: (b"", f"nvcc {release}"))
    marked = pl.udf("int32(int32)") if functions else pl.kernel("void(float32[::1], float32)")
    pl.export(marked(twice if functions else tripled), arch="sm_80", emit="object")
    cure = "the nvcc that was found is of CUDA 12.4; export with --cuda 12.4 (in Python, cuda='12.4')"
    assert (release == "12.4" and functions) is (cure in caplog.text)


def test_a_kernel_is_registered_and_launched(tmp_path, exported):
    """Without a device link, the object registers its kernels, which are called or launched by address."""
    (tmp_path / "main.cpp").write_text(MAIN)
    includes = [f"-I{path}" for path in (exported.header.parent, INCLUDE_DIR)]
    includes += [flag for path in nvrtc.toolkit_include_dirs() for flag in ("-isystem", path)]
    libraries = (device.RUNTIME_FOLDER / "libcudart.so.13", device.LIBRARY_FOLDER / "libcuda.so.1")
    program, object_file = tmp_path / "main", exported.artifacts["object", ""]
    processes.run(
        "g++", "-std=c++17", *includes, tmp_path / "main.cpp", object_file, *libraries, "-o", program
    )
    command = (sys.executable, "-m", "numba_ptxlink", "cpu", "--arch", "8.9", "--", program)
    assert processes.run(*command, env=processes.environ()).stdout == "0 2 4 6\n"


def test_link_reads_the_code_of_every_architecture(exported):
    """`link()` finds the functions of an object, as machine code and as LTO-IR."""
    folder = exported.header.parent
    object_file = exported.artifacts["object", ""]
    for arch in ("sm_80", "sm_90"):
        for lto in (False, True):
            linked = pl.link(CALLER, object_file, arch=arch, lto=lto, include_dirs=[folder])
            assert (b"twice" in linked.cubin) is not lto
    entries = [(piece.kind, piece.arch) for piece in programs.pieces(object_file.read_bytes(), "udfs.o")]
    linkable, whole = ["ptx", "ltoir", "cubin"], ["ptx", "cubin"]
    for arch in ("sm_80", "sm_90"):
        assert sorted([*linkable, *whole]) == sorted(kind for kind, of in entries if of == arch)


def test_the_folder_of_an_export_is_self_contained(tmp_path):
    """The header for arrays comes along, so that no other include directory is needed."""
    exported = export(tmp_path)
    source = f'#include "{exported.header}"\nint main() {{ return 0; }}\n'
    assert not gcc("-fsyntax-only", "-x", "c++", "-", input=source).returncode
    files = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert Path("numba_ptxlink/array_view.h") in files
