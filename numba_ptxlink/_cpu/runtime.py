"""
What machine code finds in memory during a launch, and the LLVM IR that programs share.

A launch has a context, records of lanes that wait, and the fault that is noted. In LLVM IR what begins with a
dollar sign is a number of these: the place of a field in bytes, or a member of an enumeration.
"""

from __future__ import annotations

import ctypes
import re
from enum import IntEnum
from pathlib import Path


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


class BlockContext(ctypes.Structure):
    """
    What the lanes of a block share; each worker has one. `current` is the lane that is executed.

    `regions` are pairs of the first address and the end, those that may be written first, and `found` has for
    each access of the code the region that it was in last. `heap` has what is allocated, how much there is,
    and where it begins.
    """

    _fields_ = (
        *((axes, ctypes.c_uint32 * 3) for axes in ("ntid", "ctaid", "nctaid")),
        *((name, ctypes.c_uint32) for name in ("dynamic", "count", "current", "cooperative")),
        *((size, ctypes.c_uint64) for size in ("shared_size", "local_size", "local_total", "frame_size")),
        *((name, ctypes.c_uint64) for name in ("shared", "workspace", "readable", "writable", "steps")),
        *((memory, ctypes.c_void_p) for memory in ("regions", "heap", "params", "local", "frames", "lanes")),
        *((memory, ctypes.c_void_p) for memory in ("found", "noted")),
        *((function, ctypes.c_void_p) for function in ("print", "call", "number", "drop")),
        *((function, ctypes.c_void_p) for function in ("restore", "check", "save")),
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


def lane_offset(name: str) -> int:
    """Return where a field of a lane is."""
    return int(getattr(Lane, name).offset)


_STRUCTURES = {"context": BlockContext, "lane": Lane, "noted": Noted}
_NUMBERS = {"state": State, "fault": Fault, "told": Told}
_PLACEHOLDER = re.compile(r"\$(\w+)\.(\w+)")
# Each lane of a block, none of which waits, one after the other.
_BLOCK = """
define i32 @"block.$name"(ptr %ctx, i32 %go) {
entry:
  %found.at = getelementptr i8, ptr %ctx, i64 $context.found
  %found = load ptr, ptr %found.at, !tbaa !1
  %params.at = getelementptr i8, ptr %ctx, i64 $context.params
  %params = load ptr, ptr %params.at, !tbaa !1
  %local.at = getelementptr i8, ptr %ctx, i64 $context.local
  %local = load ptr, ptr %local.at, !tbaa !1
  %size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %size = load i64, ptr %size.at, !tbaa !1
  %limit = getelementptr i8, ptr %local, i64 %size
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current
  %noted.at = getelementptr i8, ptr %ctx, i64 $context.noted
  %noted = load ptr, ptr %noted.at, !tbaa !1
  %nx.at = getelementptr i8, ptr %ctx, i64 $context.ntid
  %nx = load i32, ptr %nx.at, !tbaa !1
  %ny.at = getelementptr i32, ptr %nx.at, i64 1
  %ny = load i32, ptr %ny.at, !tbaa !1
  %nz.at = getelementptr i32, ptr %nx.at, i64 2
  %nz = load i32, ptr %nz.at, !tbaa !1
  br label %planes
planes:
  %z = phi i32 [0, %entry], [%z.next, %plane]
  %lanes.z = phi i32 [0, %entry], [%lanes.y, %plane]
  %z.more = icmp ult i32 %z, %nz
  br i1 %z.more, label %rows, label %done
rows:
  %y = phi i32 [0, %planes], [%y.next, %row]
  %lanes.y = phi i32 [%lanes.z, %planes], [%lanes.x, %row]
  %y.more = icmp ult i32 %y, %ny
  br i1 %y.more, label %lanes, label %plane
lanes:
  %x = phi i32 [0, %rows], [%x.next, %next]
  %lanes.x = phi i32 [%lanes.y, %rows], [%lane.next, %next]
  %x.more = icmp ult i32 %x, %nx
  br i1 %x.more, label %run, label %row
run:
  store i32 %lanes.x, ptr %current.at, !tbaa !1
  %left = call i8 @"f.$name"($arguments, ptr %params, ptr null)
  %ended = icmp ne i8 %left, 0
  br i1 %ended, label %look, label %next
look:
  %kind = load i64, ptr %noted, !tbaa !1
  %faulty = icmp ne i64 %kind, 0
  br i1 %faulty, label %fault, label %next
next:
  %x.next = add i32 %x, 1
  %lane.next = add i32 %lanes.x, 1
  br label %lanes
row:
  %y.next = add i32 %y, 1
  br label %rows
plane:
  %z.next = add i32 %z, 1
  br label %planes
fault:
  ret i32 $told.fault
done:
  ret i32 $told.ended
}
"""
# Lanes that wait, which are coroutines: from the begin, after the barrier of a grid (1), or on (2).
_WAITING = """
define i32 @"block.$name"(ptr %ctx, i32 %go) {
  switch i32 %go, label %on [i32 0, label %begin i32 1, label %wake]
begin:
  %begun = call i32 @ptxlink.begin(ptr %ctx, ptr @"ramp.$name")
  br label %look
wake:
  %woken = call i32 @ptxlink.wake(ptr %ctx, i32 $state.grid)
  br label %look
look:
  %told = phi i32 [%begun, %begin], [%woken, %wake]
  %bad = icmp eq i32 %told, $told.fault
  br i1 %bad, label %fault, label %on
fault:
  ret i32 $told.fault
on:
  %result = call i32 @ptxlink.continue(ptr %ctx)
  ret i32 %result
}
"""
# A function for the elements of arrays.
_MANY = """
define i32 @"many.$name"(ptr %ctx, ptr %arrays, i64 %first, i64 %end) {
entry:
  %found.at = getelementptr i8, ptr %ctx, i64 $context.found
  %found = load ptr, ptr %found.at
  %local.at = getelementptr i8, ptr %ctx, i64 $context.local
  %local = load ptr, ptr %local.at
  %size.at = getelementptr i8, ptr %ctx, i64 $context.local_size
  %size = load i64, ptr %size.at
  %limit = getelementptr i8, ptr %local, i64 %size
  %current.at = getelementptr i8, ptr %ctx, i64 $context.current
  %noted.at = getelementptr i8, ptr %ctx, i64 $context.noted
  %noted = load ptr, ptr %noted.at
$places
  br label %test
test:
  %number = phi i64 [%first, %entry], [%next, %store]
  %more = icmp ult i64 %number, %end
  br i1 %more, label %run, label %done
run:
  %current = trunc i64 %number to i32
  store i32 %current, ptr %current.at
$elements
  %left = call i8 @"f.$name"($arguments, ptr null, ptr null$pointers)
  %ended = icmp ne i8 %left, 0
  br i1 %ended, label %look, label %store
look:
  %kind = load i64, ptr %noted
  %faulty = icmp ne i64 %kind, 0
  br i1 %faulty, label %fault, label %store
store:
  %next = add i64 %number, 1
  br label %test
fault:
  ret i32 $told.fault
done:
  ret i32 $told.ended
}
"""
_PLACE = """\
  %a{0}.at = getelementptr [2 x i64], ptr %arrays, i64 {0}
  %a{0} = load ptr, ptr %a{0}.at
  %s{0}.at = getelementptr [2 x i64], ptr %arrays, i64 {0}, i64 1
  %s{0} = load i64, ptr %s{0}.at"""
_ELEMENT = """\
  %o{0} = mul i64 %number, %s{0}
  %e{0} = getelementptr i8, ptr %a{0}, i64 %o{0}"""


def _filled(text: str) -> str:
    """Return LLVM IR with the numbers that its placeholders name."""

    def number(match: re.Match[str]) -> str:
        group, name = match.groups()
        if group in _NUMBERS:
            return str(int(_NUMBERS[group][name.upper()]))
        return str(LANE if name == "size" and group == "lane" else getattr(_STRUCTURES[group], name).offset)

    return _PLACEHOLDER.sub(number, text)


def text(name: str) -> str:
    """Return a file of LLVM IR: "runtime.ll" for every process, or "program.ll" for each program."""
    return _filled(Path(__file__).with_name(name).read_text())


def block(name: str, *, waits: bool) -> str:
    """Return what executes a block of a kernel."""
    arguments = "ptr %ctx, ptr %found, ptr %local, ptr %limit, i32 %x, i32 %y, i32 %z"
    return _filled((_WAITING if waits else _BLOCK).replace("$name", name).replace("$arguments", arguments))


def many(name: str, count: int) -> str:
    """Return what calls a function for the elements of arrays, one for each of its results and parameters."""
    parts = {
        "$places": "\n".join(map(_PLACE.format, range(count))),
        "$elements": "\n".join(map(_ELEMENT.format, range(count))),
        "$pointers": "".join(f", ptr %e{number}" for number in range(count)),
        "$arguments": "ptr %ctx, ptr %found, ptr %local, ptr %limit, i32 0, i32 0, i32 0",
        "$name": name,
    }
    made = _MANY
    for placeholder, part in parts.items():
        made = made.replace(placeholder, part)
    return _filled(made)
