"""Loads, stores and atomic operations, each compared with what the launch may access."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import arithmetic
from .ir_builder import PROGRAM_MEMORY, UnsupportedInstruction
from .runtime import SHARED_START, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .ir_builder import Mnemonic
    from .translator import Translator

_STATE_SPACES = ("global", "shared", "local", "param", "const")
_ATOMIC_MODIFIERS = {"acquire", "release", "relaxed", "volatile"}
# Modifiers that are known; most change when and how memory is reached, and not what is read or written.
_SUPPORTED_MODIFIERS = re.compile(
    r"(global|shared|local|param|const)(::\w+)?|acquire|release|relaxed|volatile|weak|mmio|sys|gpu|cta|cluster"
    r"|nc|c[agsv]|lu|w[bt]|noftz|unified|entry|func|v[248]|L[12].*"
)
_ATOMIC_OPERATIONS = {
    "add": "add",
    "and": "and",
    "or": "or",
    "xor": "xor",
    "exch": "xchg",
    "inc": "uinc_wrap",
    "dec": "udec_wrap",
}


def _state_space(mnemonic: Mnemonic) -> str:
    """Return the state space that an opcode names, "" for a generic address."""
    found = (flag.partition("::")[0] for flag in mnemonic.modifiers)
    return next((each for each in found if each in _STATE_SPACES), "")


def _pointer(b: Translator, operand: str, space: str, size: int, *, write: bool = False) -> str:
    """Return a pointer to *size* bytes, after a check that they may be read or written."""
    found = ptx.address(operand)
    if found is None:
        raise UnsupportedInstruction
    base, offset = found
    storage = b.find_storage(base)
    if storage:
        if not 0 <= offset <= storage.size - size:
            b.fault(Fault.ACCESS, str(offset % (1 << 64)), size)
            b.begin_block(b.unique_name())
        return b.offset_pointer(storage.pointer, offset)
    _, width = b.find_register(base) or ("", 64)
    value = b.resize(b.read_operand(base, width), width, 64)
    if offset:
        value = b.emit_op("add", "i64", value, offset)
    if space == "shared":
        return _shared_pointer(b, value, size)
    if b.module.checks:
        _check_access(b, value, size, write=write)
    return b.emit_value(f"inttoptr i64 {value} to ptr")


def _shared_pointer(b: Translator, value: str, size: int) -> str:
    """Return a pointer into the block's shared memory."""
    start = b.load_context_field("shared_base")
    if b.module.checks:
        inside = b.expand("access.shared", value=value, first=SHARED_START, size=size)
        b.fault_unless(inside, Fault.ACCESS, value, size)
        remainder = b.emit_op("and", "i64", value, size - 1)
        b.fault_unless(b.emit_op("icmp eq", "i64", remainder, 0), Fault.MISALIGNED, value, size)
    return b.emit_value(f"inttoptr i64 {b.emit_op('add', 'i64', value, start)} to ptr")


def _check_access(b: Translator, value: str, size: int, *, write: bool) -> None:
    """Compare an address with the region that this access was in last, and otherwise with all of them."""
    cached = b.offset_pointer("%region_cache", 16 * b.module.access_count)
    b.module.access_count += 1
    low, offset_limit = b.load("i64", cached), b.load("i64", cached, 8)
    in_bounds = b.expand("access.cached", value=value, low=low, offset_limit=offset_limit, mask=size - 1)
    ok_label, search = b.unique_name(), b.unique_name()
    b.cond_branch(in_bounds, ok_label, search, likely=True)
    b.begin_block(search)
    arguments = f"i64 {value}", f"i64 {size}", f"i64 {b.fault_site()}", f"i1 {int(write)}"
    b.cond_branch(
        b.call("ptxlink.find_region", "i1", "ptr %ctx", f"ptr {cached}", *arguments),
        ok_label,
        "leave",
        likely=True,
    )
    b.begin_block(ok_label)


def _vector_length(mnemonic: Mnemonic) -> tuple[int, set[str]]:
    """Return how many elements an access has, and the modifiers that nobody knows."""
    vector_length = next((int(flag[1:]) for flag in mnemonic.modifiers if flag in ("v2", "v4", "v8")), 1)
    return vector_length, {flag for flag in mnemonic.modifiers if not _SUPPORTED_MODIFIERS.fullmatch(flag)}


