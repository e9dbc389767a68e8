"""
Describe the memory that a launch may access, by addresses for generated code and names for errors.

A launch on host arrays has a few regions, which are listed. The CPU device, a CUDA driver without a GPU, may
have thousands: the driver keeps their table, and finds names only after a fault.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

# The first address and the end address of a region.
_PAIR = struct.Struct("<2Q")
PAIR_SIZE = _PAIR.size
"""The bytes that the two addresses of a region take in a RegionTable."""


class Region(NamedTuple):
    """
    Memory of this process that a launch or a call may access.

    Args:
        address: The first address.
        size: The size in bytes.
        writable: Whether the memory may be written.
        name: The name in errors.
        is_allocated: False for an argument of a kernel that points to memory which the device does not have,
            such as freed memory; its size is then 0.
    """

    address: int
    size: int
    writable: bool
    name: str
    is_allocated: bool = True

    @property
    def end(self) -> int:
        """The address after the last byte."""
        return self.address + self.size


class RegionTable(NamedTuple):
    """
    The regions of a launch.

    Args:
        writable: The regions that may be written: for each, its first address and its end address, of 8 bytes
            each.
        read_only: The regions that may only be read, in the same form.
        find_near: Called with an address; returns the regions before, at and after the address, or more.
    """

    writable: bytes
    read_only: bytes
    find_near: Callable[[int], Iterable[Region]]

    @classmethod
    def of(cls, regions: Sequence[Region]) -> RegionTable:
        """Return the table of *regions*; its `find_near` returns all of them for any address."""
        writable, read_only = (
            b"".join(
                _PAIR.pack(region.address, region.end) for region in regions if region.writable == is_writable
            )
            for is_writable in (True, False)
        )
        return cls(writable, read_only, lambda _: regions)
