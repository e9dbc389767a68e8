"""Values of options as text: another for another value or type, and none where text cannot tell."""

from __future__ import annotations

import enum
import itertools

import numpy as np
import pytest

from numba_ptxlink._front_end.describe import IndescribableError, describe, describe_stateless


class Colour(enum.Enum):
    """A plain enumeration."""

    RED = 1
    BLUE = 2


class Number(enum.IntEnum):
    """One whose members equal numbers."""

    ONE = 1


class Flags(enum.Flag):
    """One whose members can be combined."""

    A = 1
    B = 2


class Empty:
    """Nothing of its own."""


class Slotted:
    """A state without a dictionary."""

    __slots__ = ("value",)


DIFFERENT = (
    None, True, False, 0, 1, -1, 1.0, -0.0, 0.0, 1j, -1j, float("inf"), "", "1", "None", b"", b"1",
    [], (), {}, set(), frozenset(), [1], (1,), {1}, frozenset((1,)), [[1], 2], [[1, 2]], [1, [2]],
    {1: 2}, {1: [2]}, {2: 1}, {"1": 2}, ["a, b"], ["a", "b"], ["1:a"], ("a", ("b",)), (("a",), "b"),
    {("a", 1)}, {"a", 1},
    Colour.RED, Colour.BLUE, Number.ONE, Flags.A, Flags.A | Flags.B,
    np.int64(1), np.int32(1), np.uint32(1), np.int64(256), np.float32(1), np.float64(1), np.bool_(True),
    np.datetime64("2020-01-01"), np.datetime64("2020-01-01", "s"), np.str_("1"), np.bytes_(b"1"),
    [np.int64(1)], (np.int64(256), 2), (np.int64(128), 2),
)  # fmt: skip


def test_no_two_values_look_alike():
    """Every two values that differ in type or value, on any level, have different texts."""
    texts = [describe(value) for value in DIFFERENT]
    alike = [
        (one, other)
        for (one, text), (other, same) in itertools.combinations(zip(DIFFERENT, texts, strict=True), 2)
        if text == same
    ]
    assert [] == alike


def test_equal_values_look_alike():
    """A set's order and an object's identity do not count."""
    # Both are in one place of a small set's table, where the first to come is the first to be listed.
    assert list({0, 8}) != list({8, 0})
    assert describe({0, 8}) == describe({8, 0})
    assert describe((np.int64(7), {"a": [1.5]})) == describe((np.int64(7), {"a": [1.5]}))


CIRCLE: list[object] = []
CIRCLE.append(CIRCLE)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        Empty(),
        len,
        lambda: 0,
        Empty,
        CIRCLE,
        {"a": Empty()},
        np.zeros(3),
        type("Int", (int,), {})(1),
    ],
)
def test_what_text_does_not_tell_has_none(value):
    """Objects, functions, classes, circles and subclasses of plain types are not described."""
    with pytest.raises(IndescribableError):
        describe(value)


def test_objects_without_a_state_are_their_classes():
    """An object that holds nothing is as good as another of its class."""
    assert describe_stateless([Empty()]) == describe_stateless([Empty()])
    assert 3 == len({describe_stateless(each) for each in ([], [Empty()], [Empty(), Empty()])})


def test_objects_with_a_state_have_no_text():
    """Attributes, slots, items and classes that nobody finds by name are a state."""
    attribute, slotted, local = Empty(), Slotted(), type("Local", (), {})()
    attribute.value = slotted.value = 1  # type: ignore[attr-defined]
    for each in (attribute, slotted, local, [1], type("Items", (list,), {})([1])):
        with pytest.raises(IndescribableError):
            describe_stateless([each])
