"""
Translate asynchronous copies, which are executed at once, so that waits do nothing, and `mbarrier` barriers.

A barrier is a 64-bit word in memory, whose contents the PTX ISA does not define. Here the bits 0 to 19 are
the pending arrivals, the bits 20 to 39 the arrivals of each phase, and the bits from 40 on the number of the
phase.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from .memory import effective_address, region_pointer, report_access, space_pointer
from .mnemonics import UnsupportedInstruction
from .runtime import Access, Scope, ThreadState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .mnemonics import Mnemonic
    from .translator import Translator

_COUNT_BITS, _PHASE_BIT = 20, 40
_COUNT_MASK = (1 << _COUNT_BITS) - 1
# Bytes that `cp.async` copies.
_COPY_SIZES = (4, 8, 16)


def copy(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `cp.async` and its waits. `cp.async.bulk` (tensor memory accelerator) is unsupported."""
    modifiers = set(mnemonic.modifiers)
    if "async" not in modifiers or "bulk" in modifiers:
        raise UnsupportedInstruction
    if "mbarrier" in modifiers:
        # Without `.noinc`, the barrier waits for one more arrival, which is then made at once: do nothing.
        if not operands:
            raise UnsupportedInstruction
        if "noinc" in modifiers:
            _arrive(b, space_pointer(b, operands[0], "shared", 8, write=True), "1", drops=False)
        return
    if modifiers & {"commit_group", "wait_group", "wait_all"}:
        return
    target, source, size, *_ = *operands, "", "", ""
    byte_count = ptx.number(size)
    if byte_count not in _COPY_SIZES:
        raise UnsupportedInstruction
    has_policy = any(modifier.endswith("cache_hint") for modifier in modifiers)
    limit = operands[3] if len(operands) > 3 + has_policy else ""
    destination = space_pointer(b, target, "shared", byte_count, write=True)
    if limit:
        _copy_and_fill(b, destination, source, byte_count, _source_bytes(b, limit, byte_count))
    else:
        _copy_all(b, destination, source, byte_count)


def _copy_all(b: Translator, destination: str, source: str, size: int) -> None:
    pointer = space_pointer(b, source, "global", size)
    report_access(b, pointer, size, Access.READ)
    report_access(b, destination, size, Access.WRITE)
    value = b.emit_value(f"load i{8 * size}, ptr {pointer}, align {size}")
    b.emit(f"store i{8 * size} {value}, ptr {destination}, align {size}")


def _source_bytes(b: Translator, operand: str, size: int) -> str:
    """Return the number of bytes to read. The operand is the number, or a predicate that is true for none."""
    register = b.find_register(operand)
    if register and register[1] == 1:
        return b.select(b.read_operand(operand, 1), "i32", "0", str(size))
    return b.read_operand(operand, 32)


def _copy_and_fill(b: Translator, destination: str, source: str, size: int, count: str) -> None:
    """Copy the first *count* bytes, and fill the others with zeros; read no other byte of the source."""
    whole, part, loop, body, after = (b.unique_name() for _ in range(5))
    b.cond_branch(b.emit_op("icmp uge", "i32", count, size), whole, part, likely=True)
    b.begin_block(whole)
    _copy_all(b, destination, source, size)
    b.end_block(f"br label %{after}")
    b.begin_block(part)
    report_access(b, destination, size, Access.WRITE)
    b.emit(f"store i{8 * size} 0, ptr {destination}, align {size}")
    position = b.alloca("i32")
    b.emit(f"store i32 0, ptr {position}")
    b.begin_block(loop)
    index = b.emit_value(f"load i32, ptr {position}")
    b.cond_branch(b.emit_op("icmp ult", "i32", index, count), body, after)
    b.begin_block(body)
    wide = b.resize(index, 32, 64)
    address = b.emit_op("add", "i64", effective_address(b, *_parse_address(source)), wide)
    pointer = region_pointer(b, address, 1, write=False)
    report_access(b, pointer, 1, Access.READ)
    value = b.emit_value(f"load i8, ptr {pointer}")
    b.emit(f"store i8 {value}, ptr {b.emit_value(f'getelementptr i8, ptr {destination}, i64 {wide}')}")
    b.emit(f"store i32 {b.emit_op('add', 'i32', index, 1)}, ptr {position}")
    b.end_block(f"br label %{loop}")
    b.begin_block(after)


