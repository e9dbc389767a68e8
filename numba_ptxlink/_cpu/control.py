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

# Prefixes of the names of functions with which a kernel launches kernels (dynamic parallelism).
_DEVICE_LAUNCHES = ("cudaGetParameterBuffer", "cudaLaunchDevice", "__cudaCDP2")


def _find_label(b: Translator, name: str) -> int:
    """Return the index of the label *name* in the current `{ }` block, or else in the blocks around it."""
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
    """Translate `brx.idx index, list`: branch to the label of the list with this index, if any, else trap."""
    # An unknown list has no labels.
    targets = [_find_label(b, label) for label in b.branch_targets.get(operands[1], ())]
    if not targets:
        raise UnsupportedInstruction
    if min(targets) <= b.statement_index:
        b.count_back_edge()
    index, no_label = b.read_operand(operands[0], 32), b.unique_name()
    cases = " ".join(f"i32 {case}, label %L{target}" for case, target in enumerate(targets))
    b.end_block(f"switch i32 {index}, label %{no_label} [{cases}]")
    b.begin_block(no_label)
    b.fault(Fault.TRAP)


def return_or_exit(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `ret` (branch to the end of the function) and `exit` (branch to the end of the thread)."""
    b.end_block(f"br label %{'return' if mnemonic.opcode == 'ret' else 'leave'}")


def trap(b: Translator, mnemonic: Mnemonic, operands: Sequence[str]) -> None:
    """Translate `trap`."""
    # Cooperative groups read the address of the grid barrier's workspace. If the launch is not cooperative,
    # the address is null, and they trap. Report the kind of launch rather than the trap.
    if b.reads_workspace:
        b.fault_unless(
            b.emit_op("icmp ne", "i32", b.load_context_field("cooperative"), 0), Fault.NOT_COOPERATIVE
        )
    b.fault(Fault.TRAP)


def call(b: Translator, parsed: ptx.Call) -> None:
    """Translate `call` of a function by name or by pointer, with values in `.param` variables."""
    # The memory of the results, followed by that of the arguments. All functions below get this list.
    storages: list[Storage] = []
    for name in (*parsed.results, *parsed.arguments):
        storage = b.find_storage(name)
        if storage is None:
            raise UnsupportedInstruction
        storages.append(storage)
    function = b.module.functions.get(parsed.callee)
    if parsed.callee.startswith(_DEVICE_LAUNCHES):
        b.fault(Fault.UNSUPPORTED)
    elif parsed.callee.startswith("%"):
        _call_pointer(b, parsed, storages)
    elif function is not None:
        _call_function(b, function, storages)
    elif parsed.callee in EXTERNAL_FUNCTIONS:
        EXTERNAL_FUNCTIONS[parsed.callee](b, storages)
    else:
        b.fault(Fault.UNDEFINED_FUNCTION)


def _call_pointer(b: Translator, parsed: ptx.Call, storages: Sequence[Storage]) -> None:
    """Call the function whose address is in a register: compare it with the addresses of the candidates."""
    address, after = b.read_operand(parsed.callee, 64), b.unique_name()
    passed_sizes = [storage.size for storage in storages]
    for function in b.module.call_graph.indirect_callees(parsed, b.module.functions):
        if _declared_sizes(function) == passed_sizes:
            callee_label, next_label = b.unique_name(), b.unique_name()
            is_callee = b.emit_op("icmp eq", "i64", address, b.module.symbol_address(function.name))
            b.cond_branch(is_callee, callee_label, next_label)
            b.begin_block(callee_label)
            _call_function(b, function, storages)
            b.end_block(f"br label %{after}")
            b.begin_block(next_label)
    b.fault(Fault.UNDEFINED_FUNCTION)
    b.begin_block(after)


def _declared_sizes(function: ptx.Function) -> list[int]:
    """Return the bytes of each result and parameter of a function; 1 if it is empty, as in `Storage`."""
    return [max(variable.size, 1) for variable in (*function.results, *function.params)]


def _call_function(b: Translator, function: ptx.Function, storages: Sequence[Storage]) -> None:
    """
    Call a function of the module.

    Raises:
        UnsupportedInstruction: The call has values of other sizes than the function.
    """
    suspends = function.name in b.module.call_graph.suspending
    if [storage.size for storage in storages] != _declared_sizes(function):
        raise UnsupportedInstruction
    # A coroutine cannot suspend in a callee, and a recursive callee cannot be inlined.
    if suspends and function.name in b.module.call_graph.recursive:
        b.fault(Fault.RECURSIVE_BARRIER)
        return
    b.call_function(function.name, [f"ptr {storage.pointer}" for storage in storages])


def _load_argument(b: Translator, storage: Storage) -> str:
    """Return an argument of 64 bits, such as a pointer."""
    return b.emit_value(f"load i64, ptr {storage.pointer}, {PROGRAM_MEMORY}")


def _print(b: Translator, storages: Sequence[Storage]) -> None:
    result, template, values = storages
    addresses = f"i64 {_load_argument(b, template)}", f"i64 {_load_argument(b, values)}"
    # `count` is the number of printed arguments, or -1 if Ctrl-C interrupted the kernel.
    count = b.call("ptxlink.print", "i32", "ptr %ctx", *addresses)
    b.fault_unless(b.emit_op("icmp sge", "i32", count, 0), Fault.INTERRUPTED)
    b.emit(f"store i32 {count}, ptr {result.pointer}")


def _assert(b: Translator, storages: Sequence[Storage]) -> None:
    # The other arguments are the line, the function, and the size of a character.
    condition, file, *_ = storages
    # For this fault, the fields `address` and `size` of the FaultRecord are the addresses of two strings.
    b.fault(Fault.ASSERT, _load_argument(b, condition), _load_argument(b, file))


def _allocate(b: Translator, storages: Sequence[Storage]) -> None:
    result, size = storages
    address = b.call("ptxlink.allocate", "i64", "ptr %ctx", f"i64 {_load_argument(b, size)}")
    b.emit(f"store i64 {address}, ptr {result.pointer}")


def _free(b: Translator, storages: Sequence[Storage]) -> None:
    (address,) = storages
    b.emit(f"call void @ptxlink.free(ptr %ctx, i64 {_load_argument(b, address)})")


def _grid_handle(b: Translator, storages: Sequence[Storage]) -> None:
    result = storages[0]
    # The argument selects a group of threads. Ignore it: compilers ask only for the grid. Its handle is 1 if
    # the launch is cooperative, else null.
    handle = b.resize(b.load_context_field("cooperative"), 32, 64)
    b.emit(f"store i64 {handle}, ptr {result.pointer}")


def _grid_barrier(b: Translator, storages: Sequence[Storage]) -> None:
    result = storages[0]
    b.fault_unless(b.emit_op("icmp ne", "i32", b.load_context_field("cooperative"), 0), Fault.NOT_COOPERATIVE)
    b.suspend(ThreadState.GRID_BARRIER)
    b.report_order(Scope.GRID)
    # The result is cudaSuccess.
    b.emit(f"store i32 0, ptr {result.pointer}")


EXTERNAL_FUNCTIONS = {
    "vprintf": _print,
    "__assertfail": _assert,
    "malloc": _allocate,
    "free": _free,
    "cudaCGGetIntrinsicHandle": _grid_handle,
    "cudaCGSynchronize": _grid_barrier,
}
"""The translations of functions that CUDA provides: PTX calls them, and no input of a link defines them."""
CONTROL_HANDLERS = {
    "bra": branch,
    "brx": branch_indexed,
    **dict.fromkeys(("ret", "exit"), return_or_exit),
    "trap": trap,
}
