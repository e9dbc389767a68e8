"""One PTX function as a function of LLVM: its registers, names and operands, and how it ends."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx

from . import arithmetic
from .function_text import FunctionText, Unknown
from .runtime import Fault, State, lane_offset, offset

if TYPE_CHECKING:
    from .module import ModuleTranslator, Outline

_FLOAT = re.compile(r"0[fFdD](?P<bits>[0-9a-fA-F]{8}|[0-9a-fA-F]{16})|-?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
# After how many ways back a loop looks up, and where lanes wait gives way.
_CHUNK, _SHORT_CHUNK = 1 << 20, 1 << 12
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
    **dict.fromkeys(("%smid", "%gridid", "%cluster_ctarank", "%cluster_ctaid", "%is_explicit_cluster"), "0"),
    **dict.fromkeys(("%nsmid", "%cluster_nctaid", "%cluster_nctarank"), "1"),
    "WARP_SZ": "32",
}
_CLOCKS = {
    **dict.fromkeys(("%clock", "%clock64", "%clock_hi"), "llvm.readcyclecounter"),
    **dict.fromkeys(("%globaltimer", "%globaltimer_lo", "%globaltimer_hi"), "ptxlink.time"),
}


def number(text: str, bits: int) -> int | None:
    """Return the bits of an immediate, None for another operand."""
    whole = ptx.number(text)
    if whole is not None:
        return whole % (1 << bits)
    match = _FLOAT.fullmatch(text)
    if not match:
        return None
    digits = match["bits"]
    if digits and len(digits) * 4 == bits:
        return int(digits, 16)
    value = (
        float(text)
        if not digits
        else struct.unpack(">f" if len(digits) == 8 else ">d", bytes.fromhex(digits))[0]
    )
    return int.from_bytes(struct.pack("<d" if bits == 64 else "<f", value), "little")


@dataclass(eq=False)
class Storage:
    """
    A variable of the function.

    Args:
        pointer: Where it is.
        size: Its bytes.
        alignment: In bytes.
        source: The parameter whose bytes it begins with, "" for a variable.
        exposed: Whether it is in local memory, since its address is taken.
    """

    pointer: str
    size: int
    alignment: int = 64
    source: str = ""
    exposed: bool = False


class Translator(FunctionText):
    """
    The code of a function, with what instructions need of it.

    Args:
        unit: The translation of the module.
        outline: The function.
        waits: Whether lanes may wait in it.

    Attributes:
        scope: The names that are declared where the code is.
        place: The number of the statement that is translated.
        frame: Bytes of its local memory.
    """

    def __init__(self, unit: ModuleTranslator, outline: Outline, *, waits: bool) -> None:
        super().__init__(unit.defined)
        self.unit, self.outline, self.waits = unit, outline, waits
        self.scope, self.place, self.frame = ptx.Scope(), 0, 0
        self.carry = self.variable("i1")
        self.targets: dict[str, list[str]] = {}
        self._budget, self._left = self.variable("i32"), self.variable("i64")
        self._variables: dict[ptx.Register | str, Storage] = {}
        self._registers: dict[ptx.Register, str] = {}

    def begin(self) -> None:
        """Add what a function begins with: how often its loops may go on."""
        steps = self.field("steps", kind="i64")
        first = self.call("llvm.smin.i64", "i64", f"i64 {steps}", f"i64 {self._chunk}")
        self.do(f"store i32 {self.resize(first, 64, 32)}, ptr {self._budget}")
        self.do(f"store i64 {self.op('sub', 'i64', steps, first)}, ptr {self._left}")
        self.do(f"store i1 0, ptr {self.carry}")

    def declare(self, name: ptx.Register | str, variable: ptx.Variable, source: str = "") -> None:
        """Declare a variable, or a parameter that the function gets the address of."""
        size, alignment = max(variable.size, 1), min(max(variable.alignment, 16), 64)
        local = variable.space == "local"
        self._variables[name] = Storage(f"%{self.fresh('v')}", size, alignment, source, exposed=local)

    def text(self, signature: str, bound: int = 0) -> str:
        """Return the function, whose frame has *bound* bytes at least."""
        for each in self._variables.values():
            if each.exposed:
                self.frame = -(-self.frame // each.alignment) * each.alignment
                place = f"getelementptr i8, ptr %local, i64 {self.frame}"
                self.frame += each.size
            elif each.source:
                place = f"getelementptr i8, ptr {each.source}, i64 0"
            else:
                place = f"alloca [{each.size} x i8], align 16"
            self.head.append(f"  {each.pointer} = {place}")
            if each.exposed and each.source:
                copied = f"ptr {each.pointer}, ptr {each.source}, i64 {each.size}, i1 false"
                self.head.append(f"  call void @llvm.memcpy.p0.p0.i64({copied})")
        self.frame = max(-(-self.frame // 64) * 64, bound)
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
        if operand[:1] == "!":
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
        if operand[:1] == "%" or operand in _CONSTANT:
            return self._special(operand, bits)
        return self.resize(self._address_of(operand), 64, bits)

    def put(self, operand: str, value: str, bits: int, *, signed: bool = False) -> None:
        """Write the bits of a result to a register, extended as its type is; "_" takes nothing."""
        if operand == "_":
            return
        found = self.register(operand)
        if not found or found[1] < bits:
            raise Unknown
        place, width = found
        self.do(f"store i{width} {self.resize(value, bits, width, signed=signed)}, ptr {place}")

    def _address_of(self, name: str) -> str:
        """Return the address of a variable or function, in its state space."""
        storage, found = self.storage(name), self.scope.find(name)
        if storage:
            if name in [each.name for each in self.outline.function.results]:
                raise Unknown
            storage.exposed = True
            return self.let(f"ptrtoint ptr {storage.pointer} to i64")
        parameter = self.parameter(name)
        if parameter:
            return self.let(f"ptrtoint ptr {parameter} to i64")
        return self.unit.address((self.outline.function.name, found) if found else name)

    def storage(self, name: str) -> Storage | None:
        """Return the variable of the function that *name* is, None for another name."""
        return self._variables.get(self.scope.find(name) or name)

    def parameter(self, name: str, offset: int = 0) -> str:
        """Return a pointer to a parameter of the kernel, or after its begin; "" for another name."""
        params = self.outline.function.params
        if self.outline.function.kind != "entry" or self.scope.find(name):
            return ""
        for each, place in zip(params, places(params), strict=True):
            if each.name == name:
                return self.let(f"getelementptr i8, ptr %params, i64 {place + offset}")
        return ""

    def field(self, name: str, part: int = 0, kind: str = "i32") -> str:
        """Return a field of the context."""
        return self.load(kind, "%ctx", offset(name, part))

    def lane(self) -> str:
        """Return the number of the lane in its warp."""
        return self.op("and", "i32", self.field("current"), 31)

    def _special(self, name: str, bits: int) -> str:
        """Return a special register."""
        base, _, axis = name.partition(".")
        if base in _CLOCKS:
            value = self.call(_CLOCKS[base], "i64")
            value = self.op("lshr", "i64", value, 32) if base.endswith("_hi") else value
            return self.resize(value, 64, bits)
        if base == "%tid":
            value = f"%t{'xyz'[_AXES[axis]]}"
        elif base in _FIELDS:
            field, part = _FIELDS[base]
            value = self.field(field, part + _AXES[axis])
        elif base in _CONSTANT:
            value = _CONSTANT[base]
        elif base.startswith("%envreg"):
            value = "0"
        elif base in arithmetic.rows():
            value = arithmetic.entry(self, base, lane=self.field("current"), count=self.field("count"))
        else:
            raise Unknown
        return self.resize(value, 32, bits)

    # Ends

    def site(self) -> int:
        """Return the number of the place that is translated, for faults."""
        return self.unit.site(self.outline.function.name, self.place)

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


def places(params: tuple[ptx.Variable, ...]) -> list[int]:
    """Return where each parameter of a kernel is."""
    found, top = [], 0
    for each in params:
        alignment = each.param.align or each.bits // 8 or 1
        top = -(-top // alignment) * alignment
        found.append(top)
        top += max(each.size, 1)
    return found