def _parse_address(operand: str) -> tuple[str, int]:
    parsed = ptx.address(operand)
    if parsed is None:
        raise UnsupportedInstruction
    return parsed


def synchronize(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `mbarrier`. Counts of bytes are unsupported, since only `cp.async.bulk` completes them."""
    mode, *modifiers = mnemonic.modifiers or [""]
    if mode == "pending_count":
        b.write_register(operands[0], _count(b, b.read_operand(operands[1], 64)), 32)
        return
    has_result = mode not in ("init", "inval") and not operands[0].startswith("[")
    memory, *sources = operands[has_result:]
    needs_source = mode in ("init", "test_wait", "try_wait")
    if mode not in _MODES or "expect_tx" in modifiers or len(sources) < needs_source:
        raise UnsupportedInstruction
    barrier = space_pointer(b, memory, "shared" if _is_shared(modifiers) else "", 8, write=True)
    if mode == "init":
        count = b.resize(b.read_operand(sources[0], 32), 32, 64)
        expected = b.emit_op("shl", "i64", count, _COUNT_BITS)
        b.emit(f"store i64 {b.emit_op('or', 'i64', count, expected)}, ptr {barrier}")
    elif mode in ("arrive", "arrive_drop"):
        arrivals = b.read_operand(sources[0], 32) if sources else "1"
        old = _arrive(b, barrier, arrivals, drops=mode == "arrive_drop")
        if has_result:
            b.write_register(operands[0], old, 64)
    elif mode in ("test_wait", "try_wait"):
        _wait(b, barrier, operands[0], sources[0], by_parity="parity" in modifiers)


_MODES = {"init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait"}


def _is_shared(modifiers: Sequence[str]) -> bool:
    return any(modifier.partition("::")[0] == "shared" for modifier in modifiers)


def _count(b: Translator, state: str) -> str:
    return b.resize(b.emit_op("and", "i64", state, _COUNT_MASK), 64, 32)


def _arrive(b: Translator, barrier: str, arrivals: str, *, drops: bool) -> str:
    """Count arrivals; return the state that the barrier had before them."""
    return b.call("ptxlink.mbarrier.arrive", "i64", f"ptr {barrier}", f"i32 {arrivals}", f"i1 {int(drops)}")


def _wait(b: Translator, barrier: str, target: str, phase: str, *, by_parity: bool) -> None:
    """Write whether a phase is complete. If it is not at first, let other threads run, and test again."""
    number = b.read_operand(phase, 32 if by_parity else 64)
    before = b.resize(number, 32, 64) if by_parity else b.emit_op("lshr", "i64", number, _PHASE_BIT)
    waiting, after = b.unique_name(), b.unique_name()
    b.cond_branch(_is_complete(b, barrier, before, by_parity=by_parity), after, waiting)
    b.begin_block(waiting)
    b.suspend(ThreadState.YIELDED)
    b.begin_block(after)
    b.report_order(Scope.BLOCK)
    b.write_register(target, _is_complete(b, barrier, before, by_parity=by_parity), 1)


def _is_complete(b: Translator, barrier: str, before: str, *, by_parity: bool) -> str:
    current = b.emit_op("lshr", "i64", b.emit_value(f"load i64, ptr {barrier}"), _PHASE_BIT)
    if by_parity:
        current = b.emit_op("and", "i64", current, 1)
    return b.emit_op("icmp ne", "i64", current, before)


ASYNC_HANDLERS = {"cp": copy, "mbarrier": synchronize}
