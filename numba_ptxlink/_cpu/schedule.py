"""
Which lanes of a block go on when, where lanes wait for each other.

A round lets each warp go on whose lanes are all where they wait. If none is, lanes that came to the same
place are told who came together; then a barrier opens that all have reached; then loops that gave way go on.
"""

from __future__ import annotations

from .builder import Builder
from .layout import LANE, Fault, State, lane_offset, noted_offset, offset

_NUMBER = {state: str(int(state)) for state in State}


def linear(b: Builder, x: str, y: str, z: str, nx: str, ny: str) -> str:
    """Return the number of a lane in its block."""
    row = b.op("add", "i32", b.op("mul", "i32", z, ny), y)
    return b.op("add", "i32", b.op("mul", "i32", row, nx), x)


def _record(b: Builder, lanes: str, lane: str) -> str:
    return b.at(lanes, b.op("mul", "i32", lane, LANE), "i32")


def _state(b: Builder, record: str, state: State) -> str:
    """Return whether a lane waits for something."""
    return b.op("icmp eq", "i32", b.load("i32", record, lane_offset("state")), _NUMBER[state])


def _begin(declared: dict[str, str]) -> str:
    """Return what executes every lane of a block to the first place where it waits."""
    b = Builder(declared)
    local, params = b.load("ptr", "%ctx", offset("local")), b.load("ptr", "%ctx", offset("params"))
    local_size = b.load("i64", "%ctx", offset("local_size"))
    frames, frame_size = b.load("ptr", "%ctx", offset("frames")), b.load("i64", "%ctx", offset("frame_size"))
    lanes, found = b.load("ptr", "%ctx", offset("lanes")), b.load("ptr", "%ctx", offset("found"))
    nx, ny, nz = (b.load("i32", "%ctx", offset("ntid", part)) for part in range(3))
    with b.loop(nz) as z, b.loop(ny) as y, b.loop(nx) as x:
        number = linear(b, x, y, z, nx, ny)
        b.store("i32", number, "%ctx", offset("current"))
        wide = b.resize(number, "i32", "i64")
        own = b.at(local, b.op("mul", "i64", wide, local_size))
        limit = b.at(own, local_size)
        memory = b.at(frames, b.op("mul", "i64", wide, frame_size))
        record = _record(b, lanes, number)
        where = f"ptr %ctx, ptr {found}, ptr {own}, ptr {limit}, i32 {x}, i32 {y}, i32 {z}, ptr {params}"
        handle = b.let(f"call i64 %ramp({where}, ptr {record}, ptr {memory})")
        b.store("i64", handle, record)
        b.store("i32", number, record, lane_offset("number"))
        _end_if_faulty(b)
    b.end("ret i32 0")
    return b.text("i32 @ptxlink.begin(ptr %ctx, ptr %ramp)")


def _end_if_faulty(b: Builder) -> None:
    noted = b.load("ptr", "%ctx", offset("noted"))
    with b.when(b.op("icmp ne", "i64", b.load("i64", noted, noted_offset("kind")), 0)):
        b.end("ret i32 1")


def _resume(b: Builder, record: str) -> None:
    b.store("i32", b.load("i32", record, lane_offset("number")), "%ctx", offset("current"))
    b.do(f"call void @llvm.coro.resume(ptr {b.load('ptr', record)})")
    _end_if_faulty(b)


