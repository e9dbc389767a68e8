"""
Translate asynchronous copies and `mbarrier` barriers.

A copy is executed at once, so that instructions that wait for copies do nothing.

A barrier is a 64-bit word in memory, whose contents the PTX ISA does not define. Here the bits 0 to 19 are
the number of pending arrivals, the bits 20 to 39 the number of arrivals that end a phase, and the bits from
40 on the number of completed phases.
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

# The lowest bits of two fields of a barrier: the arrivals that end a phase, and the number of the phase.
_EXPECTED_BIT, _PHASE_BIT = 20, 40
_PENDING_MASK = (1 << _EXPECTED_BIT) - 1
# The numbers of bytes that the PTX ISA lets `cp.async` copy.
_COPY_SIZES = (4, 8, 16)
_BARRIER_BYTES = 8
_BARRIER_OPERATIONS = {"init", "inval", "arrive", "arrive_drop", "test_wait", "try_wait"}


def copy(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `cp.async` and its waits. `cp.async.bulk` (tensor memory accelerator) is unsupported."""
    modifiers = set(mnemonic.modifiers)
    if "async" not in modifiers or "bulk" in modifiers:
        raise UnsupportedInstruction
    if "mbarrier" in modifiers:
        # `cp.async.mbarrier.arrive` arrives when the copies are complete, that is at once. Without `.noinc`,
        # the instruction first adds one pending arrival, so that nothing changes.
        if not operands:
            raise UnsupportedInstruction
        if "noinc" in modifiers:
            barrier = space_pointer(b, operands[0], "shared", _BARRIER_BYTES, write=True)
            _arrive(b, barrier, "1", drops=False)
        return
    if modifiers & {"commit_group", "wait_group", "wait_all"}:
        # Earlier copies are complete.
        return
    # The operands are target, source and size; then optionally the number of bytes to read (`_source_size`),
    # and a cache policy.
    if len(operands) < 3:
        raise UnsupportedInstruction
    target, source = operands[:2]
    size = ptx.parse_integer(operands[2])
    if size not in _COPY_SIZES:
        raise UnsupportedInstruction
    has_policy = any(modifier.endswith("cache_hint") for modifier in modifiers)
    has_source_size = len(operands) > 3 + has_policy
    destination = space_pointer(b, target, "shared", size, write=True)
    if has_source_size:
        _copy_and_fill(b, destination, source, size, _source_size(b, operands[3], size))
    else:
        _copy_all(b, destination, source, size)


def _copy_all(b: Translator, destination: str, source: str, size: int) -> None:
    """Copy *size* bytes to the pointer *destination* from the address in the operand *source*."""
    pointer = space_pointer(b, source, "global", size)
    report_access(b, pointer, size, Access.READ)
    report_access(b, destination, size, Access.WRITE)
    value = b.emit_value(f"load i{8 * size}, ptr {pointer}, align {size}")
    b.emit(f"store i{8 * size} {value}, ptr {destination}, align {size}")


def _source_size(b: Translator, operand: str, size: int) -> str:
    """Return the bytes to read: *operand*; for a predicate, 0 if it is true, and *size* if it is false."""
    register_slot = b.find_register(operand)
    # The slot is the address and the width of the register; a predicate has one bit.
    if register_slot and register_slot[1] == 1:
        return b.select(b.read_operand(operand, 1), "i32", "0", str(size))
    return b.read_operand(operand, 32)


def _copy_and_fill(b: Translator, destination: str, source: str, size: int, count: str) -> None:
    """Copy the first *count* of *size* bytes, and set the rest to zero; never read the rest of the source."""
    copy_all, copy_some, loop, copy_byte, after = (b.unique_name() for _ in range(5))
    b.cond_branch(b.emit_op("icmp uge", "i32", count, size), copy_all, copy_some, likely=True)
    b.begin_block(copy_all)
    _copy_all(b, destination, source, size)
    b.end_block(f"br label %{after}")
    b.begin_block(copy_some)
    report_access(b, destination, size, Access.WRITE)
    b.emit(f"store i{8 * size} 0, ptr {destination}, align {size}")
    counter = b.alloca("i32")
    b.emit(f"store i32 0, ptr {counter}")
    b.begin_block(loop)
    index = b.emit_value(f"load i32, ptr {counter}")
    b.cond_branch(b.emit_op("icmp ult", "i32", index, count), copy_byte, after)
    b.begin_block(copy_byte)
    offset = b.resize(index, 32, 64)
    address = b.emit_op("add", "i64", effective_address(b, *_parse_address(source)), offset)
    source_byte = region_pointer(b, address, 1, write=False)
    report_access(b, source_byte, 1, Access.READ)
    value = b.emit_value(f"load i8, ptr {source_byte}")
    destination_byte = b.emit_value(f"getelementptr i8, ptr {destination}, i64 {offset}")
    b.emit(f"store i8 {value}, ptr {destination_byte}")
    b.emit(f"store i32 {b.emit_op('add', 'i32', index, 1)}, ptr {counter}")
    b.end_block(f"br label %{loop}")
    b.begin_block(after)


