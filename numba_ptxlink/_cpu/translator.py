"""One PTX function as a function of LLVM: its registers, names and operands, and how it ends."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats import ptx

from . import arithmetic
from .ir_builder import IRBuilder, UnsupportedInstruction
from .runtime import BlockContext, Fault, ThreadState, thread_field_offset

if TYPE_CHECKING:
    from .module import ModuleTranslator

# Bits of what entries of the table compute.
_RESULT_WIDTHS = {"p": 1, "u": 32, "l": 64}
_POINTER = 8
COMMON_PARAMETERS = (
    "ptr %ctx, ptr %region_cache, ptr {local}, ptr %limit, i32 %tx, i32 %ty, i32 %tz, ptr %params, "
    "ptr %thread_record"
)
"""Parameters of every function before its own; `{local}` is the address of its local memory."""
# After how many ways back a loop looks up, and where lanes wait gives way.
_BACK_EDGES_PER_CHECK, _BACK_EDGES_PER_YIELD = 1 << 20, 1 << 12


def parse_number(text: str, bits: int) -> int | None:
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
    address_taken: bool = False


class _ContextValues(dict[str, Any]):
    """Values by name, and the fields of the context, which are loaded where they are asked for."""

    def __init__(self, b: Translator, values: dict[str, object]) -> None:
        super().__init__(values)
        self._b = b

    def __missing__(self, name: str) -> str | list[str]:
        axes = getattr(BlockContext, name).size > _POINTER
        return (
            [self._b.load_context_field(name, part) for part in range(3)]
            if axes
            else self._b.load_context_field(name)
        )


class Translator(IRBuilder):
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
        module: ModuleTranslator,
        function: ptx.Function,
        labels: dict[tuple[int, str], int],
        *,
        suspends: bool,
    ) -> None:
        super().__init__(module.helpers)
        self.module, self.function, self.labels, self.suspends = module, function, labels, suspends
        self.scope, self.statement_index, self.local_memory_size = ptx.Scope(), 0, 0
        self.carry_flag = self.alloca("i1")
        self.branch_targets: dict[str, list[str]] = {}
        self._back_edges_left, self._steps_left = self.alloca("i32"), self.alloca("i64")
        self._variables: dict[ptx.Register | str, Storage] = {}
        self._registers: dict[ptx.Register, str] = {}

    def emit_step_counters(self) -> None:
        """Add what a function begins with: how often its loops may go on."""
        steps = self.load_context_field("step_limit")
        first = self.call("llvm.smin.i64", "i64", f"i64 {steps}", f"i64 {self._check_interval}")
        self.emit(f"store i32 {self.resize(first, 64, 32)}, ptr {self._back_edges_left}")
        self.emit(f"store i64 {self.emit_op('sub', 'i64', steps, first)}, ptr {self._steps_left}")
        self.emit(f"store i1 0, ptr {self.carry_flag}")

    def declare(self, name: ptx.Register | str, variable: ptx.Variable, source: str = "") -> None:
        """Declare a variable, or a parameter of which *source* is the address."""
        local, size = variable.space == "local", max(variable.size, 1)
        self._variables[name] = Storage(f"%{self.unique_name('v')}", size, source, address_taken=local)

    def to_text(self, signature: str) -> str:
        """Return the function."""
        for each in self._variables.values():
            if each.address_taken:
                pointer = self.allocate_local(each.size)
            elif each.source:
                pointer = f"getelementptr i8, ptr {each.source}, i64 0"
            else:
                pointer = f"alloca [{each.size} x i8], align 16"
            self.prologue.append(f"  {each.pointer} = {pointer}")
            if each.address_taken and each.source:
                copy_arguments = f"ptr {each.pointer}, ptr {each.source}, i64 {each.size}, i1 false"
                self.prologue.append(f"  call void @llvm.memcpy.p0.p0.i64({copy_arguments})")
        # Each call takes some local memory, so that the C stack has an end, too.
        self.local_memory_size += 64
        self.prologue.append(f"  %top = getelementptr i8, ptr %local, i64 {self.local_memory_size}")
        return super().to_text(signature)

    def allocate_local(self, size: int) -> str:
        """Return the instruction that computes the address of *size* bytes of local memory."""
        offset = self.local_memory_size
        self.local_memory_size += -(-size // 64) * 64
        return f"getelementptr i8, ptr %local, i64 {offset}"

    # Operands

    def find_register(self, name: str) -> tuple[str, int] | None:
        """Return where a register is kept, and its width; None for another name."""
        register = self.scope.find(name)
        if not register or not register.type:
            return None
        width = ptx.width(register.type)
        if register not in self._registers:
            self._registers[register] = pointer = self.alloca(f"i{width}")
            self.prologue.append(f"  store i{width} 0, ptr {pointer}")
        return self._registers[register], width

    def read_operand(self, operand: str, bits: int) -> str:
        """Return the bits of an operand, the lower ones of a register."""
        if operand[:1] == "!" and bits == 1:
            return self.emit_op("xor", "i1", self.read_operand(operand[1:].strip(), 1), "true")
        register = self.find_register(operand)
        if register:
            pointer, width = register
            if width < bits:
                raise UnsupportedInstruction
            return self.resize(self.emit_value(f"load i{width}, ptr {pointer}"), width, bits)
        value = parse_number(operand, bits)
        if value is not None:
            return str(value) if bits > 1 else str(bool(value)).lower()
        if operand[:1] == "%" or operand == "WARP_SZ":
            return self.resize(
                self.expand(operand), _RESULT_WIDTHS[arithmetic.operations()[operand].result], bits
            )
        name, _, offset = operand.partition("+")
        address = self._address_of(name.strip())
        if offset:
            address = self.emit_op("add", "i64", address, int(offset, 0))
        return self.resize(address, 64, bits)

    def write_register(self, operand: str, value: str, bits: int, *, signed: bool = False) -> None:
        """Write the bits of a result to a register, extended as its type is; "_" takes nothing."""
        if operand == "_":
            return
        register = self.find_register(operand)
        if not register or register[1] < bits:
            raise UnsupportedInstruction
        pointer, width = register
        self.emit(f"store i{width} {self.resize(value, bits, width, signed=signed)}, ptr {pointer}")

    def write_expansion(self, operand: str, name: str, **values: object) -> None:
        """Write what an entry of the table computes to a register."""
        self.write_register(
            operand, self.expand(name, **values), _RESULT_WIDTHS[arithmetic.operations()[name].result]
        )

    def _address_of(self, name: str) -> str:
        """Return the address of a variable or function, in its state space."""
        storage, register = self.find_storage(name), self.scope.find(name)
        if storage:
            if name in [each.name for each in self.function.results]:
                raise UnsupportedInstruction
            storage.address_taken = True
            return self.emit_value(f"ptrtoint ptr {storage.pointer} to i64")
        return self.module.symbol_address((self.function.name, register) if register else name)

    def find_storage(self, name: str) -> Storage | None:
        """Return the variable of the function that *name* is, None for another name."""
        return self._variables.get(self.scope.find(name) or name)

    def load_context_field(self, name: str, part: int = 0) -> str:
        """Return a field of the context; *part* is an axis."""
        member = getattr(BlockContext, name)
        return self.load("i64" if member.size == _POINTER else "i32", "%ctx", member.offset + 4 * part)

    def expand(self, name: str, **values: object) -> str:
        """Return what an entry of the table computes of values that it names."""
        return self.emit_text(arithmetic.operations()[name].body, _ContextValues(self, values))

    # Calls and ends

    def call_function(self, name: str, pointers: str) -> None:
        """Call a function of the module; *pointers* are the arguments for its results and parameters."""
        arguments = COMMON_PARAMETERS.format(local="%top")
        outcome = self.emit_value(f'call i8 @"f.{name}"({arguments}{pointers})')
        after = self.unique_name()
        suspended_case = " i8 2, label %suspended" * (name in self.module.suspending)
        self.end_block(f"switch i8 {outcome}, label %{after} [i8 1, label %leave{suspended_case}]")
        self.begin_block(after)

    def fault_site(self) -> int:
        """Return the number of the place that is translated, for faults."""
        return self.module.fault_site(self.function.name, self.statement_index)

    def fault(self, kind: Fault, address: str = "0", size: int | str = 0) -> None:
        """End the lane with a fault here."""
        arguments = f"ptr %ctx, i64 {int(kind)}, i64 {self.fault_site()}, i64 {address}, i64 {size}"
        self.emit(f"call void @ptxlink.record_fault({arguments})")
        self.end_block("br label %leave")

    def fault_unless(self, condition: str, kind: Fault, address: str = "0", size: int | str = 0) -> None:
        """End the lane with a fault unless *condition* holds."""
        ok_label, fault_label = self.unique_name(), self.unique_name()
        self.cond_branch(condition, ok_label, fault_label, likely=True)
        self.begin_block(fault_label)
        self.fault(kind, address, size)
        self.begin_block(ok_label)

    def suspend(self, state: ThreadState, **fields: str) -> None:
        """Let the lane wait; *fields* are those of its record."""
        for name, value in fields.items():
            self.store(
                "i64" if name == "value" else "i32", value, "%thread_record", thread_field_offset(name)
            )
        self.store("i32", self.fault_site(), "%thread_record", thread_field_offset("fault_site"))
        self.store("i32", int(state), "%thread_record", thread_field_offset("state"))
        after = self.unique_name()
        action = self.emit_value("call i8 @llvm.coro.suspend(token none, i1 false)")
        self.end_block(f"switch i8 {action}, label %suspended [i8 0, label %{after} i8 1, label %suspended]")
        self.begin_block(after)

    @property
    def _check_interval(self) -> int:
        return _BACK_EDGES_PER_YIELD if self.suspends else _BACK_EDGES_PER_CHECK

    def count_back_edge(self) -> None:
        """Count a way back in a loop; now and then look whether the process is to be interrupted."""
        less = self.emit_op("sub", "i32", self.emit_value(f"load i32, ptr {self._back_edges_left}"), 1)
        self.emit(f"store i32 {less}, ptr {self._back_edges_left}")
        pause, after = self.unique_name(), self.unique_name()
        self.cond_branch(self.emit_op("icmp ne", "i32", less, 0), after, pause, likely=True)
        self.begin_block(pause)
        if self.suspends:
            self.suspend(ThreadState.YIELDED)
        arguments = (
            "ptr %ctx",
            f"ptr {self._steps_left}",
            f"i64 {self.fault_site()}",
            f"i32 {self._check_interval}",
        )
        more = self.call("ptxlink.check_step_limit", "i32", *arguments)
        self.emit(f"store i32 {more}, ptr {self._back_edges_left}")
        self.cond_branch(self.emit_op("icmp ne", "i32", more, 0), after, "leave")
        self.begin_block(after)
