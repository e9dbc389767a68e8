"""Draw arguments for calls of a function, by the C types of a manifest."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

from . import results

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .arrays import Types

_CALLS = 500
_LENGTH = 6  # of arrays
# Every third value or so, by NumPy's kind of a type.
_CORNERS: dict[str, tuple[Any, ...]] = {
    "f": (0.0, -0.0, 1.0, -1.5, 2.5, 1e-3, -1e4, math.inf, -math.inf, math.nan),
    "b": (False, True),
    "S": (b"", b"ab"),
}


class Samples:
    """
    Values of C types: corners, and random ones.

    Args:
        types: The types of a manifest.
        seed: What they are drawn by.
        small: Whether integers have eight bits, such that Python ends with a power of one.
    """

    def __init__(self, types: Types, seed: Sequence[int], *, small: bool) -> None:
        import numpy as np

        self.types, self.small = types, small
        self.rng = np.random.default_rng(seed)

    def calls(self, names: Sequence[str]) -> list[tuple[Any, ...]]:
        """
        Return arguments of the types *names* for several hundred calls.

        Raises:
            ExportError: There are no values of a type in NumPy.
        """
        return list(zip(*map(self._values, names), strict=True)) if names else [()]

    def _values(self, name: str) -> list[Any]:
        import numpy as np

        entry = self.types[name]
        if entry["kind"] not in {"view", "pointer"}:
            drawn = self._drawn(results.dtype(self.types, name), _CALLS)
            return [results.unpack(self.types, name, each.tobytes()) for each in drawn]
        element = results.dtype(self.types, entry.get("element", entry.get("target")))
        drawn = self._drawn(np.dtype((element, (_LENGTH,) * entry.get("ndim", 1))), _CALLS)
        # Elements have their members as attributes, as in compiled code.
        drawn = drawn.view(np.recarray) if element.names else drawn
        return [each.copy("F" if entry.get("layout") == "f" else "C") for each in drawn]

    def _drawn(self, dtype: Any, count: int) -> Any:
        """Return so many elements of a type of NumPy."""
        import numpy as np

        kind, size = dtype.kind, dtype.itemsize
        if dtype.names:
            made = np.zeros(count, dtype)
            for name in dtype.names:
                made[name] = self._drawn(dtype[name], count)
            return made
        if dtype.subdtype:
            element, shape = dtype.subdtype
            return self._drawn(element, count * math.prod(shape)).reshape(count, *shape)
        if kind == "c":
            return self._drawn(np.dtype(f"f{size // 2}"), 2 * count).view(dtype)
        if kind == "V" and size == 2:
            # The upper half of a float is a bfloat16.
            return self._drawn(np.dtype("<f4"), count).view("<u2")[1::2].copy().view(dtype)
        if kind in "iu" and self.small and size > 1:
            return self._drawn(np.dtype(f"{kind}1"), count).astype(dtype)
        if kind in "iu":
            low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
            drawn = self.rng.integers(low, high, count, dtype, endpoint=True)
            # As many small ones as large ones.
            drawn >>= self.rng.integers(8 * size, size=count).astype(dtype)
            corners = np.array([0, 1, low, high], dtype)
        elif kind in _CORNERS:
            corners = np.array(_CORNERS[kind], dtype)
            drawn = self.rng.choice(corners, count)
        else:
            raise ExportError("NumPy has no type for what it is, or points to")
        if kind == "f":
            drawn = (self.rng.normal(size=count) * 10.0 ** self.rng.integers(-3, 4, count)).astype(dtype)
        return np.where(self.rng.random(count) < 1 / 3, self.rng.choice(corners, count), drawn)
