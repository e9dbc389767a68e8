"""Move the loads of a large result down to where a function returns what they load."""

from __future__ import annotations

import contextlib
import re
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx

from .scan import NAME, NotReadError, Scanned

if TYPE_CHECKING:
    from .scan import Instruction

# So many registers are left to the assembler, which has them for all values at once.
_FEW = 64
# A result of a hundred bytes or more, at a glance.
_LARGE = re.compile(r"\.func\s*\(\s*\.param\s[^()]*\[\d{3,}\]")
_TYPE = re.compile(r"[busf]\d+")
# What an access may say of itself: not that it is volatile, or ordered among others.
_PLAIN = frozenset(("local", "param", "global", "const", "shared", "nc", "v2", "v4", "v8"))
# What depends on registers alone.
_PURE = frozenset(("and", "bfe", "bfi", "cvt", "mov", "or", "prmt", "selp", "shl", "shr", "xor"))


def sink_loads(text: str) -> str:
    """
    Return PTX in which functions load the members of a large result one by one, as they return them.

    NVVM loads all members before it returns the first. The assembler keeps to that: it spills what does not
    fit into registers, in a time that grows with the square of the size.

    Instructions move within a run without labels, branches, predicates and calls, in which nothing is written
    but registers, each once and not before it is read, and the function's result, which no load reads. Such a
    run does the same in every order in which registers are written before they are read.

    Args:
        text: A PTX module.
    """
    if not _LARGE.search(text):
        return text
    module = ptx.parse(text)
    edits = {}
    for function in module.functions:
        result = function.results[0] if function.results else None
        if result and result.param.size > _FEW and function.defined and function.closed:
            with contextlib.suppress(NotReadError):
                edits[function.span] = _sunk(Scanned(module.source(function), function), result.name)
    return module.replace(edits)


class _Step(NamedTuple):
    """
    What an instruction of a run does.

    Args:
        writes: The registers that it writes; none where it returns what it reads.
        reads: The registers that it reads.
        loads: Whether it reads memory.
    """

    writes: tuple[str, ...]
    reads: tuple[str, ...]
    loads: bool = False


class _Run:
    """Instructions that follow each other, with what they do."""

    def __init__(self) -> None:
        self._instructions: list[Instruction] = []
        self._steps: list[_Step] = []
        # Where each register is written, and all that are written or read.
        self._writers: dict[str, int] = {}
        self._named: set[str] = set()

    def takes(self, step: _Step) -> bool:
        """Return whether *step* can be the next."""
        # What is computed from other registers may depend on more than these: on a clock, for one.
        known = step.loads or not step.writes or self._writers.keys() >= {*step.reads}
        return known and self._named.isdisjoint(step.writes)

    def add(self, instruction: Instruction, step: _Step) -> None:
        """Append *step*."""
        self._writers |= dict.fromkeys(step.writes, len(self._steps))
        self._named.update(step.writes, step.reads)
        self._instructions.append(instruction)
        self._steps.append(step)

    def edits(self, body: str) -> dict[ptx.Span, str]:
        """Return what stands in the places of the instructions, nothing where they stay."""
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
            return {}
        order = sorted(range(count), key=lambda place: (needed[place], place))
        moved = (self._instructions[place] for place in order)
        return {
            ptx.Span(old.place, old.end): body[new.place : new.end]
            for old, new in zip(self._instructions, moved, strict=True)
        }


def _sunk(function: Scanned, result: str) -> str:
    edits: dict[ptx.Span, str] = {}
    body, run, end = function.body, _Run(), 0
    for instruction, _ in function.instructions():
        step = _step(instruction, result)
        # Between two instructions may be a label, a location, a brace or a directive.
        if step is None or body[end : instruction.start].strip() or not run.takes(step):
            edits |= run.edits(body)
            run = _Run()
        if step is not None and run.takes(step):
            run.add(instruction, step)
        end = instruction.end
    return function.edited(edits | run.edits(body)).text


def _step(instruction: Instruction, result: str) -> _Step | None:
    """Return what *instruction* does, None where it may do more than a step of a run."""
    opcode, *modifiers = instruction.opcode.split(".")
    operands = instruction.operands.lstrip()
    plain = all(modifier in _PLAIN or _TYPE.fullmatch(modifier) for modifier in modifiers)
    if instruction.guard or not (plain or opcode in _PURE):
        return None
    target, _, sources = map(_names, operands.partition("}" if operands.startswith("{") else ","))
    if opcode in _PURE:
        return _Step(target, sources)
    if opcode == "ld" and result not in sources:
        return _Step(target, sources, loads=True)
    if opcode == "st" and "param" in modifiers and target == (result,):
        return _Step((), sources)
    return None


def _names(operands: str) -> tuple[str, ...]:
    return tuple(name for name in NAME.findall(operands) if not name[0].isdigit())
