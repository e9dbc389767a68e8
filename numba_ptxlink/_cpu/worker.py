"""
Execute blocks of a launch by generated code, in memory that belongs to a worker, such as shared memory.

A BlockContext (runtime.py) tells generated code the addresses and sizes of this memory.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
from typing import TYPE_CHECKING

from . import printf
from .regions import PAIR_SIZE, Region, RegionTable
from .runtime import (
    LOCAL_ALIGNMENT,
    SHARED_START,
    THREAD_RECORD_SIZE,
    WARP_SIZE,
    BlockContext,
    Fault,
    FaultRecord,
    Resume,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .checks import WorkerChecks

# The alignment of memory: that of SHARED_START, so that addresses in shared memory are aligned as in PTX.
_ALIGNMENT_BYTES = 1024
# Buffers of this size or more come from `mmap`, whose pages take no memory until they are used.
_MIN_MMAP_BYTES = 1 << 16
# A worker with at most this much memory is kept for later launches, which have to fill it with zeros.
_MAX_SMALL_BYTES = 256 << 10
# The type of the functions that `Worker.run` calls. PYFUNCTYPE keeps the GIL: generated code releases it, and
# takes it again to check for Ctrl-C and to print.
_RUNNER_TYPE = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
)


class Buffer:
    """
    Zeroed memory that begins at a multiple of 1024 bytes.

    Args:
        size: The size in bytes.
    """

    def __init__(self, size: int) -> None:
        padded_size = size + _ALIGNMENT_BYTES
        self._memory = (
            mmap.mmap(-1, padded_size) if padded_size >= _MIN_MMAP_BYTES else (ctypes.c_char * padded_size)()
        )
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        # Rounded up.
        self.address = -(-start // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        self.size = size

    def region(self, name: str) -> Region:
        """Return the buffer as a region that errors call *name*."""
        return Region(self.address, self.size, True, name)


class Worker:
    """
    Executes blocks, one after the other, with one block's shared and local memory.

    Args:
        regions: The memory of the caller that the code may access.
        program_regions: The memory of the program: its variables, its heap, and for a cooperative launch the
            workspace.
        access_count: The number of checked accesses in the code.
        static_shared_size: Bytes of static shared memory.
        local_size: Bytes of local memory for each thread.
        frame_size: Bytes of a thread's coroutine frame, None if threads never suspend.
        grid: The number of blocks along x, y and z.
        block: The number of threads of a block along x, y and z.
        dynamic_shared_size: Bytes of dynamic shared memory.
        checks: The state of racecheck, initcheck and synccheck; None if none of them is on.
        context: Other fields of BlockContext, by name.

    Attributes:
        fault_record: The first fault of the blocks.
        is_small: Whether the memory is small enough to keep the worker for another launch.
    """

    def __init__(
        self,
        regions: RegionTable,
        program_regions: Sequence[Region] = (),
        *,
        access_count: int,
        static_shared_size: int,
        local_size: int,
        frame_size: int | None = None,
        grid: Sequence[int] = (1, 1, 1),
        block: Sequence[int] = (1, 1, 1),
        dynamic_shared_size: int = 0,
        checks: WorkerChecks | None = None,
        **context: int,
    ) -> None:
        self.checks = checks
        thread_count = math.prod(block)
        # Threads that never suspend run one after the other, with the same local memory and without records.
        concurrent_count = 1 if frame_size is None else thread_count
        record_count = 0 if frame_size is None else thread_count
        frames = Buffer((frame_size or 0) * record_count)
        # Whole warps: a shuffle may read the record of any lane, also of one that the block does not have.
        records = Buffer(THREAD_RECORD_SIZE * (-(-record_count // WARP_SIZE) * WARP_SIZE))
        shared_memory = Buffer(static_shared_size + dynamic_shared_size)
        # Rounded up.
        local_stride = -(-local_size // LOCAL_ALIGNMENT) * LOCAL_ALIGNMENT
        local_memory = Buffer(local_stride * concurrent_count)
        own_regions = (shared_memory.region("shared memory"), local_memory.region("local memory"))
        # All regions but those of the caller, which `reset` replaces.
        self._worker_regions = RegionTable.of([*own_regions, *program_regions])
        # Two words for each access, and two more, so that the array is not empty if there is no access.
        self._region_cache = (ctypes.c_int64 * (2 * access_count + 2))()
        self.fault_record = FaultRecord()
        # Coroutines write their frames before they read them, so that frames need no zeros.
        self._zeroed = [buffer for buffer in (shared_memory, local_memory, records) if buffer.size]
        self._frames = frames  # Keep the memory alive.
        self.is_small = sum(buffer.size for buffer in (frames, *self._zeroed)) <= _MAX_SMALL_BYTES
        self.context = BlockContext(
            ntid=tuple(block),
            nctaid=tuple(grid),
            dynamic_shared_size=dynamic_shared_size,
            thread_count=thread_count,
            shared_base=shared_memory.address - SHARED_START,
            shared_size=shared_memory.size,
            region_cache=ctypes.addressof(self._region_cache),
            fault_record=ctypes.addressof(self.fault_record),
            print_function=id(printf.print_formatted),  # The address of the Python object.
            local_base=local_memory.address,
            local_size=local_size,
            local_stride=local_stride,
            local_total_size=local_memory.size,
            coroutine_frames=frames.address,
            frame_size=frame_size or 0,
            thread_records=records.address,
            checks=checks.address if checks else 0,
            check_barrier=checks.barrier_function if checks else 0,
            **context,
            **_python_functions(),
        )
        self._caller_regions = regions
        self._join_regions()
        self._initial_context = bytes(self.context)

    def _join_regions(self) -> None:
        """Set the table of regions that generated code searches: the writable ones, and then the others."""
        worker_regions, caller_regions = self._worker_regions, self._caller_regions
        writable = worker_regions.writable + caller_regions.writable
        read_only = worker_regions.read_only + caller_regions.read_only
        self._table = ctypes.create_string_buffer(writable + read_only)
        self.context.regions = ctypes.addressof(self._table)
        self.context.region_count = (len(writable) + len(read_only)) // PAIR_SIZE
        self.context.writable_count = len(writable) // PAIR_SIZE

    def reset(self, regions: RegionTable, grid: Sequence[int], params: int) -> None:
        """
        Prepare another launch of the kernel, with blocks of the same size, as if the worker were new.

        Args:
            regions: The memory of the caller that the code may access.
            grid: The number of blocks along x, y and z.
            params: The address of the parameter buffer.
        """
        ctypes.memmove(ctypes.addressof(self.context), self._initial_context, len(self._initial_context))
        for buffer in self._zeroed:
            ctypes.memset(buffer.address, 0, buffer.size)
        self.fault_record.kind = Fault.NONE
        previous, self._caller_regions = self._caller_regions, regions
        # The CPU device passes the same two `bytes` objects until memory is allocated or freed, and the table
        # is right as long as it does.
        if previous.writable is not regions.writable or previous.read_only is not regions.read_only:
            self._join_regions()
            # Clear the region cache, since the launch may not access the old regions.
            ctypes.memset(self.context.region_cache, 0, ctypes.sizeof(self._region_cache))
            self._initial_context = bytes(self.context)
        self.context.nctaid = tuple(grid)
        self.context.params = params

    def regions_near(self, address: int) -> list[Region]:
        """
        Return the regions before, at and after an address, or more.

        In place of the local memory of all threads, the list has that of the thread that ran last.
        """
        regions = [*self._worker_regions.find_near(address), *self._caller_regions.find_near(address)]
        thread_region = self.thread_local_region()
        return [thread_region, *(region for region in regions if region.address != self.context.local_base)]

    def thread_local_region(self) -> Region:
        """Return the local memory of the thread that ran last."""
        offset = self.context.current_thread * self.context.local_stride
        # Threads that never suspend share one part, see `local_memory` in runtime.ll.
        offset = offset if offset < self.context.local_total_size else 0
        size = self.context.local_size
        return Region(self.context.local_base + offset, size, True, "the local memory of the thread")

    def run(self, runner: int, executor: int, start: int, count: int, resume_mode: int = Resume.START) -> int:
        """
        Execute blocks, or call a function for elements; return the BlockStatus of the last one.

        Args:
            runner: The address of `ptxlink.run_grid` or `ptxlink.run_elements`.
            executor: The address of the function that executes a block, or calls the function for elements.
            start: The index of the first block, or the address of the table of arrays and strides.
            count: The number of blocks or elements.
            resume_mode: The point where a block continues, a Resume.
        """
        return int(_RUNNER_TYPE(runner)(ctypes.addressof(self.context), executor, start, count, resume_mode))


# Functions of Python that generated code calls, by the field of BlockContext that has their address.
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
    """Return the addresses of `_PYTHON_FUNCTIONS`, by the field of BlockContext."""
    return {
        field: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        for field, name in _PYTHON_FUNCTIONS.items()
    }
