"""What is said where the toolkit's libraries are not found."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import front_ends
import pytest

import numba_ptxlink as pl
from numba_ptxlink._arch import PtxVersion
from numba_ptxlink._export import groups
from numba_ptxlink._formats.ptx.isa import release_of
from numba_ptxlink._front_end.protocol import CompileOptions
from numba_ptxlink._tools import find, nvfatbin, nvjitlink, nvrtc

ARCH = pl.Arch.of("sm_80")
REASON = 'Failure finding "libnvrtc.so.13": No such file,\nNo such file'


@pytest.fixture
def uninstalled(monkeypatch):
    """Have NVIDIA's packages not be installed, numba-cuda alone."""
    version = metadata.version

    def found(name):
        if name.startswith(("nvidia-", "cuda-")):
            raise metadata.PackageNotFoundError(name)
        return version(name)

    find.major()
    monkeypatch.setattr(metadata, "version", found)


@pytest.fixture
def without_nvrtc(monkeypatch):
    """Have NVRTC not be found, as cuda-pathfinder tells it."""

    def fail():
        raise RuntimeError(REASON)

    def binding():
        raise find.missing("nvrtc", REASON)

    monkeypatch.setattr(nvrtc, "_binding", binding)
    nvrtc.supported_archs.cache_clear()
    return fail


@pytest.mark.usefixtures("uninstalled")
def test_an_export_names_the_missing_library(without_nvrtc):
    """NVVM refused nothing where NVRTC is missing, and one line says so, with the cure."""
    front_end = SimpleNamespace(compile_ir=lambda *_, **__: without_nvrtc())
    with pytest.raises(pl.ExportError) as caught:
        groups.compile_program(front_end, [], ["damp"], ARCH, CompileOptions(), lto=False)
    said = str(caught.value)
    assert said.startswith("damp cannot be compiled for sm_80: NVRTC could not be loaded (Failure finding")
    assert said.endswith("install it with `pip install 'numba-ptxlink[cu13]'`.")
    assert "\n" not in said
    assert "one by one" not in said


def test_a_library_that_is_found_is_not_to_be_installed():
    """One that the dynamic loader refuses has the loader's reason, and no command that installs it."""
    reason = "/lib/libnvrtc.so.13: failed to map segment from shared object"
    error = RuntimeError(f"Failed to dlopen /lib/libnvrtc.so.13: {reason}")
    for said in (find.missing("nvrtc", error), find.explained(error)):
        assert str(said).startswith(f"NVRTC was found but could not be loaded ({reason}); remove what")
        assert "pip install" not in str(said)


def test_doctor_installs_no_library_that_is_found(monkeypatch):
    """A library that the dynamic loader refuses is a problem with the loader's reason."""
    error = RuntimeError("Failed to dlopen /lib/libnvfatbin.so: /lib/libnvfatbin.so: file too short")

    def refused():
        raise find.missing("nvfatbin", error)

    monkeypatch.setattr(nvfatbin, "version", refused)
    (problem,) = [each for each in pl.diagnose().problems if each.what.startswith("nvFatbin")]
    assert (
        "nvFatbin was found but could not be loaded (/lib/libnvfatbin.so: file too short): " in problem.what
    )
    assert "replace the file" in problem.cure
    assert "pip install" not in problem.cure


def test_a_link_without_pathfinder_says_so(monkeypatch):
    """CUDA C++ is not compiled without it, and no bare ImportError is raised."""
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.delattr("cuda.pathfinder")
    with pytest.raises(
        pl.LinkError, match=r"cuda-pathfinder could not be loaded .*; install it with `pip install"
    ):
        pl.link('extern "C" __global__ void k() {}', arch="sm_80")


@pytest.mark.usefixtures("without_nvrtc")
def test_doctor_tells_what_fails_without_nvrtc():
    """Without NVRTC numba-cuda compiles nothing, which is a problem."""
    (problem,) = [each for each in pl.diagnose().problems if each.what.startswith("NVRTC")]
    assert ("tool-missing", True) == (problem.code, "so does numba-cuda" in problem.what)


def test_the_release_of_a_ptx_version():
    """PTX tells the release of the toolkit that wrote it, the newest where several share a version."""
    expected = {
        (9, 5): (13, 5),
        (9, 0): (13, 0),
        (8, 8): (12, 9),
        (8, 5): (12, 6),
        (6, 0): (9, 0),
        (5, 0): None,
    }
    assert expected == {isa: release_of(PtxVersion(*isa)) for isa in expected}


@pytest.fixture
def without_nvjitlink(monkeypatch):
    """Have nvJitLink not be found."""

    def binding():
        raise find.missing("nvJitLink", "no such file")

    monkeypatch.setattr(nvjitlink, "_binding", binding)


@pytest.mark.usefixtures("without_nvjitlink")
def test_a_missing_nvjitlink_is_told_once():
    """The reason is not wrapped in itself."""
    with pytest.raises(pl.LinkError) as caught:
        nvjitlink.identity()
    assert 1 == str(caught.value).count("could not be loaded")


class DynamicLibNotFoundError(RuntimeError):
    """What cuda-pathfinder raises."""


