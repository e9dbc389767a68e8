"""Jumps, calls and ends of functions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .function_text import THEIRS, Unknown
from .runtime import Fault, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._formats import ptx

    from .function_text import Word
    from .translator import Storage, Translator

ARGUMENTS = "ptr %ctx, ptr %found, ptr {local}, ptr %limit, i32 %tx, i32 %ty, i32 %tz, ptr %params, ptr %lane"
"""What all functions have before their own parameters; `{local}` is where their local memory begins."""


def _target(b: Translator, name: str) -> int:
    """Return the place of a label."""
    scope: ptx.Scope | None = b.scope
    while scope is not None:
        if (scope.block, name) in b.labels:
            return b.labels[scope.block, name]
        scope = scope.outer
    raise Unknown


def jump(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`bra`."""
    target = _target(b, operands[0])
    if target <= b.place:
        b.count_step()
    b.end(f"br label %L{target}")


def table(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`brx.idx`."""
    targets = [_target(b, each) for each in b.targets[operands[1]]]
    if min(targets) <= b.place:
        b.count_step()
    index, beyond = b.bits(operands[0], 32), b.fresh()
    cases = " ".join(f"i32 {number}, label %L{target}" for number, target in enumerate(targets))
    b.end(f"switch i32 {index}, label %{beyond} [{cases}]")
    b.label(beyond)
    b.fault(Fault.TRAP)


def leave(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`ret` and `exit`."""
    b.end(f"br label %{'return' if word.opcode == 'ret' else 'leave'}")


def trap(b: Translator, word: Word, operands: Sequence[str]) -> None:
    """`trap`."""
    b.fault(Fault.TRAP)


def call(b: Translator, made: ptx.Call) -> None:
    """`call`, of a function by name."""
    passed = [b.storage(name) for name in (*made.results, *made.arguments)]
    function = b.unit.functions.get(made.callee)
    if None in passed:
        raise Unknown
    if function is None:
        EXTERNS[made.callee](b, [each for each in passed if each])
        return
    waits = function.name in b.unit.waiting
    formals = [max(each.size, 1) for each in (*function.results, *function.params)]
    if [each.size for each in passed if each] != formals or (waits and function.name in b.unit.recursive):
        raise Unknown
    pointers = "".join(f", ptr {each.pointer}" for each in passed if each)
    told = b.let(f'call i8 @"f.{function.name}"({ARGUMENTS.format(local="%top")}{pointers})')
    after = b.fresh()
    waiting = " i8 2, label %suspended" * waits
    b.end(f"switch i8 {told}, label %{after} [i8 1, label %leave{waiting}]")
    b.label(after)


def _argument(b: Translator, storage: Storage) -> str:
    return b.let(f"load i64, ptr {storage.pointer}, {THEIRS}")


def _print(b: Translator, passed: Sequence[Storage]) -> None:
    result, form, values = passed
    given = f"i64 {_argument(b, form)}", f"i64 {_argument(b, values)}"
    printed = b.call("ptxlink.print", "i32", "ptr %ctx", *given)
    b.unless(b.op("icmp sge", "i32", printed, 0), Fault.INTERRUPTED)
    b.do(f"store i32 {printed}, ptr {result.pointer}")


def _assert(b: Translator, passed: Sequence[Storage]) -> None:
    # The address of the message, and that of the file, which fills the place of the size.
    b.fault(Fault.ASSERT, _argument(b, passed[0]), _argument(b, passed[1]))
    b.label(b.fresh())


def _allocate(b: Translator, passed: Sequence[Storage]) -> None:
    place = b.call("ptxlink.allocate", "i64", "ptr %ctx", f"i64 {_argument(b, passed[1])}")
    b.do(f"store i64 {place}, ptr {passed[0].pointer}")


def _free(b: Translator, passed: Sequence[Storage]) -> None:
    b.do(f"call void @ptxlink.free(ptr %ctx, i64 {_argument(b, passed[0])})")


def _grid_handle(b: Translator, passed: Sequence[Storage]) -> None:
    # The scope of a grid is 1; the handle is not 0 if the launch is cooperative.
    b.do(f"store i64 {b.resize(b.field('cooperative'), 32, 64)}, ptr {passed[0].pointer}")


def _grid_barrier(b: Translator, passed: Sequence[Storage]) -> None:
    b.unless(b.op("icmp ne", "i32", b.field("cooperative"), 0), Fault.WAITING)
    b.suspend(State.GRID)
    b.do(f"store i32 0, ptr {passed[0].pointer}")


EXTERNS = {
    "vprintf": _print,
    "__assertfail": _assert,
    "malloc": _allocate,
    "free": _free,
    "cudaCGGetIntrinsicHandle": _grid_handle,
    "cudaCGSynchronize": _grid_barrier,
}
CONTROL = {"bra": jump, "brx": table, **dict.fromkeys(("ret", "exit"), leave), "trap": trap}