def _warp(declared: dict[str, str]) -> str:
    """Return what lets the lanes of a warp go on that wait for each other: 2 if there were some."""
    b = Builder(declared)
    waiting, alive, ran = b.variable("i32", "0"), b.variable("i32", "0"), b.variable("i32", "0")
    with b.loop("%width") as lane:
        record = _record(b, "%first", lane)
        bit = b.op("shl", "i32", 1, lane)
        ended = _state(b, record, State.ENDED)
        b.update(alive, "or", "i32", b.select(ended, "i32", "0", bit))
        here = b.op("icmp eq", "i32", b.load("i32", record, lane_offset("state")), "%state")
        b.update(waiting, "or", "i32", b.select(here, "i32", bit, "0"))
    living = b.let(f"load i32, ptr {alive}")
    # Only lanes of a warp that do not converge have a mask; those that do need the same place.
    masked = b.op("icmp eq", "i32", "%state", _NUMBER[State.WARP])
    with b.loop("%width") as lane:
        left = b.let(f"load i32, ptr {waiting}")
        with b.when(b.op("icmp ne", "i32", b.op("and", "i32", b.op("lshr", "i32", left, lane), 1), 0)):
            record = _record(b, "%first", lane)
            key = b.load("i32", record, lane_offset("key"))
            mask = b.select(masked, "i32", key, "-1")
            site = b.load("i32", record, lane_offset("site"))
            group = b.variable("i32")
            b.do(f"store i32 0, ptr {group}")
            with b.loop("%width") as other:
                there = _record(b, "%first", other)
                set_ = b.op("icmp ne", "i32", b.op("and", "i32", b.op("lshr", "i32", left, other), 1), 0)
                same_key = b.op("icmp eq", "i32", b.load("i32", there, lane_offset("key")), key)
                same_site = b.op("icmp eq", "i32", b.load("i32", there, lane_offset("site")), site)
                same = b.op("and", "i1", set_, b.select(masked, "i1", same_key, same_site))
                bit = b.op("shl", "i32", 1, other)
                b.update(group, "or", "i32", b.select(same, "i32", bit, "0"))
            found = b.let(f"load i32, ptr {group}")
            missing = b.op("and", "i32", b.op("and", "i32", mask, living), b.op("xor", "i32", found, -1))
            complete = b.op("icmp eq", "i32", missing, 0)
            ready = b.op("or", "i1", complete, b.op("xor", "i1", masked, "true"))
            rest = b.op("and", "i32", left, b.op("xor", "i32", found, -1))
            b.do(f"store i32 {rest}, ptr {waiting}")
            with b.when(ready):
                for resumes in (False, True):
                    with b.loop("%width") as other:
                        set_ = b.op(
                            "icmp ne", "i32", b.op("and", "i32", b.op("lshr", "i32", found, other), 1), 0
                        )
                        with b.when(set_):
                            there = _record(b, "%first", other)
                            if resumes:
                                _resume(b, there)
                            else:
                                b.store(
                                    "i64",
                                    b.load("i64", there, lane_offset("value")),
                                    there,
                                    lane_offset("seen"),
                                )
                                b.store("i32", found, there, lane_offset("together"))
                b.do(f"store i32 2, ptr {ran}")
    b.end(f"ret i32 {b.let(f'load i32, ptr {ran}')}")
    return b.text("internal i32 @ptxlink.warp(ptr %ctx, ptr %first, i32 %width, i32 %state)")


def _warps(declared: dict[str, str]) -> str:
    """Return what lets the lanes of all warps go on that wait in a way: 2 if there were some."""
    b = Builder(declared)
    lanes, count = b.load("ptr", "%ctx", offset("lanes")), b.load("i32", "%ctx", offset("count"))
    ran = b.variable("i32", "0")
    with b.loop(b.op("lshr", "i32", b.op("add", "i32", count, 31), 5)) as warp:
        start = b.op("shl", "i32", warp, 5)
        width = b.call("llvm.smin.i32", "i32", f"i32 {b.op('sub', 'i32', count, start)}", "i32 32")
        told = b.let(
            f"call i32 @ptxlink.warp(ptr %ctx, ptr {_record(b, lanes, start)}, i32 {width}, i32 %state)"
        )
        with b.when(b.op("icmp eq", "i32", told, 1)):
            b.end("ret i32 1")
        b.update(ran, "or", "i32", told)
    b.end(f"ret i32 {b.let(f'load i32, ptr {ran}')}")
    return b.text("internal i32 @ptxlink.warps(ptr %ctx, i32 %state)")


def _barriers(declared: dict[str, str]) -> str:
    """Return what opens a barrier that enough lanes have reached: 2 if there was one."""
    b = Builder(declared)
    lanes, count = b.load("ptr", "%ctx", offset("lanes")), b.load("i32", "%ctx", offset("count"))
    alive, arrived, hits = (b.variable("i32") for _ in range(3))
    b.do(f"store i32 0, ptr {alive}")
    with b.loop(count) as lane:
        ended = _state(b, _record(b, lanes, lane), State.ENDED)
        b.update(alive, "add", "i32", b.select(ended, "i32", "0", "1"))
    living = b.let(f"load i32, ptr {alive}")
    with b.loop(count) as lane:
        record = _record(b, lanes, lane)
        with b.when(_state(b, record, State.BARRIER)):
            key, wanted = (
                b.load("i32", record, lane_offset("key")),
                b.load("i32", record, lane_offset("count")),
            )
            b.do(f"store i32 0, ptr {arrived}")
            b.do(f"store i32 0, ptr {hits}")
            with b.loop(count) as other, b.when(_there(b, lanes, other, key)):
                value = b.resize(b.load("i64", _record(b, lanes, other), lane_offset("value")), "i64", "i32")
                b.update(hits, "add", "i32", value)
                b.update(arrived, "add", "i32", 1)
            came, hit = b.let(f"load i32, ptr {arrived}"), b.let(f"load i32, ptr {hits}")
            needed = b.select(b.op("icmp eq", "i32", wanted, 0), "i32", living, wanted)
            with b.when(b.op("icmp uge", "i32", came, needed)):
                with b.loop(count) as other, b.when(_there(b, lanes, other, key)):
                    there = _record(b, lanes, other)
                    b.store("i64", b.resize(hit, "i32", "i64"), there, lane_offset("seen"))
                    b.store("i32", came, there, lane_offset("together"))
                    # Lanes that come to the barrier again are none of these.
                    b.store("i32", "-1", there, lane_offset("state"))
                with b.loop(count) as other:
                    there = _record(b, lanes, other)
                    opened = b.op("icmp eq", "i32", b.load("i32", there, lane_offset("state")), -1)
                    with b.when(opened):
                        _resume(b, there)
                b.end("ret i32 2")
    b.end("ret i32 0")
    return b.text("internal i32 @ptxlink.barriers(ptr %ctx)")


