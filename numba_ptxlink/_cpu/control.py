"""Jumps, calls and ends; a function in which lanes wait is written out where it is called."""

from __future__ import annotations

from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from .builder import THEIRS, Builder, Unknown
from .code import Activation
from .layout import Fault, State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .builder import Word
    from .code import Code, Storage

_MOST_WRITTEN_OUT = 100_000
ARGUMENTS = "ptr %ctx, ptr %found, ptr {local}, ptr %limit, i32 %tx, i32 %ty, i32 %tz"


def label_name(b: Code, name: str) -> str:
    """Return the block that a label begins."""
    found = b.activation.outline.label(name, b.scope)
    if found is None:
        raise Unknown
    return f"{b.activation.prefix}.{b.activation.outline.labels[found]}"


def jump(b: Code, instruction: ptx.Instruction) -> None:
    """`bra`, with its predicate."""
    target = label_name(b, instruction.operands[0])
    if not instruction.guard:
        b.end(f"br label %{target}")
        return
    after = b.fresh()
    b.fork(b.bits(instruction.guard[1:].strip(), 1), target, after)
    Builder.label(b, after)


def table(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`brx.idx`."""
    targets = [label_name(b, each) for each in b.activation.outline.targets[operands[1]]]
    index, beyond = b.unsigned(operands[0]), b.fresh()
    cases = " ".join(f"i32 {number}, label %{target}" for number, target in enumerate(targets))
    b.end(f"switch i32 {index}, label %{beyond} [{cases}]")
    Builder.label(b, beyond)
    b.fault(Fault.TRAP)


def leave(b: Code, word: Word, operands: Sequence[str]) -> None:
    """`ret`, `exit` and `trap`."""
    if word.opcode == "trap":
        b.fault(Fault.TRAP)
    else:
        b.end(f"br label %{b.activation.end if word.opcode == 'ret' else 'leave'}")


def call(b: Code, instruction: ptx.Instruction) -> None:
    """`call`, of a function by name."""
    made = ptx.called(instruction)
    passed = []
    for name in (*made.results, *made.arguments):
        storage = b.storage(name)
        if storage is None:
            raise Unknown
        passed.append(storage)
    function = b.unit.function(made.callee)
    if function is not None:
        _call(b, function, passed)
    else:
        EXTERNS[made.callee](b, passed)


def _call(b: Code, function: ptx.Function, passed: Sequence[Storage]) -> None:
    formals = [*function.results, *function.params]
    if [each.size for each in passed] != [max(each.size, each.bits // 8) for each in formals]:
        raise Unknown
    if b.unit.outlines.waits(function.name):
        _write_out(b, function, passed)
        return
    pointers = "".join(f", ptr {each.pointer}" for each in passed)
    name = b.unit.symbol(function.name)
    ended = b.let(f"call i1 {name}({ARGUMENTS.format(local='%top')}{pointers})")
    after = b.fresh()
    b.fork(ended, "leave", after)
    b.label(after)


def _write_out(b: Code, function: ptx.Function, passed: Sequence[Storage]) -> None:
    """Translate the body of a function here, so that what waits is the kernel."""
    outside = b.activation, b.scope, b.place
    outline, end = b.unit.outlines.of(function.name), b.fresh()
    # A recursion, or functions that call each other by address, would have no end.
    b.unit.written_out += len(outline.statements)
    if b.unit.written_out > _MOST_WRITTEN_OUT or outline in b.around:
        raise Unknown
    names = [each.name for each in (*function.results, *function.params)]
    b.around.append(outline)
    formals = b.kept(outline, dict(zip(names, passed, strict=True)))
    b.activation = Activation(outline, b.fresh("L"), formals, end)
    b.unit.translate_body(b)
    b.around.pop()
    if b.open:
        b.end(f"br label %{end}")
    b.activation, b.scope, b.place = outside
    b.label(end)


def _argument(b: Code, storage: Storage, kind: str = "i64") -> str:
    return b.let(f"load {kind}, ptr {storage.pointer}, {THEIRS}")


def _print(b: Code, passed: Sequence[Storage]) -> None:
    result, form, values = passed
    where = f"i64 {_argument(b, form)}, i64 {_argument(b, values)}"
    printed = b.let(f"call i32 {b.field('print', kind='ptr')}({where})")
    b.do(f"store i32 {printed}, ptr {result.pointer}")


def _assert(b: Code, passed: Sequence[Storage]) -> None:
    # The address of the message, and that of the file, which fills the place of the size.
    b.fault(Fault.ASSERT, _argument(b, passed[0]), _argument(b, passed[1]))
    b.label(b.fresh())


def _allocate(b: Code, passed: Sequence[Storage]) -> None:
    size = _argument(b, passed[1])
    b.do(f"store i64 {b.let(f'call i64 @ptxlink.allocate(ptr %ctx, i64 {size})')}, ptr {passed[0].pointer}")


def _free(b: Code, passed: Sequence[Storage]) -> None:
    """Keep the memory: the heap is as large as a device's, and lasts as long as the program."""


def _grid_handle(b: Code, passed: Sequence[Storage]) -> None:
    # The scope of a grid is 1; the handle is not 0 if the launch is cooperative.
    wide = b.resize(b.field("cooperative"), "i32", "i64")
    b.do(f"store i64 {wide}, ptr {passed[0].pointer}")


def _grid_barrier(b: Code, passed: Sequence[Storage]) -> None:
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
CONTROL = {"brx": table, **dict.fromkeys(("ret", "exit", "trap"), leave)}
