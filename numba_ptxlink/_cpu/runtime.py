"""
Structures that Python shares with the generated code, and the LLVM IR that all programs share.

A worker has a BlockContext, a ThreadRecord for each suspended thread, and a FaultRecord. In the text of LLVM
IR, `$context.params` is the offset of a field in bytes, and `$fault.trap` the value of a member of an enum.
"""

from __future__ import annotations

import ctypes
import re
from enum import IntEnum
from pathlib import Path


class Fault(IntEnum):
    """Why a thread cannot continue."""

    NONE = 0
    ACCESS = 1
    READ_ONLY = 2
    MISALIGNED = 3
    TRAP = 4
    ASSERT = 5
    UNSUPPORTED = 6
    STEP_LIMIT = 7
    DEADLOCK = 8
    STACK_OVERFLOW = 9
    INTERRUPTED = 10
    UNDEFINED_FUNCTION = 11


class ThreadState(IntEnum):
    """Whether a thread has exited, or else the event that resumes it."""

    EXITED = 0
    BARRIER = 1
    WARP = 2
    ACTIVEMASK = 3
    YIELDED = 4
    GRID_BARRIER = 5
    RELEASED = 6


class BlockStatus(IntEnum):
    """Why the executor of a block, or a step of its scheduler, returned."""

    FINISHED = 0
    FAULTED = 1
    RESUMED = 2
    AT_GRID_BARRIER = 3
    YIELDED = 4


class Resume(IntEnum):
    """Where the executor of a block continues: at its start, after the grid barrier, or where it yielded."""

    START = 0
    GRID_BARRIER = 1
    YIELD = 2


class FaultRecord(ctypes.Structure):
    """
    The first fault of a worker; the context contains the block and the thread.

    `kind` is a Fault, and `fault_site` the number of the statement. For a failed assertion, `address` and
    `size` are the addresses of two C strings: the condition and the file.
    """

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("kind", "fault_site", "address", "size"))


class BlockContext(ctypes.Structure):
    """
    State that the threads of a block share; each worker has one. `current_thread` is the thread that runs.

    `regions` are pairs of a first address and an end; the first `writable_count` of the `region_count` pairs
    may be written. `region_cache` has a pair for each access of the code: the region that it used last.
    `heap` is three words: the state of the allocator, the size of the heap, and its address.
    `barrier_arrivals` counts the threads that executed `bar.arrive`, for each barrier of the block.
    """

    _fields_ = (
        *((axes, ctypes.c_uint32 * 3) for axes in ("ntid", "ctaid", "nctaid")),
        *(
            (n, ctypes.c_uint32)
            for n in ("dynamic_shared_size", "thread_count", "current_thread", "cooperative")
        ),
        *(
            (size, ctypes.c_uint64)
            for size in ("shared_size", "local_size", "local_total_size", "frame_size")
        ),
        *((n, ctypes.c_uint64) for n in ("shared_base", "workspace", "region_count", "writable_count")),
        ("step_limit", ctypes.c_uint64),
        *((memory, ctypes.c_void_p) for memory in ("regions", "heap", "params", "local_base")),
        *((memory, ctypes.c_void_p) for memory in ("coroutine_frames", "thread_records")),
        *((memory, ctypes.c_void_p) for memory in ("region_cache", "fault_record")),
        *((function, ctypes.c_void_p) for function in ("print_function", "call_object", "to_long", "decref")),
        *((function, ctypes.c_void_p) for function in ("restore_thread", "check_signals", "save_thread")),
        ("python_thread", ctypes.c_void_p),
        ("barrier_arrivals", ctypes.c_uint32 * 16),
    )


class ThreadRecord(ctypes.Structure):
    """
    A suspended thread.

    `key` is the mask of a warp operation, or the number of a barrier, and `expected_count` how many threads
    the barrier is for (0 for all). `value` is the operand of a warp operation; `seen` is the copy that other
    threads read, since a fast thread may already store its next operand. `group` is the mask of the lanes
    that take part in a warp operation, or the number of threads that reached a barrier.
    """

    _fields_ = (
        ("handle", ctypes.c_void_p),
        *((name, ctypes.c_uint64) for name in ("value", "seen")),
        *((n, ctypes.c_uint32) for n in ("state", "key", "expected_count", "fault_site", "group", "number")),
    )


