"""
Translate loads, stores and atomic operations, with checks that the launch may access the address.

*b* is the Translator of the function, to which a handler adds LLVM IR. An access that is not allowed records
a fault and ends the thread.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import arithmetic
from .ir_builder import PROGRAM_MEMORY
from .mnemonics import UnsupportedInstruction
from .runtime import SHARED_START, Access, Fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .mnemonics import Mnemonic
    from .translator import Storage, Translator

_STATE_SPACES = ("global", "shared", "local", "param", "const")
_ADDRESS_BITS = 64
# The check of data races (racecheck) takes accesses with these modifiers for synchronisation.
_ORDERED_MODIFIERS = {"acquire", "release", "relaxed"}
# Accesses with these modifiers become atomic accesses of LLVM.
_ATOMIC_MODIFIERS = {*_ORDERED_MODIFIERS, "volatile"}
# Modifiers for the state space, vectors, order and caching, such as "shared::cta", "v4" and "acquire".
# These need no translation of their own: atomic accesses have the strongest order, and a CPU ignores caching.
_ACCESS_MODIFIERS = re.compile(
    r"(global|shared|local|param|const)(::\w+)?|acquire|release|relaxed|volatile|weak|mmio|sys|gpu|cta|cluster"
    r"|nc|c[agsv]|lu|w[bt]|noftz|unified|entry|func|v[248]|L[12].*"
)
# Operations of `atom` on integers, with the names that LLVM's `atomicrmw` has for them.
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
    """Return the state space that an instruction names, "" for a generic address."""
    names = (modifier.partition("::")[0] for modifier in mnemonic.modifiers)
    return next((name for name in names if name in _STATE_SPACES), "")


def space_pointer(b: Translator, operand: str, space: str, size: int, *, write: bool = False) -> str:
    """
    Return a pointer to the bytes that an instruction accesses, after a check that the access is allowed.

    Args:
        b: The function under construction.
        operand: The address, such as "[%rd1+8]".
        space: The state space, "" for a generic address.
        size: The number of bytes, a power of two, of which the address must be a multiple.
        write: Whether the instruction writes.
    """
    # An element of an array has no brackets around it: `ld.shared.u32 %r1, x[3]`.
    base, offset = ptx.address(operand) or (operand, 0)
    storage = b.find_storage(base)
    if storage:
        return _storage_pointer(b, storage, offset, size)
    if space == "shared":
        return _shared_pointer(b, base, offset, size)
    address = effective_address(b, base, offset)
    # In PTX with short pointers, a register has the lower 32 bits of a local or constant address.
    if space in ("local", "const") and _address_width(b, base) < _ADDRESS_BITS:
        address = _restore_address(b, address, space)
    if space == "local":
        return _local_pointer(b, address, size)
    return region_pointer(b, address, size, write=write)


def _storage_pointer(b: Translator, storage: Storage, offset: int, size: int) -> str:
    """Return a pointer to *size* bytes at a constant offset in a variable of the function."""
    if not 0 <= offset <= storage.size - size:
        # The error shows the offset as the address, as 64 bits without sign.
        b.fault(Fault.ACCESS, str(offset % (1 << 64)), size)
        # No thread reaches the code after the fault, which needs a block all the same.
        b.begin_block(b.unique_name())
    return b.offset_pointer(storage.pointer, offset)


def effective_address(b: Translator, base: str, offset: int) -> str:
    """Return *base* plus *offset*, extended to 64 bits; the sum wraps around in the width of the register."""
    width = _address_width(b, base)
    address = b.read_operand(base, width)
    if offset:
        address = b.emit_op("add", f"i{width}", address, offset % (1 << width))
    return b.resize(address, width, 64)


def _address_width(b: Translator, base: str) -> int:
    """Return the width of a register with an address in bits; 64 if *base* is a symbol or a number."""
    register = b.find_register(base)
    return register[1] if register else _ADDRESS_BITS


def _restore_address(b: Translator, address: str, space: str) -> str:
    """Return the host address of a local or constant variable, of which *address* has the lower 32 bits."""
    base = b.load_context_field("local_base") if space == "local" else b.module.constant_base()
    return b.expand("address.restore", value=address, base=base)


def _local_pointer(b: Translator, address: str, size: int) -> str:
    """
    Return a pointer to *size* bytes of the thread's local memory.

    The check has no region cache: the region is that of the thread, and threads take turns at barriers.
    """
    if b.module.checks_accesses:
        limit = b.emit_value("ptrtoint ptr %limit to i64")
        is_allowed = b.expand("access.local", value=address, limit=limit, mask=size - 1)
        _fault_unless_allowed(b, is_allowed, address, size)
    return b.emit_value(f"inttoptr i64 {address} to ptr")


def _fault_unless_allowed(b: Translator, is_allowed: str, address: str, size: int) -> None:
    """End the thread if the i1 *is_allowed* is false: with MISALIGNED, or else with ACCESS."""
    ok_label, fault_label = b.unique_name(), b.unique_name()
    b.cond_branch(is_allowed, ok_label, fault_label, likely=True)
    b.begin_block(fault_label)
    remainder = b.emit_op("and", "i64", address, size - 1)
    b.fault_unless(b.emit_op("icmp eq", "i64", remainder, 0), Fault.MISALIGNED, address, size)
    b.fault(Fault.ACCESS, address, size)
    b.begin_block(ok_label)


def _shared_pointer(b: Translator, base: str, offset: int, size: int) -> str:
    """Return a pointer to *size* bytes of the block's shared memory."""
    # Shared memory begins at the address SHARED_START, 1024. Check the position from there, which is aligned
    # like the address. `offset - SHARED_START` is one constant, so that the position costs no instruction.
    position = effective_address(b, base, offset - SHARED_START)
    if b.module.checks_accesses:
        is_allowed = b.expand("access.shared", offset=position, mask=size - 1)
        _fault_unless_allowed(b, is_allowed, effective_address(b, base, offset), size)
    start = b.emit_op("add", "i64", b.load_context_field("shared_base"), SHARED_START)
    return b.emit_value(f"inttoptr i64 {b.emit_op('add', 'i64', position, start)} to ptr")


