"""
A function for each instruction, called with the frame and the lanes that execute it.

It returns True if it has said where these lanes go on; otherwise that is the next instruction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from .memory import CODE, RAW, WINDOW, WINDOWS, lanes_of
from .numbers import Type, type_of
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


def step(opcodes: str) -> Callable:
    """Return a decorator that adds a function for *opcodes* to STEPS: they do more than compute a value."""

    def add(make: Callable) -> Callable:
        STEPS.update(dict.fromkeys(opcodes.split(), make))
        return make

    return add


class Maker:
    """Makes the steps of a function."""

    def __init__(self, machine: Machine, function: Function) -> None:
        self.machine, self.function = machine, function

    def step(self, index: int) -> Step:
        """Return the step of the instruction at *index*."""
        instruction = self.function.code[index]
        if instruction.opcode in ROWS:
            unguarded = self._value(instruction)
        elif instruction.opcode in STEPS:
            unguarded = STEPS[instruction.opcode](self, instruction, index)
        elif instruction.opcode in NOTHING:
            return lambda frame, mask: None
        else:
            raise instruction.error("not supported")
        if instruction.guard is None:
            return unguarded
        read = self.certain(instruction.guard, PRED, "a predicate")

        def guarded(frame: Frame, mask: np.ndarray) -> bool | None:
            predicate = read(frame, mask)
            chosen = mask & predicate
            if not np.count_nonzero(chosen):
                return None
            has_left = unguarded(frame, chosen)
            if has_left:
                frame.join(index + 1, mask & ~predicate)
            return has_left

        return guarded

    def _value(self, instruction: Instruction) -> Step:
        form = form_of(instruction)
        target, *sources = instruction.operands
        if len(sources) != len(form.sources):
            raise instruction.error("not supported")
        loose = instruction.opcode == "cvt"
        spread = self.machine.poison and instruction.opcode not in ("selp", "cvt")
        rule = smeared if spread else form.undefined
        # The reader of each operand, and zeros for an operand without undefined bits.
        reads = [
            (self.reader(source, kind, loose=loose), np.zeros(1, kind.raw))
            for source, kind in zip(sources, form.sources, strict=True)
        ]
        write = self.writer(target, form.result, loose=loose)

        def run(frame: Frame, mask: np.ndarray) -> None:
            values, every, certain = [], [], True
            for read, all_defined in reads:
                value, undefined = read(frame)
                values.append(value)
                every.append(all_defined if undefined is None else undefined)
                certain &= undefined is None
            write(frame, mask, form.compute(*values), None if certain else rule(form, values, every))

        return run

    def reader(self, operand: object, kind: Type, *, loose: bool = False) -> Read:
        """
        Return a function that gives the value of *operand* in a frame, and its undefined bits or None.

        A register is as wide as the type, or wider where *loose*.
        """
        if isinstance(operand, Register):
            fit(operand, kind, loose=loose)
            index, raw, unpack = operand.index, kind.raw, kind.unpack

            def read(frame: Frame) -> tuple:
                undefined = frame.undefined[index]
                if undefined is not None:
                    undefined = undefined.astype(raw, copy=False)
                return unpack(frame.values[index]), undefined

            return read
        if isinstance(operand, Not):
            inner = self.reader(operand.operand, kind)
            return lambda frame: (~(read := inner(frame))[0], read[1])
        if isinstance(operand, Symbol) and operand.name.startswith("%"):
            if operand.name not in self.machine.special:
                raise PtxError(f"no register {operand.name}")
            return lambda frame: (frame.block.special[operand.name].astype(kind.raw).view(kind.dtype), None)
        base, offset = (operand.base, operand.offset) if isinstance(operand, Address) else (operand, 0)
        if isinstance(base, Variable) and base.space in ("local", "param"):
            return lambda frame: (
                kind.unpack(np.array([frame.base + base.address + offset], np.uint64)),
                None,
            )
        if isinstance(base, (Variable, Symbol)):
            address = self.machine.address(base, self.function.module)
            if kind.bits < 64 and address >= CODE:
                raise PtxError(f"{base.name} is a function, whose address is no number of {kind.bits} bits")
            base = Number(address + offset)
        if not isinstance(base, Number):
            raise PtxError(f"not supported as an operand: {operand}")
        number = base.value != 0 if kind is PRED else base.value % (1 << kind.bits)
        constant = kind.unpack(np.array([number], kind.raw))
        return lambda frame: (constant, None)

    def certain(
        self, operand: object, kind: Type, description: str
    ) -> Callable[[Frame, np.ndarray], np.ndarray]:
        """Return a function that gives the value of *operand* in each lane, none of them undefined."""
        read = self.reader(operand, kind)

        def certainly(frame: Frame, mask: np.ndarray) -> np.ndarray:
            value, undefined = read(frame)
            if undefined is not None and not self.machine.poison and (undefined[mask] != 0).any():
                raise PtxError(f"{description} is undefined")
            return in_all(value, mask)

        return certainly

    def writer(self, operand: object, kind: Type, *, loose: bool = False) -> Callable:
        """Return a function that writes values, and which of their bits are undefined, in some lanes."""
        if operand == Symbol("_"):
            return lambda frame, mask, value, undefined=None: None
        if not isinstance(operand, Register):
            raise PtxError(f"not supported as a result: {operand}")
        fit(operand, kind, loose=loose)
        index, pack, raw = operand.index, kind.pack, RAW[width(operand.type)]
        poison = self.machine.poison and kind is not PRED

        def write(
            frame: Frame, mask: np.ndarray, value: np.ndarray, undefined: np.ndarray | None = None
        ) -> None:
            np.copyto(frame.values[index], pack(value, raw), where=mask)
            old = frame.undefined[index]
            if undefined is None and (old is None or mask is frame.mask):
                frame.undefined[index] = None
                return
            if undefined is not None:
                undefined = by_words(undefined) if poison else undefined
                undefined = pack(undefined.view(kind.dtype), raw)
                undefined = by_words(undefined) if poison else undefined
            all_defined = raw(0)
            merged = np.where(
                mask, all_defined if undefined is None else undefined, all_defined if old is None else old
            )
            frame.undefined[index] = merged if np.count_nonzero(merged) else None

        return write

    def addresses(self, operand: Address, words: tuple[str, ...], size: int) -> Callable:
        """
        Return a function that gives the lanes of a mask and the addresses that they access.

        They come in parts, one for each state space: the space, its lanes, and their addresses, which are
        multiples of *size*.
        """
        base, offset = operand.base, np.uint64(operand.offset % (1 << 64))
        kind = type_of(f"u{width(base.type)}") if isinstance(base, Register) else U64
        read = self.certain(base, kind, "an address")
        named = next((WINDOWS[word] for word in words if word in WINDOWS), None)
        start, spaces = np.uint64(named or 0), ("global", "shared", "local")
        less = np.uint64(size - 1)
        if named is not None:
            spaces = spaces[named // WINDOW : named // WINDOW + 1]

        def addresses(frame: Frame, mask: np.ndarray) -> list[tuple]:
            (lanes,), parts = mask.nonzero(), []
            value = read(frame, mask)[lanes].astype(np.uint64) + offset + start
            for name in spaces:
                at = value - np.uint64(WINDOWS[name])
                inside = at < WINDOW
                count = np.count_nonzero(inside)
                if not count:
                    continue
                lanes_inside, at = (lanes, at) if count == lanes.size else (lanes[inside], at[inside])
                if np.count_nonzero(at & less):
                    raise PtxError(f"a misaligned access to {size} bytes at {name} {int(at[0]):#x}")
                parts.append((frame.block.spaces[name], lanes_inside, at))
                lanes, value = lanes[~inside], value[~inside]
                if not lanes.size:
                    return parts
            raise PtxError(f"no memory at {int(value[0]):#x}")

        return addresses


def in_all(values: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return *values* with one value for each lane; a single value may stand for all."""
    return values if values.shape == mask.shape else values.repeat(mask.size)


