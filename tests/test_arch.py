"""Architectures and PTX versions as values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numba_ptxlink._arch import Arch, PtxVersion
from numba_ptxlink.errors import ConfigError

ARCHS = st.builds(Arch, st.integers(1, 99), st.integers(0, 9), st.sampled_from(["", "a", "f"]))


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("sm_90", Arch(9, 0)),
        ("sm_90a", Arch(9, 0, "a")),
        ("compute_100f", Arch(10, 0, "f")),
        ("90", Arch(9, 0)),
        ("9.0", Arch(9, 0)),
        ("12.1a", Arch(12, 1, "a")),
        ((7, 5), Arch(7, 5)),
        ((9, 0, "a"), Arch(9, 0, "a")),
        (Arch(8, 6), Arch(8, 6)),
    ],
)
def test_reads_every_spelling(spelling: object, expected: Arch) -> None:
    """Arch.of reads names, numbers, tuples and Arch values."""
    assert expected == Arch.of(spelling)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "sm_",
        "sm_9",
        "sm_90b",
        "SM_90",
        "sm_90 ",
        "sm-90",
        "٩٠",
        90,
        9.0,
        None,
        (9,),
        (9, 0, "x"),
        (9, 10),
        (0, 0),
        (True, 0),
        (9, 0, "a", 1),
        [9, 0],
        ("9", "0"),
        b"sm_90",
    ],
)
def test_refuses_anything_else(spelling: object) -> None:
    """Arch.of names the value it cannot read, and shows how to write one."""
    with pytest.raises(ConfigError) as caught:
        Arch.of(spelling)  # type: ignore[arg-type]
    assert str(caught.value).startswith(repr(spelling))
    assert str(caught.value).endswith('write it like "sm_90", "sm_90a", (9, 0) or (9, 0, "a").')


@given(ARCHS)
def test_names_read_back(arch: Arch) -> None:
    """Each name that an Arch gives itself reads back as the same Arch."""
    assert [arch] * 4 == [
        Arch.of(arch.sm),
        Arch.of(arch.compute),
        Arch.of(str(arch)),
        Arch.of((*arch.cc, arch.variant)),
    ]


@given(ARCHS, ARCHS)
def test_order_is_that_of_the_capability(one: Arch, other: Arch) -> None:
    """Archs order by compute capability first, so 10.0 comes after 9.0."""
    if one.number < other.number:
        assert one < other


def test_ptx_version_prints_and_orders() -> None:
    """A PTX version prints as major.minor and orders by number."""
    assert "8.5" == str(PtxVersion(8, 5))
    assert [PtxVersion(8, 5), PtxVersion(9, 0), PtxVersion(10, 0)] == sorted(
        [PtxVersion(10, 0), PtxVersion(8, 5), PtxVersion(9, 0)]
    )
