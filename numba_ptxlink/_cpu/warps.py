"""
Translate warp operations and barriers.

A thread stores its operand in its ThreadRecord and suspends. The scheduler resumes it when all threads of the
operation have stored theirs; it then reads the operands of the others from their records.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .mnemonics import UnsupportedInstruction
from .runtime import THREAD_RECORD_SIZE, BlockContext, Scope, ThreadState, thread_field_offset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .mnemonics import Mnemonic
    from .translator import Translator

# The operations of `ptxlink.reduce`, in the order of their numbers.
_REDUCTIONS = ("add", "and", "or", "xor", "smin", "smax", "umin", "umax")


def exchange(b: Translator, value: str, mask: str) -> tuple[str, str]:
    """
    Exchange *value* between the threads of *mask*: suspend until all of them have arrived.

    Returns:
        The mask of the lanes that took part, and the address of the ThreadRecord of lane 0.
    """
    b.suspend(ThreadState.WARP, key=b.read_operand(mask, 32), value=value)
    b.report_order(Scope.WARP)
    offset = b.emit_op("mul", "i32", b.expand("%laneid"), -THREAD_RECORD_SIZE)
    return _load_group(b), b.emit_value(f"getelementptr i8, ptr %thread_record, i32 {offset}")


def _load_group(b: Translator) -> str:
    """Return the mask of the lanes that took part, or the number of threads that reached a barrier."""
    return b.load("i32", "%thread_record", thread_field_offset("group"))


def _ballot(b: Translator, group: str, first_record: str, value: str) -> str:
    """Return the mask of the lanes of *group* whose operand is *value*; *first_record* is that of lane 0."""
    return b.call("ptxlink.ballot", "i32", f"ptr {first_record}", f"i32 {group}", f"i64 {value}")


def _read_wide(b: Translator, operand: str, bits: int) -> str:
    """Return an operand of *bits*, extended to 64 bits by zeros."""
    return b.resize(b.read_operand(operand, bits), bits, 64)


def _mode(mnemonic: Mnemonic) -> str:
    """Return the modifier other than `sync`. ptxas accepts both orders, and CUB has `vote.ballot.sync`."""
    return next((modifier for modifier in mnemonic.modifiers if modifier != "sync"), "")


def vote(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `vote`."""
    if "sync" not in mnemonic.modifiers:
        raise UnsupportedInstruction
    group, first_record = exchange(b, _read_wide(b, operands[1], 1), operands[-1])
    false_lanes = _ballot(b, group, first_record, "0")
    hits = b.emit_op("xor", "i32", group, false_lanes)
    b.write_expansion(operands[0], f"vote.{_mode(mnemonic)}", hits=hits, group=group)