def fit(register: Register, kind: Type, *, loose: bool) -> None:
    """Raise an error if *register* does not hold a value of a type."""
    bits = width(register.type)
    if bits < kind.bits or (bits > kind.bits and not loose) or (kind is PRED) != (bits == 1):
        raise PtxError(f"a register of type {register.type} for {kind.kind}{kind.bits}")


def access(instruction: Instruction, known: object = ()) -> tuple[Type, int]:
    """Return the type of the accessed elements, and their number."""
    kinds, count = [kind for word in instruction.words if (kind := type_of(word))], 1
    for word in instruction.words:
        if word in ("v2", "v4"):
            count = int(word[1])
        elif not (
            type_of(word)
            or word in ACCESS_WORDS
            or word in WINDOWS
            or word in known
            or word.startswith(("L1::", "L2::"))
        ):
            raise instruction.error("not supported")
    if len(kinds) != 1:
        raise instruction.error("not supported")
    return kinds[0], count


@step("ld ldu")
def _load(maker: Maker, instruction: Instruction, index: int) -> Step:
    del index
    kind, count = access(instruction)
    target, source = instruction.operands
    targets = target if isinstance(target, list) else [target]
    # A loaded value is extended by the letter of the type, whatever the type of the register.
    writes = [maker.writer(target, kind, loose=True) for target in targets]
    size, raw = kind.bits // 8, kind.raw
    addresses = maker.addresses(source, instruction.words, size * count)

    def load(frame: Frame, mask: np.ndarray) -> None:
        parts = addresses(frame, mask)
        for number, write in enumerate(writes):
            value, missing = np.zeros(mask.size, raw), np.zeros(mask.size, raw)
            for memory, lanes, at in parts:
                value[lanes], missing[lanes] = memory.load(at + np.uint64(size * number), lanes, raw)
            write(frame, mask, kind.unpack(value), missing if np.count_nonzero(missing) else None)

    return load


