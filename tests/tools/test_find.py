"""What the packages of NVIDIA's tools are called."""

from __future__ import annotations

from importlib import metadata

import pytest

from numba_ptxlink._tools import find


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


@pytest.mark.parametrize(
    ("release", "name"),
    [
        ((11, 4), ""),
        ((11, 8), "nvidia-cuda-nvcc-cu11==11.8.*"),
        ((12, 4), "nvidia-cuda-nvcc-cu12==12.4.*"),
        ((13, 1), "cuda-toolkit[nvcc]==13.1.*"),
    ],
)
def test_ptxas_comes_with_what_its_nvcc_calls(release, name):
    """CUDA 13 has that in packages of their own; before 11.7 nothing is packaged."""
    assert name == find.package_of_ptxas(release)
