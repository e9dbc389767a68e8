"""The programs of the gallery, on a device: each compares its results with a reference."""

from __future__ import annotations

import re

import gallery
import pytest


@pytest.mark.parametrize("name", gallery.PROGRAMS)
def test_a_program_verifies_its_results(name, tmp_path, arch):
    """A program of the gallery runs on the device, and its results are those of the reference."""
    for package in gallery.PROGRAMS[name].gpu_packages:
        pytest.importorskip(package)
    said = gallery.run(name, tmp_path, arch.sm)
    print(said)  # noqa: T201 - shown by -rP
    assert "there is no GPU" not in said
    # A package may be built without CUDA.
    for reason in re.findall("^Not run: .*", said, re.MULTILINE):
        pytest.skip(reason)
    assert re.search(gallery.PROGRAMS[name].verified, said), said
