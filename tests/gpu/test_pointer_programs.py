"""Functions that get pointers into every kind of memory, inlined into a kernel, and called by it."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest
from cxx_pointers import PLACES, units

import numba_ptxlink as pl

sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))
import inlined


@pytest.mark.parametrize(("one", "two"), list(itertools.product(PLACES, PLACES)))
def test_pointers_into_every_memory(one, two):
    """An access goes where its address points to, also where a state space was found for it."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    options = {"arch": "sm_{}{}".format(*device.compute_capability), "lto": False, "nvrtc_flags": ["-w"]}
    called = pl.link(*units(one, two), inline="none", **options)
    expected = inlined.run(called.cubin)
    for way in ("auto", "all"):
        linked = pl.link(*units(one, two), inline=way, **options)
        assert linked.backend == "nvptxcompiler"
        assert linked.inlined
        assert np.array_equal(expected, inlined.run(linked.cubin))