@step("st")
def _store(maker: Maker, instruction: Instruction, index: int) -> Step:
    del index
    kind, count = access(instruction)
    target, source = instruction.operands
    bits = type_of(f"b{kind.bits}")
    sources = source if isinstance(source, list) else [source]
    reads = [maker.reader(source, bits, loose=True) for source in sources]
    size = kind.bits // 8
    addresses = maker.addresses(target, instruction.words, size * count)
    # ptxas puts the elements of a vector into one register.
    together = maker.machine.poison and count > 1 and size < 4

    def store(frame: Frame, mask: np.ndarray) -> None:
        parts, values = addresses(frame, mask), [read(frame) for read in reads]
        missing = [undefined for _, undefined in values if undefined is not None]
        if together and missing:
            bad = np.logical_or.reduce([undefined != 0 for undefined in missing])
            values = [(value, np.where(bad, ~bits.raw(0), bits.raw(0))) for value, _ in values]
        for number, pair in enumerate(values):
            value, undefined = (table if table is None else in_all(table, mask) for table in pair)
            for memory, lanes, at in parts:
                undefined_part = None if undefined is None else undefined[lanes]
                memory.store(at + np.uint64(size * number), lanes, value[lanes], undefined_part)

    return store


ATOMICS = {
    "add": lambda old, a: old + a,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "exch": lambda old, a: a,
    "cas": lambda old, a, b: np.where(old == a, b, old),
}


