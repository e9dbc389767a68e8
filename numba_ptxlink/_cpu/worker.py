"""The memory that a launch or a call has besides the caller's, and the way from Python to machine code."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .layout import LANE, SHARED_START, Context, Noted

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

HEAP = 8 << 20
"""Bytes that `malloc` has, as on a device whose limit nobody has set."""
_ALIGNED, _LARGE = 1024, 1 << 16
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64)
# These keep Python's lock when they are called: the code gives it away, so that it can ask for interrupts.
_GRID = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
)
_ELEMENTS = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64
)


class Region(NamedTuple):
    """
    Memory of this process that a launch or a call may access.

    Args:
        address: Where it begins.
        size: Its bytes.
        writable: Whether it may be written.
        name: What it is called in errors.
    """

    address: int
    size: int
    writable: bool
    name: str

    @property
    def end(self) -> int:
        """The address after it."""
        return self.address + self.size


class Buffer:
    """
    Zeroed memory that begins at a multiple of 1024.

    Args:
        size: Its bytes.
    """

    def __init__(self, size: int) -> None:
        room = size + _ALIGNED
        # Pages that nobody touches cost nothing.
        self._memory = mmap.mmap(-1, room) if room >= _LARGE else (ctypes.c_char * room)()
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.address = -(-start // _ALIGNED) * _ALIGNED
        self.size = size

    def region(self, name: str, *, writable: bool = True) -> Region:
        """Return it as a region."""
        return Region(self.address, self.size, writable, name)


class Heap:
    """What `malloc` takes memory from, as long as the program is loaded."""

    def __init__(self) -> None:
        self._buffer = Buffer(HEAP)
        self._state = (ctypes.c_int64 * 2)(self._buffer.address, self._buffer.address + HEAP)
        self.address = ctypes.addressof(self._state)
        self.region = self._buffer.region("the heap")


@dataclass(frozen=True)
class Given:
    """
    What a launch or a call needs, and may use.

    Args:
        regions: The memory that may be accessed.
        heap: What `malloc` gives.
        accesses: How many accesses are checked.
        table: The address of what is known of each.
        shared: Bytes of shared memory.
        local: Bytes of local memory for a lane.
        steps: How often a loop may go on.
        take: What takes the addresses of a format and of values that are printed.
        frame: Bytes that a lane keeps while it waits, None where none waits.
        params: The parameters of a kernel, None for a call.
        workspace: What the barrier of a grid counts in, None where blocks cannot wait for each other.
    """

    regions: Sequence[Region]
    heap: Heap
    accesses: int
    table: int
    shared: int
    local: int
    steps: int
    take: Callable[[int, int], int]
    frame: int | None = None
    params: Buffer | None = None
    workspace: Buffer | None = None


class Worker:
    """
    The memory in which blocks are executed, one after the other.

    Args:
        given: What they need.
        grid: How many blocks there are along x, y and z.
        block: How many lanes a block has.
        dynamic: Bytes of dynamic shared memory.
    """

    def __init__(
        self,
        given: Given,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (1, 1, 1),
        dynamic: int = 0,
    ) -> None:
        lanes = math.prod(block)
        waiting = lanes if given.frame is not None else 0
        shared = Buffer(given.shared + dynamic)
        local = Buffer(given.local * max(waiting, 1))
        frames, records = Buffer((given.frame or 0) * waiting), Buffer(LANE * waiting)
        found = (ctypes.c_int64 * (2 * given.accesses + 2))()
        self.regions = [*given.regions, shared.region("shared memory"), local.region("local memory")]
        self.regions.sort(key=lambda each: not each.writable)
        table = (ctypes.c_uint64 * (2 * len(self.regions)))(
            *(part for each in self.regions for part in (each.address, each.end))
        )
        self.noted, printing = Noted(), _PRINT(given.take)
        self._kept = given, shared, local, frames, records, found, table, printing
        self.context = Context(
            ntid=tuple(block),
            nctaid=tuple(grid),
            dynamic=dynamic,
            count=lanes,
            workspace=given.workspace.address if given.workspace else 0,
            cooperative=given.workspace is not None,
            shared=shared.address - SHARED_START,
            shared_size=shared.size,
            regions=ctypes.addressof(table),
            readable=len(self.regions),
            writable=sum(each.writable for each in self.regions),
            accesses=given.table,
            found=ctypes.addressof(found),
            noted=ctypes.addressof(self.noted),
            steps=given.steps,
            heap=given.heap.address,
            print=ctypes.cast(printing, ctypes.c_void_p).value,
            params=given.params.address if given.params else None,
            local=local.address,
            local_size=given.local,
            local_total=local.size,
            frames=frames.address,
            frame_size=given.frame or 0,
            lanes=records.address,
            **_python(),
        )

    def grid(self, entry: int, block: int, first: int, count: int, go: int = 0) -> int:
        """
        Execute blocks by the entry for grids; return what the last one told.

        Args:
            entry: The address of the entry.
            block: The address of what executes a block.
            first: The number of the first one.
            count: How many there are.
            go: 1 to go on after a barrier of the grid.
        """
        return int(_GRID(entry)(ctypes.addressof(self.context), block, first, count, go))

    def elements(self, entry: int, many: int, arrays: ctypes.Array[ctypes.c_int64], count: int) -> None:
        """
        Call a function for the elements of arrays.

        Args:
            entry: The address of the entry for elements.
            many: The address of what calls the function.
            arrays: The address and the stride of each array.
            count: How many elements they have.
        """
        _ELEMENTS(entry)(ctypes.addressof(self.context), many, ctypes.addressof(arrays), count)


@functools.cache
def _python() -> dict[str, int | None]:
    """Return the addresses of what lets other threads of Python run, and looks for an interrupt."""
    names = {"save": "PyEval_SaveThread", "restore": "PyEval_RestoreThread", "check": "PyErr_CheckSignals"}
    return {
        field: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        for field, name in names.items()
    }
