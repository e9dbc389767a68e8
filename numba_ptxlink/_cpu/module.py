"""A PTX module as one of LLVM: its variables, its functions, who calls whom, and how each is entered."""

from __future__ import annotations

import contextlib
import math
import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import LaunchError

from . import runtime
from .control import ARGUMENTS, CONTROL, call
from .function_text import Unknown, word_of
from .instructions import REGISTERS, compute
from .memory import MEMORY
from .runtime import SHARED_START, STACK, Fault, State, lane_offset
from .translator import Translator, number
from .warps import WARPS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_ADDRESS = re.compile(r"(?:generic\()?\s*([\w$%]+)\s*\)?\s*(?:\+\s*(\d+))?")
_HANDLERS = {**REGISTERS, **MEMORY, **WARPS, **CONTROL}
# Opcodes at which lanes wait for others, and the call of the device runtime that does.
_WAITING = frozenset(("bar", "barrier", "shfl", "vote", "match", "redux", "activemask"))
_WAITING_CALL = "cudaCGSynchronize"
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


def places(params: Sequence[ptx.Variable]) -> list[int]:
    """Return where each parameter of a kernel is."""
    found, top = [], 0
    for each in params:
        alignment = each.param.align or each.bits // 8 or 1
        top = -(-top // alignment) * alignment
        found.append(top)
        top += max(each.size, 1)
    return found


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
        self.accesses = 0
        self.defined: dict[str, str] = {}
        self.sites: list[tuple[str, int]] = []
        self.entries: dict[str, tuple[bool, int]] = {}
        self.functions = {each.name: each for each in module.functions if each.defined}
        self._bodies = {name: list(ptx.scoped(each.body)) for name, each in self.functions.items()}
        aliases = {each.name: each.target for each in module.aliases}
        self._callees: dict[str, set[str]] = {}
        own = set[str]()
        for name, body in self._bodies.items():
            instructions = [each for _, each, _ in body if isinstance(each, ptx.Instruction)]
            calls = [ptx.called(each).callee for each in instructions if each.opcode == "call"]
            self._callees[name] = {aliases.get(each, each) for each in calls}
            if _WAITING_CALL in calls or any(each.opcode in _WAITING for each in instructions):
                own.add(name)
        reached = {name: self._reached(name) for name in self._bodies}
        self.waiting = {name for name, found in reached.items() if own & {name, *found}}
        recursive = {name for name, found in reached.items() if name in found}
        self.recursive = {name for name, found in reached.items() if recursive & {name, *found}}
        self.functions |= {
            name: self.functions[target] for name, target in aliases.items() if target in self.functions
        }
        self._frames: dict[str, int] = {}
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
        for key, variable in sorted(shared, key=lambda row: not row[1].size):
            if variable.space == "shared" and key not in self._shared:
                alignment = max(variable.alignment, 16)
                self._shared[key] = top = -(-top // alignment) * alignment
                top += variable.size
        self.shared_size = top - SHARED_START

    def _reached(self, name: str) -> set[str]:
        """Return the functions that one calls, directly or not."""
        found, left = set[str](), [name]
        while left:
            called = self._callees.get(left.pop(), set()) - found
            found |= called
            left += called
        return found

    # What the code of functions asks for

    def site(self, function: str, place: int) -> int:
        """Return a number for a statement that can have a fault."""
        self.sites.append((function, place))
        return len(self.sites) - 1

    def address(self, name: str | tuple[str, ptx.Register]) -> str:
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
            raise Unknown
        # Functions are compared by their addresses, and never called by them.
        symbol = f'@"a.{self.functions[name].name}"'
        self.defined[symbol] = f"define internal void {symbol}() {{ ret void }}"
        return f"ptrtoint (ptr {symbol} to i64)"

    # The text

    def text(self) -> str:
        """Return the module in LLVM IR."""
        functions = [part for name in self._bodies for part in self._function(self.functions[name])]
        self.entries = {name: (name in self.waiting, self._need(name)) for name in self._bodies}
        variables = [self._variable(each) for each in self._variables.values()]
        return "\n".join((*variables, *self.defined.values(), *functions, runtime.text("program.ll")))

    def _need(self, name: str) -> int:
        """Return how much local memory a function and those that it calls need."""
        if name in self.recursive:
            return STACK
        below = [self._need(each) for each in self._callees[name] if each in self._bodies]
        return self._frames[name] + max(below, default=0)

    def _function(self, function: ptx.Function) -> tuple[str, str]:
        """Return a function or kernel, and how the host enters it."""
        name, entry = function.name, function.kind == "entry"
        waits = name in self.waiting
        labels = {
            (scope.block, each.name): place
            for place, each, scope in self._bodies[name]
            if isinstance(each, ptx.Label)
        }
        b = Translator(self, function, labels, waits=waits)
        formals = (*function.results, *function.params)
        for index, each in enumerate(formals):
            b.declare(each.name, each, f"%p{index}")
        if entry:
            b.head += [
                f"  %p{index} = getelementptr i8, ptr %params, i64 {place}"
                for index, place in enumerate(places(function.params))
            ]
        arguments = ARGUMENTS.format(local="%local")
        if entry and waits:
            signature = f'i64 @"ramp.{name}"({arguments}, ptr %memory) presplitcoroutine'
            b.do(_COROUTINE_BEGIN)
        else:
            pointers = "" if entry else "".join(f", ptr %p{index}" for index in range(len(formals)))
            # What waits becomes a part of the kernel that calls it.
            signature = f'internal i8 @"f.{name}"({arguments}{pointers}){" alwaysinline" * waits}'
        b.begin()
        if name in self.recursive:
            top, limit = (b.let(f"ptrtoint ptr {each} to i64") for each in ("%top", "%limit"))
            b.unless(b.op("icmp ule", "i64", top, limit), Fault.STACK)
        _add_body(b, self._bodies[name])
        b.label("return")
        if entry and waits:
            b.label("leave")
            b.store("i32", int(State.ENDED), "%lane", lane_offset("state"))
            b.label("suspended")
            b.end(_COROUTINE_END)
        else:
            b.end("ret i8 0")
            b.label("leave")
            b.end("ret i8 1")
            if waits:
                b.label("suspended")
                b.end("ret i8 2")
        text = b.text(signature)
        self._frames[name] = b.frame
        if entry:
            return text, runtime.block(name, waits=waits)
        return text, "" if waits else runtime.many(name, len(formals))

    def _variable(self, variable: ptx.Variable) -> str:
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
        fields = [*((f"i{bits}", self._value(variable, each, bits)) for each in values)]
        fields.append((f"[{rest} x i8]", "zeroinitializer"))
        kinds, content = ", ".join(kind for kind, _ in fields), ", ".join(map(" ".join, fields))
        alignment = max(variable.alignment, 16)
        return f'@"v.{variable.name}" = global <{{{kinds}}}> <{{{content}}}>, align {alignment}'

    def _value(self, variable: ptx.Variable, spelled: str, bits: int) -> str:
        """Return one value: a number, or an address with an offset."""
        match = _ADDRESS.fullmatch(spelled)
        with contextlib.suppress(Unknown, ValueError):
            value = number(spelled, bits)
            if value is not None:
                return str(value)
            if match:
                return f"add (i{bits} {self.address(match[1])}, i{bits} {match[2] or 0})"
        raise LaunchError(
            f"The variable {variable.name} begins with {spelled}, which nothing here defines; link what does."
        )


def _add_body(b: Translator, body: Iterable[tuple[int, ptx.Statement, ptx.Scope]]) -> None:
    """Add the statements of a function."""
    last = ""
    for place, statement, scope in body:
        b.scope, b.place = scope, place
        if isinstance(statement, ptx.Label):
            last = statement.name
            b.label(f"L{place}")
        elif isinstance(statement, ptx.Directive) and statement.keyword == "branchtargets":
            b.targets[last] = statement.names
        elif isinstance(statement, ptx.Declaration):
            for variable in statement.variables:
                if variable.space in ("local", "param"):
                    b.declare(ptx.Register(scope.block, variable.name, ""), variable)
        elif isinstance(statement, ptx.Instruction) and b.open:
            _instruction(b, statement)


def _instruction(b: Translator, instruction: ptx.Instruction) -> None:
    """Add an instruction, or a fault in its place where it is not known."""
    word, after = word_of(instruction.word), ""
    begin = len(b.lines)
    try:
        if instruction.guard:
            here, after = b.fresh(), b.fresh()
            b.fork(b.bits(instruction.guard[1:].strip(), 1), here, after)
            b.label(here)
            begin = len(b.lines)
        if word.opcode == "call":
            call(b, ptx.called(instruction))
        else:
            _HANDLERS.get(word.opcode, compute)(b, word, instruction.operands)
    except (Unknown, KeyError, ValueError, IndexError):
        del b.lines[begin:]
        b.open = True
        b.fault(Fault.UNDEFINED if word.opcode == "call" else Fault.UNKNOWN)
    if after:
        b.label(after)