def _parse_address(operand: str) -> tuple[str, int]:
    """Return the base and the offset in bytes of an operand such as `[%rd1+4]`."""
    base_and_offset = ptx.address(operand)
    if base_and_offset is None:
        raise UnsupportedInstruction
    return base_and_offset


def synchronize(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `mbarrier`. `.expect_tx` is unsupported, as is `cp.async.bulk`, whose bytes it counts."""
    operation, *modifiers = mnemonic.modifiers or [""]
    if operation == "pending_count":
        # The operand is a state that `arrive` has returned to a register.
        pending = b.emit_op("and", "i64", b.read_operand(operands[1], 64), _PENDING_MASK)
        b.write_register(operands[0], b.resize(pending, 64, 32), 32)
        return
    # `mbarrier.arrive %rd1, [address]` has a result, `mbarrier.inval [address]` has none.
    has_result = operation not in ("init", "inval") and not operands[0].startswith("[")
    memory, *sources = operands[has_result:]
    needs_source = operation in ("init", "test_wait", "try_wait")
    if operation not in _BARRIER_OPERATIONS or "expect_tx" in modifiers or len(sources) < needs_source:
        raise UnsupportedInstruction
    # Without `.shared`, the address is a generic one.
    space = "shared" if _is_shared(modifiers) else ""
    # For `inval`, this check of the address is all.
    barrier = space_pointer(b, memory, space, _BARRIER_BYTES, write=True)
    if operation == "init":
        count = b.resize(b.read_operand(sources[0], 32), 32, 64)
        expected = b.emit_op("shl", "i64", count, _EXPECTED_BIT)
        b.emit(f"store i64 {b.emit_op('or', 'i64', count, expected)}, ptr {barrier}")
    elif operation in ("arrive", "arrive_drop"):
        arrivals = b.read_operand(sources[0], 32) if sources else "1"
        old_state = _arrive(b, barrier, arrivals, drops=operation == "arrive_drop")
        if has_result:
            b.write_register(operands[0], old_state, 64)
    elif operation in ("test_wait", "try_wait"):
        _wait(b, barrier, operands[0], sources[0], by_parity="parity" in modifiers)


def _is_shared(modifiers: Sequence[str]) -> bool:
    """Return whether a modifier is `.shared`, or begins with it like `.shared::cta`."""
    return any(modifier.partition("::")[0] == "shared" for modifier in modifiers)


def _arrive(b: Translator, barrier: str, arrivals: str, *, drops: bool) -> str:
    """
    Count arrivals at a barrier; return the state that the barrier had before.

    Args:
        b: The function.
        barrier: The pointer to the barrier.
        arrivals: The number of arrivals.
        drops: Whether later phases end without these arrivals (`arrive_drop`).
    """
    return b.call("ptxlink.mbarrier.arrive", "i64", f"ptr {barrier}", f"i32 {arrivals}", f"i1 {int(drops)}")


def _wait(b: Translator, barrier: str, target: str, source: str, *, by_parity: bool) -> None:
    """
    Translate a wait: test whether a phase is complete; if it is not, let other threads run, and test again.

    The second test may fail, too, as on a GPU. So programs repeat the instruction until it returns true.

    Args:
        b: The function.
        barrier: The pointer to the barrier.
        target: The predicate register for the result: whether the phase is complete.
        source: The operand that says which phase: a state that `arrive` returned, or with *by_parity* the
            number of the phase modulo 2.
        by_parity: Whether the instruction has `.parity`.
    """
    state_or_parity = b.read_operand(source, 32 if by_parity else 64)
    if by_parity:
        phase = b.resize(state_or_parity, 32, 64)
    else:
        phase = b.emit_op("lshr", "i64", state_or_parity, _PHASE_BIT)
    wait, after = b.unique_name(), b.unique_name()
    b.cond_branch(_is_complete(b, barrier, phase, by_parity=by_parity), after, wait)
    b.begin_block(wait)
    b.suspend(ThreadState.YIELDED)
    b.begin_block(after)
    # Report the barrier as passed without a test of the result: if it is false, the program does not rely on
    # the barrier yet, but repeats the instruction.
    b.report_order(Scope.BLOCK)
    b.write_register(target, _is_complete(b, barrier, phase, by_parity=by_parity), 1)


def _is_complete(b: Translator, barrier: str, phase: str, *, by_parity: bool) -> str:
    """Return, as an i1, whether *phase* is complete, that is whether the barrier is in another phase."""
    current_phase = b.emit_op("lshr", "i64", b.emit_value(f"load i64, ptr {barrier}"), _PHASE_BIT)
    if by_parity:
        current_phase = b.emit_op("and", "i64", current_phase, 1)
    return b.emit_op("icmp ne", "i64", current_phase, phase)


ASYNC_HANDLERS = {"cp": copy, "mbarrier": synchronize}