SHARED_START = 1024
"""The first address in shared memory, so that a null pointer is invalid there."""
WARP_SIZE = 32
THREAD_RECORD_SIZE = ctypes.sizeof(ThreadRecord)
RECURSION_STACK_SIZE = 1 << 16
"""Bytes of local memory for each thread of a kernel with recursive functions, whose depth is unknown."""


def thread_field_offset(name: str) -> int:
    """Return the offset of a field of ThreadRecord in bytes."""
    return int(getattr(ThreadRecord, name).offset)


_STRUCTURES = {"context": BlockContext, "thread": ThreadRecord, "fault_record": FaultRecord}
_ENUMERATIONS = {"state": ThreadState, "fault": Fault, "status": BlockStatus, "resume": Resume}
_PLACEHOLDER = re.compile(r"\$(\w+)\.(\w+)")
# For kernels that never suspend: run the threads of a block one after the other.
_PLAIN_BLOCK = """
define i32 @"block.$name"(ptr %ctx, i32 %resume_mode) {
entry:
  %region_cache.at = getelementptr i8, ptr %ctx, i64 $context.region_cache
  %region_cache = load ptr, ptr %region_cache.at, !tbaa !1
  %params.at = getelementptr i8, ptr %ctx, i64 $context.params
  %params = load ptr, ptr %params.at, !tbaa !1
  %local.at = getelementptr i8, ptr %ctx, i64 $context.local_base
  %local = load ptr, ptr %local.at, !tbaa !1
  %size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %size = load i64, ptr %size.at, !tbaa !1
  %limit = getelementptr i8, ptr %local, i64 %size
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  %fault_record.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %fault_record = load ptr, ptr %fault_record.at, !tbaa !1
  %nx.at = getelementptr i8, ptr %ctx, i64 $context.ntid
  %nx = load i32, ptr %nx.at, !tbaa !1
  %ny.at = getelementptr i32, ptr %nx.at, i64 1
  %ny = load i32, ptr %ny.at, !tbaa !1
  %nz.at = getelementptr i32, ptr %nx.at, i64 2
  %nz = load i32, ptr %nz.at, !tbaa !1
  br label %planes
planes:
  %z = phi i32 [0, %entry], [%z.next, %plane]
  %thread.z = phi i32 [0, %entry], [%thread.y, %plane]
  %z.more = icmp ult i32 %z, %nz
  br i1 %z.more, label %rows, label %done
rows:
  %y = phi i32 [0, %planes], [%y.next, %row]
  %thread.y = phi i32 [%thread.z, %planes], [%thread.x, %row]
  %y.more = icmp ult i32 %y, %ny
  br i1 %y.more, label %columns, label %plane
columns:
  %x = phi i32 [0, %rows], [%x.next, %next]
  %thread.x = phi i32 [%thread.y, %rows], [%thread.next, %next]
  %x.more = icmp ult i32 %x, %nx
  br i1 %x.more, label %run, label %row
run:
  store i32 %thread.x, ptr %current.at, !tbaa !1
  %outcome = call i8 @"f.$name"($arguments, ptr %params, ptr null)
  %exited = icmp ne i8 %outcome, 0
  br i1 %exited, label %check, label %next
check:
  %kind = load i64, ptr %fault_record, !tbaa !1
  %faulted = icmp ne i64 %kind, 0
  br i1 %faulted, label %fault, label %next
next:
  %x.next = add i32 %x, 1
  %thread.next = add i32 %thread.x, 1
  br label %columns
row:
  %y.next = add i32 %y, 1
  br label %rows
plane:
  %z.next = add i32 %z, 1
  br label %planes
fault:
  ret i32 $status.faulted
done:
  ret i32 $status.finished
}
"""
# For kernels that suspend: each thread is a coroutine, and the scheduler of runtime.ll resumes it.
_COROUTINE_BLOCK = """
define i32 @"block.$name"(ptr %ctx, i32 %resume_mode) {
  switch i32 %resume_mode, label %schedule [
    i32 $resume.start, label %start
    i32 $resume.grid_barrier, label %release
  ]
start:
  %started = call i32 @ptxlink.start_threads(ptr %ctx, ptr @"ramp.$name")
  br label %check
release:
  %released = call i32 @ptxlink.resume_in_state(ptr %ctx, i32 $state.grid_barrier)
  br label %check
check:
  %status = phi i32 [%started, %start], [%released, %release]
  %faulted = icmp eq i32 %status, $status.faulted
  br i1 %faulted, label %fault, label %schedule
fault:
  ret i32 $status.faulted
schedule:
  %result = call i32 @ptxlink.schedule(ptr %ctx)
  ret i32 %result
}
"""
# Calls a function for each element of arrays.
_ELEMENTWISE_ENTRY = """
define i32 @"elementwise.$name"(ptr %ctx, ptr %arrays, i64 %first, i64 %end) {
entry:
  %region_cache.at = getelementptr i8, ptr %ctx, i64 $context.region_cache
  %region_cache = load ptr, ptr %region_cache.at
  %local.at = getelementptr i8, ptr %ctx, i64 $context.local_base
  %local = load ptr, ptr %local.at
  %size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %size = load i64, ptr %size.at
  %limit = getelementptr i8, ptr %local, i64 %size
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current_thread
  %fault_record.at = getelementptr i8, ptr %ctx, i64 $context.fault_record
  %fault_record = load ptr, ptr %fault_record.at
$arrays
  br label %test
test:
  %number = phi i64 [%first, %entry], [%next, %store]
  %more = icmp ult i64 %number, %end
  br i1 %more, label %run, label %done
run:
  %current = trunc i64 %number to i32
  store i32 %current, ptr %current.at
$elements
  %outcome = call i8 @"f.$name"($arguments, ptr null, ptr null$pointers)
  %exited = icmp ne i8 %outcome, 0
  br i1 %exited, label %check, label %store
check:
  %kind = load i64, ptr %fault_record
  %faulted = icmp ne i64 %kind, 0
  br i1 %faulted, label %fault, label %store
store:
  %next = add i64 %number, 1
  br label %test
fault:
  ret i32 $status.faulted
done:
  ret i32 $status.finished
}
"""
_ARRAY_ARGUMENT = """\
  %a{0}.at = getelementptr [2 x i64], ptr %arrays, i64 {0}
  %a{0} = load ptr, ptr %a{0}.at
  %s{0}.at = getelementptr [2 x i64], ptr %arrays, i64 {0}, i64 1
  %s{0} = load i64, ptr %s{0}.at"""
