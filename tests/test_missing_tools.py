"""Errors and reports if the toolkit's libraries are not found."""

from __future__ import annotations

import sys
from importlib import metadata

import pytest

import numba_ptxlink as pl
from numba_ptxlink._tools import find


@pytest.fixture
def uninstalled(monkeypatch):
    """Pretend that numba-cuda is installed and NVIDIA's packages are not."""
    version = metadata.version

    def version_or_missing(name):
        if name.startswith(("nvidia-", "cuda-")):
            raise metadata.PackageNotFoundError(name)
        return version(name)

    find.major()
    monkeypatch.setattr(metadata, "version", version_or_missing)


def test_a_link_without_pathfinder_says_so(monkeypatch):
    """CUDA C++ is not compiled without it, and no bare ImportError is raised."""
    pytest.importorskip("cuda.pathfinder")
    monkeypatch.setitem(sys.modules, "cuda.pathfinder", None)
    monkeypatch.delattr("cuda.pathfinder")
    with pytest.raises(
        pl.LinkError, match=r"cuda-pathfinder could not be loaded .*; install it with `pip install"
    ):
        pl.link('extern "C" __global__ void k() {}', arch="sm_80")


def test_what_needs_nvrtc_names_it(monkeypatch):
    """Without NVRTC no front end compiles, a problem; a link fails in one line, with the cure."""
    library = find.library

    def missing(name):
        if name == "nvrtc":
            raise find.load_error(name, 'Failure finding "libnvrtc.so.13": No such file,\nNo such file')
        return library(name)

    monkeypatch.setattr(find, "library", missing)
    (problem,) = [problem for problem in pl.diagnose().problems if problem.what.startswith("NVRTC")]
    assert ("tool-missing", True) == (problem.code, "nor a Python function" in problem.what)
    with pytest.raises(pl.LinkError, match=r"^NVRTC could not be loaded \(Failure .*`pip install '.*'`\.$"):
        pl.link('extern "C" __global__ void k() {}', arch="sm_90")


class DynamicLibNotFoundError(RuntimeError):
    """The exception that cuda-pathfinder raises."""


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
    not_found = DynamicLibNotFoundError(f'Failure finding "{file}"')
    caused = ValueError("failed in nopython mode")
    caused.__cause__ = not_found
    for error in (not_found, caused):
        replacement = find.missing_library_error(error)
        assert expected is replacement or str(replacement).startswith(expected)
        assert expected is None or "numba-ptxlink[toolkit13]" in str(replacement)
    assert find.missing_library_error(RuntimeError("libnvrtc.so.13")) is None
