"""The LLVM IR that programs share, with the numbers of `layout` in it, and how functions are entered."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from .layout import LANE, Context, Fault, Lane, Noted, State, Told

if TYPE_CHECKING:
    from collections.abc import Sequence

_STRUCTURES = {"context": Context, "lane": Lane, "noted": Noted}
_NUMBERS = {"state": State, "fault": Fault, "told": Told}
_PLACEHOLDER = re.compile(r"\$(\w+)\.(\w+)")

DECLARATIONS = """
declare void @ptxlink.note(ptr, i64, i64, i64, i64) cold
declare i1 @ptxlink.find(ptr, i64, i64) cold
declare i32 @ptxlink.pause(ptr, ptr, i64, i32) cold
declare i64 @ptxlink.time()
declare i64 @ptxlink.allocate(ptr, i64)
declare i32 @ptxlink.ballot(ptr, i32, i64)
declare i32 @ptxlink.reduce(ptr, i32, i32)
declare i32 @ptxlink.begin(ptr, ptr)
declare i32 @ptxlink.wake(ptr, i32)
declare i32 @ptxlink.continue(ptr)
"""
"""What the code of a program calls."""

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
  %ended = call i1 @"k.$name"($lane, ptr %params)
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
$loads
  %ended = call i1 @"f.$name"($lane$pointers)
  br i1 %ended, label %look, label %store
look:
  %kind = load i64, ptr %noted
  %faulty = icmp ne i64 %kind, 0
  br i1 %faulty, label %fault, label %store
store:
$stores
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
  %s{0} = load i64, ptr %s{0}.at
  %p{0} = alloca [{1} x i8], align 16"""
_ELEMENT = """\
  %o{0} = mul i64 %number, %s{0}
  %e{0} = getelementptr i8, ptr %a{0}, i64 %o{0}"""
_COPY = "  call void @llvm.memcpy.p0.p0.i64(ptr {}, ptr {}, i64 {}, i1 false)"


def filled(text: str) -> str:
    """Return LLVM IR with the numbers that its placeholders name."""

    def number(match: re.Match[str]) -> str:
        group, name = match.groups()
        if group in _NUMBERS:
            return str(int(_NUMBERS[group][name.upper()]))
        return str(LANE if name == "size" and group == "lane" else getattr(_STRUCTURES[group], name).offset)

    return _PLACEHOLDER.sub(number, text)


def text() -> str:
    """Return the module that every program is loaded with."""
    return filled(Path(__file__).with_name("runtime.ll").read_text())


def accesses(rows: Sequence[tuple[int, int, int, int]]) -> str:
    """Return what is known of each access: its size, alignment, place, and whether it writes."""
    content = ", ".join(f"[4 x i64] [{', '.join(f'i64 {each}' for each in values)}]" for values in rows)
    return f"@ptxlink.accesses = constant [{len(rows)} x [4 x i64]] [{content}]"


def block(name: str, *, waits: bool) -> str:
    """Return what executes a block of a kernel."""
    lane = "ptr %ctx, ptr %found, ptr %local, ptr %limit, i32 %x, i32 %y, i32 %z"
    return filled((_WAITING if waits else _BLOCK).replace("$name", name).replace("$lane,", f"{lane},"))


def many(name: str, sizes: Sequence[int], results: int) -> str:
    """Return what calls a function for the elements of arrays, whose results come first."""
    elements = "\n".join(_ELEMENT.format(index) for index in range(len(sizes)))
    copies = [(f"%p{index}", f"%e{index}", size) for index, size in enumerate(sizes)]
    parts = {
        "$places": "\n".join(_PLACE.format(index, size) for index, size in enumerate(sizes)),
        "$loads": "\n".join((elements, *(_COPY.format(*each) for each in copies[results:]))),
        "$stores": "\n".join(_COPY.format(to, own, size) for own, to, size in copies[:results]),
        "$pointers": "".join(f", ptr {own}" for own, *_ in copies),
        "$lane": "ptr %ctx, ptr %found, ptr %local, ptr %limit, i32 0, i32 0, i32 0",
        "$name": name,
    }
    made = _MANY
    for placeholder, part in parts.items():
        made = made.replace(placeholder, part)
    return filled(made)
