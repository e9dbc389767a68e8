"""The programs of the gallery, on a device: each compares its results with a reference."""

from __future__ import annotations

import re
from typing import Any

import gallery
import pytest

# Programs whose C++ links NVIDIA's static runtime library, or loads machine code.
NEED_GPU = {"cub", "jit", "library"}


def marked(name: str) -> Any:
    """Return a program as a parameter, marked if it needs a GPU."""
    return pytest.param(name, marks=[pytest.mark.gpu] if name in NEED_GPU else [])


@pytest.mark.parametrize("name", [marked(name) for name in gallery.PROGRAMS])
def test_a_program_verifies_its_results(name, tmp_path, arch):
    """A program of the gallery runs on the device, and its results are those of the reference."""
    for package in gallery.PROGRAMS[name].gpu_packages:
        pytest.importorskip(package)
    output = gallery.run(name, tmp_path, arch.sm)
    print(output)  # noqa: T201 - shown by -rP
    assert "there is no GPU" not in output
    # A package may be built without CUDA.
    for reason in re.findall("^Not run: .*", output, re.MULTILINE):
        pytest.skip(reason)
    assert re.search(gallery.PROGRAMS[name].verified, output), output
