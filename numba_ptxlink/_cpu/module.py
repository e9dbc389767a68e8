"""A PTX module as one of LLVM: its variables, its functions, who calls whom, and how each is entered."""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import LaunchError

from . import runtime
from .control import ARGUMENTS, CONTROL, call
from .function_text import Unknown, word_of
from .instructions import REGISTERS, compute
from .memory import MEMORY
from .runtime import LEAST_FRAME, SHARED_START, STACK, Fault, State, lane_offset
from .translator import Translator, number
from .warps import WARPS

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


class Outline(NamedTuple):
    """
    What is known of a function with a body before it is translated.

    Args:
        function: The function.
        statements: Each with its number, and the names that are declared there.
        labels: The places of labels by block and name.
        callees: The functions that it calls by name.
        waits: Whether lanes wait for others in its own body.
    """

    function: ptx.Function
    statements: list[tuple[int, ptx.Statement, ptx.Scope]]
    labels: dict[tuple[int, str], int]
    callees: set[str]
    waits: bool

    @classmethod
    def of(cls, function: ptx.Function) -> Outline:
        """Return the outline of a function."""
        statements = list(ptx.scoped(function.body))
        instructions = [each for _, each, _ in statements if isinstance(each, ptx.Instruction)]
        callees = {ptx.called(each).callee for each in instructions if each.opcode == "call"}
        return cls(
            function,
            statements,
            {
                (scope.block, each.name): place
                for place, each, scope in statements
                if isinstance(each, ptx.Label)
            },
            callees,
            _WAITING_CALL in callees or any(each.opcode in _WAITING for each in instructions),
        )


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
        self._site_numbers: dict[tuple[str, int], int] = {}
        self._outlines = {each.name: Outline.of(each) for each in module.functions if each.defined}
        self._aliases = {each.name: each.target for each in module.aliases}
        self._reached = {name: self._reach(name) for name in self._outlines}
        self._frames: dict[str, int] = {}
        self._variables = {
            each.name: each for each in module.variables if each.memory in ("global", "const", "managed")
        }
        self._shared: dict[str | tuple[str, ptx.Register], int] = {}
        shared: list[tuple[str | tuple[str, ptx.Register], ptx.Variable]] = [
            (each.name, each) for each in module.variables if each.space == "shared"
        ]
        for name, outline in self._outlines.items():
            for _, statement, scope in outline.statements:
                if isinstance(statement, ptx.Declaration):
                    own = [each for each in statement.variables if each.space == "shared"]
                    shared += [((name, ptx.Register(scope.block, each.name, "")), each) for each in own]
        top = SHARED_START
        # What the launch gives the size of comes last, and is all one.
        for key, variable in sorted(shared, key=lambda row: not row[1].size):
            if key not in self._shared:
                alignment = max(variable.alignment, 16)
                self._shared[key] = top = -(-top // alignment) * alignment
                top += variable.size
        self.shared_size = top - SHARED_START

    def _reach(self, name: str) -> set[str]:
        """Return the functions that one calls, directly or not."""
        found, left = set[str](), [name]
        while left:
            called = {self._aliases.get(each, each) for each in self._outlines[left.pop()].callees} - found
            found |= called
            left += [each for each in called if each in self._outlines]
        return found

    # What the code of functions asks for

    def site(self, function: str, place: int) -> int:
        """Return the number of a statement for faults."""
        found = self._site_numbers.setdefault((function, place), len(self.sites))
        if found == len(self.sites):
            self.sites.append((function, place))
        return found

    def function(self, name: str) -> ptx.Function | None:
        """Return the function with a body that *name* is."""
        outline = self._outlines.get(self._aliases.get(name, name))
        return outline.function if outline else None

    def waits(self, name: str) -> bool:
        """Return whether lanes wait for others in a function, or in one that it calls."""
        return any(self._outlines[each].waits for each in {name, *self._reached[name]} & {*self._outlines})

    def recurs(self, name: str) -> bool:
        """Return whether a function, or one that it calls, calls itself."""
        return any(each in self._reached.get(each, ()) for each in (name, *self._reached[name]))

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
        function = self.function(name) if isinstance(name, str) else None
        if function is None:
            raise Unknown
        # Functions are compared by their addresses, and never called by them.
        symbol = f'@"a.{function.name}"'
        self.defined[symbol] = f"define internal void {symbol}() {{ ret void }}"
        return f"ptrtoint (ptr {symbol} to i64)"

    # The text

    def text(self) -> str:
        """Return the module in LLVM IR."""
        functions = [part for each in self._outlines.values() for part in self._function(each)]
        self.entries = {name: (self.waits(name), self._need(name)) for name in self._outlines}
        variables = [self._variable(each) for each in self._variables.values()]
        return "\n".join((*variables, *self.defined.values(), *functions, runtime.text("program.ll")))

    def _need(self, name: str) -> int:
        """Return how much local memory a function and those that it calls need."""
        if self.recurs(name):
            return STACK
        callees = {self._aliases.get(each, each) for each in self._outlines[name].callees}
        below = [self._need(each) for each in callees if each in self._outlines]
        return self._frames[name] + max(below, default=0) + 64

    def _function(self, outline: Outline) -> tuple[str, str]:
        """Return a function or kernel, and how the host enters it."""
        function, name = outline.function, outline.function.name
        waits, entry = self.waits(name), function.kind == "entry"
        b = Translator(self, outline, waits=waits)
        formals = () if entry else (*function.results, *function.params)
        for index, each in enumerate(formals):
            b.declare(each.name, each, f"%p{index}")
        arguments = ARGUMENTS.format(local="%local")
        if entry and waits:
            signature = f'i64 @"ramp.{name}"({arguments}, ptr %memory) presplitcoroutine'
            b.do(_COROUTINE_BEGIN)
        else:
            pointers = "".join(f", ptr %p{index}" for index in range(len(formals)))
            # What waits becomes a part of the kernel that calls it.
            signature = f'internal i8 @"f.{name}"({arguments}{pointers}){" alwaysinline" * waits}'
        b.begin()
        if self.recurs(name):
            top, limit = (b.let(f"ptrtoint ptr {each} to i64") for each in ("%top", "%limit"))
            b.unless(b.op("icmp ule", "i64", top, limit), Fault.STACK)
        self._body(b)
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
        text = b.text(signature, LEAST_FRAME if self.recurs(name) else 0)
        self._frames[name] = b.frame
        if entry:
            return text, runtime.block(name, waits=waits)
        sizes = [max(each.size, 1) for each in formals]
        return text, "" if waits else runtime.many(name, sizes, len(function.results))

    def _body(self, b: Translator) -> None:
        """Add the statements of a function."""
        last = ""
        for place, statement, scope in b.outline.statements:
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

    def _variable(self, variable: ptx.Variable) -> str:
        if not variable.defined:
            raise LaunchError(
                f"The PTX needs the variable {variable.name}, which other code defines; link them first."
            )
        content = self._content(variable)
        return f'@"v.{variable.name}" = global {content}, align {max(variable.alignment, 16)}'

    def _content(self, variable: ptx.Variable) -> str:
        """Return the type and the value of what a variable holds at first."""
        text, bits = variable.initial.strip(), variable.bits // variable.lanes
        if not text:
            return f"[{variable.size} x i8] zeroinitializer"
        leaves = [
            each.strip() for each in text.replace("{", " ").replace("}", " ").split(",") if each.strip()
        ]
        count = math.prod(extent or 0 for extent in variable.extents) * variable.lanes
        if text.count("{") > 1 and len(leaves) != count:
            raise LaunchError(
                f"The variable {variable.name} has rows that are not complete; write out all {count} values."
            )
        fields = [(f"i{bits}", self._value(variable, each, bits)) for each in leaves]
        rest = variable.size - len(fields) * bits // 8
        if rest > 0:
            fields.append((f"[{rest} x i8]", "zeroinitializer"))
        kinds, values = ", ".join(kind for kind, _ in fields), ", ".join(map(" ".join, fields))
        return f"<{{{kinds}}}> <{{{values}}}>"

    def _value(self, variable: ptx.Variable, spelled: str, bits: int) -> str:
        """Return one value: a number, or an address with an offset."""
        value = number(spelled, bits)
        if value is not None:
            return str(value)
        match = _ADDRESS.fullmatch(spelled)
        try:
            if match:
                return f"add (i{bits} {self.address(match[1])}, i{bits} {match[2] or 0})"
        except Unknown:
            pass
        raise LaunchError(
            f"The variable {variable.name} begins with {spelled}, which nothing here defines; link what does."
        )


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
