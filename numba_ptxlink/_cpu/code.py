"""One LLVM function of the body of a PTX function: its registers, names and operands, and how it ends."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from .builder import PRED, U32, Builder, Kind, Unknown
from .layout import Fault, State, lane_offset, offset

if TYPE_CHECKING:
    from .module import Unit
    from .outline import Outline

_NUMBER = re.compile(r"-?\s*(?:0[fF][0-9a-fA-F]{8}|0[dD][0-9a-fA-F]{16}|\d[\w.]*(?:[eE][+-]?\d+)?|\.\d\S*)")
CHUNKS = {False: 1 << 20, True: 1 << 12}
"""After how many ways back a loop looks up, and where lanes wait gives way."""
_AXES = {"": 0, "x": 0, "y": 1, "z": 2}
# The fields of the context that special registers are, and where in these; without axes 0 is the lower half.
_FIELDS = {
    "%ntid": ("ntid", 0),
    "%ctaid": ("ctaid", 0),
    "%nctaid": ("nctaid", 0),
    **dict.fromkeys(("%dynamic_smem_size", "%total_smem_size", "%aggr_smem_size"), ("dynamic", 0)),
    # The address of what the barrier of a grid counts in.
    "%envreg1": ("workspace", 1),
    "%envreg2": ("workspace", 0),
}
# What a device of one multiprocessor, whose clusters are of one block, has in them.
_CONSTANT = {
    **dict.fromkeys(("%smid", "%gridid", "%cluster_ctarank", "%cluster_ctaid", "%is_explicit_cluster"), 0),
    **dict.fromkeys(("%nsmid", "%cluster_nctaid", "%cluster_nctarank"), 1),
    "WARP_SZ": 32,
}
# What follows from the number of a lane in its block and in its warp, and from the count of the lanes.
_OF_LANES = {
    "%laneid": "result = or i32 {lane}, 0",
    "%warpid": "result = lshr i32 {linear}, 5",
    "%nwarpid": """
        above = add i32 {count}, 31
        result = lshr i32 {above}, 5
    """,
    "%lanemask_eq": "result = shl i32 1, {lane}",
    "%lanemask_lt": """
        above = shl i32 -1, {lane}
        result = xor i32 {above}, -1
    """,
    "%lanemask_le": """
        above = shl i32 -2, {lane}
        result = xor i32 {above}, -1
    """,
    "%lanemask_gt": "result = shl i32 -2, {lane}",
    "%lanemask_ge": "result = shl i32 -1, {lane}",
}
_LINEAR = """
    plane = mul i32 %tz, {height}
    row = add i32 {plane}, %ty
    start = mul i32 {row}, {width}
    number = add i32 {start}, %tx
