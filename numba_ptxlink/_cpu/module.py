"""A PTX module as one of LLVM: its variables, its functions, who calls whom, and how each is entered."""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import LaunchError

from . import runtime
from .control import CONTROL_HANDLERS, call
from .instructions import REGISTER_HANDLERS, compute
from .ir_builder import UnsupportedInstruction, parse_mnemonic
from .matrices import MATRIX_HANDLERS
from .memory import MEMORY_HANDLERS
from .runtime import RECURSION_STACK_SIZE, SHARED_START, Fault, ThreadState, thread_field_offset
from .translator import COMMON_PARAMETERS, Translator, parse_number
from .video import VIDEO_HANDLERS
from .warps import WARP_HANDLERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_SYMBOL_WITH_OFFSET = re.compile(r"(?:generic\()?\s*([\w$%]+)\s*\)?\s*(?:\+\s*(\d+))?")
_HANDLERS = {
    **REGISTER_HANDLERS,
    **VIDEO_HANDLERS,
    **MEMORY_HANDLERS,
    **WARP_HANDLERS,
    **MATRIX_HANDLERS,
    **CONTROL_HANDLERS,
}
# Opcodes at which lanes wait for others, and the call of the device runtime that does.
_SUSPENDING_OPCODES = frozenset(
    ("bar", "barrier", "shfl", "vote", "match", "redux", "elect", "activemask", *MATRIX_HANDLERS)
)
_SUSPENDING_CALL = "cudaCGSynchronize"
# A lane that waits is a coroutine, which without memory tells how much it needs.
_COROUTINE_BEGIN = """%identity = call token @llvm.coro.id(i32 16, ptr null, ptr null, ptr null)
  %size = call i64 @llvm.coro.size.i64()
  %asked = icmp eq ptr %memory, null
  br i1 %asked, label %ask, label %begun
ask:
  ret i64 %size
begun:
  %handle = call ptr @llvm.coro.begin(token %identity, ptr %memory)"""
_COROUTINE_END = """call {END} @llvm.coro.end(ptr %handle, i1 false, token none)
  %address = ptrtoint ptr %handle to i64
  ret i64 %address"""