def _there(b: Builder, lanes: str, lane: str, key: str) -> str:
    """Return whether a lane is at a barrier."""
    record = _record(b, lanes, lane)
    same = b.op("icmp eq", "i32", b.load("i32", record, lane_offset("key")), key)
    return b.op("and", "i1", same, _state(b, record, State.BARRIER))


def _yielded(declared: dict[str, str]) -> str:
    """Return what lets lanes go on that gave way, or that waited for the grid: 2 if there were some."""
    b = Builder(declared)
    lanes, count = b.load("ptr", "%ctx", offset("lanes")), b.load("i32", "%ctx", offset("count"))
    ran = b.variable("i32", "0")
    with b.loop(count) as lane:
        record = _record(b, lanes, lane)
        with b.when(b.op("icmp eq", "i32", b.load("i32", record, lane_offset("state")), "%state")):
            _resume(b, record)
            b.do(f"store i32 2, ptr {ran}")
    b.end(f"ret i32 {b.let(f'load i32, ptr {ran}')}")
    return b.text("i32 @ptxlink.yielded(ptr %ctx, i32 %state)")


def _continue(declared: dict[str, str]) -> str:
    """Return what executes a block until it ends (0), has a fault (1), waits for a grid (3), or spins (4)."""
    b = Builder(declared)
    again = b.fresh()
    b.label(again)
    for call in (
        f"warps(ptr %ctx, i32 {_NUMBER[State.WARP]})",
        f"warps(ptr %ctx, i32 {_NUMBER[State.CONVERGED]})",
        "barriers(ptr %ctx)",
        f"yielded(ptr %ctx, i32 {_NUMBER[State.YIELDED]})",
    ):
        told = b.let(f"call i32 @ptxlink.{call}")
        with b.when(b.op("icmp eq", "i32", told, 1)):
            b.end("ret i32 1")
        with b.when(b.op("icmp eq", "i32", told, 2)):
            if call.startswith("yielded"):
                # What these lanes wait for may be in another block.
                alone = b.op("icmp eq", "i32", b.load("i32", "%ctx", offset("cooperative")), 0)
                with b.when(b.op("xor", "i1", alone, "true")):
                    b.end("ret i32 4")
            b.end(f"br label %{again}")
    lanes, count = b.load("ptr", "%ctx", offset("lanes")), b.load("i32", "%ctx", offset("count"))
    grid = b.variable("i32", "0")
    with b.loop(count) as lane:
        record = _record(b, lanes, lane)
        with b.when(_state(b, record, State.GRID)):
            b.do(f"store i32 3, ptr {grid}")
    with b.loop(count) as lane:
        record = _record(b, lanes, lane)
        stuck = b.op("or", "i1", _state(b, record, State.WARP), _state(b, record, State.BARRIER))
        with b.when(stuck):
            site = b.resize(b.load("i32", record, lane_offset("site")), "i32", "i64")
            b.store("i32", lane, "%ctx", offset("current"))
            b.do(f"call void @ptxlink.note(ptr %ctx, i64 {int(Fault.WAITING)}, i64 {site}, i64 0, i64 0)")
            b.end("ret i32 1")
    b.end(f"ret i32 {b.let(f'load i32, ptr {grid}')}")
    return b.text("i32 @ptxlink.continue(ptr %ctx)")


def functions(declared: dict[str, str]) -> list[str]:
    """Return the scheduler."""
    return [make(declared) for make in (_begin, _warp, _warps, _barriers, _yielded, _continue)]


def block(declared: dict[str, str], ramp: str, name: str) -> str:
    """Return what executes a block whose lanes wait: from the begin, after a grid's barrier (1), or on."""
    b = Builder(declared)
    begin, after, wake, on = (b.fresh() for _ in range(4))
    b.end(f"switch i32 %go, label %{on} [i32 0, label %{begin} i32 1, label %{wake}]")
    for label, call in (
        (begin, f"begin(ptr %ctx, ptr {ramp})"),
        (wake, f"yielded(ptr %ctx, i32 {_NUMBER[State.GRID]})"),
    ):
        b.label(label)
        told = b.let(f"call i32 @ptxlink.{call}")
        b.fork(b.op("icmp eq", "i32", told, 1), after, on)
    b.label(after)
    b.end("ret i32 1")
    b.label(on)
    b.end(f"ret i32 {b.let('call i32 @ptxlink.continue(ptr %ctx)')}")
    return b.text(f"i32 {name}(ptr %ctx, i32 %go)")