def region_pointer(b: Translator, address: str, size: int, *, write: bool) -> str:
    """
    Return a pointer to a host address. Only in shared memory do addresses of PTX differ from host addresses.

    The address is checked against the region that this instruction used last (a one-entry cache), then
    against all regions. A region is memory that the launch may access.
    """
    if b.module.checks_accesses:
        # The cache of an access has two words of 8 bytes: the start of the region, and the offset into it
        # from which on the access does not fit.
        cached = b.offset_pointer("%region_cache", 16 * b.module.access_count)
        b.module.access_count += 1
        start, offset_limit = b.load("i64", cached), b.load("i64", cached, 8)
        is_in_cached = b.expand(
            "access.cached", value=address, low=start, offset_limit=offset_limit, mask=size - 1
        )
        ok_label, search_label = b.unique_name(), b.unique_name()
        b.cond_branch(is_in_cached, ok_label, search_label, likely=True)
        b.begin_block(search_label)
        arguments = f"i64 {address}", f"i64 {size}", f"i64 {b.fault_site()}", f"i1 {int(write)}"
        is_allowed = b.call("ptxlink.find_region", "i1", "ptr %ctx", f"ptr {cached}", *arguments)
        # If the access is not allowed, `find_region` has recorded a fault: end the thread.
        b.cond_branch(is_allowed, ok_label, "leave", likely=True)
        b.begin_block(ok_label)
    return b.emit_value(f"inttoptr i64 {address} to ptr")


def _vector_length(mnemonic: Mnemonic) -> int:
    """Return the number of elements that an instruction accesses: 4 for `.v4`, 1 without such a modifier."""
    return next((int(flag[1:]) for flag in mnemonic.modifiers if flag in ("v2", "v4", "v8")), 1)


def _other_modifiers(mnemonic: Mnemonic) -> set[str]:
    """Return the modifiers that are not of `_ACCESS_MODIFIERS`, such as the operation of `atom`."""
    return {flag for flag in mnemonic.modifiers if not _ACCESS_MODIFIERS.fullmatch(flag)}


def report_access(b: Translator, pointer: str, size: int, kind: Access, value: str = "0") -> None:
    """
    Report an access to global or shared memory to the checks racecheck and initcheck, if one of them is on.

    Args:
        b: The function under construction.
        pointer: The address, as a pointer of LLVM IR.
        size: The number of bytes.
        kind: The kind of access.
        value: The written value, an i64: threads that write equal values do not race. "0" for other accesses.
    """
    if not b.module.reports_accesses:
        return
    b.global_values["ptxlink.check_access"] = (
        "declare void @ptxlink.check_access(ptr, i64, i64, i32, i64, i64)"
    )
    address = b.emit_value(f"ptrtoint ptr {pointer} to i64")
    arguments = f"i64 {address}, i64 {size}, i32 {int(kind)}, i64 {b.fault_site()}, i64 {value}"
    b.emit(f"call void @ptxlink.check_access(ptr %ctx, {arguments})")


