"""
Make a function of each instruction, which takes the frame and the lanes that execute it.

It returns True if it has said where these lanes go on; otherwise that is the next instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .memory import CODE, RAW, WINDOWS
from .numbers import Type, narrowed, type_of
from .parse import Address, Function, Instruction, Not, Number, PtxError, Register, Symbol, Variable, width
from .values import PRED, ROWS, U32, U64, form_of, smeared

if TYPE_CHECKING:
    from collections.abc import Callable

    from .machine import Frame, Machine

    Step = Callable[[Frame, np.ndarray], bool | None]
    Read = Callable[[Frame], tuple[np.ndarray, np.ndarray | None]]

STEPS: dict[str, Callable[[Maker, Instruction, int], Step]] = {}
NOTHING = frozenset(("membar", "fence", "nanosleep", "pmevent"))
_ORDERS = "weak volatile relaxed acquire release acq_rel sc cta gpu sys nc ca cg cs lu cv wb wt noftz"
ACCESS_WORDS = frozenset(_ORDERS.split())
COUNTS = {"v2": 2, "v4": 4}


def step(opcodes: str) -> Callable:
    """Add a row to the table of what is no plain value."""

    def add(make: Callable) -> Callable:
        STEPS.update(dict.fromkeys(opcodes.split(), make))
        return make

    return add


def defined(frame: Frame, undefined: np.ndarray | None, mask: np.ndarray, what: str) -> None:
    """Raise an error if a bit of an operand is undefined in one of the lanes."""
    if (
        undefined is not None
        and not frame.block.machine.poison
        and (undefined[mask] if undefined.size > 1 else undefined).any()
    ):
        raise PtxError(f"{what} is undefined")


class Maker:
    """Makes the steps of a function."""

    def __init__(self, machine: Machine, function: Function) -> None:
        self.machine, self.function = machine, function

    def step(self, place: int) -> Step:
        """Return the step of the instruction at *place*."""
        instruction = self.function.code[place]
        if instruction.opcode in ROWS:
            made = self._value(instruction)
        elif instruction.opcode in STEPS:
            made = STEPS[instruction.opcode](self, instruction, place)
        elif instruction.opcode in NOTHING:
            return lambda frame, mask: None
        else:
            raise instruction.error("not supported")
        if instruction.guard is None:
            return made
        read = self.reader(instruction.guard, PRED)

        def guarded(frame: Frame, mask: np.ndarray) -> bool | None:
            predicate, undefined = read(frame)
            defined(frame, undefined, mask, "a predicate")
            chosen = mask & predicate
            if not chosen.any():
                return None
            gone = made(frame, chosen)
            if gone:
                frame.join(place + 1, mask & ~predicate)
            return gone

        return guarded

    def _value(self, instruction: Instruction) -> Step:
        form = form_of(instruction)
        targets, *sources = instruction.operands
        targets = targets if isinstance(targets, tuple) else (targets,)
        if (len(targets), len(sources)) != (len(form.results), len(form.sources)):
            raise instruction.error("not supported")
        if form.inexact:
            self.machine.inexact.add(instruction.text)
        loose = instruction.opcode == "cvt"
        spread = self.machine.poison and instruction.opcode not in ("selp", "cvt")
        rule = smeared if spread else form.undefined
        reads = [self.reader(*pair, loose=loose) for pair in zip(sources, form.sources, strict=True)]
        writes = [self.writer(*pair, loose=loose) for pair in zip(targets, form.results, strict=True)]

        def run(frame: Frame, mask: np.ndarray) -> None:
            values, undefined = zip(*(read(frame) for read in reads), strict=True)
            result, bits = form.compute(*values), None
            if any(part is not None for part in undefined):
                zeros = zip(undefined, form.sources, strict=True)
                every = [np.zeros(1, kind.raw) if part is None else part for part, kind in zeros]
                bits = rule(form, values, every)
            for number, write in enumerate(writes):
                write(frame, mask, result if len(writes) == 1 else result[number], bits)

        return run

    def reader(self, operand: object, kind: Type, *, loose: bool = False) -> Read:
        """
        Return a function that gives the value of *operand* in a frame, and its undefined bits or None.

        A register is as wide as the type, or wider where *loose*.
        """
        if isinstance(operand, Register):
            index, bits, raw, unpack = operand.index, width(operand.type), kind.raw, kind.unpack
            if bits < kind.bits or (bits > kind.bits and not loose) or (kind is PRED) != (bits == 1):
                raise PtxError(f"a register of type {operand.type} for {kind.name}")

            def read(frame: Frame) -> tuple:
                undefined = frame.undefined[index]
                if undefined is not None and undefined.dtype != raw:
                    undefined = undefined.astype(raw)
                return unpack(frame.values[index]), undefined

            return read
        if isinstance(operand, Not):
            inner = self.reader(operand.operand, kind)
            return lambda frame: (~(read := inner(frame))[0], read[1])
        if isinstance(operand, Symbol) and operand.name.startswith("%"):
            return self._special(operand.name, kind)
        base, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
        if isinstance(base, Variable) and base.space in ("local", "param"):
            return lambda frame: (
                np.array([frame.base + base.place + offset], kind.raw).view(kind.dtype),
                None,
            )
        if isinstance(base, (Variable, Symbol)):
            address = self.machine.address(base, self.function.module)
            if kind.bits < 64 and address >= CODE:
                raise PtxError(f"{base.name} is a function, whose address is no number of {kind.bits} bits")
            operand = Number(address + offset)
        constant = self._constant(operand, kind)
        return lambda frame: (constant, None)

    def _special(self, name: str, kind: Type) -> Read:
        if name not in self.machine.special:
            raise PtxError(f"no register {name}")

        def read(frame: Frame) -> tuple:
            value = frame.block.special[name]
            return value.astype(kind.raw).view(kind.dtype), None

        return read

    @staticmethod
    def _constant(operand: object, kind: Type) -> np.ndarray:
        if not isinstance(operand, Number):
            raise PtxError(f"not supported as an operand: {operand}")
        if kind.floating and operand.bits and operand.bits != kind.bits:
            value = np.array([operand.value], RAW[operand.bits]).view(f"f{operand.bits // 8}")
            return narrowed(value, kind)
        if kind is PRED:
            return np.array([operand.value != 0])
        return kind.unpack(np.array([operand.value % (1 << kind.bits)], kind.raw))

    def writer(self, operand: object, kind: Type, *, loose: bool = False) -> Callable:
        """Return a function that writes values, and which of their bits are undefined, in some lanes."""
        if operand == Symbol("_"):
            return lambda frame, mask, value, undefined=None: None
        if not isinstance(operand, Register):
            raise PtxError(f"not supported as a result: {operand}")
        index, bits, pack = operand.index, width(operand.type), kind.pack
        if bits < kind.bits or (bits > kind.bits and not loose) or (kind is PRED) != (bits == 1):
            raise PtxError(f"a register of type {operand.type} for {kind.name}")
        raw = RAW[bits]
        extended = kind if kind.kind != "bf" else type_of("b16")
        poison = self.machine.poison and kind is not PRED

        def write(
            frame: Frame, mask: np.ndarray, value: np.ndarray, undefined: np.ndarray | None = None
        ) -> None:
            np.copyto(frame.values[index], pack(value, raw), where=mask)
            old = frame.undefined[index]
            if undefined is None and old is None:
                return
            none = raw(0)
            if poison and undefined is not None:
                undefined = by_words(undefined)
            if undefined is not None and undefined.dtype != raw:
                undefined = extended.pack(undefined.view(extended.dtype), raw)
                undefined = by_words(undefined) if poison else undefined
            merged = np.where(mask, none if undefined is None else undefined, none if old is None else old)
            frame.undefined[index] = merged if merged.any() else None

        return write

    def addresses(self, operand: Address, words: tuple[str, ...]) -> Callable:
        """
        Return a function that gives the lanes of a mask and the addresses that they access.

        They come in parts, one for each state space: the space, its lanes, their addresses, and which of the
        lanes of the mask they are.
        """
        base, offset = operand.base, np.uint64(operand.offset % (1 << 64))
        kind = type_of(f"u{width(base.type)}") if isinstance(base, Register) else U64
        read, named = self.reader(base, kind), next((word for word in words if word in WINDOWS), "")
        named = {"const": "global", "param": "local"}.get(named, named)

        def addresses(frame: Frame, mask: np.ndarray) -> list[tuple]:
            value, undefined = read(frame)
            defined(frame, undefined, mask, "an address")
            lanes = np.flatnonzero(mask)
            value = (value[lanes] if value.size > 1 else np.repeat(value, lanes.size)).astype(
                np.uint64
            ) + offset
            if named:
                return [(frame.block.spaces[named], lanes, value, slice(None))]
            parts, windows = [], value >> np.uint64(48)
            for window, name in enumerate(("global", "shared", "local")):
                chosen = windows == window
                if chosen.any():
                    at = value[chosen] - np.uint64(WINDOWS[name])
                    parts.append((frame.block.spaces[name], lanes[chosen], at, chosen))
            if (windows > 2).any():
                raise PtxError(f"no memory at {int(value[np.argmax(windows > 2)]):#x}")
            return parts

        return addresses

    def column(self, operand: Address, size: int) -> Variable | None:
        """Return the variable of the frame that *operand* is aligned in; None for other accesses."""
        base, offset = operand.base, operand.offset
        inside = isinstance(base, Variable) and base.space in ("local", "param")
        return (
            base if inside and 0 <= offset <= base.size - size and not (base.place + offset) % size else None
        )


def access(instruction: Instruction, known: object = ()) -> tuple[Type, int]:
    """Return the type of what is accessed, and how many elements."""
    kind, count = None, 1
    for word in instruction.words:
        if type_of(word):
            kind = type_of(word)
        elif word in COUNTS:
            count = COUNTS[word]
        elif not (
            word in ACCESS_WORDS or word in WINDOWS or word in known or word.startswith(("L1::", "L2::"))
        ):
            raise instruction.error("not supported")
    if kind is None:
        raise instruction.error("not supported")
    return kind, count


@step("ld ldu")
def _load(maker: Maker, instruction: Instruction, place: int) -> Step:
    del place
    kind, count = access(instruction)
    target, source = instruction.operands
    targets = target if isinstance(target, list) else [target]
    # What is loaded is extended by the letter of the type, whatever the type of the register.
    writes = [maker.writer(each, kind, loose=True) for each in targets]
    size, raw, checked = kind.bits // 8, kind.raw, maker.machine.checked
    variable, addresses = maker.column(source, size * count), maker.addresses(source, instruction.words)

    def load_column(frame: Frame, mask: np.ndarray) -> None:
        start = (frame.base + variable.place + source.offset) // size
        for number, write in enumerate(writes):
            value, undefined = frame.block.spaces["local"].load_column(start + number, raw)
            write(frame, mask, kind.unpack(value), undefined if checked else None)

    def load(frame: Frame, mask: np.ndarray) -> None:
        parts = addresses(frame, mask)
        if count > 1:
            aligned(parts, size * count)
        for number, write in enumerate(writes):
            value, missing = np.zeros(mask.size, raw), np.zeros(mask.size, raw)
            for memory, lanes, at, _ in parts:
                value[lanes], missing[lanes] = memory.load(at + np.uint64(size * number), lanes, raw)
            write(frame, mask, kind.unpack(value), missing if checked and missing.any() else None)

    return load_column if variable else load


def aligned(parts: list[tuple], size: int) -> None:
    """Raise an error if not all of a vector is at a multiple of its size."""
    for memory, _, at, _ in parts:
        if (at % np.uint64(size)).any():
            raise PtxError(f"a misaligned access to {size} bytes in {memory.name} memory")


@step("st")
def _store(maker: Maker, instruction: Instruction, place: int) -> Step:
    del place
    kind, count = access(instruction)
    target, source = instruction.operands
    bits = type_of(f"b{kind.bits}")
    reads = []
    for each in source if isinstance(source, list) else [source]:
        if isinstance(each, Number):
            reads.append(maker.reader(Number(int(maker._constant(each, kind).view(kind.raw)[0])), bits))
        else:
            reads.append(maker.reader(each, bits, loose=True))
    size = kind.bits // 8
    variable, addresses = maker.column(target, size * count), maker.addresses(target, instruction.words)
    if maker.machine.poison and count > 1 and size < 4:
        reads = joined(reads)

    def store_column(frame: Frame, mask: np.ndarray) -> None:
        start = (frame.base + variable.place + target.offset) // size
        for number, read in enumerate(reads):
            value, undefined = read(frame)
            frame.block.spaces["local"].store_column(start + number, value, undefined, mask)

    def store(frame: Frame, mask: np.ndarray) -> None:
        parts, every = addresses(frame, mask), np.flatnonzero(mask)
        if count > 1:
            aligned(parts, size * count)
        for number, read in enumerate(reads):
            value, undefined = read(frame)
            value = np.broadcast_to(value, mask.shape)
            undefined = None if undefined is None else np.broadcast_to(undefined, mask.shape)
            for memory, lanes, at, chosen in parts:
                some = every[chosen]
                missing = None if undefined is None else undefined[some]
                memory.store(at + np.uint64(size * number), lanes, value[some], missing)

    return store_column if variable else store


def joined(reads: list[Read]) -> list[Read]:
    """Return functions for the elements of a vector, which are undefined where one of them is."""

    def element(number: int) -> Read:
        def read(frame: Frame) -> tuple:
            values = [each(frame) for each in reads]
            missing = [undefined != 0 for _, undefined in values if undefined is not None]
            if not missing:
                return values[number]
            raw = values[number][0].dtype.type
            return values[number][0], np.where(np.logical_or.reduce(missing), ~raw(0), raw(0))

        return read

    return [element(number) for number in range(len(reads))]


ATOMICS = {
    "add": lambda old, a: old + a,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, a: a,
    "cas": lambda old, a, b: np.where(old == a, b, old),
    "inc": lambda old, a: np.where(old >= a, 0, old + old.dtype.type(1)).astype(old.dtype),
    "dec": lambda old, a: np.where((old == 0) | (old > a), a, old - old.dtype.type(1)),
}


@step("atom red")
def _atomic(maker: Maker, instruction: Instruction, place: int) -> Step:
    """One lane after the other."""
    del place
    kind, count = access(instruction, ATOMICS)
    if count > 1:
        raise instruction.error("not supported")
    name = next(word for word in instruction.words if word in ATOMICS)
    operands = instruction.operands if instruction.opcode == "atom" else [Symbol("_"), *instruction.operands]
    write, addresses = maker.writer(operands[0], kind), maker.addresses(operands[1], instruction.words)
    reads = [maker.reader(operand, kind) for operand in operands[2:]]

    def atomic(frame: Frame, mask: np.ndarray) -> None:
        result, values = np.zeros(mask.size, kind.raw), []
        for read in reads:
            value, undefined = read(frame)
            defined(frame, undefined, mask, "an operand")
            values.append(np.broadcast_to(value, mask.shape))
        for memory, lanes, at, _ in addresses(frame, mask):
            for number, lane in enumerate(lanes):
                here, one = at[number : number + 1], lanes[number : number + 1]
                old, missing = memory.load(here, one, kind.raw)
                if maker.machine.checked and missing.any() and name != "exch":
                    raise PtxError("an atomic operation on undefined bytes")
                new = ATOMICS[name](kind.unpack(old), *(value[lane : lane + 1] for value in values))
                if kind.kind == "bf":
                    new = narrowed(new, kind)
                memory.store(here, one, kind.pack(new, kind.raw), None)
                result[lane] = old[0]
        write(frame, mask, kind.unpack(result))

    return atomic


@step("mov")
def _move(maker: Maker, instruction: Instruction, place: int) -> Step:
    del place
    if len(instruction.words) != 1 or not type_of(instruction.words[0]):
        raise instruction.error("not supported")
    target, source = instruction.operands
    kind = type_of(instruction.words[0])
    if kind is not PRED:
        if isinstance(source, Number):
            source = Number(int(maker._constant(source, kind).view(kind.raw)[0]))
        kind = type_of(f"b{kind.bits}")
    parts = target if isinstance(target, list) else source if isinstance(source, list) else [source]
    part = type_of(f"b{kind.bits // len(parts)}") if len(parts) > 1 else kind
    shifts = [number * part.bits for number in range(len(parts))]
    if isinstance(target, list):
        read, writes = maker.reader(source, kind), [maker.writer(each, part) for each in target]

        def spread(frame: Frame, mask: np.ndarray) -> None:
            value, undefined = read(frame)
            value = value.copy()
            for write, shift in zip(writes, map(kind.raw, shifts), strict=True):
                missing = None if undefined is None else (undefined >> shift).astype(part.raw)
                write(frame, mask, (value >> shift).astype(part.raw), missing)

        return spread
    write, reads = maker.writer(target, kind), [maker.reader(each, part) for each in parts]
    if len(reads) == 1:
        (read,) = reads
        return lambda frame, mask: write(frame, mask, *read(frame))

    def join(frame: Frame, mask: np.ndarray) -> None:
        whole, missing = kind.raw(0), None
        for read, shift in zip(reads, map(kind.raw, shifts), strict=True):
            value, undefined = read(frame)
            whole = whole | (value.astype(kind.raw) << shift)
            if undefined is not None:
                missing = (kind.raw(0) if missing is None else missing) | (
                    undefined.astype(kind.raw) << shift
                )
        write(frame, mask, whole, missing)

    return join


@step("declare")
def _declaration(maker: Maker, instruction: Instruction, place: int) -> Step:
    """Each turn of a loop has its own variable, which nothing was stored to."""
    del maker, place
    (variable,) = instruction.operands

    def declare(frame: Frame, mask: np.ndarray) -> None:
        frame.block.spaces["local"].own(np.flatnonzero(mask), frame.base + variable.place, variable.size)

    return declare


@step("bra")
def _branch(maker: Maker, instruction: Instruction, place: int) -> Step:
    del maker, place
    (target,) = instruction.operands
    return lambda frame, mask: frame.join(target.place, mask)


def by_words(undefined: np.ndarray) -> np.ndarray:
    """Return all bits of each register of a device, of 32 bits, in which any is undefined."""
    if undefined.dtype.itemsize < 8:
        return np.where(undefined != 0, ~undefined.dtype.type(0), undefined.dtype.type(0))
    low = np.uint64(0xFFFFFFFF)
    halves = (np.where(undefined & half, half, np.uint64(0)) for half in (low, ~low))
    return np.bitwise_or(*halves)


def by_value(read: Read, what: str, go: Callable[[Frame, np.ndarray, int], object]) -> Step:
    """Return a step in which the lanes of each value of an operand go together."""

    def step(frame: Frame, mask: np.ndarray) -> bool:
        value, undefined = read(frame)
        defined(frame, undefined, mask, what)
        value = np.broadcast_to(value, mask.shape)
        for each in np.unique(value[mask]):
            go(frame, mask & (value == each), int(each))
        return True

    return step


@step("brx")
def _branch_by_index(maker: Maker, instruction: Instruction, place: int) -> Step:
    del place
    operand, targets = instruction.operands

    def go(frame: Frame, mask: np.ndarray, index: int) -> None:
        if index >= len(targets):
            raise PtxError(f"index {index} of {len(targets)} branches")
        frame.join(targets[index].place, mask)

    return by_value(maker.reader(operand, U32), "an index", go)


@step("ret exit")
def _leave(maker: Maker, instruction: Instruction, place: int) -> Step:
    del maker, place
    return lambda frame, mask: frame.leave(mask, everything=instruction.opcode == "exit")


@step("trap")
def _trap(maker: Maker, instruction: Instruction, place: int) -> Step:
    del maker, place

    def trap(frame: Frame, mask: np.ndarray) -> None:
        raise instruction.error("a trap")

    return trap


@step("call")
def _call(maker: Maker, instruction: Instruction, place: int) -> Step:
    operands = list(instruction.operands)
    results = operands.pop(0) if isinstance(operands[0], list) else []
    callee, *rest = operands
    arguments = rest[0] if rest and isinstance(rest[0], list) else []
    if not all(isinstance(passed, Variable) for passed in (*results, *arguments)):
        raise instruction.error("not supported")
    machine = maker.machine
    if isinstance(callee, Symbol):
        function = machine.function(callee.name, maker.function.module)
        return lambda frame, mask: frame.call(function, mask, place + 1, results, arguments)

    def go(frame: Frame, mask: np.ndarray, address: int) -> None:
        frame.call(machine.function_at(address), mask, place + 1, results, arguments)

    return by_value(maker.reader(callee, U64), "the address of a function", go)


@step("bar barrier")
def _barrier(maker: Maker, instruction: Instruction, place: int) -> Step:
    words = [word for word in instruction.words if word not in ("cta", "aligned")]
    if words[0] == "warp":
        return together(maker, instruction.operands[0], place, lambda frame, mask: None)
    operands, vote = list(instruction.operands), None
    if words[0] == "red":
        write, last = maker.writer(operands.pop(0), type_of(words[-1])), maker.reader(operands.pop(), PRED)
        vote = BARRIERS[words[1]], last, write
    elif words[0] != "sync":
        raise instruction.error("not supported")
    reads = [maker.reader(operand, U32) for operand in operands]

    def wait(frame: Frame, mask: np.ndarray) -> bool:
        number, *count = (int(np.broadcast_to(read(frame)[0], mask.shape)[mask][0]) for read in reads)
        return frame.block.wait((number, count[0] if count else 0), frame, place + 1, mask, vote)

    return wait


BARRIERS = {
    "popc": lambda votes: np.array([votes.sum()], np.uint32),
    "and": lambda votes: votes.all(keepdims=True),
    "or": lambda votes: votes.any(keepdims=True),
}


# Operations of warps


def together(maker: Maker, members: object, place: int, made: Step) -> Step:
    """Return a step that waits until all *members* of a warp are here, but for those that have ended."""
    read = maker.reader(members, U32)

    def wait(frame: Frame, mask: np.ndarray) -> bool | None:
        mask = frame.gathered(place, mask)
        value, undefined = read(frame)
        defined(frame, undefined, mask, "a mask")
        named = (
            np.broadcast_to(value, mask.shape) >> (np.arange(mask.size, dtype=np.uint32) % np.uint32(32)) & 1
        )
        if (mask & (named == 0)).any():
            raise PtxError("a lane is not in the mask that it gives")
        waiting = np.zeros(mask.size, bool)
        for warp in warps(mask):
            waiting[warp] = (frame.block.live[warp] & (named[warp] != 0) & ~mask[warp]).any()
        ready = mask & ~waiting
        if not ready.any():
            return frame.park(place, mask)
        if waiting.any():
            frame.park(place, mask & waiting)
        made(frame, ready)
        return frame.join(place + 1, ready)

    return wait


def warps(mask: np.ndarray) -> list[slice]:
    """Return the warps that have lanes in *mask*."""
    starts = range(0, mask.size, 32)
    return [slice(start, start + 32) for start in starts if mask[start : start + 32].any()]


def shuffle(mode: str) -> Callable:
    """Return a function that gives what each lane gets, whether in range, and whether of no lane."""

    def compute(here, value, count, clamp):
        lane, count, clamp = (
            here.astype(np.int64),
            count[here].astype(np.int64) & 31,
            clamp[here].astype(np.int64),
        )
        segment = (clamp >> 8) & 31
        last = (lane & segment) | (clamp & 31 & ~segment)
        other = {
            "up": lane - count,
            "down": lane + count,
            "bfly": lane ^ count,
            "idx": (lane & segment) | (count & ~segment),
        }[mode]
        found = other >= last if mode == "up" else other <= last
        other = np.where(found, other, lane)
        return value.take(other, mode="clip"), found, ~np.isin(other, here)

    return compute


def ballot(here: np.ndarray) -> np.ndarray:
    """Return lanes as the bits of a word, for each of them."""
    return np.full(1, sum(1 << int(lane) for lane in here), np.uint32)


def match_any(here: np.ndarray, value: np.ndarray) -> list[np.ndarray]:
    """Return the lanes that have the value of each lane."""
    return [np.concatenate([ballot(here[value[here] == one]) for one in value[here]])]


VOTES = {
    "all": lambda here, votes: [votes[here].all(keepdims=True)],
    "any": lambda here, votes: [votes[here].any(keepdims=True)],
    "uni": lambda here, votes: [(votes[here] == votes[here[0]]).all(keepdims=True)],
    "ballot": lambda here, votes: [ballot(here[votes[here]])],
}
REDUCTIONS = {"add": np.add, "min": np.minimum, "max": np.maximum}
REDUCTIONS |= {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}


@step("shfl vote match redux activemask")
def _warp(maker: Maker, instruction: Instruction, place: int) -> Step:
    opcode, words = instruction.opcode, [word for word in instruction.words if word != "sync"]
    target, *sources = instruction.operands
    members = sources.pop() if "sync" in instruction.words else None
    kind = type_of(words[-1])
    if opcode == "shfl" and kind:
        sources_of, results, compute = [kind, U32, U32], [kind, PRED], shuffle(words[0])
    elif opcode == "vote" and kind:
        sources_of, results, compute = [PRED], [kind], VOTES[words[0]]
    elif opcode == "redux" and kind:
        reduce = REDUCTIONS[words[0]].reduce
        sources_of, results, compute = (
            [kind],
            [kind],
            lambda here, value: [reduce(value[here], keepdims=True)],
        )
    elif opcode == "activemask":
        sources_of, results, compute = [], [type_of("b32")], lambda here: [ballot(here)]
    elif words[0] == "any":
        sources_of, results, compute = [kind], [type_of("b32")], match_any
    else:
        raise instruction.error("not supported")
    reads = [maker.reader(*pair) for pair in zip(sources, sources_of, strict=True)]
    targets = target if isinstance(target, tuple) else (target,)
    writes = [maker.writer(*pair) for pair in zip(targets, results, strict=False)]

    def run(frame: Frame, mask: np.ndarray) -> None:
        values = []
        for read in reads:
            value, undefined = read(frame)
            defined(frame, undefined, mask, "an operand")
            values.append(np.broadcast_to(value, mask.shape))
        parts = [np.zeros(mask.size, result.dtype) for result in results]
        nobody = np.zeros(mask.size, bool)
        for warp in warps(mask):
            here = np.flatnonzero(mask[warp])
            computed = compute(here, *(value[warp] for value in values))
            for part, result in zip((*parts, nobody), (*computed[: len(parts)], *computed[2:]), strict=False):
                part[warp.start + here] = result
        # What comes from a lane that is not here is undefined.
        missing = (
            np.where(nobody, ~kind.raw(0), kind.raw(0)) if maker.machine.checked and nobody.any() else None
        )
        for number, write in enumerate(writes):
            write(frame, mask, parts[number], None if number else missing)

    return run if members is None else together(maker, members, place, run)
