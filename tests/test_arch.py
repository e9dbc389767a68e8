"""Architectures and PTX versions as values."""

from __future__ import annotations

import pytest

from numba_ptxlink import Arch, ConfigError, toolchain


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("sm_90", Arch(9, 0)),
        ("compute_100f", Arch(10, 0, "f")),
        ("90a", Arch(9, 0, "a")),
        ("12.1a", Arch(12, 1, "a")),
        ((7, 5), Arch(7, 5)),
        ((9, 0, "a"), Arch(9, 0, "a")),
        (Arch(8, 6), Arch(8, 6)),
    ],
)
def test_reads_every_spelling(spelling, expected):
    """Arch.of accepts names, numbers, tuples and Arch values, and all spellings of an Arch."""
    assert expected == Arch.of(spelling)
    spellings = (expected.sm, expected.compute, str(expected), (*expected.cc, expected.variant))
    assert {expected} == set(map(Arch.of, spellings))


@pytest.mark.parametrize(
    "spelling",
    [
        "",
        "sm_9",
        "sm_90b",
        "SM_90",
        "sm_90 ",
        "٩٠",
        90,
        None,
        (9,),
        (9, 10),
        (0, 0),
        (True, 0),
        ("9", "0"),
        b"sm_90",
    ],
)
def test_refuses_anything_else(spelling):
    """Arch.of names the value it cannot read, and shows how to write one."""
    with pytest.raises(ConfigError) as caught:
        Arch.of(spelling)
    assert str(caught.value).startswith(repr(spelling))
    assert str(caught.value).endswith('write it like "sm_90", "sm_90a", (9, 0) or (9, 0, "a").')


def test_order_is_that_of_the_numbers():
    """10.0 comes after 9.0; a PTX version prints as its numbers."""
    assert Arch(9, 0, "a") < Arch(10, 0) < Arch(10, 3)
    versions = toolchain().ptx_versions
    assert sorted(versions) == list(versions)
    assert {"8.5", "9.0"} < set(map(str, versions))
