"""The example that links at run time, on a device."""

from __future__ import annotations

import jit_example

import numba_ptxlink as pl


def test_both_links_compute_what_python_computes(tmp_path):
    """The kernel, linked as LTO-IR and as PTX by a C++ program, has no wrong element."""
    from cuda.core import Device

    done = jit_example.run(tmp_path, pl.Arch.of(tuple(Device(0).compute_capability)).sm)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("0 elements are wrong") == 2
    assert done.stdout.count("Not run") == 0
