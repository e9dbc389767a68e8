"""
Move the loads of a large result down to where a function returns what they load.

NVVM loads all members before it returns the first. The assembler keeps to that: it spills what does not fit
into registers, in a time that grows with the square of the size.

Instructions move within a run without labels, branches, predicates and calls, in which nothing is written but
registers, each once and not before it is read, and the function's result, which no load reads. Such a run
does the same in every order in which registers are written before they are read.
"""

from __future__ import annotations

import contextlib
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

# So many registers are left to the assembler, which has them for all values at once.
_FEW = 64
# What an access may say of itself: not that it is volatile, or ordered among others.
_PLAIN = frozenset(("local", "param", "global", "const", "shared", "nc", "v2", "v4", "v8"))
# What depends on registers alone.
_PURE = frozenset(("and", "bfe", "bfi", "cvt", "mov", "or", "prmt", "selp", "shl", "shr", "xor"))


def sink_loads(text: str) -> str:
    """
    Return PTX in which functions load the members of a large result one by one, as they return them.

    Args:
        text: A PTX module.
    """
    module = ptx.parse(text)
    edits = {}
    for function in module.functions:
        result = function.results[0] if function.results else None
        if result and result.size > _FEW and function.defined:
            with contextlib.suppress(LinkError):
                body = _sunk(function.body, result.name)
                if body != list(function.body):
                    edits[function.body_span] = ptx.block(body)
    return module.replace(edits)


class _Step(NamedTuple):
    """
    What an instruction of a run does.

    Args:
        writes: The registers that it writes; none where it returns what it reads.
        reads: The registers that it reads.
        loads: Whether it reads memory.
    """

    writes: Sequence[str]
    reads: Sequence[str]
    loads: bool = False


class _Run:
    """Instructions that follow each other, with what they do."""

    def __init__(self) -> None:
        self._instructions: list[ptx.Instruction] = []
        self._steps: list[_Step] = []
        # Where each register is written, and all that are written or read.
        self._writers: dict[str, int] = {}
        self._named: set[str] = set()

    def takes(self, step: _Step) -> bool:
        """Return whether *step* can be the next."""
        # What is computed from other registers may depend on more than these: on a clock, for one.
        known = step.loads or not step.writes or self._writers.keys() >= {*step.reads}
        return known and self._named.isdisjoint(step.writes)

    def add(self, instruction: ptx.Instruction, step: _Step) -> None:
        """Append *step*."""
        self._writers |= dict.fromkeys(step.writes, len(self._steps))
        self._named.update(step.writes, step.reads)
        self._instructions.append(instruction)
        self._steps.append(step)

    def ordered(self) -> list[ptx.Instruction]:
        """Return the instructions in the order in which few values wait."""
        count = len(self._steps)
        # The first step that returns what comes of each, and how many values begin or cease to wait at it.
        needed, waiting = [count] * count, [0] * count
        for place in reversed(range(count)):
            step = self._steps[place]
            sources = [self._writers[name] for name in step.reads if name in self._writers]
            if not step.writes:
                needed[place] = place
                waiting[place] = -len(sources)
            for source in sources:
                needed[source] = min(needed[source], needed[place])
                waiting[source] += not step.writes
        if max(accumulate(waiting), default=0) <= _FEW:
            return self._instructions
        order = sorted(range(count), key=lambda place: (needed[place], place))
        return [self._instructions[place] for place in order]


def _sunk(body: Sequence[ptx.Statement], result: str) -> list[ptx.Statement]:
    statements: list[ptx.Statement] = []
    run = _Run()
    for statement in body:
        step = _step(statement, result) if isinstance(statement, ptx.Instruction) else None
        if step is None or not run.takes(step):
            statements += run.ordered()
            run = _Run()
        if step is not None and run.takes(step) and isinstance(statement, ptx.Instruction):
            run.add(statement, step)
        else:
            statements.append(statement)
    return [*statements, *run.ordered()]


def _step(instruction: ptx.Instruction, result: str) -> _Step | None:
    """Return what *instruction* does, None where it may do more than a step of a run."""
    opcode, *modifiers = instruction.word.split(".")
    plain = all(modifier in _PLAIN or ptx.width(modifier) for modifier in modifiers)
    if instruction.guard or len(instruction.operands) < 2 or not (plain or opcode in _PURE):
        return None
    first, *others = instruction.operands
    target, sources = ptx.names(first), ptx.names(",".join(others))
    if opcode in _PURE:
        return _Step(target, sources)
    if opcode == "ld" and result not in sources:
        return _Step(target, sources, loads=True)
    if opcode == "st" and "param" in modifiers and target == [result]:
        return _Step((), sources)
    return None
