"""What the packages of NVIDIA's tools are called."""

from __future__ import annotations

from importlib import metadata

import pytest

from numba_ptxlink._tools import find


@pytest.mark.parametrize(
    ("release", "name"), [(12, "nvidia-nvjitlink-cu12"), (13, "nvidia-nvjitlink"), (14, "nvidia-nvjitlink")]
)
def test_packages_of_cuda_12_have_a_suffix(monkeypatch, release, name):
    """The name depends on CUDA's major version: the argument's, or that of the bindings installed."""
    assert name == find.package("nvidia-nvjitlink", release)
    monkeypatch.setattr(metadata, "version", lambda _: f"{release}.9.10")
    monkeypatch.setattr(find, "major", find.major.__wrapped__)
    assert name == find.package("nvidia-nvjitlink")