def param_offsets(params: Sequence[ptx.Variable]) -> list[int]:
    """Return where each parameter of a kernel is."""
    offsets, top = [], 0
    for each in params:
        alignment = each.param.align or each.bits // 8 or 1
        top = -(-top // alignment) * alignment
        offsets.append(top)
        top += max(each.size, 1)
    return offsets


class ModuleTranslator:
    """
    The translation of a module.

    Args:
        module: The module.
        checks: Whether accesses are checked.

    Attributes:
        defined: Functions of LLVM IR that the code calls, by name.
        sites: The function and the statement of each place that can have a fault, in order.
        accesses: How many accesses are checked.
        functions: Those with a body, by their names and aliases.
        waiting: The names of those in which lanes wait for others, or in one that they call.
        recursive: The names of those that call themselves, or one that does.
        entries: For each function and kernel, whether its lanes wait for each other, and the bytes of local
            memory for a lane; when the text is there.
        shared_size: Bytes of shared memory without the dynamic part.
    """

    def __init__(self, module: ptx.Module, *, checks: bool) -> None:
        self.checks = checks
        self.access_count = 0
        self.helpers: dict[str, str] = {}
        self.fault_sites: list[tuple[str, int]] = []
        self.entry_points: dict[str, tuple[bool, int]] = {}
        self.functions = {each.name: each for each in module.functions if each.defined}
        self._bodies = {name: list(ptx.scoped(each.body)) for name, each in self.functions.items()}
        aliases = {each.name: each.target for each in module.aliases}
        self._callees: dict[str, set[str]] = {}
        suspending = set[str]()
        for name, body in self._bodies.items():
            instructions = [each for _, each, _ in body if isinstance(each, ptx.Instruction)]
            calls = [ptx.called(each).callee for each in instructions if each.opcode == "call"]
            self._callees[name] = {aliases.get(each, each) for each in calls}
            if _SUSPENDING_CALL in calls or any(each.opcode in _SUSPENDING_OPCODES for each in instructions):
                suspending.add(name)
        reached = {name: self._transitive_callees(name) for name in self._bodies}
        self.suspending = {name for name, callees in reached.items() if suspending & {name, *callees}}
        recursive = {name for name, callees in reached.items() if name in callees}
        self.recursive = {name for name, callees in reached.items() if recursive & {name, *callees}}
        self.functions |= {
            name: self.functions[target] for name, target in aliases.items() if target in self.functions
        }
        self._frame_sizes: dict[str, int] = {}
        self._variables = {
            each.name: each for each in module.variables if each.memory in ("global", "const", "managed")
        }
        shared: list[tuple[str | tuple[str, ptx.Register], ptx.Variable]] = [
            (each.name, each) for each in module.variables
        ]
        for name, body in self._bodies.items():
            for _, statement, scope in body:
                if isinstance(statement, ptx.Declaration):
                    keys = [(name, ptx.Register(scope.block, each.name, "")) for each in statement.variables]
                    shared += zip(keys, statement.variables, strict=True)
        self._shared: dict[str | tuple[str, ptx.Register], int] = {}
        top = SHARED_START
        # What the launch gives the size of comes last, and is all one.
        for key, variable in sorted(shared, key=lambda pair: not pair[1].size):
            if variable.space == "shared" and key not in self._shared:
                alignment = max(variable.alignment, 16)
                self._shared[key] = top = -(-top // alignment) * alignment
                top += variable.size
        self.shared_size = top - SHARED_START

    def _transitive_callees(self, name: str) -> set[str]:
        """Return the functions that one calls, directly or not."""
        callees, pending = set[str](), [name]
        while pending:
            new = self._callees.get(pending.pop(), set()) - callees
            callees |= new
            pending += new
        return callees

    # What the code of functions asks for

    def fault_site(self, function: str, index: int) -> int:
        """Return a number for a statement that can have a fault."""
        self.fault_sites.append((function, index))
        return len(self.fault_sites) - 1

    def symbol_address(self, name: str | tuple[str, ptx.Register]) -> str:
        """
        Return the address of a variable or a function, in its state space.

        Args:
            name: What it is, or for what a function declares, the function and the name there.

        Raises:
            Unknown: There is none.
        """
        if name in self._shared:
            return str(self._shared[name])
        if name in self._variables:
            return f'ptrtoint (ptr @"v.{name}" to i64)'
        if not isinstance(name, str) or name not in self.functions:
            raise UnsupportedInstruction
        # Functions are compared by their addresses, and never called by them.
        symbol = f'@"a.{self.functions[name].name}"'
        self.helpers[symbol] = f"define internal void {symbol}() {{ ret void }}"
        return f"ptrtoint (ptr {symbol} to i64)"

    # The text

    def to_text(self) -> str:
        """Return the module in LLVM IR."""
        functions = [part for name in self._bodies for part in self._translate_function(self.functions[name])]
        self.entry_points = {
            name: (name in self.suspending, self._local_memory_size(name)) for name in self._bodies
        }
        variables = [self._define_variable(each) for each in self._variables.values()]
        return "\n".join((*variables, *self.helpers.values(), *functions, runtime.read_ir("program.ll")))

    def _local_memory_size(self, name: str) -> int:
        """Return how much local memory a function and those that it calls need."""
        if name in self.recursive:
            return RECURSION_STACK_SIZE
        below = [self._local_memory_size(each) for each in self._callees[name] if each in self._bodies]
        return self._frame_sizes[name] + max(below, default=0)

    def _translate_function(self, function: ptx.Function) -> tuple[str, str]:
        """Return a function or kernel, and how the host enters it."""
        name, entry = function.name, function.kind == "entry"
        suspends = name in self.suspending
        b = Translator(self, function, self._labels(name), suspends=suspends)
        formals = (*function.results, *function.params)
        for index, each in enumerate(formals):
            b.declare(each.name, each, f"%p{index}")
        if entry:
            b.prologue += [
                f"  %p{index} = getelementptr i8, ptr %params, i64 {offset}"
                for index, offset in enumerate(param_offsets(function.params))
            ]
        arguments = COMMON_PARAMETERS.format(local="%local")
        if entry and suspends:
            signature = f'i64 @"ramp.{name}"({arguments}, ptr %memory) presplitcoroutine'
            b.emit(_COROUTINE_BEGIN)
        else:
            pointers = "" if entry else "".join(f", ptr %p{index}" for index in range(len(formals)))
            # What waits becomes a part of the kernel that calls it.
            signature = f'internal i8 @"f.{name}"({arguments}{pointers}){" alwaysinline" * suspends}'
        b.emit_step_counters()
        if name in self.recursive:
            top, limit = (b.emit_value(f"ptrtoint ptr {each} to i64") for each in ("%top", "%limit"))
            b.fault_unless(b.emit_op("icmp ule", "i64", top, limit), Fault.STACK_OVERFLOW)
        translate_body(b, self._bodies[name])
        b.begin_block("return")
        if entry and suspends:
            b.begin_block("leave")
            b.store("i32", int(ThreadState.EXITED), "%thread_record", thread_field_offset("state"))
            b.begin_block("suspended")
            b.end_block(_COROUTINE_END)
        else:
            b.end_block("ret i8 0")
            b.begin_block("leave")
            b.end_block("ret i8 1")
            if suspends:
                b.begin_block("suspended")
                b.end_block("ret i8 2")
        text = b.to_text(signature)
        self._frame_sizes[name] = b.local_memory_size
        if entry:
            return text, runtime.block_entry(name, suspends=suspends)
        return text, "" if suspends else runtime.elementwise_entry(name, len(formals))

    def _labels(self, name: str) -> dict[tuple[int, str], int]:
        """Return the index of each label of a function, by its block and its name."""
        return {
            (scope.block, each.name): index
            for index, each, scope in self._bodies[name]
            if isinstance(each, ptx.Label)
        }

    def _define_variable(self, variable: ptx.Variable) -> str:
        """Return a variable, with what it holds at first."""
        if not variable.defined:
            raise LaunchError(
                f"The PTX needs the variable {variable.name}, which other code defines; link them first."
            )
        bits, count = variable.bits // variable.lanes, math.prod(map(int, filter(None, variable.extents)))
        values = [each.strip() for each in re.split("[{},]", variable.initial) if each.strip()]
        if variable.initial.count("{") > 1 and len(values) != count * variable.lanes:
            raise LaunchError(
                f"The variable {variable.name} has rows that are not complete; write out all {count} values."
            )
        rest = max(variable.size - len(values) * bits // 8, 0)
        fields = [*((f"i{bits}", self._format_initializer(variable, each, bits)) for each in values)]
        fields.append((f"[{rest} x i8]", "zeroinitializer"))
        kinds, content = ", ".join(kind for kind, _ in fields), ", ".join(map(" ".join, fields))
        alignment = max(variable.alignment, 16)
        return f'@"v.{variable.name}" = global <{{{kinds}}}> <{{{content}}}>, align {alignment}'

    def _format_initializer(self, variable: ptx.Variable, spelled: str, bits: int) -> str:
        """Return one value: a number, or an address with an offset."""
        match = _SYMBOL_WITH_OFFSET.fullmatch(spelled)
        with contextlib.suppress(UnsupportedInstruction, ValueError):
            value = parse_number(spelled, bits)
            if value is not None:
                return str(value)
            if match:
                return f"add (i{bits} {self.symbol_address(match[1])}, i{bits} {match[2] or 0})"
        raise LaunchError(
            f"The variable {variable.name} begins with {spelled}, which nothing here defines; link what does."
        )


def translate_body(b: Translator, body: Iterable[tuple[int, ptx.Statement, ptx.Scope]]) -> None:
    """Add the statements of a function."""
    last = ""
    for index, statement, scope in body:
        b.scope, b.statement_index = scope, index
        if isinstance(statement, ptx.Label):
            last = statement.name
            b.begin_block(f"L{index}")
        elif isinstance(statement, ptx.Directive) and statement.keyword == "branchtargets":
            b.branch_targets[last] = statement.names
        elif isinstance(statement, ptx.Declaration):
            for variable in statement.variables:
                if variable.space in ("local", "param"):
                    b.declare(ptx.Register(scope.block, variable.name, ""), variable)
        elif isinstance(statement, ptx.Instruction) and b.block_is_open:
            _translate_instruction(b, statement)


def _translate_instruction(b: Translator, instruction: ptx.Instruction) -> None:
    """Add an instruction, or a fault in its place where it is not known."""
    mnemonic, after = parse_mnemonic(instruction.word), ""
    begin = len(b.lines)
    try:
        if instruction.guard:
            here, after = b.unique_name(), b.unique_name()
            b.cond_branch(b.read_operand(instruction.guard[1:].strip(), 1), here, after)
            b.begin_block(here)
            begin = len(b.lines)
        if mnemonic.opcode == "call":
            call(b, ptx.called(instruction))
        else:
            _HANDLERS.get(mnemonic.opcode, compute)(b, mnemonic, instruction.operands)
    except (UnsupportedInstruction, KeyError, ValueError, IndexError):
        del b.lines[begin:]
        b.block_is_open = True
        b.fault(Fault.UNDEFINED_FUNCTION if mnemonic.opcode == "call" else Fault.UNSUPPORTED)
    if after:
        b.begin_block(after)
