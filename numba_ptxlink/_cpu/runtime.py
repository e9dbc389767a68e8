"""What machine code calls: the search for a region, faults, pauses, and loops over lanes and blocks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import schedule
from .builder import METADATA, Builder
from .layout import Fault, noted_offset, offset

if TYPE_CHECKING:
    from collections.abc import Sequence

COROUTINES = """
declare token @llvm.coro.id(i32, ptr, ptr, ptr)
declare i64 @llvm.coro.size.i64()
declare ptr @llvm.coro.begin(token, ptr)
declare i8 @llvm.coro.suspend(token, i1)
declare {END} @llvm.coro.end(ptr, i1, token)
"""
RESUME = "declare void @llvm.coro.resume(ptr)"
DECLARATIONS = """
declare void @ptxlink.note(ptr, i64, i64, i64, i64) cold
declare i1 @ptxlink.find(ptr, i64, i64) cold
declare i32 @ptxlink.pause(ptr, ptr, i64, i32) cold
declare i64 @ptxlink.time()
declare i64 @ptxlink.allocate(ptr, i64)
declare i32 @ptxlink.begin(ptr, ptr)
declare i32 @ptxlink.continue(ptr)
declare i32 @ptxlink.yielded(ptr, i32)
"""


def text() -> str:
    """Return the module that programs are loaded with: what their code calls, scheduler, and entries."""
    declared: dict[str, str] = {}
    parts = [make(declared) for make in (_note, _find, _pause, _time, _allocate, entries)]
    parts += schedule.functions(declared)
    return "\n".join((*declared.values(), RESUME, *parts, METADATA))


def _note(declared: dict[str, str]) -> str:
    b = Builder(declared)
    noted = b.load("ptr", "%ctx", offset("noted"))
    with b.when(b.op("icmp eq", "i64", b.load("i64", noted, noted_offset("kind")), 0)):
        for name in ("kind", "site", "address", "size"):
            b.store("i64", f"%{name}", noted, noted_offset(name))
    b.end("ret void")
    arguments = ", ".join(f"i64 %{name}" for name in ("kind", "site", "address", "size"))
    return b.text(f"void @ptxlink.note(ptr %ctx, {arguments}) noinline cold")


def accesses(rows: Sequence[tuple[int, int, int, int]]) -> str:
    """Return what is known of each access: its size, alignment, place, and whether it writes."""
    row = "{i64, i64, i64, i64}"
    content = ", ".join(f"{row} {{{', '.join(f'i64 {each}' for each in values)}}}" for values in rows)
    return f"@ptxlink.accesses = constant [{len(rows)} x {row}] [{content}]"


def _find(declared: dict[str, str]) -> str:
    """Return what searches all regions for an access, and notes the one that it is in, or the fault."""
    b = Builder(declared)
    access = b.at(b.load("ptr", "%ctx", offset("accesses")), b.op("mul", "i64", "%number", 32))
    size, aligned, site, writes = (b.load("i64", access, 8 * part) for part in range(4))

    def fault(kind: Fault) -> None:
        b.do(f"call void @ptxlink.note(ptr %ctx, i64 {int(kind)}, i64 {site}, i64 %address, i64 {size})")
        b.end("ret i1 false")

    rest = b.op("and", "i64", "%address", b.op("sub", "i64", aligned, 1))
    with b.when(b.op("icmp ne", "i64", rest, 0)):
        fault(Fault.MISALIGNED)
    regions, count = b.load("ptr", "%ctx", offset("regions")), b.load("i64", "%ctx", offset("readable"))
    writable = b.load("i64", "%ctx", offset("writable"))
    with b.loop(count, "i64") as number:
        region = b.at(regions, b.op("mul", "i64", number, 16))
        low, high = b.load("i64", region), b.load("i64", region, 8)
        length = b.op("sub", "i64", high, low)
        room = b.op("sub", "i64", length, b.op("sub", "i64", size, 1))
        inside = b.op("icmp ult", "i64", b.op("sub", "i64", "%address", low), room)
        enough = b.op("icmp uge", "i64", length, size)
        with b.when(b.op("and", "i1", inside, enough)):
            spoilt = b.op(
                "and", "i64", writes, b.resize(b.op("icmp sge", "i64", number, writable), "i1", "i64")
            )
            with b.when(b.op("icmp ne", "i64", spoilt, 0)):
                fault(Fault.READ_ONLY)
            found = b.at(b.load("ptr", "%ctx", offset("found")), b.op("mul", "i64", "%number", 16))
            b.store("i64", low, found)
            b.store("i64", room, found, 8)
            b.end("ret i1 true")
    fault(Fault.ACCESS)
    return b.text("i1 @ptxlink.find(ptr %ctx, i64 %number, i64 %address) noinline cold")


def _pause(declared: dict[str, str]) -> str:
    """Return what a loop calls now and then: how many ways back it may take until the next time, 0 to end."""
    b = Builder(declared)
    left = b.let("load i64, ptr %left")
    with b.when(b.op("icmp sle", "i64", left, 0)):
        b.do(f"call void @ptxlink.note(ptr %ctx, i64 {int(Fault.LOOP)}, i64 %site, i64 0, i64 0)")
        b.end("ret i32 0")
    thread = b.load("ptr", "%ctx", offset("thread"))
    with b.when(b.op("icmp ne", "ptr", thread, "null")):
        b.do(f"call void {b.load('ptr', '%ctx', offset('restore'))}(ptr {thread})")
        told = b.let(f"call i32 {b.load('ptr', '%ctx', offset('check'))}()")
        saved = b.let(f"call ptr {b.load('ptr', '%ctx', offset('save'))}()")
        b.store("ptr", saved, "%ctx", offset("thread"))
        with b.when(b.op("icmp ne", "i32", told, 0)):
            b.do(f"store atomic i32 1, ptr {b.load('ptr', '%ctx', offset('stop'))} monotonic, align 4")
    stop = b.let(f"load atomic i32, ptr {b.load('ptr', '%ctx', offset('stop'))} monotonic, align 4")
    with b.when(b.op("icmp ne", "i32", stop, 0)):
        b.do(f"call void @ptxlink.note(ptr %ctx, i64 {int(Fault.INTERRUPTED)}, i64 %site, i64 0, i64 0)")
        b.end("ret i32 0")
    more = b.call("llvm.smin.i64", "i64", f"i64 {left}", f"i64 {b.resize('%chunk', 'i32', 'i64')}")
    b.do(f"store i64 {b.op('sub', 'i64', left, more)}, ptr %left")
    b.end(f"ret i32 {b.resize(more, 'i64', 'i32')}")
    return b.text("i32 @ptxlink.pause(ptr %ctx, ptr %left, i64 %site, i32 %chunk) noinline cold")


def _time(declared: dict[str, str]) -> str:
    """Return what tells the time in nanoseconds."""
    b = Builder(declared)
    place = b.variable("[2 x i64]")
    b.call("clock_gettime", "i32", "i32 0", f"ptr {place}")
    seconds, rest = b.let(f"load i64, ptr {place}"), b.let(f"load i64, ptr {b.at(place, 8)}")
    b.end(f"ret i64 {b.op('add', 'i64', b.op('mul', 'i64', seconds, 1_000_000_000), rest)}")
    return b.text("i64 @ptxlink.time()")


def _allocate(declared: dict[str, str]) -> str:
    """Return what gives memory of the heap, 0 where there is no more."""
    b = Builder(declared)
    heap = b.load("ptr", "%ctx", offset("heap"))
    size = b.op("and", "i64", b.op("add", "i64", "%size", 15), -16)
    old = b.let(f"atomicrmw add ptr {heap}, i64 {size} seq_cst")
    end = b.load("i64", heap, 8)
    room = b.op("sub", "i64", end, old)
    fits = b.op("icmp sge", "i64", room, size)
    small = b.op("icmp ult", "i64", "%size", 1 << 40)
    b.end(f"ret i64 {b.select(b.op('and', 'i1', fits, small), 'i64', old, '0')}")
    return b.text("i64 @ptxlink.allocate(ptr %ctx, i64 %size)")


def _faulty(b: Builder) -> str:
    noted = b.load("ptr", "%ctx", offset("noted"))
    return b.op("icmp ne", "i64", b.load("i64", noted, noted_offset("kind")), 0)


def block(declared: dict[str, str], lane: str, name: str) -> str:
    """Return what executes the lanes of a block, none of which waits, one after the other."""
    b = Builder(declared)
    local, params = b.load("ptr", "%ctx", offset("local")), b.load("ptr", "%ctx", offset("params"))
    limit = b.at(local, b.load("i64", "%ctx", offset("local_size")))
    nx, ny, nz = (b.load("i32", "%ctx", offset("ntid", part)) for part in range(3))
    found = b.load("ptr", "%ctx", offset("found"))
    with b.loop(nz) as z, b.loop(ny) as y, b.loop(nx) as x:
        b.store("i32", schedule.linear(b, x, y, z, nx, ny), "%ctx", offset("current"))
        arguments = (
            f"ptr %ctx, ptr {found}, ptr {local}, ptr {limit}, i32 {x}, i32 {y}, i32 {z}, ptr {params}"
        )
        ended = b.let(f"call i1 {lane}({arguments})")
        with b.when(ended), b.when(_faulty(b)):
            b.end("ret i32 1")
    b.end("ret i32 0")
    return b.text(f"i32 {name}(ptr %ctx, i32 %go)")


def many(declared: dict[str, str], function: str, name: str, sizes: Sequence[int], results: int) -> str:
    """Return what calls a function for elements of arrays: each an address and a stride, results first."""
    b = Builder(declared)
    local, found = b.load("ptr", "%ctx", offset("local")), b.load("ptr", "%ctx", offset("found"))
    limit = b.at(local, b.load("i64", "%ctx", offset("local_size")))
    places = [b.variable(f"[{size} x i8], align 16") for size in sizes]
    bases = [b.load("ptr", "%arrays", 16 * number) for number in range(len(sizes))]
    strides = [b.load("i64", "%arrays", 16 * number + 8) for number in range(len(sizes))]
    with b.loop("%count", "i64") as number:
        elements = [
            b.at(base, b.op("mul", "i64", number, stride))
            for base, stride in zip(bases, strides, strict=True)
        ]
        rows = list(zip(places, elements, sizes, strict=True))
        for place, element, size in rows[results:]:
            b.copy(place, element, size)
        b.store("i32", b.resize(number, "i64", "i32"), "%ctx", offset("current"))
        pointers = "".join(f", ptr {each}" for each in places)
        lane = f"ptr %ctx, ptr {found}, ptr {local}, ptr {limit}, i32 0, i32 0, i32 0"
        ended = b.let(f"call i1 {function}({lane}{pointers})")
        with b.when(ended), b.when(_faulty(b)):
            b.end("ret i32 1")
        for place, element, size in rows[:results]:
            b.copy(element, place, size)
    b.end("ret i32 0")
    return b.text(f"i32 {name}(ptr %ctx, ptr %arrays, i64 %count, i32 %go)")


def coroutine_head(b: Builder) -> None:
    """Begin a coroutine; called without memory it tells how much it needs."""
    identity = b.let("call token @llvm.coro.id(i32 16, ptr null, ptr null, ptr null)")
    size = b.let("call i64 @llvm.coro.size.i64()")
    with b.when(b.op("icmp eq", "ptr", "%memory", "null")):
        b.end(f"ret i64 {size}")
    b.lines.append(f"  %handle = call ptr @llvm.coro.begin(token {identity}, ptr %memory)")


def coroutine_end(b: Builder) -> None:
    """End a coroutine, or a part of one; its first part returns its handle."""
    b.do("call {END} @llvm.coro.end(ptr %handle, i1 false, token none)")
    b.end(f"ret i64 {b.let('ptrtoint ptr %handle to i64')}")


def entries(declared: dict[str, str]) -> str:
    """Return what the host calls, which lets other threads of Python run meanwhile: a grid, or elements."""
    grid = Builder(declared)
    _release(grid)
    nx, ny = (grid.load("i32", "%ctx", offset("nctaid", part)) for part in range(2))
    result = grid.variable("i32", "0")
    done = grid.fresh()
    with grid.loop("%count", "i64") as index:
        number = grid.op("add", "i64", "%first", index)
        stop = grid.let(f"load atomic i32, ptr {grid.load('ptr', '%ctx', offset('stop'))} monotonic, align 4")
        with grid.when(grid.op("icmp ne", "i32", stop, 0)):
            grid.end(f"br label %{done}")
        wide_x, wide_y = (grid.resize(each, "i32", "i64") for each in (nx, ny))
        row = grid.op("udiv", "i64", number, wide_x)
        for part, value in enumerate(
            (
                grid.op("urem", "i64", number, wide_x),
                grid.op("urem", "i64", row, wide_y),
                grid.op("udiv", "i64", row, wide_y),
            )
        ):
            grid.store("i32", grid.resize(value, "i64", "i32"), "%ctx", offset("ctaid", part))
        told = grid.let("call i32 %block(ptr %ctx, i32 %go)")
        grid.do(f"store i32 {told}, ptr {result}")
        with grid.when(grid.op("icmp ne", "i32", told, 0)):
            grid.end(f"br label %{done}")
    grid.label(done)
    _retake(grid)
    grid.end(f"ret i32 {grid.let(f'load i32, ptr {result}')}")
    elements = Builder(declared)
    _release(elements)
    told = elements.let("call i32 %many(ptr %ctx, ptr %arrays, i64 %count, i32 0)")
    _retake(elements)
    elements.end(f"ret i32 {told}")
    return "\n".join(
        (
            grid.text("i32 @ptxlink.grid(ptr %ctx, ptr %block, i64 %first, i64 %count, i32 %go)"),
            elements.text("i32 @ptxlink.elements(ptr %ctx, ptr %many, ptr %arrays, i64 %count, i32 %go)"),
        )
    )


def _release(b: Builder) -> None:
    saved = b.let(f"call ptr {b.load('ptr', '%ctx', offset('save'))}()")
    b.store("ptr", saved, "%ctx", offset("thread"))


def _retake(b: Builder) -> None:
    restore = b.load("ptr", "%ctx", offset("restore"))
    b.do(f"call void {restore}(ptr {b.load('ptr', '%ctx', offset('thread'))})")
