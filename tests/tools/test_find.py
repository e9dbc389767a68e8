"""What the packages of NVIDIA's tools are called."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace

import pytest

import numba_ptxlink as pl
from numba_ptxlink._tools import find, nvfatbin, nvjitlink, nvrtc, pynvjitlink


@pytest.fixture(autouse=True)
def _asked_anew():
    clear = find.major.cache_clear
    clear()
    yield
    clear()


@pytest.mark.parametrize(
    ("release", "name"), [(12, "nvidia-nvjitlink-cu12"), (13, "nvidia-nvjitlink"), (14, "nvidia-nvjitlink")]
)
def test_packages_of_cuda_12_have_a_suffix(monkeypatch, release, name):
    """The name depends on CUDA's major version: the argument's, or that of the bindings installed."""
    assert name == find.package("nvidia-nvjitlink", release)
    monkeypatch.setattr(metadata, "version", lambda _: f"{release}.9.10")
    assert name == find.package("nvidia-nvjitlink")


def test_without_bindings_the_newest_is_meant(monkeypatch):
    """Where nothing is installed, the command installs the tools of CUDA 13, and numba-cuda where that is."""

    def missing(_):
        raise metadata.PackageNotFoundError

    monkeypatch.setattr(metadata, "version", missing)
    assert "pip install 'numba-ptxlink[toolkit13]'" == find.install()
    monkeypatch.setattr(metadata, "version", lambda name: "13.0.0" if name == "cuda-bindings" else "0.30.4")
    assert "pip install 'numba-ptxlink[cu13]'" == find.install()


@pytest.mark.parametrize("tool", [nvjitlink, nvrtc, nvfatbin])
def test_a_missing_tool_of_cuda_12_is_installed_from_cuda_12(monkeypatch, tool):
    """The cure of a tool that is missing beside CUDA 12's bindings does not replace those."""

    def not_found(*_):
        raise RuntimeError('Failure finding "lib"')

    monkeypatch.setattr(find, "major", lambda: 12)
    monkeypatch.setattr(find, "pathfinder", lambda: SimpleNamespace(load_nvidia_dynamic_lib=not_found))
    monkeypatch.setattr(find, "Guarded", not_found)
    nvfatbin._library.cache_clear()
    with pytest.raises(pl.LinkError, match=r"pip install 'numba-ptxlink\[cu12\]'"):
        tool.version()


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ((11, 4), ""),
        ((11, 8), "nvidia-cuda-nvcc-cu11==11.8.*"),
        ((12, 4), "nvidia-cuda-nvcc-cu12==12.4.*"),
        ((12, 7), "nvidia-cuda-nvcc-cu12==12.6.*"),
        ((13, 1), "cuda-toolkit[nvcc]==13.1.*"),
    ],
)
def test_ptxas_comes_with_what_its_nvcc_calls(release, name):
    """CUDA 13 has that in packages of their own; before 11.7 nothing is packaged."""
    assert name == find.package_of_ptxas(release)
    # A driver loads what any release of its major version made.
    assert find.package_of_ptxas(release, relocatable=False) == (name or "nvidia-cuda-nvcc-cu11==11.8.*")


def test_the_package_to_upgrade_is_the_linkers(monkeypatch):
    """An nvJitLink of CUDA 12 is upgraded within CUDA 12."""
    monkeypatch.setattr(nvjitlink, "version", lambda: (12, 4))
    assert "nvidia-nvjitlink-cu12" == nvjitlink.package()
    assert "pynvjitlink-cu12" == pynvjitlink.package()
