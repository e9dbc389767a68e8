"""Programs of two units on a device, linked as one PTX, beside the same program compiled as one unit."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))
import inlined


@pytest.mark.parametrize("seed", range(3000, 3040))
def test_programs_of_two_units_compute_the_same(seed):
    """What a call passes and returns arrives, inlined or not."""
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    _, results, _ = inlined.build(seed, "sm_{}{}".format(*device.compute_capability))
    expected = inlined.run(results["single"])
    for way in ("auto", "all"):
        assert np.array_equal(expected, inlined.run(results[way]))
