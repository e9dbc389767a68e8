"""Programs of two units that use CUB, libcu++ and cooperative groups are linked in every way."""

from __future__ import annotations

import pytest
import samples
import two_units

# Each takes NVRTC seconds.
FEW = ("cub block reduce", "function pointers")
NAMES = [pytest.param(name, marks=[] if name in FEW else pytest.mark.long) for name in two_units.PROGRAMS]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_programs_of_two_units_are_linked(name):
    """As one PTX, with at least one call inlined."""
    units = [samples.compiled(source, "sm_90") for source in two_units.PROGRAMS[name].sources]
    linked = samples.linked(units, "sm_90")
    assert ["nvjitlink", "nvptxcompiler", "nvptxcompiler"] == [result.backend for result in linked.values()]
    assert linked["none"].inlined == 0 < linked["auto"].inlined <= linked["all"].inlined