@step("atom red")
def _atomic(maker: Maker, instruction: Instruction, index: int) -> Step:
    """Execute the operation for each lane in turn."""
    del index
    kind, count = access(instruction, ATOMICS)
    if count > 1:
        raise instruction.error("not supported")
    name = next(word for word in instruction.words if word in ATOMICS)
    operands = instruction.operands if instruction.opcode == "atom" else [Symbol("_"), *instruction.operands]
    write = maker.writer(operands[0], kind)
    addresses = maker.addresses(operands[1], instruction.words, kind.bits // 8)
    reads = [maker.certain(operand, kind, "an operand") for operand in operands[2:]]

    def atomic(frame: Frame, mask: np.ndarray) -> None:
        result, values = np.zeros(mask.size, kind.raw), [read(frame, mask) for read in reads]
        for memory, lanes, at in addresses(frame, mask):
            for number, lane in enumerate(lanes):
                address, one = at[number : number + 1], lanes[number : number + 1]
                old, missing = memory.load(address, one, kind.raw)
                if missing.any() and name != "exch":
                    raise PtxError("an atomic operation on undefined bytes")
                new = ATOMICS[name](kind.unpack(old), *(value[one] for value in values))
                memory.store(address, one, kind.pack(new, kind.raw), None)
                result[lane] = old[0]
        write(frame, mask, kind.unpack(result))

    return atomic


@step("mov")
def _move(maker: Maker, instruction: Instruction, index: int) -> Step:
    del index
    if len(instruction.words) != 1 or not type_of(instruction.words[0]):
        raise instruction.error("not supported")
    target, source = instruction.operands
    kind = type_of(instruction.words[0])
    if kind is not PRED:
        kind = type_of(f"b{kind.bits}")
    parts = target if isinstance(target, list) else source if isinstance(source, list) else [source]
    part = type_of(f"b{kind.bits // len(parts)}") if len(parts) > 1 else kind
    shifts = [kind.raw(number * part.bits) for number in range(len(parts))]
    if isinstance(target, list):
        read, writes = maker.reader(source, kind), [maker.writer(register, part) for register in target]

        def spread(frame: Frame, mask: np.ndarray) -> None:
            value, undefined = read(frame)
            value = value.copy()
            for write, shift in zip(writes, shifts, strict=True):
                missing = None if undefined is None else (undefined >> shift).astype(part.raw)
                write(frame, mask, (value >> shift).astype(part.raw), missing)

        return spread
    write, reads = maker.writer(target, kind), [maker.reader(operand, part) for operand in parts]
    if len(reads) == 1:
        (read,) = reads
        return lambda frame, mask: write(frame, mask, *read(frame))

    def join(frame: Frame, mask: np.ndarray) -> None:
        whole = missing = kind.raw(0)
        for read, shift in zip(reads, shifts, strict=True):
            value, undefined = read(frame)
            whole = whole | (value.astype(kind.raw) << shift)
            if undefined is not None:
                missing = missing | (undefined.astype(kind.raw) << shift)
        write(frame, mask, whole, missing if missing.any() else None)

    return join


@step("declare")
def _declaration(maker: Maker, instruction: Instruction, index: int) -> Step:
    """Each turn of a loop has its own variable, which nothing was stored to."""
    del maker, index
    (variable,) = instruction.operands

    def declare(frame: Frame, mask: np.ndarray) -> None:
        frame.block.spaces["local"].acquire(lanes_of(mask), frame.base + variable.address, variable.size)

    return declare


def by_words(undefined: np.ndarray) -> np.ndarray:
    """Return all bits of each register of a device, of 32 bits, in which any is undefined."""
    if undefined.dtype.itemsize < 8:
        return np.where(undefined != 0, ~undefined.dtype.type(0), undefined.dtype.type(0))
    low = np.uint64(0xFFFFFFFF)
    halves = (np.where(undefined & half, half, np.uint64(0)) for half in (low, ~low))
    return np.bitwise_or(*halves)


def by_value(read: Callable, go: Callable[[Frame, np.ndarray, int], object]) -> Step:
    """Return a step in which the lanes of each value of an operand go together."""

    def step(frame: Frame, mask: np.ndarray) -> bool:
        value = read(frame, mask)
        for number in np.unique(value[mask]):
            go(frame, mask & (value == number), int(number))
        return True

    return step


@step("bra")
def _branch(maker: Maker, instruction: Instruction, index: int) -> Step:
    del maker, index
    (target,) = instruction.operands
    return lambda frame, mask: frame.join(target, mask)


@step("ret")
def _leave(maker: Maker, instruction: Instruction, index: int) -> Step:
    del maker, instruction, index
    return lambda frame, mask: frame.leave(mask)


@step("trap")
def _trap(maker: Maker, instruction: Instruction, index: int) -> Step:
    del maker, index

    def trap(frame: Frame, mask: np.ndarray) -> None:
        raise instruction.error("a trap")

    return trap


@step("call")
def _call(maker: Maker, instruction: Instruction, index: int) -> Step:
    operands = list(instruction.operands)
    results = operands.pop(0) if isinstance(operands[0], list) else []
    callee, *lists = operands
    arguments = lists[0] if lists and isinstance(lists[0], list) else []
    if not all(isinstance(passed, Variable) for passed in (*results, *arguments)):
        raise instruction.error("not supported")
    machine = maker.machine
    if isinstance(callee, Symbol):
        function = machine.function(callee.name, maker.function.module)
        return lambda frame, mask: frame.call(function, mask, index + 1, results, arguments)

    def go(frame: Frame, mask: np.ndarray, address: int) -> None:
        frame.call(machine.function_at(address), mask, index + 1, results, arguments)

    return by_value(maker.certain(callee, U64, "the address of a function"), go)


@step("bar barrier")
def _barrier(maker: Maker, instruction: Instruction, index: int) -> Step:
    words = [word for word in instruction.words if word not in ("cta", "aligned")]
    if words == ["warp", "sync"]:
        return together(maker, instruction.operands[0], index, lambda frame, mask: None)
    if words != ["sync"]:
        raise instruction.error("not supported")
    reads = [maker.certain(operand, U32, "a barrier") for operand in instruction.operands]

    def wait(frame: Frame, mask: np.ndarray) -> bool:
        number, *count = (int(read(frame, mask)[mask][0]) for read in reads)
        return frame.block.wait((number, count[0] if count else 0), frame, index + 1, mask)

    return wait


# Operations of warps


def together(maker: Maker, members: object, index: int, operation: Step) -> Step:
    """Return a step that waits until all *members* of a warp are here, but for those that have ended."""
    read = maker.certain(members, U32, "a mask")

    def wait(frame: Frame, mask: np.ndarray) -> bool | None:
        mask = frame.gathered(index, mask)
        bit = np.uint32(1) << np.arange(mask.size, dtype=np.uint32) % np.uint32(32)
        # The register has no member mask for lanes that have not arrived.
        named = np.where(mask, read(frame, mask), np.uint32(0))
        if (mask & (named & bit == 0)).any():
            raise PtxError("a lane is not in the mask that it gives")
        waiting = np.zeros(mask.size, bool)
        for warp in warps(mask):
            absent = frame.block.live[warp] & ~mask[warp]
            waiting[warp] = named[warp] & np.bitwise_or.reduce(bit[warp][absent]) != 0
        ready = mask & ~waiting
        if not ready.any():
            return frame.park(index, mask)
        if waiting.any():
            frame.park(index, mask & waiting)
        operation(frame, ready)
        return frame.join(index + 1, ready)

    return wait


def warps(mask: np.ndarray) -> list[slice]:
    """Return the warps that have lanes in *mask*."""
    starts = range(0, mask.size, 32)
    return [slice(start, start + 32) for start in starts if mask[start : start + 32].any()]


SHUFFLES = {
    "up": lambda lane, count, segment: lane - count,
    "down": lambda lane, count, segment: lane + count,
    "bfly": lambda lane, count, segment: lane ^ count,
    "idx": lambda lane, count, segment: (lane & segment) | (count & ~segment),
}


@step("shfl")
def _shuffle(maker: Maker, instruction: Instruction, index: int) -> Step:
    _, mode, word = instruction.words
    kind = type_of(word)
    target, source, *sources, members = instruction.operands
    target, predicate = target if isinstance(target, tuple) else (target, Symbol("_"))
    write, tell = maker.writer(target, kind), maker.writer(predicate, PRED)
    read = maker.certain(source, kind, "an operand")
    reads = [maker.certain(operand, U32, "an operand") for operand in sources]

    def run(frame: Frame, mask: np.ndarray) -> None:
        value, lanes = read(frame, mask).copy(), np.arange(mask.size)
        lane = lanes % 32
        count, clamp = (read_operand(frame, mask).astype(np.int64) & 0x1F1F for read_operand in reads)
        segment = clamp >> 8
        last = (lane & segment) | (clamp & 31 & ~segment)
        other = SHUFFLES[mode](lane, count & 31, segment)
        inside = other >= last if mode == "up" else other <= last
        chosen = lanes - lane + np.where(inside, other, lane)
        # A value from a lane that does not take part is undefined.
        takes_part = (chosen < mask.size) & mask.take(chosen, mode="clip")
        missing = np.where(takes_part, kind.raw(0), ~kind.raw(0))
        write(frame, mask, value.take(chosen, mode="clip"), missing)
        tell(frame, mask, inside)

    return together(maker, members, index, run)


@step("redux")
def _reduce(maker: Maker, instruction: Instruction, index: int) -> Step:
    if instruction.words[:2] != ("sync", "add"):
        raise instruction.error("not supported")
    kind, (target, source, members) = type_of(instruction.words[-1]), instruction.operands
    write, read = maker.writer(target, kind), maker.certain(source, kind, "an operand")

    def run(frame: Frame, mask: np.ndarray) -> None:
        value, result = read(frame, mask), np.zeros(mask.size, kind.dtype)
        for warp in warps(mask):
            result[warp] = value[warp][mask[warp]].sum(dtype=kind.dtype)
        write(frame, mask, result)

    return together(maker, members, index, run)
