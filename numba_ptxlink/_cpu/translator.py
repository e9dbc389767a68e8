"""One PTX function as a function of LLVM: its registers, names and operands, and how it ends."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats import ptx

from . import arithmetic
from .function_text import FunctionText, Unknown
from .runtime import BlockContext, Fault, State, lane_offset

if TYPE_CHECKING:
    from .module import ModuleTranslator

# Bits of what entries of the table compute.
_WIDTHS = {"p": 1, "u": 32, "l": 64}
_POINTER = 8
# After how many ways back a loop looks up, and where lanes wait gives way.
_CHUNK, _SHORT_CHUNK = 1 << 20, 1 << 12


def number(text: str, bits: int) -> int | None:
    """
    Return the bits of an immediate, None for another operand.

    Raises:
        ValueError: It begins like a number, and is none of so many bits.
    """
    whole = ptx.number(text)
    if whole is not None:
        return whole % (1 << bits)
    if text[:1] not in "-.0123456789":
        return None
    if text[:2] in ("0f", "0F", "0d", "0D"):
        content = bytes.fromhex(text[2:])
        if {bits, 8 * len(content)} == {32, 64}:
            # A float of the other width is converted, as ptxas does.
            (value,) = struct.unpack(">f" if bits == 64 else ">d", content)
            content = struct.pack(">d" if bits == 64 else ">f", value)
    else:
        content = struct.pack(">d" if bits == 64 else ">f", float(text))
    if len(content) * 8 != bits:
        raise ValueError(text)
    return int.from_bytes(content, "big")


@dataclass(eq=False)
class Storage:
    """
    A variable of the function.

    Args:
        pointer: Where it is.
        size: Its bytes.
        source: The parameter whose bytes it begins with, "" for a variable.
        exposed: Whether it is in local memory, since its address is taken.
    """

    pointer: str
    size: int
    source: str = ""
    exposed: bool = False


class _Named(dict[str, Any]):
    """Values by name, and the fields of the context, which are loaded where they are asked for."""

    def __init__(self, b: Translator, values: dict[str, object]) -> None:
        super().__init__(values)
        self._b = b

    def __missing__(self, name: str) -> str | list[str]:
        axes = getattr(BlockContext, name).size > _POINTER
        return [self._b.field(name, part) for part in range(3)] if axes else self._b.field(name)


class Translator(FunctionText):
    """
    The code of a function, with what instructions need of it.

    Args:
        unit: The translation of the module.
        function: The function.
        labels: The places of its labels, by block and name.
        waits: Whether lanes may wait in it.

    Attributes:
        scope: The names that are declared where the code is.
        place: The number of the statement that is translated.
        frame: Bytes of its local memory.
    """

    def __init__(
        self,
        unit: ModuleTranslator,
        function: ptx.Function,
        labels: dict[tuple[int, str], int],
        *,
        waits: bool,
    ) -> None:
        super().__init__(unit.defined)
        self.unit, self.function, self.labels, self.waits = unit, function, labels, waits
        self.scope, self.place, self.frame = ptx.Scope(), 0, 0
        self.carry = self.variable("i1")
        self.targets: dict[str, list[str]] = {}
        self._budget, self._left = self.variable("i32"), self.variable("i64")
        self._variables: dict[ptx.Register | str, Storage] = {}
        self._registers: dict[ptx.Register, str] = {}

    def begin(self) -> None:
        """Add what a function begins with: how often its loops may go on."""
        steps = self.field("steps")
        first = self.call("llvm.smin.i64", "i64", f"i64 {steps}", f"i64 {self._chunk}")
        self.do(f"store i32 {self.resize(first, 64, 32)}, ptr {self._budget}")
        self.do(f"store i64 {self.op('sub', 'i64', steps, first)}, ptr {self._left}")
        self.do(f"store i1 0, ptr {self.carry}")

    def declare(self, name: ptx.Register | str, variable: ptx.Variable, source: str = "") -> None:
        """Declare a variable, or a parameter of which *source* is the address."""
        local, size = variable.space == "local", max(variable.size, 1)
        self._variables[name] = Storage(f"%{self.fresh('v')}", size, source, exposed=local)

    def text(self, signature: str) -> str:
        """Return the function."""
        for each in self._variables.values():
            if each.exposed:
                place = f"getelementptr i8, ptr %local, i64 {self.frame}"
                self.frame += -(-each.size // 64) * 64
            elif each.source:
                place = f"getelementptr i8, ptr {each.source}, i64 0"
            else:
                place = f"alloca [{each.size} x i8], align 16"
            self.head.append(f"  {each.pointer} = {place}")
            if each.exposed and each.source:
                copied = f"ptr {each.pointer}, ptr {each.source}, i64 {each.size}, i1 false"
                self.head.append(f"  call void @llvm.memcpy.p0.p0.i64({copied})")
        # Each call takes some local memory, so that the C stack has an end, too.
        self.frame += 64
        self.head.append(f"  %top = getelementptr i8, ptr %local, i64 {self.frame}")
        return super().text(signature)

    # Operands

    def register(self, name: str) -> tuple[str, int] | None:
        """Return where a register is kept, and its width; None for another name."""
        found = self.scope.find(name)
        if not found or not found.type:
            return None
        width = ptx.width(found.type)
        if found not in self._registers:
            self._registers[found] = place = self.variable(f"i{width}")
            self.head.append(f"  store i{width} 0, ptr {place}")
        return self._registers[found], width

    def bits(self, operand: str, bits: int) -> str:
        """Return the bits of an operand, the lower ones of a register."""
        if operand[:1] == "!" and bits == 1:
            return self.op("xor", "i1", self.bits(operand[1:].strip(), 1), "true")
        found = self.register(operand)
        if found:
            place, width = found
            if width < bits:
                raise Unknown
            return self.resize(self.let(f"load i{width}, ptr {place}"), width, bits)
        value = number(operand, bits)
        if value is not None:
            return str(value) if bits > 1 else str(bool(value)).lower()
        if operand[:1] == "%" or operand == "WARP_SZ":
            return self.resize(self.entry(operand), _WIDTHS[arithmetic.rows()[operand].result], bits)
        name, _, offset = operand.partition("+")
        place = self._address_of(name.strip())
        return self.resize(self.op("add", "i64", place, int(offset, 0)) if offset else place, 64, bits)

    def put(self, operand: str, value: str, bits: int, *, signed: bool = False) -> None:
        """Write the bits of a result to a register, extended as its type is; "_" takes nothing."""
        if operand == "_":
            return
        found = self.register(operand)
        if not found or found[1] < bits:
            raise Unknown
        place, width = found
        self.do(f"store i{width} {self.resize(value, bits, width, signed=signed)}, ptr {place}")

    def put_entry(self, operand: str, name: str, **values: object) -> None:
        """Write what an entry of the table computes to a register."""
        self.put(operand, self.entry(name, **values), _WIDTHS[arithmetic.rows()[name].result])

    def _address_of(self, name: str) -> str:
        """Return the address of a variable or function, in its state space."""
        storage, found = self.storage(name), self.scope.find(name)
        if storage:
            if name in [each.name for each in self.function.results]:
                raise Unknown
            storage.exposed = True
            return self.let(f"ptrtoint ptr {storage.pointer} to i64")
        return self.unit.address((self.function.name, found) if found else name)

    def storage(self, name: str) -> Storage | None:
        """Return the variable of the function that *name* is, None for another name."""
        return self._variables.get(self.scope.find(name) or name)

    def field(self, name: str, part: int = 0) -> str:
        """Return a field of the context; *part* is an axis."""
        place = getattr(BlockContext, name)
        return self.load("i64" if place.size == _POINTER else "i32", "%ctx", place.offset + 4 * part)

    def entry(self, name: str, **values: object) -> str:
        """Return what an entry of the table computes of values that it names."""
        return self.ir(arithmetic.rows()[name].body, _Named(self, values))

    # Ends

    def site(self) -> int:
        """Return the number of the place that is translated, for faults."""
        return self.unit.site(self.function.name, self.place)

    def fault(self, kind: Fault, address: str = "0", size: int | str = 0) -> None:
        """End the lane with a fault here."""
        told = f"ptr %ctx, i64 {int(kind)}, i64 {self.site()}, i64 {address}, i64 {size}"
        self.do(f"call void @ptxlink.note({told})")
        self.end("br label %leave")

    def unless(self, condition: str, kind: Fault, address: str = "0", size: int | str = 0) -> None:
        """End the lane with a fault unless *condition* holds."""
        good, bad = self.fresh(), self.fresh()
        self.fork(condition, good, bad, likely=True)
        self.label(bad)
        self.fault(kind, address, size)
        self.label(good)

    def suspend(self, state: State, **fields: str) -> None:
        """Let the lane wait; *fields* are those of its record."""
        for name, value in fields.items():
            self.store("i64" if name == "value" else "i32", value, "%lane", lane_offset(name))
        self.store("i32", self.site(), "%lane", lane_offset("site"))
        self.store("i32", int(state), "%lane", lane_offset("state"))
        after = self.fresh()
        told = self.let("call i8 @llvm.coro.suspend(token none, i1 false)")
        self.end(f"switch i8 {told}, label %suspended [i8 0, label %{after} i8 1, label %suspended]")
        self.label(after)

    @property
    def _chunk(self) -> int:
        return _SHORT_CHUNK if self.waits else _CHUNK

    def count_step(self) -> None:
        """Count a way back in a loop; now and then look whether the process is to be interrupted."""
        less = self.op("sub", "i32", self.let(f"load i32, ptr {self._budget}"), 1)
        self.do(f"store i32 {less}, ptr {self._budget}")
        pause, after = self.fresh(), self.fresh()
        self.fork(self.op("icmp ne", "i32", less, 0), after, pause, likely=True)
        self.label(pause)
        if self.waits:
            self.suspend(State.YIELDED)
        asked = "ptr %ctx", f"ptr {self._left}", f"i64 {self.site()}", f"i32 {self._chunk}"
        more = self.call("ptxlink.pause", "i32", *asked)
        self.do(f"store i32 {more}, ptr {self._budget}")
        self.fork(self.op("icmp ne", "i32", more, 0), after, "leave")
        self.label(after)
