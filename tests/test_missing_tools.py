"""What is said where the toolkit's libraries are not found."""

from __future__ import annotations

import sys
from importlib import metadata
from types import SimpleNamespace

import pytest

import numba_ptxlink as pl
from numba_ptxlink._export.compile import compile_ir
from numba_ptxlink._front_end.protocol import CompileOptions
from numba_ptxlink._tools import find, nvrtc

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
    lowered = SimpleNamespace(signature=SimpleNamespace(name="damp"))
    with pytest.raises(pl.ExportError) as caught:
        compile_ir(front_end, [lowered], [], ARCH, CompileOptions(), lto=False)
    said = str(caught.value)
    assert said.startswith("damp cannot be compiled for sm_80: NVRTC could not be loaded (Failure finding")
    assert said.endswith("install it with `pip install 'numba-ptxlink[cu13]'`.")
    assert "\n" not in said
    assert "one by one" not in said


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