def shuffle(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `shfl`."""
    if "sync" not in mnemonic.modifiers:
        raise UnsupportedInstruction
    target, _, predicate = (name.strip() for name in operands[0].partition("|"))
    distance, bounds = b.read_operand(operands[2], 32), b.read_operand(operands[3], 32)
    _, first_record = exchange(b, _read_wide(b, operands[1], 32), operands[4])
    lane, mode = b.expand("%laneid"), _mode(mnemonic)
    # The last lane to read from; for `up`, with which compilers pass 0, the first lane of the segment.
    last = b.expand("shfl.last", lane=lane, bounds=bounds)
    source = b.expand(f"shfl.{mode}", lane=lane, distance=distance, bounds=bounds)
    in_range = b.emit_op(f"icmp {'sge' if mode == 'up' else 'sle'}", "i32", source, last)
    source = b.select(in_range, "i32", source, lane)
    record = b.emit_value(f"getelementptr [{THREAD_RECORD_SIZE} x i8], ptr {first_record}, i32 {source}")
    b.write_register(target, b.load("i32", record, thread_field_offset("seen")), 32)
    if predicate:
        b.write_register(predicate, in_range, 1)


def match(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `match`."""
    target, _, predicate = (name.strip() for name in operands[0].partition("|"))
    value = _read_wide(b, operands[1], mnemonic.type.bits)
    group, first_record = exchange(b, value, operands[2])
    hits = _ballot(b, group, first_record, value)
    if "any" in mnemonic.modifiers:
        b.write_register(target, hits, 32)
        return
    is_unanimous = b.emit_op("icmp eq", "i32", hits, group)
    b.write_register(target, b.select(is_unanimous, "i32", group, "0"), 32)
    if predicate:
        b.write_register(predicate, is_unanimous, 1)


def reduce(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `redux`."""
    if mnemonic.type.is_float:
        reduce_floats(b, mnemonic, operands)
        return
    operation = ".".join(mnemonic.modifiers[1:])
    sign = "s" if mnemonic.type.is_signed else "u"
    name = f"{sign}{operation}" if operation in ("min", "max") else operation
    if name not in _REDUCTIONS:
        raise UnsupportedInstruction
    group, first_record = exchange(b, _read_wide(b, operands[1], 32), operands[2])
    arguments = f"ptr {first_record}", f"i32 {group}", f"i32 {_REDUCTIONS.index(name)}"
    b.write_register(operands[0], b.call("ptxlink.reduce", "i32", *arguments), 32)


def reduce_floats(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `redux` of floats: the minimum or maximum of the values, or of their magnitudes (`.abs`)."""
    mode, *modifiers = mnemonic.modifiers[1:] or [""]
    if mode not in ("min", "max") or not {*modifiers} <= {"abs", "NaN"}:
        raise UnsupportedInstruction
    group, first_record = exchange(b, _read_wide(b, operands[1], 32), operands[2])
    flags = (f"i1 {int(flag)}" for flag in (mode == "max", "abs" in modifiers, "NaN" in modifiers))
    value = b.call("ptxlink.reduce.f32", "i32", f"ptr {first_record}", f"i32 {group}", *flags)
    b.write_register(operands[0], value, 32)


def elect(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `elect`: one thread of the mask, here the one of the lowest lane."""
    target, _, predicate = (name.strip() for name in operands[0].partition("|"))
    group, _ = exchange(b, "0", operands[1])
    leader = b.call("llvm.cttz.i32", "i32", f"i32 {group}", "i1 true")
    b.write_register(target, leader, 32)
    b.write_register(predicate, b.emit_op("icmp eq", "i32", leader, b.expand("%laneid")), 1)


def read_active_mask(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `activemask`: suspend until no thread of the warp can run; those at it are active."""
    b.suspend(ThreadState.ACTIVEMASK)
    b.write_register(operands[0], _load_group(b), 32)


def synchronize(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `bar` and `barrier` of warps and blocks, with or without a reduction."""
    mode, *rest = [flag for flag in mnemonic.modifiers if flag not in ("cta", "aligned")] or [""]
    if [mode, *rest] == ["warp", "sync"]:
        exchange(b, "0", operands[0])
        return
    if mode == "arrive":
        _arrive(b, operands[0])
        return
    if mode not in ("sync", "red") or len(operands) not in ((3, 4) if mode == "red" else (1, 2)):
        raise UnsupportedInstruction
    # `bar.sync` has the operands barrier and optional count; `bar.red` a result before and a predicate after.
    arguments = list(operands[1:] if mode == "red" else operands)
    value = _read_wide(b, arguments.pop(), 1) if mode == "red" else "0"
    count = b.read_operand(arguments[1], 32) if len(arguments) > 1 else "0"
    b.suspend(ThreadState.BARRIER, key=b.read_operand(arguments[0], 32), expected_count=count, value=value)
    b.report_order(Scope.BLOCK)
    if mode == "sync":
        return
    hits = b.load("i32", "%thread_record", thread_field_offset("seen"))
    b.write_expansion(operands[0], f"bar.{'.'.join(rest)}", hits=hits, group=_load_group(b))


def _arrive(b: Translator, barrier: str) -> None:
    """Translate `bar.arrive`: count the thread as arrived at a barrier, without waiting for the others."""
    # A block has the barriers 0 to 15.
    number = b.emit_op("and", "i32", b.read_operand(barrier, 32), 15)
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