_ELEMENT_POINTER = """\
  %o{0} = mul i64 %number, %s{0}
  %e{0} = getelementptr i8, ptr %a{0}, i64 %o{0}"""


def _fill_placeholders(text: str) -> str:
    """Return LLVM IR with the offsets and values that its placeholders name."""

    def number(match: re.Match[str]) -> str:
        group, name = match.groups()
        if group in _ENUMERATIONS:
            return str(int(_ENUMERATIONS[group][name.upper()]))
        return str(
            THREAD_RECORD_SIZE
            if name == "size" and group == "thread"
            else getattr(_STRUCTURES[group], name).offset
        )

    return _PLACEHOLDER.sub(number, text)


def read_ir(name: str) -> str:
    """Return a file of LLVM IR: "runtime.ll" for every process, or "program.ll" for each program."""
    return _fill_placeholders(Path(__file__).with_name(name).read_text())


def block_entry(name: str, *, suspends: bool) -> str:
    """Return the LLVM function that executes a block of a kernel."""
    arguments = "ptr %ctx, ptr %region_cache, ptr %local, ptr %limit, i32 %x, i32 %y, i32 %z"
    return _fill_placeholders(
        (_COROUTINE_BLOCK if suspends else _PLAIN_BLOCK)
        .replace("$name", name)
        .replace("$arguments", arguments)
    )


def elementwise_entry(name: str, count: int) -> str:
    """
    Return the LLVM function that calls a device function for each element of arrays.

    Args:
        name: The function.
        count: The number of its results and parameters, each of which has an array.
    """
    parts = {
        "$arrays": "\n".join(map(_ARRAY_ARGUMENT.format, range(count))),
        "$elements": "\n".join(map(_ELEMENT_POINTER.format, range(count))),
        "$pointers": "".join(f", ptr %e{number}" for number in range(count)),
        "$arguments": "ptr %ctx, ptr %region_cache, ptr %local, ptr %limit, i32 0, i32 0, i32 0",
        "$name": name,
    }
    ir_text = _ELEMENTWISE_ENTRY
    for placeholder, part in parts.items():
        ir_text = ir_text.replace(placeholder, part)
    return _fill_placeholders(ir_text)
