"""The memory that a launch or a call has besides the caller's, and the way from Python to machine code."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
from typing import TYPE_CHECKING, NamedTuple

from . import messages
from .runtime import LANE, SHARED_START, BlockContext, Noted

if TYPE_CHECKING:
    from collections.abc import Sequence

_ALIGNED, _LARGE = 1024, 1 << 16
# It keeps Python's lock when it is called: the code gives it away, so that it can ask for interrupts.
_ENTRY = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
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

    def region(self, name: str) -> Region:
        """Return it as a region."""
        return Region(self.address, self.size, True, name)


class Worker:
    """
    The memory in which blocks are executed, one after the other.

    Args:
        regions: The memory that may be accessed besides.
        accesses: How many accesses are checked.
        shared: Bytes of shared memory without the dynamic part.
        local: Bytes of local memory for a lane.
        frame: Bytes that a lane keeps while it waits, None where none waits.
        grid: How many blocks there are along x, y and z.
        block: How many lanes a block has.
        dynamic: Bytes of dynamic shared memory.
        context: More of the context's fields.
    """

    def __init__(
        self,
        regions: Sequence[Region],
        *,
        accesses: int,
        shared: int,
        local: int,
        frame: int | None = None,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (1, 1, 1),
        dynamic: int = 0,
        **context: int,
    ) -> None:
        lanes = math.prod(block)
        waiting = 0 if frame is None else lanes
        frames, records = Buffer((frame or 0) * waiting), Buffer(LANE * waiting)
        of_block, of_lanes = Buffer(shared + dynamic), Buffer(local * max(waiting, 1))
        found = (ctypes.c_int64 * (2 * accesses + 2))()
        self.regions = [*regions, of_block.region("shared memory"), of_lanes.region("local memory")]
        self.regions.sort(key=lambda each: not each.writable)
        table = (ctypes.c_uint64 * (2 * len(self.regions)))(
            *(part for each in self.regions for part in (each.address, each.end))
        )
        self.noted = Noted()
        self._kept = of_block, of_lanes, frames, records, found, table
        self.context = BlockContext(
            ntid=tuple(block),
            nctaid=tuple(grid),
            dynamic=dynamic,
            count=lanes,
            shared=of_block.address - SHARED_START,
            shared_size=of_block.size,
            regions=ctypes.addressof(table),
            readable=len(self.regions),
            writable=sum(each.writable for each in self.regions),
            found=ctypes.addressof(found),
            noted=ctypes.addressof(self.noted),
            print=id(messages.print_values),
            local=of_lanes.address,
            local_size=local,
            local_total=of_lanes.size,
            frames=frames.address,
            frame_size=frame or 0,
            lanes=records.address,
            **context,
            **_python(),
        )

    def run(self, entry: int, code: int, first: int, count: int, go: int = 0) -> int:
        """
        Execute blocks, or call a function for elements; return what the last one told.

        Args:
            entry: The address of the entry for grids, or for elements.
            code: The address of what executes a block, or calls the function.
            first: The number of the first block, or the address of where each array begins, and its stride.
            count: How many there are.
            go: 1 to go on after a barrier of the grid.
        """
        return int(_ENTRY(entry)(ctypes.addressof(self.context), code, first, count, go))


# What the machine code calls of Python: to let other threads run, to look for an interrupt, and to print.
_PYTHON = {
    "call": "PyObject_CallFunction",
    "number": "PyLong_AsLong",
    "drop": "Py_DecRef",
    "save": "PyEval_SaveThread",
    "restore": "PyEval_RestoreThread",
    "check": "PyErr_CheckSignals",
}


@functools.cache
def _python() -> dict[str, int | None]:
    """Return the addresses of what the machine code calls of Python."""
    return {
        field: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        for field, name in _PYTHON.items()
    }