@pytest.mark.usefixtures("uninstalled")
@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("libnvrtc.so.13", "NVRTC could not be loaded"),
        ("libnvvm.so.4", "libNVVM could not be loaded"),
        ("libcudart.so.13", "The CUDA runtime library could not be loaded"),
        ("libnvJitLink.so.13", "nvJitLink could not be loaded"),
        ("libdevice.10.bc", "libdevice could not be loaded"),
        ("libother.so", None),
    ],
)
def test_what_a_front_end_does_not_find_has_its_cure(file, expected):
    """The error of a library that is not found, or one that it caused, becomes one that names an extra."""
    found = DynamicLibNotFoundError(f'Failure finding "{file}"')
    caused = ValueError("failed in nopython mode")
    caused.__cause__ = found
    for error in (found, caused):
        said = find.explained(error)
        assert expected is said or str(said).startswith(expected)
        assert expected is None or "numba-ptxlink[cu13]" in str(said)
    assert find.explained(RuntimeError("libnvrtc.so.13")) is None


def test_other_errors_stay_what_they_are():
    """Only what a missing library caused is replaced."""
    with pytest.raises(ZeroDivisionError), find.explaining():
        raise ZeroDivisionError
    with pytest.raises(pl.LinkError, match="libNVVM could not be loaded"), find.explaining():
        raise DynamicLibNotFoundError('Failure finding "libnvvm.so.4"')


# An environment with one front end, or none, and without the package of a library.
ENVIRONMENT = """
import importlib.metadata, sys
front_end, library, *command = sys.argv[1:]
absent = {"numba-cuda": "numba_cuda", "numba-cuda-mlir": "numba_cuda_mlir"}
absent.pop(front_end, None)
packages = {
    "nvJitLink": "nvidia-nvjitlink",
    "nvrtc": "nvidia-cuda-nvrtc",
    "nvvm": "nvidia-nvvm",
    "nvfatbin": "nvidia-nvfatbin",
    "cudart": "nvidia-cuda-runtime",
}
version = importlib.metadata.version
def told(name):
    if name in absent or name == packages[library]:
        raise importlib.metadata.PackageNotFoundError(name)
    return version(name)
importlib.metadata.version = told
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in absent.values():
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Absent())
for module in absent.values():
    sys.modules[module] = None
from cuda import pathfinder
load = pathfinder.load_nvidia_dynamic_lib
def missing(name):
    if name == library:
        raise pathfinder.DynamicLibNotFoundError(f'Failure finding "lib{name}.so": No such file')
    return load(name)
pathfinder.load_nvidia_dynamic_lib = missing
"""
EXPORT = "from numba_ptxlink import cli\nsys.exit(cli.main(command))\n"
# The file of an export is imported by another process, whose libraries are all there.
EXPORT_HERE = """
import numba_ptxlink as pl
def f(x):
    return x
try:
    pl.export([pl.udf("int32(int32)")(f)], "out", arch="sm_80")
except pl.PtxlinkError as error:
    sys.exit(str(error))
"""
COMPILE = {
    "numba-cuda": "from numba import cuda\nfrom numba.cuda.types import int32\n",
    "numba-cuda-mlir": "from numba_cuda_mlir import cuda\n"
    "from numba_cuda_mlir.numba_cuda.types import int32\n",
}
EXTRAS = {"": "toolkit13", "numba-cuda": "cu13", "numba-cuda-mlir": "toolkit13"}


def in_environment(program, folder, front_end, library, *command):
    """Run *program* with *command* where *library* is missing and *front_end* alone is there."""
    done = subprocess.run(
        [sys.executable, "-I", "-c", ENVIRONMENT + program, front_end, library, *command],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "NUMBA_PTXLINK_CACHE": "0"},
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("front_end", EXTRAS)
@pytest.mark.parametrize("library", ["nvJitLink", "nvrtc", "nvvm", "nvfatbin", "cudart"])
def test_each_environment_is_told_its_extra(tmp_path, front_end, library):
    """Whichever library is missing beside whichever compiler, the errors and `doctor` name the extra."""
    if front_end:
        front_ends.get(front_end)
    cure = f"pip install 'numba-ptxlink[{EXTRAS[front_end]}]'"
    (tmp_path / "udfs.py").write_text(
        "from numba_ptxlink import udf\n@udf('int32(int32)')\ndef f(x): return x\n"
    )
    (tmp_path / "f.cu").write_text('extern "C" __device__ int f(int a) { return a; }\n')
    (tmp_path / "k.cu").write_text(
        'extern "C" __device__ int f(int);\n__global__ void k(int* x) { *x = f(*x); }\n'
    )
    code, out, err = in_environment(EXPORT, tmp_path, front_end, library, "doctor")
    assert (code, err) == (0, "")
    if library != "cudart" or front_end:
        assert cure in out, out
    if library in ("nvJitLink", "nvrtc"):
        command = ("link", "k.cu", "f.cu", "--arch", "sm_80", "-o", "out.cubin")
        code, out, err = in_environment(EXPORT, tmp_path, front_end, library, *command)
        assert (code, out, err.count("\n")) == (1, "", 1)
        assert err.endswith(f"install it with `{cure}`.\n")
    if not front_end:
        return
    if library != "nvJitLink":  # which an export of functions without link files does not call
        code, out, err = in_environment(EXPORT_HERE, tmp_path, front_end, library)
        assert (code, out) == (1, "")
        assert err.endswith(f"install it with `{cure}`.\n")
    if library in ("nvrtc", "nvvm"):
        program = (
            COMPILE[front_end]
            + "cuda.compile(lambda x: x, int32(int32), device=True, abi=command[0], cc=(8, 0))\n"
        )
        for abi in ("c", "numba"):
            code, out, err = in_environment(program, tmp_path, front_end, library, abi)
            assert (code, out) == (1, "")
            assert err.endswith(f"install it with `{cure}`.\n")
