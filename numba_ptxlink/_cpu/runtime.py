"""
Define the structures that Python shares with generated code, and read the LLVM IR that all programs share.

A worker, which executes blocks one after the other, has a BlockContext and a FaultRecord, and if the threads
of the kernel can suspend, a ThreadRecord for each thread of a block. In the files of LLVM IR,
`$context.params` is the offset of a field in bytes, and `$fault.trap` the value of a member of an enum.
"""

from __future__ import annotations

import ctypes
import functools
import re
from enum import IntEnum
from pathlib import Path


class Fault(IntEnum):
    """Why a thread cannot continue."""

    NONE = 0
    ACCESS = 1  # An access out of bounds.
    READ_ONLY = 2  # A write to memory that may only be read.
    MISALIGNED = 3  # An access to an address that is no multiple of its size.
    TRAP = 4
    ASSERT = 5  # A failed assertion of the program.
    UNSUPPORTED = 6  # An instruction that the CPU does not support.
    STEP_LIMIT = 7  # More iterations of loops than the launch allows.
    DEADLOCK = 8  # A barrier or a warp operation that other threads never reach.
    STACK_OVERFLOW = 9
    INTERRUPTED = 10  # By Ctrl-C, or since another worker has faulted.
    UNDEFINED_FUNCTION = 11  # A call of a function that the module does not define.
    RECURSIVE_BARRIER = 12  # A barrier in a recursive function.
    NOT_COOPERATIVE = 13  # A barrier of the grid in a launch that is not cooperative.


class Access(IntEnum):
    """Kinds of accesses, with the values of `enum access_kind` in checks.c."""

    READ = 0
    WRITE = 1
    ATOMIC = 2
    ATOMIC_READ = 3
    ATOMIC_WRITE = 4
    VOLATILE_READ = 5
    COMPARE_AND_SWAP = 6


class Scope(IntEnum):
    """The threads that a barrier orders, with the values of `enum scope` in checks.c."""

    BLOCK = 0
    WARP = 1
    GRID = 2


class ThreadState(IntEnum):
    """Whether a thread has exited, or else why it is suspended."""

    EXITED = 0
    BARRIER = 1  # At a barrier of its block.
    WARP = 2  # In an operation that exchanges values in its warp.
    ACTIVEMASK = 3  # At `activemask`.
    YIELDED = 4  # In a long loop, so that other threads run.
    GRID_BARRIER = 5  # At the barrier of the grid.
    RELEASED = 6  # Its barrier has opened: the scheduler resumes the thread next.


class BlockStatus(IntEnum):
    """Why the executor of a block, or a step of its scheduler, returned."""

    FINISHED = 0
    FAULTED = 1
    RESUMED = 2  # A step has resumed threads, so that there may be another step.
    AT_GRID_BARRIER = 3  # Threads wait there, and the others have exited.
    YIELDED = 4  # Threads have yielded in loops, in which they may wait for other blocks.


class Resume(IntEnum):
    """The point where the executor of a block continues: its start, the grid barrier, or the last yield."""

    START = 0
    GRID_BARRIER = 1
    YIELD = 2


class FaultRecord(ctypes.Structure):
    """
    The first fault of a worker, whose BlockContext has the block and the thread.

    `kind` is a Fault, and `fault_site` the number of the statement. `address` and `size` are those of an
    access; for a failed assertion, the addresses of two C strings, the condition and the file; else 0.
    """

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("kind", "fault_site", "address", "size"))


class BlockContext(ctypes.Structure):
    """
    State that the threads of a block share; each worker has one. Sizes are in bytes.

    `ntid`, `ctaid` and `nctaid` are PTX's special registers, each for x, y and z. `current_thread` is the
    index of the running thread in its block. `local_size` and `frame_size` (of a coroutine) are those of one
    thread, `local_stride` is the distance between the local memory of two threads, and `local_total_size` the
    size of that of all threads. `shared_size` includes dynamic shared memory, and `shared_base` is the
    address of shared memory less SHARED_START. `workspace` is the address of the memory that cooperative
    groups use for the barrier of the grid.
    `regions` are pairs of a first address and an end; the first `writable_count` of the `region_count` pairs
    may be written. `region_cache` has two words for each access in the code: the start of the region that
    the access used last, and the offset into the region from which on the access does not fit.
    `heap` is three words: the state of the allocator, the size of the heap, and its address.
    `python_thread` is the state of the thread of Python while it has released the GIL.
    `checks` is the state of racecheck and initcheck, and `check_barrier` the function of synccheck; they are
    null if these checks are off.
    `barrier_arrivals` counts the threads that executed `bar.arrive`, for each of the block's 16 barriers.
    """

    _fields_ = (
        *((name, ctypes.c_uint32 * 3) for name in ("ntid", "ctaid", "nctaid")),
        *(
            (name, ctypes.c_uint32)
            for name in ("dynamic_shared_size", "thread_count", "current_thread", "cooperative")
        ),
        *(
            (name, ctypes.c_uint64)
            for name in ("shared_size", "local_size", "local_stride", "local_total_size", "frame_size")
        ),
        *((name, ctypes.c_uint64) for name in ("shared_base", "workspace", "region_count", "writable_count")),
        ("step_limit", ctypes.c_uint64),
        *((name, ctypes.c_void_p) for name in ("regions", "heap", "params", "local_base")),
        *((name, ctypes.c_void_p) for name in ("coroutine_frames", "thread_records")),
        *((name, ctypes.c_void_p) for name in ("region_cache", "fault_record")),
        # `print_formatted` of printf.py, and functions of CPython (`_PYTHON_FUNCTIONS` in worker.py).
        *((name, ctypes.c_void_p) for name in ("print_function", "call_object", "to_long", "decref")),
        *((name, ctypes.c_void_p) for name in ("restore_thread", "check_signals", "save_thread")),
        ("python_thread", ctypes.c_void_p),
        ("barrier_arrivals", ctypes.c_uint32 * 16),
        *((name, ctypes.c_void_p) for name in ("checks", "check_barrier")),
    )


