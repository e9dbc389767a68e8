"""Object files and static libraries of exports: their host code, and what a linker reads in them."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

import processes
import pytest
from numba import cuda

import numba_ptxlink as pl
from numba_ptxlink._tools import host_compiler, nvrtc, programs
from numba_ptxlink.linker import INCLUDE_DIR

HELPERS = Path(__file__).parents[1] / "helpers"
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


def run(folder: Path, source: str, *objects: Path | str) -> list[str]:
    """Compile and link *source*, *objects* and a stand-in for the runtime, and return what they say."""
    (folder / "main.cpp").write_text(source)
    flags = [
        flag for path in (INCLUDE_DIR, *nvrtc.toolkit_include_dirs()) for flag in ("-isystem", str(path))
    ]
    sources = [folder / "main.cpp", HELPERS / "fake_runtime.cpp"]
    assert not gcc(f"-I{folder}", *flags, *sources, *objects, "-o", "main", cwd=folder).returncode
    return processes.run(folder / "main").stdout.splitlines()


@pytest.mark.parametrize(("release", "functions"), [("12.4", True), ("99.0", True), ("12.4", False)])
def test_an_nvcc_that_cannot_link_the_object_is_reported(release, functions, monkeypatch, caplog):
    """The nvcc of a machine is often older than the compilers of pip. Kernels need no device link."""
    monkeypatch.setattr(host_compiler, "compile_object", lambda *_: (b"", f"nvcc {release}"))
    marked = pl.udf("int32(int32)") if functions else pl.kernel("void(float32[::1], float32)")
    pl.export(marked(twice if functions else tripled), arch="sm_80", emit="object")
    cure = "the nvcc that was found is of CUDA 12.4; export with --cuda 12.4 (in Python, cuda='12.4')"
    assert (release == "12.4" and functions) is (cure in caplog.text)


def test_a_kernel_is_registered_and_launched(tmp_path, exported):
    """Without a device link the object registers its kernels, launches them, and unregisters at the end."""
    source = """
        #include "udfs.h"
        extern "C" const int sizes[] = {24, 4, 0};
        int main() { tripled({(float*)16, 3}, 0.5f); }
    """
    shutil.copy(exported.header, tmp_path)
    arguments = [struct.pack("3q", 16, 3, 4).hex(), struct.pack("f", 0.5).hex()]
    assert run(tmp_path, source, exported.artifacts["object", ""]) == [
        "binary 466243b1 1 ba55ed50",
        "function tripled tripled",
        "end",
        f"launch tripled 1 2 3 4 5 6 7 8 {' '.join(arguments)}",
        "gone",
    ]


def test_link_reads_the_code_of_every_architecture(exported):
    """`link()` finds the functions of an object, as machine code and as LTO-IR."""
    folder = exported.header.parent
    made = exported.artifacts["object", ""]
    for arch in ("sm_80", "sm_90"):
        for lto in (False, True):
            linked = pl.link(CALLER, made, arch=arch, lto=lto, include_dirs=[folder])
            assert (b"twice" in linked.cubin) is not lto
    entries = [(piece.kind, piece.arch) for piece in programs.pieces(made.read_bytes(), "udfs.o")]
    linkable, whole = ["ptx", "ltoir", "cubin"], ["ptx", "cubin"]
    for arch in ("sm_80", "sm_90"):
        assert sorted([*linkable, *whole]) == sorted(kind for kind, of in entries if of == arch)


def test_the_folder_of_an_export_is_self_contained(tmp_path):
    """The header for arrays comes along, so that no other include directory is needed."""
    exported = export(tmp_path)
    source = f'#include "{exported.header}"\nint main() {{ return 0; }}\n'
    assert not gcc("-fsyntax-only", "-x", "c++", "-", input=source).returncode
    there = {path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()}
    assert Path("numba_ptxlink/array_view.h") in there