def load_or_store(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`ld`, `ldu` and `st`."""
    vector_length, other_modifiers = _vector_length(mnemonic)
    if other_modifiers:
        raise UnsupportedInstruction
    writes, bits, size = mnemonic.opcode == "st", mnemonic.type.width, mnemonic.type.width // 8
    atomic, order = (
        (" atomic", " seq_cst") if _ATOMIC_MODIFIERS.intersection(mnemonic.modifiers) else ("", "")
    )
    # A third operand is a cache policy.
    memory, registers = operands[:2] if writes else operands[1::-1]
    pointer = _pointer(b, memory, _state_space(mnemonic), size * vector_length, write=writes)
    for number, each in enumerate(ptx.elements(registers)):
        location = f"ptr {b.offset_pointer(pointer, size * number)}{order}, align {size}, {PROGRAM_MEMORY}"
        if writes:
            b.emit(f"store{atomic} i{bits} {b.read_operand(each, bits)}, {location}")
        else:
            b.write_register(
                each, b.emit_value(f"load{atomic} i{bits}, {location}"), bits, signed=mnemonic.type.is_signed
            )


def modify_atomically(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`atom` and `red`."""
    target = operands[0] if mnemonic.opcode == "atom" else "_"
    memory, *sources = operands[mnemonic.opcode == "atom" :]
    vector_length, other_modifiers = _vector_length(mnemonic)
    operation, *unsupported = other_modifiers - {"acq_rel"}
    if unsupported:
        raise UnsupportedInstruction
    if "L2::cache_hint" in mnemonic.modifiers:
        sources.pop()
    size = mnemonic.type.width // 8
    pointer = _pointer(b, memory, _state_space(mnemonic), size * vector_length, write=True)
    targets = ptx.elements(target) if target != "_" else ["_"] * vector_length
    elements = zip(*map(ptx.elements, sources), strict=True)
    # Each element of a vector is an atomic operation of its own.
    for number, (element_target, element_sources) in enumerate(zip(targets, elements, strict=True)):
        element = b.offset_pointer(pointer, size * number)
        _modify_element(b, mnemonic, operation, element, element_target, element_sources)


def _modify_element(
    b: Translator, mnemonic: Mnemonic, operation: str, pointer: str, target: str, sources: Sequence[str]
) -> None:
    """Emit an atomic operation on the element at *pointer*; write the old value to *target*."""
    bits, signed = mnemonic.type.width, mnemonic.type.is_signed
    values = [b.read_operand(each, bits) for each in sources]
    if operation == "cas":
        old = _emit_compare_and_swap(b, pointer, bits, *values)[0]
    elif mnemonic.type.is_float and operation != "exch":
        old = _emit_compare_and_swap_loop(b, mnemonic, operation, pointer, values[0])
    else:
        name = (
            f"{'' if signed else 'u'}{operation}"
            if operation in ("min", "max")
            else _ATOMIC_OPERATIONS[operation]
        )
        old = b.emit_value(f"atomicrmw {name} ptr {pointer}, i{bits} {values[0]} seq_cst")
    b.write_register(target, old, bits, signed=signed)


def _emit_compare_and_swap(b: Translator, pointer: str, bits: int, expected: str, new: str) -> list[str]:
    """Return what was in memory, and whether it was *expected* and is *new* now."""
    pair = b.emit_value(f"cmpxchg ptr {pointer}, i{bits} {expected}, i{bits} {new} seq_cst seq_cst")
    return [b.emit_value(f"extractvalue {{i{bits}, i1}} {pair}, {part}") for part in (0, 1)]


def _emit_compare_and_swap_loop(
    b: Translator, mnemonic: Mnemonic, operation: str, pointer: str, value: str
) -> str:
    """Return what was in memory before an operation on floats, which is tried until nobody comes between."""
    bits = mnemonic.type.width
    current = b.alloca(f"i{bits}")
    first = b.emit_value(f"load atomic i{bits}, ptr {pointer} monotonic, align {bits // 8}")
    b.emit(f"store i{bits} {first}, ptr {current}")
    again, after = b.unique_name(), b.unique_name()
    b.begin_block(again)
    expected = b.emit_value(f"load i{bits}, ptr {current}")
    new = arithmetic.emit_arithmetic(b, mnemonic._replace(opcode=operation, modifiers=()), [expected, value])
    old, done = _emit_compare_and_swap(b, pointer, bits, expected, new)
    b.emit(f"store i{bits} {old}, ptr {current}")
    b.cond_branch(done, after, again)
    b.begin_block(after)
    return expected


def convert_address(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`cvta`: addresses in shared memory count from a start of their own, all others are the host's."""
    bits = mnemonic.type.bits
    value = b.read_operand(operands[1], bits)
    if _state_space(mnemonic) == "shared":
        start = b.resize(b.load_context_field("shared_base"), 64, bits)
        value = b.emit_op("sub" if "to" in mnemonic.modifiers else "add", f"i{bits}", value, start)
    b.write_register(operands[0], value, bits)


def test_space(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`isspacep`."""
    name = f"isspacep.{_state_space(mnemonic)}"
    b.write_expansion(operands[0], name, value=b.read_operand(operands[1], 64), first=SHARED_START)


def fence(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`membar` and `fence`."""
    b.emit("fence seq_cst")


def ignore(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Nothing, for what only makes a device faster."""


def create_policy(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`createpolicy`: cache hints have no effect, so any value will do."""
    b.write_register(operands[0], "0", 64)


def save_stack(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """`stacksave`, around which some compilers put calls: nothing is allocated there."""
    b.write_register(operands[0], "0", mnemonic.type.bits)


MEMORY_HANDLERS = {
    **dict.fromkeys(("ld", "ldu", "st"), load_or_store),
    **dict.fromkeys(("atom", "red"), modify_atomically),
    "cvta": convert_address,
    "isspacep": test_space,
    **dict.fromkeys(("membar", "fence"), fence),
    **dict.fromkeys(("prefetch", "prefetchu", "applypriority", "discard", "nanosleep", "pmevent"), ignore),
    "createpolicy": create_policy,
    **dict.fromkeys(("griddepcontrol", "stackrestore"), ignore),
    "stacksave": save_stack,
}
