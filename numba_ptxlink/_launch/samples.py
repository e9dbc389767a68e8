"""Draw arguments for calls of a function, by the C types of a manifest: their corners, and random values."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

from . import results
from .arrays import Launch, Types

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_PRODUCT, _RANDOM = 400, 100
_LENGTH = 6  # of arrays
_INTEGERS = (0, 1, 2, -1, 7, -7, 100)
# By NumPy's kind of a type.
_CORNERS: dict[str, tuple[Any, ...]] = {
    "f": (0.0, -0.0, 1.0, -1.5, 2.5, 1e-3, -1e4, math.inf, -math.inf, math.nan),
    "c": (0j, 1 - 2j, -0.5 + 1e3j, complex(math.inf, 1), complex(math.nan, 0)),
    "b": (False, True),
    "S": (b"", b"ab"),
}


class Samples:
    """
    Values of C types.

    Args:
        types: The types of a manifest.
        seed: What random values are drawn by.
        small: Whether integers are small, such that Python ends with a power of one.
    """

    def __init__(self, types: Types, seed: Sequence[int], *, small: bool) -> None:
        import numpy as np

        self.types, self.small = types, small
        self.rng = np.random.default_rng(seed)

    def calls(self, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
        """
        Yield arguments of the types *names*: all corners together, or some of them, and random values.

        Raises:
            ExportError: There are no values of a type in NumPy.
        """
        corners = [self.values(name) for name in names]
        if math.prod(map(len, corners)) <= _PRODUCT:
            yield from itertools.product(*corners)
        else:
            chosen = [self.rng.integers(len(each), size=_PRODUCT) for each in corners]
            columns = zip(corners, chosen, strict=True)
            yield from zip(*([each[place] for place in places] for each, places in columns), strict=True)
        yield from zip(*(self.values(name, _RANDOM) for name in names), strict=True)

    def values(self, name: str, count: int = 0) -> list[Any]:
        """Return values of a C type: so many random ones, or its corners."""
        entry = self.types[name]
        if entry["kind"] in {"view", "pointer"}:
            return [self.array(entry) for _ in range(count or _LENGTH)]
        if _has_memory(self.types, name):
            raise ExportError(f"{name} has arrays or addresses in it")
        dtype = results.dtype(self.types, name)
        is_number = not (dtype.names or dtype.subdtype)
        content = self.drawn(dtype, count if count or is_number else _LENGTH).tobytes()
        starts = range(0, len(content), dtype.itemsize)
        return [results.unpack(self.types, name, content[start:], Launch(0)) for start in starts]

    def array(self, entry: Any) -> Any:
        """Return an array for a view or a pointer."""
        import numpy as np

        dtype = results.dtype(self.types, entry.get("element", entry.get("target")))
        shape = (_LENGTH,) * entry.get("ndim", 1)
        made = self.drawn(dtype, math.prod(shape)).reshape(shape)
        made = np.asfortranarray(made) if entry.get("layout") == "f" else made
        # Its elements have their members as attributes, as in compiled code.
        return made.view(np.recarray) if dtype.names else made

    def drawn(self, dtype: Any, count: int = 0) -> Any:
        """Return so many random elements of a type of NumPy, every fourth or so a corner; or its corners."""
        import numpy as np

        if dtype.names:
            made = np.zeros(count, dtype)
            for name in dtype.names:
                made[name] = self.drawn(dtype[name], count)
            return made
        if dtype.subdtype:
            element, shape = dtype.subdtype
            return self.drawn(element, count * math.prod(shape)).reshape(count, *shape)
        if dtype.kind == "V":
            if dtype.itemsize != np.dtype("V2").itemsize:
                raise ExportError("what it points to has no type in NumPy")
            # The upper half of a float is a bfloat16.
            return (self.drawn(np.dtype("f4"), count).view("u4") >> 16).astype("u2").view("V2")
        low, high = self.limits(dtype)
        fitting = [each for each in (*_INTEGERS, low, high) if low <= each <= high]
        corners = np.array(_CORNERS.get(dtype.kind, fitting), dtype)
        chosen = self.rng.choice(corners, count) if count else corners
        if not count or dtype.kind not in "iufc":
            return chosen
        if dtype.kind in "iu":
            most = self.rng.integers(low, high, count, dtype, endpoint=True)
            few = self.rng.integers(max(low, -9), min(high, 99), count, dtype, endpoint=True)
            drawn = np.where(self.rng.random(count) < 0.5, most, few)
        else:
            parts = self.rng.normal(size=(2, count)) * 10.0 ** self.rng.integers(-3, 4, (2, count))
            drawn = (parts[0] + 1j * parts[1] if dtype.kind == "c" else parts[0]).astype(dtype)
        return np.where(self.rng.random(count) < 0.25, chosen, drawn)

    def limits(self, dtype: Any) -> tuple[int, int]:
        """Return the least and the greatest integer of a type."""
        import numpy as np

        if dtype.kind not in "iu":
            return 0, 0
        limits = np.iinfo(dtype)
        low, high = int(limits.min), int(limits.max)
        return (max(low, -128), min(high, 128)) if self.small else (low, high)


def _has_memory(types: Types, name: str) -> bool:
    """Return whether a value of the type *name* leads to other memory."""
    entry = types[name]
    inner = [member["type"] for member in entry.get("members", ())]
    return entry["kind"] in {"view", "pointer"} or any(_has_memory(types, each) for each in inner)