class ThreadRecord(ctypes.Structure):
    """
    A thread of a kernel whose threads can suspend.

    `handle` is the address of its coroutine frame, `number` its index in the block, `state` a ThreadState,
    and `fault_site` the number of the statement at which it is suspended.
    At a warp operation, `key` is the mask of the instruction, and `group` the mask of the lanes that take
    part. `value` is the operand of the thread, and `seen` the copy that other threads read, since a fast
    thread may already store its next operand.
    At a barrier, `key` is the number of the barrier, `expected_count` how many threads the barrier is for (0
    for all), and `group` how many reached it. `value` is the predicate of `bar.red`, and `seen` the number of
    threads whose predicate is true.
    """

    _fields_ = (
        ("handle", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("value", "seen")),
        *((name, ctypes.c_uint32) for name in ("state", "key", "expected_count")),
        *((name, ctypes.c_uint32) for name in ("fault_site", "group", "number")),
    )


SHARED_START = 1024
"""
The first address in shared memory.

The address is not 0, so that an access through a null pointer is a fault. Each alignment in use divides it.
"""
LOCAL_ALIGNMENT = 64
"""The variables in local memory, and the local memory of each thread, begin at multiples of this."""
WARP_SIZE = 32
THREAD_RECORD_SIZE = ctypes.sizeof(ThreadRecord)
RECURSION_STACK_SIZE = 1 << 16
"""Bytes of local memory for each thread of a kernel with recursive functions, whose depth is unknown."""


def thread_field_offset(name: str) -> int:
    """Return the offset of a field of ThreadRecord in bytes."""
    return int(getattr(ThreadRecord, name).offset)


_STRUCTURES = {"context": BlockContext, "thread": ThreadRecord, "fault_record": FaultRecord}
_ENUMERATIONS = {"state": ThreadState, "fault": Fault, "status": BlockStatus, "resume": Resume}
_PLACEHOLDER = re.compile(r"\$(\w+)\.(\w+)")  # Such as `$context.params`.
# LLVM IR for array {0} of `elementwise.ll`. For array 0, %a0 is its address, %s0 its stride, and %e0 the
# address of the element %index.
_ARRAY_ARGUMENT = """\
  %a{0}.at = getelementptr [2 x i64], ptr %arrays, i64 {0}
  %a{0} = load ptr, ptr %a{0}.at
  %s{0}.at = getelementptr [2 x i64], ptr %arrays, i64 {0}, i64 1
  %s{0} = load i64, ptr %s{0}.at"""
_ELEMENT_POINTER = """\
  %o{0} = mul i64 %index, %s{0}
  %e{0} = getelementptr i8, ptr %a{0}, i64 %o{0}"""


@functools.cache
def read_ir(name: str) -> str:
    """Return a file of LLVM IR, with its placeholders replaced by the offsets and values that they name."""

    def value_of(placeholder: re.Match[str]) -> str:
        owner, member = placeholder.groups()
        if owner in _ENUMERATIONS:
            return str(int(_ENUMERATIONS[owner][member.upper()]))
        if (owner, member) == ("thread", "size"):
            return str(THREAD_RECORD_SIZE)
        return str(getattr(_STRUCTURES[owner], member).offset)

    return _PLACEHOLDER.sub(value_of, Path(__file__).with_name(name).read_text())


def block_entry(name: str, *, suspends: bool) -> str:
    """
    Return the LLVM function that executes a block of a kernel.

    Args:
        name: The kernel.
        suspends: Whether a thread may suspend, so that the kernel is a coroutine.
    """
    template = read_ir("coroutine_block.ll" if suspends else "plain_block.ll")
    arguments = "ptr %ctx, ptr %region_cache, ptr %local, ptr %limit, i32 %x, i32 %y, i32 %z"
    return template.replace("$arguments", arguments).replace("$name", name)


def elementwise_entry(name: str, count: int) -> str:
    """
    Return the LLVM function that calls a device function for each element of arrays.

    Args:
        name: The function.
        count: The number of its results and parameters, each of which has an array.
    """
    placeholder_values = {
        "$arrays": "\n".join(map(_ARRAY_ARGUMENT.format, range(count))),
        "$elements": "\n".join(map(_ELEMENT_POINTER.format, range(count))),
        "$pointers": "".join(f", ptr %e{index}" for index in range(count)),
        "$arguments": "ptr %ctx, ptr %region_cache, ptr %local, ptr %limit, i32 0, i32 0, i32 0",
        "$name": name,
    }
    text = read_ir("elementwise.ll")
    for placeholder, value in placeholder_values.items():
        text = text.replace(placeholder, value)
    return text
