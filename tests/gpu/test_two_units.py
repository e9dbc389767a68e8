"""Programs of two units that use CUB, libcu++ and cooperative groups, on a device, linked in every way."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "conformance"))
import two_units

# The tests need the cubins.
pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("name", two_units.PROGRAMS)
def test_programs_of_two_units_compute_what_nvjitlink_links(name):
    """Whatever is inlined, shared variables of functions included, the kernel writes the same."""
    arch = two_units.find_device()
    units = [two_units.compiled(source, arch) for source in two_units.PROGRAMS[name].sources]
    expected, *results = (
        two_units.run(linked.cubin).tolist() for linked in two_units.linked(units, arch).values()
    )
    assert [expected] * 2 == results
