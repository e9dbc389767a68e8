"""
Translate warp operations and barriers.

A thread stores its operand in its ThreadRecord, memory that other threads read, and suspends. The scheduler
(runtime.ll) resumes the thread when all threads of the operation have stored theirs. The thread then reads
the operands of the other threads from their records. A barrier of a block suspends its threads likewise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .mnemonics import UnsupportedInstruction
from .runtime import THREAD_RECORD_SIZE, BlockContext, Scope, ThreadState, thread_field_offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ir_builder import IRBuilder
    from .mnemonics import Mnemonic
    from .translator import Translator

# The operations of `ptxlink.reduce` in runtime.ll: "add" has number 0, "and" number 1, and so on.
_REDUCTIONS = ("add", "and", "or", "xor", "smin", "smax", "umin", "umax")
_BLOCK_BARRIERS = 16  # The barriers of a block, by numbers from 0 on ("bar" in the PTX ISA).


def exchange(b: Translator, value: str, mask: str) -> tuple[str, str]:
    """
    Suspend until all threads of a warp that *mask* names have passed a value.

    Args:
        b: The function under construction.
        value: The value of this thread, an i64.
        mask: The PTX operand with the mask of lanes.

    Returns:
        The mask of the lanes that took part, and the address of the ThreadRecord of lane 0, from which
        `load_lane_operand` finds the values.
    """
    b.suspend(ThreadState.WARP, key=b.read_operand(mask, 32), value=value)
    b.report_order(Scope.WARP)
    # The records of a warp follow each other: go back to that of lane 0.
    offset = b.emit_op("mul", "i32", b.expand("%laneid"), -THREAD_RECORD_SIZE)
    return _load_group(b), b.emit_value(f"getelementptr i8, ptr %thread_record, i32 {offset}")


def load_lane_operand(b: IRBuilder, ir_type: str, first_record: str, lane: str) -> str:
    """Return the value that a lane passed to `exchange`; *first_record* is the ThreadRecord of lane 0."""
    record = b.emit_value(f"getelementptr [{THREAD_RECORD_SIZE} x i8], ptr {first_record}, i32 {lane}")
    return b.load(ir_type, record, thread_field_offset("seen"))


def _load_group(b: Translator) -> str:
    """Return the mask of the lanes that took part; for a barrier, the number of threads that reached it."""
    return b.load("i32", "%thread_record", thread_field_offset("group"))


def _ballot(b: Translator, group: str, first_record: str, value: str) -> str:
    """Return the mask of the lanes that passed *value* to the exchange that returned the other arguments."""
    return b.call("ptxlink.ballot", "i32", f"ptr {first_record}", f"i32 {group}", f"i64 {value}")


def _read_as_i64(b: Translator, operand: str, bits: int) -> str:
    """Return an operand of *bits*, extended to 64 bits by zeros."""
    return b.resize(b.read_operand(operand, bits), bits, 64)


def _mode(mnemonic: Mnemonic) -> str:
    """
    Return the modifier other than `sync`, such as "ballot"; "" if there is none.

    The order is free: ptxas accepts `vote.sync.ballot` and `vote.ballot.sync`, and CUB has the latter.
    """
    return next((modifier for modifier in mnemonic.modifiers if modifier != "sync"), "")


def vote(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `vote.sync`. Instructions without `.sync`, for GPUs before Volta, are not supported."""
    if "sync" not in mnemonic.modifiers:
        raise UnsupportedInstruction
    group, first_record = exchange(b, _read_as_i64(b, operands[1], 1), operands[-1])
    false_lanes = _ballot(b, group, first_record, "0")
    # The predicate is true in all other lanes of the group.
    true_lanes = b.emit_op("xor", "i32", group, false_lanes)
    b.write_expansion(operands[0], f"vote.{_mode(mnemonic)}", hits=true_lanes, group=group)


