"""
State spaces as bytes: for each its value, whether it belongs to a variable, and its defined bits.

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


def lanes_of(mask: np.ndarray) -> np.ndarray | slice:
    """Return the lanes of a mask as an index; a slice if the mask has all lanes."""
    return slice(None) if np.count_nonzero(mask) == mask.size else mask.nonzero()[0]


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
        self.name, self._base, self._private, self._frozen = name, base, bool(lanes), frozen
        # For each lane: values, valid bytes, defined bits and stored bytes; `_fresh` has their initial
        # values.
        self._tables = np.zeros((4, lanes or 1, 1024), np.uint8)
        self._fresh = np.array((fill, 255, 255 * frozen, 0), np.uint8).reshape(4, 1, 1)
        self._top = _GAP

    def allocate(self, size: int) -> int:
        """Return the address of *size* bytes that nothing was stored to."""
        offset = -(-self._top // _GAP) * _GAP
        self._top = offset + size + _GAP
        self.acquire(slice(None), offset, size)
        return self._base + offset

    def acquire(self, lanes: np.ndarray | slice, offset: int, size: int) -> None:
        """Give *lanes* bytes that nothing was stored to."""
        width = self._tables.shape[2]
        if offset + size + _GAP > width:
            before, more = self._tables, max(width, -(-(offset + size) // _GAP) * _GAP)
            self._tables = np.zeros((*before.shape[:2], width + more), np.uint8)
            self._tables[:, :, :width] = before
        self._tables[:, lanes, offset : offset + size] = self._fresh

    def release(self, lanes: np.ndarray | slice, offset: int, size: int) -> None:
        """Take bytes back."""
        self._tables[1][lanes, offset : offset + size] = 0

    def copy(self, lanes: np.ndarray | slice, source: int, target: int, size: int) -> None:
        """Copy bytes, defined or not, in the spaces of *lanes*."""
        for table in (self._tables[0], *self._tables[2:]):
            table[lanes, target : target + size] = table[lanes, source : source + size]

    def poke(self, address: int, content: bytes, lane: int = 0) -> None:
        """Store bytes from outside."""
        offset = address - self._base
        self._tables[0][lane, offset : offset + len(content)] = np.frombuffer(content, np.uint8)
        self._tables[2:, lane, offset : offset + len(content)] = 255

    def peek(self, address: int, size: int, lane: int = 0) -> tuple[np.ndarray, np.ndarray]:
        """Return bytes and their defined bits."""
        offset = address - self._base
        values, _, defined, _ = self._tables[:, lane, offset : offset + size].copy()
        return values, defined

    def load(self, addresses: np.ndarray, lanes: np.ndarray, raw: type) -> tuple[np.ndarray, np.ndarray]:
        """Return the words at *addresses*, and their undefined bits."""
        indices = self._words(addresses, lanes, raw)
        values, _, defined, stored = self._tables.reshape(4, -1)
        undefined = ~defined.view(raw)[indices]
        if self._frozen:
            empty = np.where(stored.view(np.uint32) == 0, ~np.uint32(0), np.uint32(0))
            undefined |= empty.view(raw)[indices]
        return values.view(raw)[indices], undefined

    def store(
        self, addresses: np.ndarray, lanes: np.ndarray, values: np.ndarray, undefined: np.ndarray | None
    ) -> None:
        """Store words; of several for one address that of the last lane."""
        raw = values.dtype.type
        indices = self._words(addresses, lanes, raw)
        into, _, defined, stored = self._tables.reshape(4, -1)
        into.view(raw)[indices] = values
        defined.view(raw)[indices] = ~raw(0) if undefined is None else ~undefined
        stored.view(raw)[indices] = ~raw(0)

    def _words(self, addresses: np.ndarray, lanes: np.ndarray, raw: type) -> np.ndarray:
        """Return the indices of words, which are aligned, and all of which have to be somebody's."""
        size, width = raw().itemsize, self._tables.shape[2]
        # The last word belongs to no variable.
        indices = np.minimum(addresses - np.uint64(self._base), np.uint64(width - size)).astype(np.int64)
        if self._private:
            indices += lanes * width
        indices //= size
        wrong = self._tables[1].reshape(-1).view(raw)[indices] != ~raw(0)
        if np.count_nonzero(wrong):
            first = int(np.argmax(wrong))
            where = f"{self.name} {int(addresses[first]):#x} by lane {lanes[first]}"
            raise PtxError(f"an access to {size} bytes that are no variable's at {where}")
        return indices
