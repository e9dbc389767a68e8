"""What machine code finds in memory during a launch: its context, its lanes, and the fault that it notes."""

from __future__ import annotations

import ctypes
from enum import IntEnum


class Fault(IntEnum):
    """What can go wrong while PTX runs."""

    NONE = 0
    ACCESS = 1
    READ_ONLY = 2
    MISALIGNED = 3
    TRAP = 4
    ASSERT = 5
    UNKNOWN = 6
    LOOP = 7
    WAITING = 8
    STACK = 9
    INTERRUPTED = 10
    UNDEFINED = 11


class State(IntEnum):
    """What a lane waits for."""

    ENDED = 0
    BARRIER = 1
    WARP = 2
    CONVERGED = 3
    YIELDED = 4
    GRID = 5
    LEAVING = 6


class Told(IntEnum):
    """What came of executing a block, or of letting lanes go on."""

    ENDED = 0
    FAULT = 1
    AGAIN = 2
    GRID = 3
    SPINS = 4


class Noted(ctypes.Structure):
    """The first fault of a worker; the context tells the block and the lane."""

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("kind", "site", "address", "size"))


class Context(ctypes.Structure):
    """
    What the lanes of a block share; each worker has one. `current` is the lane that is executed.

    `regions` are pairs of the first address and the end, those that may be written first. `accesses` has what
    is known of each access of the code, and `found` the region that it was in last. `heap` has the address of
    the next allocation, and of the end.
    """

    _fields_ = (
        *((axes, ctypes.c_uint32 * 3) for axes in ("ntid", "ctaid", "nctaid")),
        *((name, ctypes.c_uint32) for name in ("dynamic", "count", "current", "cooperative")),
        *((size, ctypes.c_uint64) for size in ("shared_size", "local_size", "local_total", "frame_size")),
        *((name, ctypes.c_uint64) for name in ("shared", "workspace", "readable", "writable", "steps")),
        *((memory, ctypes.c_void_p) for memory in ("regions", "heap", "params", "local", "frames", "lanes")),
        *((memory, ctypes.c_void_p) for memory in ("accesses", "found", "noted")),
        *((function, ctypes.c_void_p) for function in ("print", "restore", "check", "save")),
        ("thread", ctypes.c_void_p),
    )


class Lane(ctypes.Structure):
    """
    A lane that waits.

    `key` is the mask of a warp's lanes, or the number of a barrier, and `count` how many lanes that is for;
    `value` is what the lane gives the others, of which `seen` is a copy that lasts until all have read it.
    """

    _fields_ = (
        ("handle", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("value", "seen")),
        *((name, ctypes.c_uint32) for name in ("state", "key", "count", "site", "together", "number")),
    )


SHARED_START = 1024
"""The first address in shared memory, so that a null pointer is outside of it."""
LANE = ctypes.sizeof(Lane)
STACK = 1 << 16
"""Bytes of local memory for a lane whose functions call each other without a bound that is known."""
LEAST_FRAME = 64
"""What a call takes of that at least, so that the C stack has an end, too."""


def offset(name: str, part: int = 0) -> int:
    """Return where a field of the context is; *part* is an axis."""
    return int(getattr(Context, name).offset) + 4 * part


def lane_offset(name: str) -> int:
    """Return where a field of a lane is."""
    return int(getattr(Lane, name).offset)