def shuffle(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `shfl.sync`. Instructions without `.sync`, for GPUs before Volta, are not supported."""
    if "sync" not in mnemonic.modifiers:
        raise UnsupportedInstruction
    # The operands are `d|p, a, b, c, mask`. The predicate p, which may be missing, becomes whether the source
    # lane is in range. The operand b is the distance to the source lane, or for `idx` its number; c has the
    # last lane in bits 0 to 4 and the mask of the segment in bits 8 to 12.
    target, _, predicate = (name.strip() for name in operands[0].partition("|"))
    distance, bounds = b.read_operand(operands[2], 32), b.read_operand(operands[3], 32)
    _, first_record = exchange(b, _read_as_i64(b, operands[1], 32), operands[4])
    lane, mode = b.expand("%laneid"), _mode(mnemonic)
    # The last lane that may be read; for `up`, which reads lower lanes, the first one.
    limit = b.expand("shfl.last", lane=lane, bounds=bounds)
    source = b.expand(f"shfl.{mode}", lane=lane, distance=distance, bounds=bounds)
    is_in_range = b.emit_op(f"icmp {'sge' if mode == 'up' else 'sle'}", "i32", source, limit)
    # Out of range, a lane gets its own value.
    source = b.select(is_in_range, "i32", source, lane)
    b.write_register(target, load_lane_operand(b, "i32", first_record, source), 32)
    if predicate:
        b.write_register(predicate, is_in_range, 1)


def match(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `match.any` and `match.all`, which compare the values of the lanes.

    `match.any` returns the mask of the lanes that have this lane's value. `match.all` returns the mask of all
    lanes that take part if they have the same value, else 0. A predicate, which may be missing, becomes
    whether they have.
    """
    target, _, predicate = (name.strip() for name in operands[0].partition("|"))
    value = _read_as_i64(b, operands[1], mnemonic.type.bits)
    group, first_record = exchange(b, value, operands[2])
    equal_lanes = _ballot(b, group, first_record, value)
    if "any" in mnemonic.modifiers:
        b.write_register(target, equal_lanes, 32)
        return
    is_unanimous = b.emit_op("icmp eq", "i32", equal_lanes, group)
    b.write_register(target, b.select(is_unanimous, "i32", group, "0"), 32)
    if predicate:
        b.write_register(predicate, is_unanimous, 1)


def reduce(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `redux`: the sum, minimum, maximum or bitwise combination of the lanes' values."""
    if mnemonic.type.is_float:
        reduce_floats(b, mnemonic, operands)
        return
    # The first modifier is `sync`: `redux.sync.add.s32`.
    operation = ".".join(mnemonic.modifiers[1:])
    sign = "s" if mnemonic.type.is_signed else "u"
    name = f"{sign}{operation}" if operation in ("min", "max") else operation
    if name not in _REDUCTIONS:
        raise UnsupportedInstruction
    group, first_record = exchange(b, _read_as_i64(b, operands[1], 32), operands[2])
    arguments = f"ptr {first_record}", f"i32 {group}", f"i32 {_REDUCTIONS.index(name)}"
    b.write_register(operands[0], b.call("ptxlink.reduce", "i32", *arguments), 32)


def reduce_floats(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `redux` of floats: the minimum or maximum of the values, or of their magnitudes (`.abs`).

    With `.NaN`, the result is NaN if a value is NaN; without it, NaN is ignored unless all values are NaN.
    """
    # The first modifier is `sync`: `redux.sync.min.abs.NaN.f32`.
    mode, *modifiers = mnemonic.modifiers[1:] or [""]
    if mode not in ("min", "max") or not {*modifiers} <= {"abs", "NaN"}:
        raise UnsupportedInstruction
    group, first_record = exchange(b, _read_as_i64(b, operands[1], 32), operands[2])
    flags = (f"i1 {int(flag)}" for flag in (mode == "max", "abs" in modifiers, "NaN" in modifiers))
    value = b.call("ptxlink.reduce.f32", "i32", f"ptr {first_record}", f"i32 {group}", *flags)
    b.write_register(operands[0], value, 32)


def elect(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `elect`, which chooses a lane of the mask: here the lowest lane."""
    target, _, predicate = (name.strip() for name in operands[0].partition("|"))
    group, _ = exchange(b, "0", operands[1])
    leader = b.call("llvm.cttz.i32", "i32", f"i32 {group}", "i1 true")
    b.write_register(target, leader, 32)
    b.write_register(predicate, b.emit_op("icmp eq", "i32", leader, b.expand("%laneid")), 1)


def read_active_mask(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `activemask`: suspend until no thread of the warp can run.

    The threads that wait at this instruction are then the active ones.
    """
    b.suspend(ThreadState.ACTIVEMASK)
    b.write_register(operands[0], _load_group(b), 32)


def synchronize(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `bar` and `barrier` of warps and blocks, with or without a reduction."""
    # The mode is "sync", "arrive", "red" with an operation such as "popc", or "warp" with "sync".
    mode, *submodes = [flag for flag in mnemonic.modifiers if flag not in ("cta", "aligned")] or [""]
    if [mode, *submodes] == ["warp", "sync"]:
        exchange(b, "0", operands[0])
        return
    if mode == "arrive":
        _arrive(b, operands[0])
        return
    if mode not in ("sync", "red") or len(operands) not in ((3, 4) if mode == "red" else (1, 2)):
        raise UnsupportedInstruction
    # The operands are `bar.sync barrier{, count}` and `bar.red result, barrier{, count}, predicate`.
    if mode == "red":
        barrier, *counts = operands[1:-1]
        value = _read_as_i64(b, operands[-1], 1)
    else:
        barrier, *counts = operands
        value = "0"
    # Without a count, the barrier is for all threads of the block, for which ThreadRecord has a count of 0.
    count = b.read_operand(counts[0], 32) if counts else "0"
    b.suspend(ThreadState.BARRIER, key=b.read_operand(barrier, 32), expected_count=count, value=value)
    b.report_order(Scope.BLOCK)
    if mode == "sync":
        return
    # For a barrier, the scheduler stores in `seen` the number of threads whose predicate is true.
    true_count = b.load("i32", "%thread_record", thread_field_offset("seen"))
    b.write_expansion(operands[0], f"bar.{'.'.join(submodes)}", hits=true_count, group=_load_group(b))


def _arrive(b: Translator, barrier: str) -> None:
    """Translate `bar.arrive`: count this thread as arrived at a barrier, and do not wait."""
    number = b.emit_op("and", "i32", b.read_operand(barrier, 32), _BLOCK_BARRIERS - 1)
    counts = b.offset_pointer("%ctx", BlockContext.barrier_arrivals.offset)
    count_pointer = b.emit_value(f"getelementptr i32, ptr {counts}, i32 {number}")
    b.store("i32", b.emit_op("add", "i32", b.load("i32", count_pointer), 1), count_pointer)


WARP_HANDLERS = {
    "vote": vote,
    "shfl": shuffle,
    "match": match,
    "redux": reduce,
    "elect": elect,
    "activemask": read_active_mask,
    **dict.fromkeys(("bar", "barrier"), synchronize),
}
