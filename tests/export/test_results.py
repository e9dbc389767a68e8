"""What a function returns has the type that it declares, as far as the compiler does not convert it."""

from __future__ import annotations

from typing import NamedTuple

import front_ends
import pytest

import numba_ptxlink as pl


class Pair(NamedTuple):
    """Two floats."""

    x: float32  # noqa: F821 - a type of the front end that compiles it
    y: float32  # noqa: F821


class Other(NamedTuple):
    """Two floats of another name."""

    x: float32  # noqa: F821
    y: float32  # noqa: F821


@pytest.mark.parametrize("front_end", front_ends.NAMES)
@pytest.mark.parametrize("function", [lambda p: Other(p.x, p.y), lambda p: (p.x,), lambda p: Pair(p.x, 1j)])
def test_what_cxx_does_not_convert_is_refused(front_end, function):
    """Another named tuple, another number of members, and a complex number for a real one."""
    front_ends.get(front_end)
    with pytest.raises(pl.ExportError, match="No conversion from"):
        pl.export(pl.udf("Pair(Pair)", name="f", front_end=front_end)(function), emit=["ptx"])