def _is_thread_private(b: Translator, memory: str, space: str) -> bool:
    """Return whether other threads cannot write the memory of an operand, so that no race is possible."""
    parsed = ptx.address(memory)
    return space in ("local", "param", "const") or bool(parsed and b.find_storage(parsed[0]))


def load_or_store(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `ld`, `ldu` and `st`."""
    if _other_modifiers(mnemonic):
        raise UnsupportedInstruction
    writes = mnemonic.opcode == "st"
    # The width of an element, in bits and in bytes.
    bits, size = mnemonic.type.width, mnemonic.type.width // 8
    is_atomic = not _ATOMIC_MODIFIERS.isdisjoint(mnemonic.modifiers)
    atomic, order = (" atomic", " seq_cst") if is_atomic else ("", "")
    # `st [address], register` and `ld register, [address]`; a third operand is a cache policy.
    memory, registers = (operands[0], operands[1]) if writes else (operands[1], operands[0])
    total_bytes = size * _vector_length(mnemonic)
    pointer = space_pointer(b, memory, _state_space(mnemonic), total_bytes, write=writes)
    elements = ptx.split_vector(registers)
    if len(elements) * size != total_bytes:
        # A register that is declared as a vector has no braces, and seems to be one element.
        raise UnsupportedInstruction
    is_reported = not _is_thread_private(b, memory, _state_space(mnemonic))
    is_ordered = not _ORDERED_MODIFIERS.isdisjoint(mnemonic.modifiers)
    if is_reported and not writes:
        unordered_read = Access.VOLATILE_READ if is_atomic else Access.READ
        report_access(b, pointer, total_bytes, Access.ATOMIC_READ if is_ordered else unordered_read)
    for index, register in enumerate(elements):
        element = b.offset_pointer(pointer, size * index)
        location = f"ptr {element}{order}, align {size}, {PROGRAM_MEMORY}"
        if writes:
            value = b.read_operand(register, bits)
            if is_reported:
                kind = Access.ATOMIC_WRITE if is_ordered else Access.WRITE
                report_access(b, element, size, kind, b.resize(value, bits, 64))
            b.emit(f"store{atomic} i{bits} {value}, {location}")
        else:
            value = b.emit_value(f"load{atomic} i{bits}, {location}")
            b.write_register(register, value, bits, signed=mnemonic.type.is_signed)


def modify_atomically(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `atom result, [address], value`, and `red [address], value`, which has no result."""
    # `write_register` drops results for "_".
    target, memory, *sources = operands if mnemonic.opcode == "atom" else ("_", *operands)
    vector_length = _vector_length(mnemonic)
    # Besides `acq_rel`, the only other modifier of a supported instruction is the operation, such as "add".
    operation = ".".join(_other_modifiers(mnemonic) - {"acq_rel"})
    if operation not in {"min", "max", "cas", *_ATOMIC_OPERATIONS}:
        raise UnsupportedInstruction
    if "L2::cache_hint" in mnemonic.modifiers:
        # The last operand is a cache policy.
        sources.pop()
    size = mnemonic.type.width // 8
    pointer = space_pointer(b, memory, _state_space(mnemonic), size * vector_length, write=True)
    targets = ptx.split_vector(target) if target != "_" else ["_"] * vector_length
    source_elements = [ptx.split_vector(source) for source in sources]
    # `atom.cas` has two sources, the expected and the new value. Each has as many elements as the target.
    source_count = 2 if operation == "cas" else 1
    lengths = {len(elements) for elements in (targets, *source_elements)}
    if len(sources) != source_count or lengths != {vector_length}:
        raise UnsupportedInstruction
    # Each element of a vector is an atomic operation of its own.
    for index, element_target in enumerate(targets):
        element = b.offset_pointer(pointer, size * index)
        kind = Access.COMPARE_AND_SWAP if operation == "cas" else Access.ATOMIC
        report_access(b, element, size, kind)
        element_sources = [elements[index] for elements in source_elements]
        _modify_element(b, mnemonic, operation, element, element_target, element_sources)


def _modify_element(
    b: Translator, mnemonic: Mnemonic, operation: str, pointer: str, target: str, sources: Sequence[str]
) -> None:
    """Emit an atomic operation on the element at *pointer*; write the old value to the register *target*."""
    bits, signed = mnemonic.type.width, mnemonic.type.is_signed
    values = [b.read_operand(source, bits) for source in sources]
    if operation == "cas":
        old, _ = _emit_compare_and_swap(b, pointer, bits, *values)
    elif mnemonic.type.is_float and operation != "exch":
        old = _emit_compare_and_swap_loop(b, mnemonic, operation, pointer, values[0])
    else:
        # LLVM has `min` for signed and `umin` for unsigned integers.
        minmax_operation = operation if signed else f"u{operation}"
        rmw_operation = _ATOMIC_OPERATIONS.get(operation, minmax_operation)
        old = b.emit_value(f"atomicrmw {rmw_operation} ptr {pointer}, i{bits} {values[0]} seq_cst")
    b.write_register(target, old, bits, signed=signed)


def _emit_compare_and_swap(
    b: Translator, pointer: str, bits: int, expected: str, new: str
) -> tuple[str, str]:
    """
    Emit a compare-and-swap of a value in memory.

    Returns:
        The value that was in memory, and an i1: whether that was *expected*, so that *new* has replaced it.
    """
    pair = b.emit_value(f"cmpxchg ptr {pointer}, i{bits} {expected}, i{bits} {new} seq_cst seq_cst")
    old, is_exchanged = (b.emit_value(f"extractvalue {{i{bits}, i1}} {pair}, {index}") for index in (0, 1))
    return old, is_exchanged


def _emit_compare_and_swap_loop(
    b: Translator, mnemonic: Mnemonic, operation: str, pointer: str, value: str
) -> str:
    """
    Emit an atomic operation on a float, as a loop until a compare-and-swap succeeds; return the old value.

    In each round, the sum (or other result) is computed from the value that was in memory last.
    """
    bits = mnemonic.type.width
    current = b.alloca(f"i{bits}")
    initial = b.emit_value(f"load atomic i{bits}, ptr {pointer} monotonic, align {bits // 8}")
    b.emit(f"store i{bits} {initial}, ptr {current}")
    retry_label, after_label = b.unique_name(), b.unique_name()
    b.begin_block(retry_label)
    expected = b.emit_value(f"load i{bits}, ptr {current}")
    is_float32 = (mnemonic.type.letter, mnemonic.type.bits) == ("f", 32)
    space = _state_space(mnemonic)
    unmodified = mnemonic._replace(opcode=operation, modifiers=())
    new = arithmetic.emit_arithmetic(b, unmodified, [expected, value])
    if is_float32 and operation == "add" and space != "shared":
        # A GPU takes subnormal numbers for zeros if it adds in global memory, but not in shared memory. A
        # generic address (*space* is "") may be of either.
        flushed = arithmetic.emit_arithmetic(b, unmodified._replace(modifiers=("ftz",)), [expected, value])
        new = flushed if space == "global" else b.select(b.is_shared_pointer(pointer), "i32", new, flushed)
    if is_float32:
        new = arithmetic.emit_gpu_nan(b, new)
    old, is_exchanged = _emit_compare_and_swap(b, pointer, bits, expected, new)
    b.emit(f"store i{bits} {old}, ptr {current}")
    b.cond_branch(is_exchanged, after_label, retry_label)
    b.begin_block(after_label)
    return expected


def convert_address(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """
    Translate `cvta` (from an address in a state space to a generic address) and `cvta.to` (the inverse).

    A shared address is an offset from the field `shared_base` of BlockContext. In other state spaces, an
    address is the host address, or its lower 32 bits in PTX with short pointers.
    """
    bits = mnemonic.type.bits
    value = b.read_operand(operands[1], bits)
    space = _state_space(mnemonic)
    if space == "shared":
        base = b.resize(b.load_context_field("shared_base"), 64, bits)
        value = b.emit_op("sub" if "to" in mnemonic.modifiers else "add", f"i{bits}", value, base)
    elif b.uses_short_pointers and space in ("local", "const") and "to" not in mnemonic.modifiers:
        value = _restore_address(b, value, space)
    b.write_register(operands[0], value, bits)


def test_space(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `isspacep`: whether a generic address is in a state space."""
    name = f"isspacep.{_state_space(mnemonic)}"
    b.write_expansion(operands[0], name, value=b.read_operand(operands[1], 64), shared_start=SHARED_START)


def fence(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `membar` and `fence` of any scope and order to LLVM's strongest fence."""
    b.emit("fence seq_cst")


def ignore(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Emit nothing for an instruction that changes no result on the CPU, such as `prefetch`."""


def create_policy(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `createpolicy`: write any value, since cache hints have no effect."""
    b.write_register(operands[0], "0", 64)


def save_stack(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `stacksave`, which some compilers emit at calls: write any value, as there is no stack."""
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
