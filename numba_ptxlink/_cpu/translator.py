"""
Translate registers, variables, operands, calls, faults and suspension of a PTX function to LLVM IR.

The handlers of instructions, in other modules, use the Translator of this module to add their code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats import ptx

from . import arithmetic
from .ir_builder import IRBuilder
from .mnemonics import UnsupportedInstruction, parse_number
from .nan_bits import Origin
from .runtime import (
    LOCAL_ALIGNMENT,
    SHARED_START,
    BlockContext,
    Fault,
    Scope,
    ThreadState,
    thread_field_offset,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .entry_module import EntryModule, SharedName

# The bits of the result of an operation, by the letter of the result type in instructions.ll.
_RESULT_BITS = {"p": 1, "u": 32, "l": 64}
_POINTER_BYTES = 8
# Each call takes this much local memory at least, so that endless recursion exhausts local memory (a fault)
# before the C stack (a crash).
_CALL_BYTES = LOCAL_ALIGNMENT
# A symbol, with the index of an element and an offset: `x`, `x[1]`, `x+4`, `x[1]+4`.
_SYMBOL_OPERAND = re.compile(r"([\w$%]+)\s*(?:\[\s*(\d\w*)\s*\])?\s*(?:\+\s*(-?\d\w*))?")
COMMON_PARAMETERS = (
    "ptr %ctx, ptr %region_cache, ptr {local}, ptr %limit, i32 %tx, i32 %ty, i32 %tz, ptr %params, "
    "ptr %thread_record"
)
"""
Parameters of every function in LLVM IR, before its own.

