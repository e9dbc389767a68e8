"""Programs of two units that use CUB, libcu++ and cooperative groups, linked in every way and executed."""

from __future__ import annotations

import pytest
import two_units
from comparison import Launch, difference

import numba_ptxlink as pl

# Each takes NVRTC seconds, and those with CUB most.
FEW = ("cub block scan", "cub warp reduce", "libcu++ atomic", "cooperative groups", "function pointers")
NAMES = [pytest.param(name, marks=[] if name in FEW else pytest.mark.long) for name in two_units.PROGRAMS]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_programs_of_two_units_are_linked(name):
    """The link is one PTX that computes on the CPU what the units compute, with calls inlined."""
    units = [two_units.compiled(source, "sm_90") for source in two_units.PROGRAMS[name].sources]
    linked = two_units.linked(units, "sm_90")
    assert ["nvjitlink", "nvptxcompiler", "nvptxcompiler"] == [result.backend for result in linked.values()]
    called = {way: 0 if name.startswith("cub block") else 1 for way in ("auto", "all")}
    assert linked["none"].inlined == 0
    assert {} == {way: count for way, count in called.items() if linked[way].inlined < count}
    launch = Launch(two_units.THREADS, 8 * two_units.THREADS)
    for inline in ("auto", "all"):
        assert "" == difference(launch, units, linked[inline].ptx)
    sources = two_units.PROGRAMS[name].sources
    optimised = pl.link(*sources, arch="sm_90", lto=True, nvrtc_flags=("-w",))
    expected, *results = (two_units.on_cpu(cubin) for cubin in (optimised, linked["auto"], linked["all"]))
    assert [expected] * 2 == results
