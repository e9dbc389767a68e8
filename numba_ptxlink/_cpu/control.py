"""Translate branches, calls, returns, and functions of CUDA's device runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .ir_builder import PROGRAM_MEMORY
from .mnemonics import UnsupportedInstruction
from .runtime import Fault, Scope, ThreadState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._formats import ptx

    from .mnemonics import Mnemonic
    from .translator import Storage, Translator

# Prefixes of the functions of the device runtime that launch kernels.
_DEVICE_LAUNCHES = ("cudaGetParameterBuffer", "cudaLaunchDevice", "__cudaCDP2")


def _find_label(b: Translator, name: str) -> int:
    """Return the statement index of a label that is visible in the current block."""
    scope: ptx.Scope | None = b.scope
    while scope is not None:
        if (scope.block, name) in b.labels:
            return b.labels[scope.block, name]
        scope = scope.outer
    raise UnsupportedInstruction


def branch(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `bra`."""
    target = _find_label(b, operands[0])
    if target <= b.statement_index:
        b.count_back_edge()
    b.end_block(f"br label %L{target}")


def branch_indexed(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `brx.idx`."""
    targets = [_find_label(b, label) for label in b.branch_targets.get(operands[1], ())]
    if not targets:
        raise UnsupportedInstruction
    if min(targets) <= b.statement_index:
        b.count_back_edge()
    index, default = b.read_operand(operands[0], 32), b.unique_name()
    cases = " ".join(f"i32 {case}, label %L{target}" for case, target in enumerate(targets))
    b.end_block(f"switch i32 {index}, label %{default} [{cases}]")
    b.begin_block(default)
    b.fault(Fault.TRAP)


def return_or_exit(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `ret` and `exit`."""
    b.end_block(f"br label %{'return' if mnemonic.opcode == 'ret' else 'leave'}")


def trap(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `trap`."""
    # Cooperative groups trap if the launch has no workspace for the grid barrier.
    if b.reads_workspace:
        b.fault_unless(
            b.emit_op("icmp ne", "i32", b.load_context_field("cooperative"), 0), Fault.NOT_COOPERATIVE
        )
    b.fault(Fault.TRAP)


def call(b: Translator, parsed: ptx.Call) -> None:
    """Translate `call` of a function by name, with arguments in `.param` variables."""
    storages = [b.find_storage(name) for name in (*parsed.results, *parsed.arguments)]
    function = b.module.functions.get(parsed.callee)
    if None in storages:
        raise UnsupportedInstruction
    if parsed.callee.startswith(_DEVICE_LAUNCHES):
        b.fault(Fault.UNSUPPORTED)
        return
    if parsed.callee.startswith("%"):
        _call_pointer(b, parsed, [storage for storage in storages if storage])
        return
    if function is None:
        if parsed.callee not in EXTERNAL_FUNCTIONS:
            b.fault(Fault.UNDEFINED_FUNCTION)
            return
        EXTERNAL_FUNCTIONS[parsed.callee](b, [storage for storage in storages if storage])
        return
    _call_function(b, function, [storage for storage in storages if storage])


def _call_pointer(b: Translator, parsed: ptx.Call, storages: Sequence[Storage]) -> None:
    """Call the function whose address is in a register, out of those that may be called."""
    address, after = b.read_operand(parsed.callee, 64), b.unique_name()
    sizes = [storage.size for storage in storages]
    for function in b.module.call_graph.indirect_callees(parsed, b.module.functions):
        if [max(variable.size, 1) for variable in (*function.results, *function.params)] == sizes:
            is_callee_label, next_label = b.unique_name(), b.unique_name()
            is_callee = b.emit_op("icmp eq", "i64", address, b.module.symbol_address(function.name))
            b.cond_branch(is_callee, is_callee_label, next_label)
            b.begin_block(is_callee_label)
            _call_function(b, function, storages)
            b.end_block(f"br label %{after}")
            b.begin_block(next_label)
    b.fault(Fault.UNDEFINED_FUNCTION)
    b.begin_block(after)


def _call_function(b: Translator, function: ptx.Function, storages: Sequence[Storage]) -> None:
    suspends = function.name in b.module.call_graph.suspending
    passed_sizes = [storage.size for storage in storages]
    declared_sizes = [max(variable.size, 1) for variable in (*function.results, *function.params)]
    if passed_sizes != declared_sizes:
        raise UnsupportedInstruction
    # A coroutine cannot suspend in a callee, and a recursive callee cannot be inlined.
    if suspends and function.name in b.module.call_graph.recursive:
        b.fault(Fault.RECURSIVE_BARRIER)
        return
    b.call_function(function.name, [f"ptr {storage.pointer}" for storage in storages])


def _load_argument(b: Translator, storage: Storage) -> str:
    return b.emit_value(f"load i64, ptr {storage.pointer}, {PROGRAM_MEMORY}")


def _print(b: Translator, storages: Sequence[Storage]) -> None:
    result, template, values = storages
    addresses = f"i64 {_load_argument(b, template)}", f"i64 {_load_argument(b, values)}"
    count = b.call("ptxlink.print", "i32", "ptr %ctx", *addresses)
    b.fault_unless(b.emit_op("icmp sge", "i32", count, 0), Fault.INTERRUPTED)
    b.emit(f"store i32 {count}, ptr {result.pointer}")


def _assert(b: Translator, storages: Sequence[Storage]) -> None:
    # The fault record has the addresses of the condition and of the file, in the fields address and size.
    b.fault(Fault.ASSERT, _load_argument(b, storages[0]), _load_argument(b, storages[1]))
    b.begin_block(b.unique_name())


def _allocate(b: Translator, storages: Sequence[Storage]) -> None:
    address = b.call("ptxlink.allocate", "i64", "ptr %ctx", f"i64 {_load_argument(b, storages[1])}")
    b.emit(f"store i64 {address}, ptr {storages[0].pointer}")


def _free(b: Translator, storages: Sequence[Storage]) -> None:
    b.emit(f"call void @ptxlink.free(ptr %ctx, i64 {_load_argument(b, storages[0])})")


def _grid_handle(b: Translator, storages: Sequence[Storage]) -> None:
    # The scope is always the grid. The handle of the grid is null unless the launch is cooperative.
    b.emit(f"store i64 {b.resize(b.load_context_field('cooperative'), 32, 64)}, ptr {storages[0].pointer}")


def _grid_barrier(b: Translator, storages: Sequence[Storage]) -> None:
    b.fault_unless(b.emit_op("icmp ne", "i32", b.load_context_field("cooperative"), 0), Fault.NOT_COOPERATIVE)
    b.suspend(ThreadState.GRID_BARRIER)
    b.report_order(Scope.GRID)
    b.emit(f"store i32 0, ptr {storages[0].pointer}")


EXTERNAL_FUNCTIONS = {
    "vprintf": _print,
    "__assertfail": _assert,
    "malloc": _allocate,
    "free": _free,
    "cudaCGGetIntrinsicHandle": _grid_handle,
    "cudaCGSynchronize": _grid_barrier,
}
CONTROL_HANDLERS = {
    "bra": branch,
    "brx": branch_indexed,
    **dict.fromkeys(("ret", "exit"), return_or_exit),
    "trap": trap,
}
