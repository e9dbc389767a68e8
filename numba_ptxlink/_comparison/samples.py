"""Draw arguments for the C types of parameters: corner values of each type, and random values."""

from __future__ import annotations

import functools
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from numba_ptxlink._launch import results
from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._launch.arrays import Types

# Calls of each function.
_CALL_COUNT = 500
# Elements along each dimension of an array.
_ARRAY_LENGTH = 6
# The probability of a corner value.
_CORNER_SHARE = 1 / 3
# The corner values of floats, booleans and byte strings, by `dtype.kind`. Those of integers depend on the
# size, and are in `_draw`.
_CORNERS: dict[str, tuple[Any, ...]] = {
    "f": (0.0, -0.0, 1.0, -1.5, 2.5, 1e-3, -1e4, math.inf, -math.inf, math.nan),
    "b": (False, True),
    "S": (b"", b"ab"),
}


def draw_arguments(types: Types, type_names: Sequence[str], seed: Sequence[int]) -> list[tuple[Any, ...]]:
    """
    Return the arguments of several hundred calls; of one call if there are no parameters.

    Args:
        types: The C types of a manifest, by name.
        type_names: The name in *types* of each parameter's type.
        seed: The seed of the generator of random values: integers that are not negative.

    Raises:
        ExportError: A type has no values that can be drawn.
    """
    rng = np.random.default_rng(seed)
    # For each parameter, its values in all calls.
    columns: list[list[Any]] = []
    for type_name in type_names:
        entry = types[type_name]
        if entry.kind in {"view", "pointer"}:
            # A view has the type of its elements, a pointer that of its target.
            element = results.dtype(types, entry.element or entry.target)
            if not element.itemsize:
                raise ExportError("a void* has no type of which to draw values")
            dimensions = entry.ndim if entry.kind == "view" else 1
            array_type = np.dtype((element, (_ARRAY_LENGTH,) * dimensions))
            order: Any = "F" if entry.layout == "f" else "C"
            # NumPy returns an array without dimensions as a number: convert it back to an array.
            columns.append([np.array(array, order=order) for array in _draw(rng, array_type, _CALL_COUNT)])
        else:
            values = _draw(rng, results.dtype(types, type_name), _CALL_COUNT)
            columns.append([results.unpack(types, type_name, value.tobytes()) for value in values])
    return list(zip(*columns, strict=True)) or [()]


def _draw(rng: Any, dtype: Any, count: int) -> Any:
    """Return an array of *count* elements of *dtype*."""
    kind, size = dtype.kind, dtype.itemsize
    draw = functools.partial(_draw, rng)
    if dtype.names:
        records = np.zeros(count, dtype)
        for name in dtype.names:
            records[name] = draw(dtype[name], count)
        return records
    if dtype.subdtype:
        element, shape = dtype.subdtype
        return draw(element, count * math.prod(shape)).reshape(count, *shape)
    if kind == "c":  # Two floats of half the size.
        return draw(np.dtype(f"f{size // 2}"), 2 * count).view(dtype)
    if kind == "V" and size == 2:
        # A bfloat16, which NumPy lacks: the upper half of a float32.
        return draw(np.dtype("<f4"), count).view("<u2")[1::2].copy().view(dtype)
    if kind in "iu":
        limits = np.iinfo(dtype)
        corners: tuple[Any, ...] = (0, 1, limits.min, limits.max)
        values = rng.integers(limits.min, limits.max, count, dtype, endpoint=True)
        # The number of bits is uniform, so that small integers are as frequent as large ones.
        values >>= rng.integers(8 * size, size=count).astype(dtype)
    elif kind in _CORNERS:
        # All booleans and byte strings are corner values. Floats are drawn again below.
        corners = _CORNERS[kind]
        values = rng.choice(np.array(corners, dtype), count)
    else:
        # The only other type is an array in a tuple: in C a struct `array_view`, in NumPy opaque bytes.
        raise ExportError("no values are drawn for an array in a tuple")
    if kind == "f":
        # Floats that are not corner values have absolute values from about 0.001 to 1,000.
        values = (rng.normal(size=count) * 10.0 ** rng.integers(-3, 4, count)).astype(dtype)
    return np.where(rng.random(count) < _CORNER_SHARE, rng.choice(np.array(corners, dtype), count), values)
