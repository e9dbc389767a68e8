"""Compare the results of Python, converted to C types, with those of compiled code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from numba_ptxlink._launch import arrays

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numba_ptxlink._cabi.descriptions import TypeDescription
    from numba_ptxlink._launch.arrays import Types

# Compilers fuse multiplications with additions and approximate functions, so that floats differ in their last
# bits, and cancellation enlarges the difference. Floats agree if they differ by at most 2**11 units in the
# last place, as 11 cancelled bits cause, and by at most 1/32 of their value: in half precision, 2**11 units
# are more than the value.
_MAX_ULPS = 2048
_MAX_RELATIVE_DIFFERENCE = 2**-5
# For bfloat16, which NumPy lacks: its significand has 8 bits, and its exponent is that of a float32.
_BFLOAT16_EPSILON, _BFLOAT16_TINY = 2**-7, 2**-126


class Rules(NamedTuple):
    """
    The rules by which a result of Python equals that of compiled code.

    Args:
        epsilon: The largest unit in the last place of 1.0 among the types of float that a function computes
            with; 0 without floats.
        tiny: The absolute difference that floats may have: the largest among the smallest normal numbers of
            these types; 0 without floats.
        converts: Whether the signature gives the type of the result. If it does, a number of Python is
            converted to that type before the comparison. If the compiler inferred the type, an integer of
            Python wraps around at 64 bits, and a float with a fraction equals no integer.
    """

    epsilon: float = 0.0
    tiny: float = 0.0
    converts: bool = True

    def with_float(self, epsilon: float, tiny: float) -> Rules:
        """Return the rules for a function that also computes with a float of *epsilon* and *tiny*."""
        return self._replace(epsilon=max(self.epsilon, epsilon), tiny=max(self.tiny, tiny))

    @property
    def relative_tolerance(self) -> float:
        """The difference that floats may have, relative to their absolute value."""
        return min(_MAX_ULPS * self.epsilon, _MAX_RELATIVE_DIFFERENCE)


def rules_of(types: Types, names: Iterable[str], *, converts: bool) -> Rules:
    """Return the rules for a function with parameters and a result of the C types *names*."""
    rules = Rules(converts=converts)
    pending_names = [*names]
    visited_names = set()
    while pending_names:
        name = pending_names.pop()
        if name in visited_names:
            continue
        visited_names.add(name)
        entry = types[name]
        if entry.kind == "bfloat16":
            rules = rules.with_float(_BFLOAT16_EPSILON, _BFLOAT16_TINY)
        elif entry.kind in {"float", "float16"}:
            rules = _with_dtype(rules, np.dtype(f"f{entry.size}"))
        # Next, the types that this type consists of or points to; their names are "" if there are none.
        pending_names += filter(None, (entry.element, entry.target))
        pending_names += (field.type for field in arrays.describe_members(types, name))
    return rules


def _with_dtype(rules: Rules, dtype: Any) -> Rules:
    """Return the rules for a function that also computes with the float or complex type *dtype*."""
    limits = np.finfo(dtype)
    return rules.with_float(float(limits.eps), float(limits.tiny))


def agrees(types: Types, name: str, expected: Any, actual: Any, rules: Rules) -> bool:
    """
    Return whether a result of Python, converted to the C type *name*, equals that of compiled code.

    Zeros may differ by their sign.

    Args:
        types: The C types of a manifest.
        name: The C type of the result.
        expected: The result of Python; None for an Optional without a value.
        actual: The result of compiled code; None for an Optional without a value.
        rules: The rules for the function.
    """
    entry = types[name]
    if expected is None or actual is None:
        return expected is actual
    fields = arrays.describe_members(types, name)
    if arrays.is_optional(types, name):
        # The first member is the value, the second says whether there is one.
        return agrees(types, fields[0].type, expected, actual, rules)
    try:
        # An array of characters is bytes, and is compared as a whole.
        if fields and not isinstance(actual, bytes):
            return all(
                agrees(types, field.type, expected_member, actual_member, rules)
                for field, expected_member, actual_member in zip(fields, expected, actual, strict=True)
            )
        if entry.kind in {"bool", "int", "uint"}:
            return _is_same_integer(entry, expected, actual, rules)
        expected = float(expected) if isinstance(expected, int) else expected
    except (OverflowError, TypeError, ValueError):
        return False
    return _are_close(expected, actual, rules)


def _is_same_integer(entry: TypeDescription, expected: Any, actual: int, rules: Rules) -> bool:
    """Return whether integers are equal after *expected*, that of Python, has wrapped around."""
    whole_number = bool(expected) if entry.kind == "bool" else int(expected)
    if rules.converts:
        return (whole_number - actual) % (1 << 8 * entry.size) == 0
    # The first condition is false for a float with a fraction, see `Rules.converts`.
    return whole_number == expected and (whole_number - actual) % (1 << 64) == 0


def _are_close(expected: Any, actual: Any, rules: Rules) -> bool:
    """Return whether values, or all elements of arrays, are equal or floats that are close."""
    expected_array, actual_array = np.asarray(expected), np.asarray(actual)
    if actual_array.dtype.names:
        return all(
            _are_close(expected_array[name], actual_array[name], rules) for name in actual_array.dtype.names
        )
    float_dtypes = [array.dtype for array in (expected_array, actual_array) if array.dtype.kind in "fc"]
    if expected_array.shape != actual_array.shape or not float_dtypes:
        return np.array_equal(expected_array, actual_array)
    for dtype in float_dtypes:
        rules = _with_dtype(rules, dtype)
    with np.errstate(all="ignore"):
        # Round Python's numbers as compiled code does, such as a float64 to a float32.
        if np.can_cast(expected_array.dtype, actual_array.dtype, "same_kind"):
            expected_array = expected_array.astype(actual_array.dtype)
        # Each part of a complex number may differ by a small share of the absolute value of the number. If a
        # part is infinite, so is that share, and any finite value of the other part would be close: use 0
        # instead. Even then, `isclose` accepts equal infinities.
        magnitude = np.abs(actual_array)
        tolerance = rules.tiny + rules.relative_tolerance * np.where(magnitude < np.inf, magnitude, 0)
        are_parts_close = [
            np.isclose(
                getattr(expected_array, part),
                getattr(actual_array, part),
                rtol=0,
                atol=tolerance,
                equal_nan=True,
            )
            for part in ("real", "imag")
        ]
    return bool(np.all(are_parts_close))