"""
_CLOCKS = {
    **dict.fromkeys(("%clock", "%clock64", "%clock_hi"), "llvm.readcyclecounter"),
    **dict.fromkeys(("%globaltimer", "%globaltimer_lo", "%globaltimer_hi"), "ptxlink.time"),
}


def number(text: str, bits: int) -> int | None:
    """Return the bits of an immediate, None for another operand."""
    if not _NUMBER.fullmatch(text):
        return None
    negative, digits = text.startswith("-"), text.lstrip("- ")
    if digits[:2] in ("0f", "0F", "0d", "0D"):
        size = ">f" if digits[1] in "fF" else ">d"
        value = struct.unpack(size, bytes.fromhex(digits[2:]))[0]
        if len(digits) * 4 - 8 == bits:
            return int(f"0x{digits[2:]}", 0)
    elif "." in digits or ("e" in digits.lower() and not digits.lower().startswith("0x")):
        value = -float(digits) if negative else float(digits)
    else:
        digits = digits.rstrip("U")
        octal = len(digits) > 1 and digits.isdigit() and digits[0] == "0"
        whole = int(digits, 8 if octal else 0)
        return (-whole if negative else whole) % (1 << bits)
    return int.from_bytes(struct.pack("<d" if bits == 64 else "<f", value), "little")


@dataclass(frozen=True)
class Storage:
    """
    A variable of a function.

    Args:
        pointer: Where it is.
        size: Its bytes.
    """

    pointer: str
    size: int


@dataclass(eq=False)
class Activation:
    """
    A function whose body becomes code: that of the LLVM function, or one that is written out in it.

    Args:
        outline: What is known of it.
        prefix: What its labels begin with in LLVM IR.
        formals: Its parameters and results by name.
        end: The block that it returns to.
    """

    outline: Outline
    prefix: str
    formals: dict[str, Storage]
    end: str
    variables: dict[ptx.Register, Storage] = field(default_factory=dict)
    registers: dict[ptx.Register, str] = field(default_factory=dict)


class Code(Builder):
    """
    The code of a function, with what instructions need of it.

    Args:
        unit: What the whole module is.
        suspends: Whether lanes may wait in it, so that it is a coroutine.

    Attributes:
        around: The functions that are written out in it where the code is.
    """

    def __init__(self, unit: Unit, *, suspends: bool) -> None:
        super().__init__(unit.defined)
        self.unit, self.suspends = unit, suspends
        self.frame = 0
        self.activation: Activation
        self.scope: ptx.Scope
        self.place = 0
        self.kernel_params = ""
        self._known: dict[str, str] = {}
        self.carry = self.variable("i1")
        self.budget = self.variable("i32")
        self.left = self.variable("i64")
        self.around: list[Outline] = []

    def kept(self, outline: Outline, formals: dict[str, Storage]) -> dict[str, Storage]:
        """Return the formals of a function; parameters whose address is taken are copied to local memory."""
        kept = dict(formals)
        for name in (each.name for each in outline.function.params if each.name in outline.exposed):
            size = formals[name].size
            kept[name] = Storage(self.reserve(size, 64), size)
            self.copy(kept[name].pointer, formals[name].pointer, size)
        return kept

    def label(self, name: str) -> None:
        """Begin a block, where registers may have come from elsewhere."""
        super().label(name)
        self._known.clear()

    def rewind(self, lines: int, *, was_open: bool) -> None:
        """Take back what was added after *lines*, in a block that was open or not."""
        del self.lines[lines:]
        self.open = was_open
        self._known.clear()

    def reserve(self, size: int, alignment: int) -> str:
        """Return a pointer to bytes of the function's local memory."""
        self.frame = -(-self.frame // alignment) * alignment
        name = f"%{self.fresh('m')}"
        self.head.append(f"  {name} = getelementptr i8, ptr %local, i64 {self.frame}")
        self.frame += max(size, 1)
        return name

    # Operands

    def register(self, name: str) -> tuple[str, int] | None:
        """Return where a register is kept, and its width; None for another name."""
        found = self.scope.find(name)
        if not found or not found.type:
            return None
        registers, width = self.activation.registers, ptx.width(found.type)
        if found not in registers:
            registers[found] = place = self.variable(f"i{width}")
            self.head.append(f"  store i{width} 0, ptr {place}")
        return registers[found], width

    def bits(self, operand: str, bits: int) -> str:
        """Return the bits of an operand, the lower ones of a register."""
        if operand[:1] == "!":
            return self.op("xor", "i1", self.bits(operand[1:].strip(), 1), "true")
        found = self.register(operand)
        if found:
            place, width = found
            if width < bits:
                raise Unknown
            if place not in self._known:
                self._known[place] = self.let(f"load i{width}, ptr {place}")
            return self.resize(self._known[place], f"i{width}", f"i{bits}")
        value = number(operand, bits)
        if value is not None:
            return str(value) if bits > 1 else str(bool(value)).lower()
        if operand[:1] == "%" or operand in _CONSTANT:
            return self.special(operand, bits)
        return self.resize(self.address_of(operand), "i64", f"i{bits}")

    def put(self, operand: str, value: str, kind: Kind) -> None:
        """Write the bits of a result to a register, extended as its type is; "_" takes nothing."""
        if operand == "_":
            return
        found = self.register(operand)
        if not found or found[1] < kind.bits:
            raise Unknown
        place, width = found
        value = self.resize(value, kind.raw, f"i{width}", signed=kind.signed)
        self.do(f"store i{width} {value}, ptr {place}")
        self._known[place] = value

    def address_of(self, name: str) -> str:
        """Return the address of a variable or function, in its state space."""
        storage, found = self.storage(name), self.scope.find(name)
        if storage:
            return self.let(f"ptrtoint ptr {storage.pointer} to i64")
        if found:
            return self.unit.shared(self.activation.outline.function, found)
        place = self.unit.parameter(self.activation.outline.function, name) if self.kernel_params else None
        if place is not None:
            return self.let(f"ptrtoint ptr {self.at(self.kernel_params, place)} to i64")
        return self.unit.address(name)

    def storage(self, name: str) -> Storage | None:
        """Return the variable of the function that *name* is, None for another name."""
        found = self.scope.find(name)
        if found:
            return self.activation.variables.get(found)
        return self.activation.formals.get(name)

    def linear(self) -> str:
        """Return the number of the lane in its block."""
        return self.ir(_LINEAR, width=self.field("ntid"), height=self.field("ntid", 1))

    def field(self, name: str, part: int = 0, kind: str = "i32") -> str:
        """Return a field of the context."""
        return self.load(kind, "%ctx", offset(name, part))

    def lane(self) -> str:
        """Return the number of the lane in its warp."""
        return self.op("and", "i32", self.linear(), 31)

    def special(self, name: str, bits: int) -> str:
        """Return a special register."""
        base, _, axis = name.partition(".")
        kind = "i32"
        if base == "%tid":
            value = f"%t{axis}"
        elif base in _FIELDS:
            field, part = _FIELDS[base]
            value = self.field(field, part + _AXES[axis])
        elif base in _CONSTANT or base.startswith("%envreg"):
            return self.bits(str(_CONSTANT.get(base, 0)), bits)
        elif base in _OF_LANES:
            numbers = {"lane": self.lane(), "linear": self.linear(), "count": self.field("count")}
            value = self.ir(_OF_LANES[base], **numbers)
        elif base in _CLOCKS:
            kind, value = "i64", self.call(_CLOCKS[base], "i64")
            value = self.op("lshr", kind, value, 32) if base.endswith("_hi") else value
        else:
            raise Unknown
        return self.resize(value, kind, f"i{bits}")

    # Ends

    def site(self) -> int:
        """Return the number of the place that is translated, for faults."""
        return self.unit.site(self.activation.outline.function, self.place)

    def fault(self, kind: Fault, address: str = "0", size: int | str = 0) -> None:
        """End the lane with a fault here."""
        self.do(
            f"call void @ptxlink.note(ptr %ctx, i64 {int(kind)}, i64 {self.site()}, "
            f"i64 {address}, i64 {size})"
        )
        self.end("br label %leave")

    def unless(self, condition: str, kind: Fault, address: str = "0", size: int | str = 0) -> None:
        """End the lane with a fault unless *condition* holds."""
        good, bad = self.fresh(), self.fresh()
        self.fork(condition, good, bad, likely=True)
        Builder.label(self, bad)
        self.fault(kind, address, size)
        Builder.label(self, good)

    def suspend(self, state: State, **fields: str) -> None:
        """Let the lane wait; *fields* are those of its record."""
        for name, value in fields.items():
            self.store("i64" if name == "value" else "i32", value, "%lane", lane_offset(name))
        self.store("i32", str(self.site()), "%lane", lane_offset("site"))
        self.store("i32", str(int(state)), "%lane", lane_offset("state"))
        after = self.fresh()
        told = self.let("call i8 @llvm.coro.suspend(token none, i1 false)")
        self.end(f"switch i8 {told}, label %suspended [i8 0, label %{after} i8 1, label %suspended]")
        Builder.label(self, after)

    def count_step(self) -> None:
        """Count a way back in a loop; now and then look whether the process is to be interrupted."""
        less = self.op("sub", "i32", self.let(f"load i32, ptr {self.budget}"), 1)
        self.do(f"store i32 {less}, ptr {self.budget}")
        pause, after = self.fresh(), self.fresh()
        self.fork(self.op("icmp ne", "i32", less, 0), after, pause, likely=True)
        Builder.label(self, pause)
        if self.suspends:
            self.suspend(State.YIELDED)
        more = self.let(
            f"call i32 @ptxlink.pause(ptr %ctx, ptr {self.left}, i64 {self.site()}, "
            f"i32 {CHUNKS[self.suspends]})"
        )
        self.do(f"store i32 {more}, ptr {self.budget}")
        self.fork(self.op("icmp ne", "i32", more, 0), after, "leave")
        Builder.label(self, after)

    def vote(self, operand: str) -> str:
        """Return a predicate as an integer of 64 bits."""
        return self.resize(self.bits(operand, PRED.bits), "i1", "i64")

    def unsigned(self, operand: str) -> str:
        """Return an operand of 32 bits."""
        return self.bits(operand, U32.bits)
