"""The memory that a launch or a call has besides the caller's, and the way from Python to machine code."""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
from typing import TYPE_CHECKING

from . import printf
from .regions import Region, RegionTable
from .runtime import SHARED_START, THREAD_RECORD_SIZE, WARP_SIZE, BlockContext, FaultRecord, Resume

if TYPE_CHECKING:
    from collections.abc import Sequence

_ALIGNMENT, _MMAP_THRESHOLD = 1024, 1 << 16
# It keeps Python's lock when it is called: the code gives it away, so that it can ask for interrupts.
_ENTRY_TYPE = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
)


class Buffer:
    """
    Zeroed memory that begins at a multiple of 1024.

    Args:
        size: Its bytes.
    """

    def __init__(self, size: int) -> None:
        padded_size = size + _ALIGNMENT
        # Pages that nobody touches cost nothing.
        self._memory = (
            mmap.mmap(-1, padded_size) if padded_size >= _MMAP_THRESHOLD else (ctypes.c_char * padded_size)()
        )
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self.address = -(-start // _ALIGNMENT) * _ALIGNMENT
        self.size = size

    def region(self, name: str) -> Region:
        """Return it as a region."""
        return Region(self.address, self.size, True, name)


class Worker:
    """
    The memory in which blocks are executed, one after the other.

    Args:
        regions: The memory that may be accessed besides.
        program_regions: More of it: variables of the program, and its heap.
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
        regions: RegionTable,
        program_regions: Sequence[Region] = (),
        *,
        access_count: int,
        shared: int,
        local: int,
        frame: int | None = None,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (1, 1, 1),
        dynamic: int = 0,
        **context: int,
    ) -> None:
        thread_count = math.prod(block)
        suspended_count = 0 if frame is None else thread_count
        frames = Buffer((frame or 0) * suspended_count)
        # A shuffle may name any lane of its warp, also one that the block does not have.
        records = Buffer(THREAD_RECORD_SIZE * (-(-suspended_count // WARP_SIZE) * WARP_SIZE))
        shared_memory, local_memory = Buffer(shared + dynamic), Buffer(local * max(suspended_count, 1))
        region_cache = (ctypes.c_int64 * (2 * access_count + 2))()
        own_regions = (shared_memory.region("shared memory"), local_memory.region("local memory"))
        self.regions = RegionTable.of([*own_regions, *program_regions]) + regions
        table = ctypes.create_string_buffer(self.regions.writable + self.regions.read_only)
        self.fault_record = FaultRecord()
        self._keep_alive = shared_memory, local_memory, frames, records, region_cache, table
        self.context = BlockContext(
            ntid=tuple(block),
            nctaid=tuple(grid),
            dynamic_shared_size=dynamic,
            thread_count=thread_count,
            shared_base=shared_memory.address - SHARED_START,
            shared_size=shared_memory.size,
            regions=ctypes.addressof(table),
            region_count=len(table) // 16,
            writable_count=len(self.regions.writable) // 16,
            region_cache=ctypes.addressof(region_cache),
            fault_record=ctypes.addressof(self.fault_record),
            print_function=id(printf.print_formatted),
            local_base=local_memory.address,
            local_size=local,
            local_total_size=local_memory.size,
            coroutine_frames=frames.address,
            frame_size=frame or 0,
            thread_records=records.address,
            **context,
            **_python_functions(),
        )

    def run(self, entry: int, code: int, first: int, count: int, resume_mode: int = Resume.START) -> int:
        """
        Execute blocks, or call a function for elements; return what the last one told.

        Args:
            entry: The address of the entry for grids, or for elements.
            code: The address of what executes a block, or calls the function.
            first: The number of the first block, or the address of where each array begins, and its stride.
            count: How many there are.
            resume_mode: A Resume.
        """
        return int(_ENTRY_TYPE(entry)(ctypes.addressof(self.context), code, first, count, resume_mode))


# What the machine code calls of Python: to let other threads run, to look for an interrupt, and to print.
_PYTHON_FUNCTIONS = {
    "call_object": "PyObject_CallFunction",
    "to_long": "PyLong_AsLong",
    "decref": "Py_DecRef",
    "save_thread": "PyEval_SaveThread",
    "restore_thread": "PyEval_RestoreThread",
    "check_signals": "PyErr_CheckSignals",
}


@functools.cache
def _python_functions() -> dict[str, int | None]:
    """Return the addresses of what the machine code calls of Python."""
    return {
        field: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        for field, name in _PYTHON_FUNCTIONS.items()
    }
