"""
State spaces as bytes: the value of each, whether anything owns it, and which of its bits are defined.

A generic address says in its upper bits which space it is of. Those of global memory are its addresses.
"""

from __future__ import annotations

import numpy as np

from .parse import PtxError

RAW = {1: np.bool_, 8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
"""The dtypes of registers, by bits."""
GLOBAL, WINDOW, CODE = 0x7F00_0000_0000, 1 << 48, 3 << 48
WINDOWS = {"global": 0, "const": 0, "shared": WINDOW, "local": 2 * WINDOW, "param": 2 * WINDOW}
"""What `cvta` adds to an address of a space."""
_GAP = 256
_LIMIT = 1 << 28


class Space:
    """
    A state space.

    Args:
        name: Its name.
        fill: What bytes are that nothing was stored to, 0 or 255.
        base: Its first address.
        lanes: How many lanes have such a space each; 0 for a space that all share.
        frozen: Whether bytes that nothing was stored to count as defined in words of 32 bits of which
            another one was: they have some value.
    """

    def __init__(self, name: str, fill: int, base: int = 0, lanes: int = 0, *, frozen: bool = False) -> None:
        self.name, self._fill, self._base, self._lanes = name, fill, base, lanes
        self._frozen = frozen
        self._size, self._top = 0, _GAP
        self._tables = [np.zeros((lanes or 1, 0), np.uint8) for _ in range(4)]
        self.reserve(512 if lanes else 4096)

    def reserve(self, size: int) -> None:
        """Make room for *size* bytes."""
        if size > self._size:
            if size > _LIMIT // (self._lanes or 1):
                raise PtxError(f"{size} bytes of {self.name} are more than the machine has")
            grown = max(2 * self._size, -(-size // 256) * 256)
            blank = np.zeros((self._lanes or 1, grown - self._size), np.uint8)
            self._tables = [np.concatenate((table, blank), axis=1) for table in self._tables]
            self._size = grown
            self._values, self._owned, self._defined, self._stored = (
                table.reshape(-1) for table in self._tables
            )

    def allocate(self, size: int) -> int:
        """Return the address of *size* bytes that nothing was stored to."""
        place = -(-self._top // _GAP) * _GAP
        self._top = place + size + _GAP
        self.own(slice(None), place, size)
        return self._base + place

    def own(self, lanes: object, place: int, size: int) -> None:
        """Give *lanes* bytes that nothing was stored to."""
        self.reserve(place + size + _GAP)
        for table, value in zip(self._tables, (self._fill, 255, 255 * self._frozen, 0), strict=True):
            table[lanes, place : place + size] = value

    def disown(self, lanes: np.ndarray, place: int, size: int) -> None:
        """Take bytes back."""
        self._tables[1][lanes, place : place + size] = 0

    def copy(self, lanes: np.ndarray, source: int, target: int, size: int) -> None:
        """Copy bytes, defined or not, in the spaces of *lanes*."""
        for table in (self._tables[0], *self._tables[2:]):
            table[lanes, target : target + size] = table[lanes, source : source + size]

    def poke(self, address: int, content: bytes | np.ndarray, lane: int = 0) -> None:
        """Store bytes from outside."""
        content = np.frombuffer(content, np.uint8)
        place = address - self._base
        self._tables[0][lane, place : place + content.size] = content
        for table in self._tables[2:]:
            table[lane, place : place + content.size] = 255

    def peek(self, address: int, size: int, lane: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return bytes, and which of their bits are defined."""
        place = address - self._base
        values, _, defined, _ = (table[lane, place : place + size].copy() for table in self._tables)
        return values, defined

    def load(self, addresses: np.ndarray, lanes: np.ndarray, raw: type) -> tuple[np.ndarray, np.ndarray]:
        """Return the words at *addresses*, and which of their bits are undefined."""
        places = self._words(addresses, lanes, raw)
        values, undefined = self._values.view(raw)[places], ~self._defined.view(raw)[places]
        return values, undefined | self._empty(raw)[places] if self._frozen else undefined

    def store(
        self, addresses: np.ndarray, lanes: np.ndarray, values: np.ndarray, undefined: np.ndarray | None
    ) -> None:
        """Store words; of several for one address that of the last lane."""
        raw = values.dtype.type
        places = self._words(addresses, lanes, raw)
        self._values.view(raw)[places] = values
        self._defined.view(raw)[places] = ~raw(0) if undefined is None else ~undefined
        self._stored.view(raw)[places] = ~raw(0)

    def _words(self, addresses: np.ndarray, lanes: np.ndarray, raw: type) -> np.ndarray:
        """Return the indices of words, all of which have to be aligned and somebody's."""
        size = raw().itemsize
        offsets = addresses - np.uint64(self._base)
        outside = offsets > self._size - size
        places = np.where(outside, 0, offsets).astype(np.int64)
        if self._lanes:
            places += lanes * self._size
        wrong = places % size != 0
        if wrong.any():
            raise self._error(f"a misaligned access to {size} bytes", addresses, lanes, wrong)
        places //= size
        outside |= self._owned.view(raw)[places] != ~raw(0)
        if outside.any():
            raise self._error(f"an access to {size} bytes that are no variable's", addresses, lanes, outside)
        return places

    def _error(self, what: str, addresses: np.ndarray, lanes: np.ndarray, wrong: np.ndarray) -> PtxError:
        first = int(np.argmax(wrong))
        return PtxError(f"{what} at {self.name} {int(addresses[first]):#x} by lane {lanes[first]}")

    def _empty(self, raw: type) -> np.ndarray:
        """Return the bits of frozen words of 32 bits that nothing was stored to."""
        empty = self._stored.view(np.uint32) == 0
        return np.where(empty, ~np.uint32(0), np.uint32(0)).view(raw)

    def load_column(self, index: int, raw: type) -> tuple[np.ndarray, np.ndarray]:
        """Return a word of each lane, by its index, and which of its bits are undefined."""
        values, _, defined, _ = (table.view(raw)[:, index] for table in self._tables)
        if not self._frozen:
            return values, ~defined
        return values, ~defined | self._empty(raw).reshape(self._lanes, -1)[:, index]

    def store_column(
        self, index: int, values: np.ndarray, undefined: np.ndarray | None, mask: np.ndarray
    ) -> None:
        """Store a word in some lanes, by its index."""
        raw = values.dtype.type
        into, _, defined, stored = (table.view(raw)[:, index] for table in self._tables)
        np.copyto(into, values, where=mask)
        np.copyto(defined, ~raw(0) if undefined is None else ~undefined, where=mask)
        np.copyto(stored, ~raw(0), where=mask)
