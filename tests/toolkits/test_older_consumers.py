"""Artifacts for CUDA 12.4 and 13.0 are read by the compilers and linkers of these releases."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import environments
import processes
import pytest
from cuda_toolkit import completed, linked_functions, shell

import numba_ptxlink as pl
from numba_ptxlink import linker
from numba_ptxlink._tools import isolated

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SOURCES = [HERE / "halves.py", HERE / "plain.py"]
WHEELS = {
    # The wheels of CUDA 12 have no nvcc and no nvlink.
    "12.4": [
        "nvidia-cuda-nvcc-cu12==12.4.131",
        "nvidia-cuda-nvrtc-cu12==12.4.127",
        "nvidia-cuda-runtime-cu12==12.4.127",
        "nvidia-nvjitlink-cu12==12.4.127",
    ],
    "13.0": [
        "nvidia-cuda-nvcc==13.0.88",
        "nvidia-cuda-crt==13.0.88",
        "nvidia-nvvm==13.0.88",
        "nvidia-cuda-runtime==13.0.96",
        "nvidia-cuda-cccl==13.0.85",
    ],
}
CALLER = """
#include "halves.h"
extern "C" __global__ void apply(__half *x) { x[threadIdx.x] = fused(x[threadIdx.x], x[0]); }
"""
PLAIN_CALLER = """
#include "plain.h"
extern "C" __global__ void apply(float *x) { x[0] = damp(x[1], 3); }
"""


def tools(release):
    """Return the folder with the compilers of *release*, from their wheel."""
    with environments.locked(f"nvcc-{release}-{environments.digest(*WHEELS[release])}") as folder:
        if not list(folder.glob("nvidia/*/bin/ptxas")):
            pip = ["install", "--quiet", "--no-deps", "--target", str(folder), *WHEELS[release]]
            try:
                environments.pip(Path(sys.executable), *pip)
            except environments.Unavailable as error:
                pytest.skip(str(error))
    return next(folder.glob("nvidia/*/bin"))


@pytest.mark.parametrize("release", list(WHEELS))
@pytest.mark.parametrize("source", SOURCES, ids=[path.stem for path in SOURCES])
def test_ptxas_reads_the_ptx(release, source, tmp_path):
    """The ptxas of the release takes the PTX of each architecture, half arithmetic included."""
    exported = pl.export(source, arch=["sm_80", "sm_89", "sm_90"], emit=["ptx"], cuda=release)
    for (_, arch), path in exported.artifacts.items():
        text = tmp_path / path.name
        text.write_bytes(exported.contents[path.name])
        command = [str(tools(release) / "ptxas"), f"-arch={arch}", "-c", str(text), "-o", str(tmp_path / "o")]
        processes.run(*command, quiet=True)


@pytest.mark.parametrize("kind", ["ptx", "cubin", "fatbin"])
def test_nvcc_links_what_was_made_for_it(kind, tmp_path, monkeypatch):
    """The nvcc of CUDA 13.0 links artifacts that were made for it, half arithmetic included."""
    folder = tools("13.0")
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    exported = pl.export(SOURCES[0], tmp_path, arch="sm_80", emit=[kind], cuda="13.0")
    (artifact,) = exported.artifacts.values()
    (tmp_path / "caller.cu").write_text(CALLER)

    def nvcc(*options):
        command = [str(folder / "nvcc"), "-arch=sm_80", f"-I{linker.INCLUDE_DIR}", *map(str, options)]
        processes.run(*command, cwd=tmp_path)

    nvcc("-dc", "caller.cu", "-o", "caller.o")
    wrapped = artifact
    if kind != "fatbin":
        wrapped = tmp_path / "wrapped.o"
        nvcc("-dc", artifact, "-o", wrapped)
    nvcc("-dlink", "caller.o", wrapped, "-o", "linked.o")


@pytest.mark.parametrize(
    ("build", "program"),
    [
        (
            "cmake -S . -B build -DCMAKE_CUDA_COMPILER=$CUDA/bin/nvcc && cmake --build build",
            "build/damping_lto",
        ),
        ("make CUDA=$CUDA ARCHS=80 CODE='-dlto -arch=sm_80'", "damping"),
    ],
    ids=["cmake", "make"],
)
def test_a_toolkit_inlines_what_its_nvvm_compiled(build, program, tmp_path):
    """A build beside newer compilers needs no more than the path of the toolkit: no call is left."""
    home = completed(tools("13.0").parent, tmp_path)
    folder = tmp_path / "example"
    shutil.copytree(HERE.parents[1] / "examples" / "cmake", folder)
    path = f"{Path(sys.executable).parent}:/usr/bin:/bin"
    output = shell(f"unset CUDACXX; CUDA={home}; export PATH={path} CUDAARCHS=80; {build}", folder, home)
    assert "Host code of the object: nvcc 13.0" in output
    assert "Left out" not in output
    assert "damp" not in linked_functions(folder / program)["sm_80"]


@pytest.mark.parametrize("kind", ["ltoir", "object"])
def test_an_older_nvjitlink_inlines_what_its_nvvm_compiled(kind, tmp_path, monkeypatch):
    """The nvJitLink of CUDA 12.4 links an export for 12.4 into C++ of that release, line numbers included."""
    folder = tools("12.4").parent
    monkeypatch.setenv("CUDA_HOME", str(folder))
    exported = pl.export(HERE / "plain.py", tmp_path, arch="sm_80", emit=kind, cuda="12.4", lineinfo=True)
    (artifact,) = exported.artifacts.values()
    (nvrtc,) = folder.parent.glob("cuda_nvrtc/lib/libnvrtc.so.*")
    (nvjitlink,) = folder.parent.glob("nvjitlink/lib/libnvJitLink.so.*")
    searched = (tmp_path, linker.INCLUDE_DIR, folder.parent / "cuda_runtime" / "include")
    flags = ["-arch=compute_80", "-rdc=true", "-dlto", "-lineinfo", *(f"-I{path}" for path in searched)]
    sources = [("apply.cu", PLAIN_CALLER.encode(), "LTOIR")]
    step, _, result = isolated.call("nvrtc", str(nvrtc), flags, sources, [], [], in_child=True)
    assert ("", "") == (step, result["log"])
    inputs = [("apply", result["code"], "LTOIR"), (artifact.name, artifact.read_bytes(), kind.upper())]
    flags = ["-arch=sm_80", "-lto", "-lineinfo"]
    step, _, result = isolated.call("nvjitlink", str(nvjitlink), flags, inputs, "Cubin", in_child=True)
    assert ("", "") == (step, result["log"])
    (tmp_path / "linked.cubin").write_bytes(result["code"])
    assert {"apply", "scale"} == linked_functions(tmp_path / "linked.cubin")[""]