`%ctx` is the BlockContext, `%region_cache` a field of it, `{local}` the local memory of the function,
`%limit` the end of the thread's local memory, and `%tx` to `%tz` are threadIdx. `%params` is the parameter
buffer, null if Python calls a device function, and `%thread_record` the ThreadRecord, null if threads never
suspend.
"""
# The number of loop iterations after which a thread checks for signals and the step limit. In a function that
# suspends, the thread then also yields, and does so more often, since other threads wait meanwhile.
_BACK_EDGES_PER_CHECK, _BACK_EDGES_PER_YIELD = 1 << 20, 1 << 12


def _round_up(size: int) -> int:
    """Return the next multiple of LOCAL_ALIGNMENT."""
    return -(-size // LOCAL_ALIGNMENT) * LOCAL_ALIGNMENT


@dataclass(eq=False)
class Storage:
    """
    The memory of a variable or parameter of the function.

    Args:
        pointer: The address, a value of LLVM IR.
        size: The size in bytes.
        source: The address of the argument, for a parameter; "" for a variable.
        address_taken: Whether the variable has to be in local memory, since code reads its address or since
            PTX declares it there. LLVM keeps others in registers.
        element_size: The size in bytes of the variable, or of an element if it is an array.
    """

    pointer: str
    size: int
    source: str = ""
    address_taken: bool = False
    element_size: int = 1


class _ContextValues(dict[str, Any]):
    """Values of a template by name. Other names are fields of BlockContext, for which a load is emitted."""

    def __init__(self, b: Translator, values: dict[str, object]) -> None:
        super().__init__(values)
        self._b = b

    def __missing__(self, name: str) -> str | list[str]:
        if getattr(BlockContext, name).size > _POINTER_BYTES:  # Three numbers of 4 bytes, for x, y and z.
            return [self._b.load_context_field(name, axis) for axis in range(3)]
        return self._b.load_context_field(name)


class Translator(IRBuilder):
    """
    The LLVM function of a PTX function, to which the handlers of instructions add code.

    Code may branch to the labels `return`, `leave` and `suspended` at the end of the function, to return to
    the caller, to end the thread, or to return to the scheduler.

    Args:
        module: State that all functions of the LLVM module share.
        function: The PTX function.
        labels: The statement index of each label. The key is a pair: the number of the PTX block (braces)
            around the label, and the label's name.
        suspends: Whether a thread may suspend in the function.

    Attributes:
        scope: The names that are declared at the current statement.
        statement_index: The index of the current statement in the function's body.
        carry_flag: The address of the carry flag, an i1, that `add.cc` writes.
        origins: The result of `nan_bits.find_origins`: for each register, the kinds of instructions that
            write it.
        reads_workspace: Whether the code so far reads the address of the grid barrier's workspace.
        uses_short_pointers: Whether the code so far has addresses of variables in 32-bit registers.
        pointers: The addresses of the function's results and parameters, values of LLVM IR.
        source_location: The latest `.loc` directive, None before the first one.
        branch_targets: The labels of each `.branchtargets` directive, by the label of the directive.
        local_memory_size: Bytes of local memory of the function's variables; complete after `to_text`.
        callee_offset: Bytes of local memory from the function's to that of its callees; set by `to_text`.
    """

    def __init__(
        self,
        module: EntryModule,
        function: ptx.Function,
        labels: dict[tuple[int, str], int],
        *,
        suspends: bool,
    ) -> None:
        super().__init__(module.global_values)
        self.module, self.function, self.labels, self.suspends = module, function, labels, suspends
        self.scope, self.statement_index = ptx.Scope(), 0
        self.local_memory_size = self.callee_offset = 0
        self.carry_flag = self.alloca("i1")
        self.prologue.append(f"  store i1 false, ptr {self.carry_flag}")
        self.reads_workspace = self.uses_short_pointers = False
        self.branch_targets: dict[str, list[str]] = {}
        self.source_location: ptx.Directive | None = None
        self.origins: Mapping[ptx.Register, Origin] = {}
        self._computed_flags: dict[ptx.Register, str] = {}
        # Addresses of counters of loop iterations: those until the next check, and those that the step limit
        # allows after it.
        self._back_edges_left, self._steps_left = self.alloca("i32"), self.alloca("i64")
        self._variables: dict[ptx.Register | str, Storage] = {}
        self._registers: dict[ptx.Register, str] = {}
        self._body_begin = 0
        variables = (*function.results, *function.params)
        self.pointers = [f"%p{index}" for index in range(len(variables))]
        for variable, pointer in zip(variables, self.pointers, strict=True):
            self.declare(variable.name, variable, pointer)

    def emit_step_counters(self) -> None:
        """Initialise the counters of loop iterations at the beginning of the function's body."""
        # To learn the size of its frame, `machine_code.frame_size` calls a coroutine with null pointers, and
        # the coroutine returns before its body. Therefore only the body may read parameters, so that
        # `to_text` inserts the copies of parameters here.
        self._body_begin = len(self.lines)
        steps = self.load_context_field("step_limit")
        granted = self.call("llvm.smin.i64", "i64", f"i64 {steps}", f"i64 {self._check_interval}")
        self.emit(f"store i32 {self.resize(granted, 64, 32)}, ptr {self._back_edges_left}")
        self.emit(f"store i64 {self.emit_op('sub', 'i64', steps, granted)}, ptr {self._steps_left}")

    def declare(self, name: ptx.Register | str, variable: ptx.Variable, source: str = "") -> None:
        """
        Declare a variable, or a parameter whose argument is at *source*.

        *name* is the name of a parameter or result; for a variable of the body, the name with its scope.
        """
        self._variables[name] = Storage(
            f"%{self.unique_name('v')}",
            max(variable.size, 1),
            source,
            address_taken=variable.space == "local",
            element_size=max(variable.bits // 8, 1),
        )

    def to_text(self, signature: str) -> str:
        """Return the definition of the function, after all statements are translated."""
        # Only now it is known which variables need an address in local memory.
        for storage in self._variables.values():
            if storage.address_taken:
                instruction = self.allocate_local(storage.size)
            elif storage.source:
                # Another name for the address of the argument.
                instruction = f"getelementptr i8, ptr {storage.source}, i64 0"
            else:
                instruction = f"alloca [{storage.size} x i8], align 16"
            self.prologue.append(f"  {storage.pointer} = {instruction}")
            if storage.address_taken and storage.source:
                copy = f"ptr {storage.pointer}, ptr {storage.source}, i64 {storage.size}, i1 false"
                self.lines.insert(self._body_begin, f"  call void @llvm.memcpy.p0.p0.i64({copy})")
        self.end_frame()
        return super().to_text(signature)

    def end_frame(self) -> None:
        """Define `%top`, the end of this function's local memory, where that of its callees begins."""
        self.callee_offset = _round_up(self.local_memory_size) + _CALL_BYTES
        self.prologue.append(f"  %top = getelementptr i8, ptr %local, i64 {self.callee_offset}")

    def allocate_local(self, size: int) -> str:
        """Return the instruction that computes the address of *size* bytes of local memory."""
        offset = _round_up(self.local_memory_size)
        self.local_memory_size = offset + size
        return f"getelementptr i8, ptr %local, i64 {offset}"

    # Operands

    def find_register(self, name: str) -> tuple[str, int] | None:
        """
        Return the address of the LLVM variable of a register, and its width in bits.

        None if *name* is no register. LLVM later promotes these variables to values. At first they are 0.
        """
        register = self.scope.find(name)
        if not register or not register.type:
            return None
        width = ptx.width(register.type)
        if register not in self._registers:
            self._registers[register] = pointer = self.alloca(f"i{width}")
            self.prologue.append(f"  store i{width} 0, ptr {pointer}")
        return self._registers[register], width

    def is_computed(self, operand: str) -> str:
        """
        Return, as an i1, whether float32 arithmetic computed the value that a register has.

        If other instructions write the register, too, the code loads a flag that the last write has stored.
        """
        register = self.scope.find(operand)
        origin = self.origins.get(register, Origin.NONE) if register else Origin.NONE
        if register and origin == Origin.ARITHMETIC | Origin.OTHER:
            return self.emit_value(f"load i1, ptr {self._computed_flag(register)}")
        return "true" if origin == Origin.ARITHMETIC else "false"

    def _computed_flag(self, register: ptx.Register) -> str:
        """Return the address of the flag for a register that arithmetic and other instructions write."""
        if register not in self._computed_flags:
            self._computed_flags[register] = pointer = self.alloca("i1")
            self.prologue.append(f"  store i1 false, ptr {pointer}")
        return self._computed_flags[register]

    def read_operand(self, operand: str, bits: int, *, with_gpu_nan: bool = True) -> str:
        """
        Return the lowest *bits* of a register, or the value of another operand.

        Args:
            operand: The operand: a register, "!" and a predicate, a number, or a symbol.
            bits: The width of the value.
            with_gpu_nan: Whether a NaN that float32 arithmetic computed needs the bits that a GPU gives it;
                False for arithmetic, which does not depend on them.

        Raises:
            UnsupportedInstruction: The register is narrower than *bits*, or the operand is of no known kind.
        """
        if operand[:1] == "!" and bits == 1:
            return self.emit_op("xor", "i1", self.read_operand(operand[1:].strip(), 1), "true")
        register_slot = self.find_register(operand)
        if register_slot:
            pointer, width = register_slot
            if width < bits:
                raise UnsupportedInstruction
            value = self.emit_value(f"load i{width}, ptr {pointer}")
            is_computed = self.is_computed(operand) if with_gpu_nan else "false"
            if is_computed != "false":
                value = arithmetic.emit_gpu_nan(self, value, is_computed)
            return self.resize(value, width, bits)
        number = parse_number(operand, bits)
        if number is not None:
            return str(number) if bits > 1 else str(bool(number)).lower()
        if operand[:1] == "%" or operand == "WARP_SZ":
            # A special register, such as %tid.x. Cooperative groups read the address of the grid barrier's
            # workspace from %envreg1 and %envreg2.
            self.reads_workspace |= operand in ("%envreg1", "%envreg2")
            return self.resize(
                self.expand(operand), _RESULT_BITS[arithmetic.operation_named(operand).result], bits
            )
        # The address of a symbol.
        self.uses_short_pointers |= bits < 8 * _POINTER_BYTES
        return self.resize(self._read_address(operand), 64, bits)

    def _read_address(self, operand: str) -> str:
        """Return the address of a variable or function, such as `x`, `x+4`, or `x[1]` for an element."""
        match = _SYMBOL_OPERAND.fullmatch(operand)
        if not match:
            raise UnsupportedInstruction
        name, index, offset_text = match.groups()
        address, offset = self._address_of(name), ptx.parse_integer(offset_text or "0") or 0
        if index:
            offset += (ptx.parse_integer(index) or 0) * self._element_size(name)
        return self.emit_op("add", "i64", address, offset) if offset else address

    def _element_size(self, name: str) -> int:
        """Return the size of an element of an array in bytes."""
        storage = self.find_storage(name)
        return storage.element_size if storage else self.module.element_size(self._symbol_key(name))

    def _symbol_key(self, name: str) -> SharedName:
        """Return the key of a symbol in EntryModule: the name, with the function if that declares it."""
        declared = self.scope.find(name)
        return (self.function.name, declared) if declared else name

    def write_register(
        self, operand: str, value: str, bits: int, *, signed: bool = False, is_computed: str = "false"
    ) -> None:
        """
        Write a result to a register, which may be wider; drop the result if *operand* is "_".

        Args:
            operand: The register.
            value: The result.
            bits: The width of the result.
            signed: Whether the result is extended by its sign for a wider register, and not by zeros.
            is_computed: Whether float32 arithmetic computed the result, as an i1.
        """
        if operand == "_":
            return
        register_slot = self.find_register(operand)
        if not register_slot or register_slot[1] < bits:
            raise UnsupportedInstruction
        pointer, width = register_slot
        self.emit(f"store i{width} {self.resize(value, bits, width, signed=signed)}, ptr {pointer}")
        register = self.scope.find(operand)
        if register and self.origins.get(register) == Origin.ARITHMETIC | Origin.OTHER:
            self.emit(f"store i1 {is_computed}, ptr {self._computed_flag(register)}")

    def write_expansion(self, operand: str, name: str, **values: object) -> None:
        """Write the result of an operation of instructions.ll, see `expand`, to a register."""
        self.write_register(
            operand, self.expand(name, **values), _RESULT_BITS[arithmetic.operation_named(name).result]
        )

    def _address_of(self, name: str) -> str:
        """Return the address of a variable or function, in its state space."""
        storage = self.find_storage(name)
        if storage:
            # A result in local memory would be a copy, which the caller would not see.
            if name in [result.name for result in self.function.results]:
                raise UnsupportedInstruction
            storage.address_taken = True
            return self.emit_value(f"ptrtoint ptr {storage.pointer} to i64")
        return self.module.symbol_address(self._symbol_key(name))

    def find_storage(self, name: str) -> Storage | None:
        """Return a variable or parameter of the function, None if *name* is neither."""
        return self._variables.get(self.scope.find(name) or name)

    def load_context_field(self, name: str, axis: int = 0) -> str:
        """Return a field of BlockContext; *axis* is 0 for x to 2 for z."""
        member = getattr(BlockContext, name)
        return self.load("i64" if member.size == _POINTER_BYTES else "i32", "%ctx", member.offset + 4 * axis)

    def expand(self, name: str, **values: object) -> str:
        """Emit an operation of instructions.ll, such as "%laneid" or "vote.all"; return its result."""
        return self.emit_text(arithmetic.operation_named(name).body, _ContextValues(self, values))

    def is_shared_pointer(self, pointer: str) -> str:
        """Return an i1: whether a pointer points to the block's shared memory."""
        address = self.emit_value(f"ptrtoint ptr {pointer} to i64")
        return self.expand("isspacep.shared", value=address, shared_start=SHARED_START)

    def emit_source_location(self) -> None:
        """
        Add nothing: a fault finds its source line by the index of its statement.

        The translator for host versions of functions (host_source.py) adds lines for debuggers.
        """

    # Calls, faults and suspension

    def call_function(self, name: str, pointers: Sequence[str]) -> None:
        """Call a function of the module; *pointers* are the addresses of its results and arguments."""
        arguments = ", ".join((COMMON_PARAMETERS.format(local="%top"), *pointers))
        # 0 if the function has returned, 1 if the thread ends, 2 if the thread suspends.
        outcome = self.emit_value(f'call i8 @"f.{name}"({arguments})')
        after_label = self.unique_name()
        suspends = name in self.module.call_graph.suspending
        suspended_case = " i8 2, label %suspended" if suspends else ""
        self.end_block(f"switch i8 {outcome}, label %{after_label} [i8 1, label %leave{suspended_case}]")
        self.begin_block(after_label)

    def fault_site(self) -> int:
        """Return a number for the current statement, by which a fault finds its source line."""
        return self.module.add_fault_site(self.function.name, self.statement_index)

    def fault(self, kind: Fault, address: str = "0", size: int | str = 0) -> None:
        """Record a fault, with the address and size of an access if there is one, and end the thread."""
        arguments = f"ptr %ctx, i64 {int(kind)}, i64 {self.fault_site()}, i64 {address}, i64 {size}"
        self.emit(f"call void @ptxlink.record_fault({arguments})")
        self.end_block("br label %leave")

    def fault_unless(self, condition: str, kind: Fault, address: str = "0", size: int | str = 0) -> None:
        """Fault if *condition* is false."""
        ok_label, fault_label = self.unique_name(), self.unique_name()
        self.cond_branch(condition, ok_label, fault_label, likely=True)
        self.begin_block(fault_label)
        self.fault(kind, address, size)
        self.begin_block(ok_label)

    def suspend(self, state: ThreadState, **fields: str) -> None:
        """
        Store *fields* in the ThreadRecord, and suspend the thread; *state* says what the thread waits for.

        The code after the call runs when the scheduler resumes the thread.
        """
        for name, value in fields.items():
            # The other fields that are passed here have 32 bits.
            field_type = "i64" if name == "value" else "i32"
            self.store(field_type, value, "%thread_record", thread_field_offset(name))
        self.store("i32", self.fault_site(), "%thread_record", thread_field_offset("fault_site"))
        self.store("i32", int(state), "%thread_record", thread_field_offset("state"))
        resumed_label = self.unique_name()
        # -1: the thread is now suspended, so return to the scheduler. 0: the thread is resumed. 1: the
        # coroutine is destroyed, which the scheduler never does.
        action = self.emit_value("call i8 @llvm.coro.suspend(token none, i1 false)")
        cases = f"i8 0, label %{resumed_label} i8 1, label %suspended"
        self.end_block(f"switch i8 {action}, label %suspended [{cases}]")
        self.begin_block(resumed_label)

    def report_order(self, scope: Scope) -> None:
        """Report to racecheck, if it is on, that the thread has passed a barrier that orders *scope*."""
        if self.module.reports_accesses:
            self.global_values["ptxlink.check_order"] = "declare void @ptxlink.check_order(ptr, i32)"
            self.emit(f"call void @ptxlink.check_order(ptr %ctx, i32 {int(scope)})")

    @property
    def _check_interval(self) -> int:
        """The number of loop iterations until a thread yields, and checks for Ctrl-C and the step limit."""
        return _BACK_EDGES_PER_YIELD if self.suspends else _BACK_EDGES_PER_CHECK

    def count_back_edge(self) -> None:
        """Count a loop back edge; at intervals, check for Ctrl-C and the step limit."""
        remaining = self.emit_op("sub", "i32", self.emit_value(f"load i32, ptr {self._back_edges_left}"), 1)
        self.emit(f"store i32 {remaining}, ptr {self._back_edges_left}")
        check_label, after_label = self.unique_name(), self.unique_name()
        self.cond_branch(self.emit_op("icmp ne", "i32", remaining, 0), after_label, check_label, likely=True)
        self.begin_block(check_label)
        if self.suspends:
            self.suspend(ThreadState.YIELDED)
        arguments = f"ptr {self._steps_left}", f"i64 {self.fault_site()}", f"i32 {self._check_interval}"
        # The number of iterations until the next check; 0 if the thread has to end.
        granted = self.call("ptxlink.check_step_limit", "i32", "ptr %ctx", *arguments)
        self.emit(f"store i32 {granted}, ptr {self._back_edges_left}")
        self.cond_branch(self.emit_op("icmp ne", "i32", granted, 0), after_label, "leave")
        self.begin_block(after_label)
