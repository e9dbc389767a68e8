"""A PTX module as one of LLVM: its variables, its functions, and how each is entered."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import LaunchError

from . import runtime
from .builder import METADATA, Unknown, word_of
from .code import CHUNKS, Activation, Code, Storage, number
from .control import ARGUMENTS, CONTROL, call, jump
from .floats import HELPERS
from .instructions import REGISTERS, compute
from .layout import LEAST_FRAME, SHARED_START, STACK, Fault, State, lane_offset, offset
from .memory import MEMORY
from .outline import Outlines
from .warps import WARPS

if TYPE_CHECKING:
    from collections.abc import Sequence

_ADDRESS = re.compile(r"(?:generic\()?\s*([\w$%]+)\s*\)?\s*(?:\+\s*(\d+))?")
_TABLES = {**REGISTERS, **MEMORY, **WARPS, **CONTROL}


class Entry(NamedTuple):
    """
    A function or kernel in machine code.

    Args:
        waits: Whether its lanes wait for each other.
        local: Bytes of local memory for a lane.
    """

    waits: bool
    local: int


class Unit:
    """
    The translation of a module.

    Args:
        module: The module.
        checks: Whether accesses are checked.

    Attributes:
        defined: Functions of LLVM IR that the code calls, by name.
        sites: The function and the statement of each place that can have a fault, in order.
        entries: What is known of the functions and kernels, when their text is there.
        shared_size: Bytes of shared memory without the dynamic part.
        written_out: How many statements are those of functions that were written out where they are called.
    """

    def __init__(self, module: ptx.Module, *, checks: bool) -> None:
        self.checks = checks
        self.defined: dict[str, str] = {}
        self.sites: list[tuple[str, int]] = []
        self.entries: dict[str, Entry] = {}
        self.written_out = 0
        self.accesses: list[tuple[int, int, int, int]] = []
        self.functions = {each.name: each for each in module.functions if each.defined}
        self._aliases = {each.name: each.target for each in module.aliases}
        self.outlines = Outlines(self.functions)
        self.variables = {
            each.name: each for each in module.variables if each.memory in ("global", "const", "managed")
        }
        self._frames: dict[str, int] = {}
        self._site_numbers: dict[tuple[str, int], int] = {}
        self._shared: dict[str | tuple[str, ptx.Register], int] = {}
        shared: list[tuple[str | tuple[str, ptx.Register], ptx.Variable]] = [
            (each.name, each) for each in module.variables if each.space == "shared"
        ]
        for name in self.functions:
            shared += [((name, own), each) for own, each in self.outlines.of(name).shared.items()]
        top = SHARED_START
        # What the launch gives the size of comes last, and is all one.
        for key, variable in sorted(shared, key=lambda row: not row[1].size):
            if key not in self._shared and variable.space == "shared":
                alignment = max(variable.alignment, 16)
                top = -(-top // alignment) * alignment
                self._shared[key] = top
                top += variable.size
        self.shared_size = top - SHARED_START

    # What the code of functions asks for

    def access(self, size: int, aligned: int, site: int, *, write: bool) -> int:
        """Return a number for an access that is checked."""
        self.accesses.append((size, aligned, site, int(write)))
        return len(self.accesses) - 1

    def site(self, function: ptx.Function, place: int) -> int:
        """Return the number of a statement for faults."""
        found = self._site_numbers.setdefault((function.name, place), len(self.sites))
        if found == len(self.sites):
            self.sites.append((function.name, place))
        return found

    def function(self, name: str) -> ptx.Function | None:
        """Return the function with a body that *name* is."""
        return self.functions.get(self._aliases.get(name, name))

    def symbol(self, name: str) -> str:
        """Return the name of a function in LLVM IR."""
        return f'@"f.{self._aliases.get(name, name)}"'

    def address(self, name: str) -> str:
        """
        Return the address of a variable or a function, in its state space.

        Raises:
            Unknown: There is none.
        """
        if name in self._shared:
            return str(self._shared[name])
        if name in self.variables:
            return f'ptrtoint (ptr @"v.{name}" to i64)'
        if self.function(name):
            return f"ptrtoint (ptr {self.symbol(name)} to i64)"
        raise Unknown

    def shared(self, function: ptx.Function, own: ptx.Register) -> str:
        """Return the address of a variable that a function declares in shared memory."""
        if (function.name, own) not in self._shared:
            raise Unknown
        return str(self._shared[function.name, own])

    def parameter(self, function: ptx.Function, name: str) -> int | None:
        """Return where a parameter of a kernel is among all, None for another name."""
        found = dict(zip((each.name for each in function.params), places(function.params), strict=True))
        return found.get(name)

    # The text

    def text(self) -> str:
        """Return the module in LLVM IR."""
        parts = [text for each in self.functions.values() for text in self._function(each)]
        self.entries = {name: Entry(self.outlines.waits(name), self._need(name)) for name in self.functions}
        variables = [self._variable(each) for each in self.variables.values()]
        accesses = runtime.accesses(self.accesses)
        shared = (*self.defined.values(), runtime.DECLARATIONS, HELPERS)
        return "\n".join((*variables, accesses, *shared, *parts, METADATA))

    def _need(self, name: str) -> int:
        """Return how much local memory a function and those that it calls need."""
        if not self.outlines.bounded(name):
            return STACK
        below = [self._need(each) for each in self.outlines.of(name).callees if each in self.functions]
        return -(-self._frames.get(name, 0) // 64) * 64 + max(below, default=0) + 64

    def _function(self, function: ptx.Function) -> list[str]:
        """Return a function or kernel, and how the host enters it."""
        name, waits, entry = function.name, self.outlines.waits(function.name), function.kind == "entry"
        if waits and not entry:
            # Its address is the only thing of it that is needed.
            return [f"define internal void {self.symbol(name)}() {{ ret void }}"]
        code = Code(self, suspends=waits)
        arguments = ARGUMENTS.format(local="%local")
        if waits:
            return [self._coroutine(code, function, arguments), runtime.block(name, waits=True)]
        if entry:
            code.kernel_params, arguments = "%params", f"{arguments}, ptr %params"
            formals, symbol, host = {}, f'@"k.{name}"', runtime.block(name, waits=False)
        else:
            every = (*function.results, *function.params)
            sizes = [_size(each) for each in every]
            given = {each.name: Storage(f"%p{index}", sizes[index]) for index, each in enumerate(every)}
            formals, symbol = code.kept(self.outlines.of(name), given), self.symbol(name)
            arguments += "".join(f", ptr {each.pointer}" for each in given.values())
            host = runtime.many(name, sizes, len(function.results))
        self._body(code, function, formals)
        code.label("return")
        code.end("ret i1 false")
        code.label("leave")
        code.end("ret i1 true")
        return [code.text(f"internal i1 {symbol}({arguments})"), host]

    def _coroutine(self, code: Code, kernel: ptx.Function, arguments: str) -> str:
        code.kernel_params = "%params"
        identity = code.let("call token @llvm.coro.id(i32 16, ptr null, ptr null, ptr null)")
        size = code.let("call i64 @llvm.coro.size.i64()")
        # Without memory it tells how much it needs.
        code.fork(code.op("icmp eq", "ptr", "%memory", "null"), "asked", "begun")
        code.label("asked")
        code.end(f"ret i64 {size}")
        code.label("begun")
        code.do(f"%handle = call ptr @llvm.coro.begin(token {identity}, ptr %memory)")
        self._body(code, kernel, {})
        code.label("return")
        code.label("leave")
        code.store("i32", str(int(State.ENDED)), "%lane", lane_offset("state"))
        code.label("suspended")
        code.do("call {END} @llvm.coro.end(ptr %handle, i1 false, token none)")
        code.end(f"ret i64 {code.let('ptrtoint ptr %handle to i64')}")
        own = f'i64 @"ramp.{kernel.name}"({arguments}, ptr %params, ptr %lane, ptr %memory)'
        return code.text(f"{own} presplitcoroutine")

    def _body(self, code: Code, function: ptx.Function, formals: dict[str, Storage]) -> None:
        outline = self.outlines.of(function.name)
        code.activation = Activation(outline, code.fresh("L"), formals, "return")
        code.place, code.scope = 0, ptx.Scope()
        steps = code.load("i64", "%ctx", offset("steps"))
        first = code.call("llvm.smin.i64", "i64", f"i64 {steps}", f"i64 {CHUNKS[code.suspends]}")
        code.do(f"store i32 {code.resize(first, 'i64', 'i32')}, ptr {code.budget}")
        code.do(f"store i64 {code.op('sub', 'i64', steps, first)}, ptr {code.left}")
        code.do(f"store i1 0, ptr {code.carry}")
        if not self.outlines.bounded(function.name):
            top, limit = (code.let(f"ptrtoint ptr {each} to i64") for each in ("%top", "%limit"))
            code.unless(code.op("icmp ule", "i64", top, limit), Fault.STACK)
        self.translate_body(code)
        if code.open:
            code.end("br label %return")
        least = 0 if self.outlines.bounded(function.name) else LEAST_FRAME
        frame = max(-(-code.frame // 64) * 64, least)
        self._frames[function.name] = frame
        code.head.append(f"  %top = getelementptr i8, ptr %local, i64 {frame}")

    def translate_body(self, code: Code) -> None:
        """Add the statements of the function that the code is in."""
        activation = code.activation
        outline = activation.outline
        for place, statement, scope in outline.statements:
            code.scope, code.place = scope, place
            if isinstance(statement, ptx.Label):
                code.label(f"{activation.prefix}.{place}")
                if (scope.block, statement.name) in outline.headers:
                    code.count_step()
            elif isinstance(statement, ptx.Declaration):
                self._declare(code, statement, scope)
            elif isinstance(statement, ptx.Instruction) and code.open:
                self._instruction(code, statement)

    def _declare(self, code: Code, declaration: ptx.Declaration, scope: ptx.Scope) -> None:
        for variable in declaration.variables:
            key = ptx.Register(scope.block, variable.name, "")
            size, alignment = _size(variable), min(max(variable.alignment, 16), 64)
            if variable.space == "local" or (
                variable.space == "param" and key in code.activation.outline.exposed
            ):
                place = Storage(code.reserve(size, alignment), size)
            elif variable.space == "param":
                place = Storage(code.variable(f"[{max(size, 1)} x i8], align 16"), size)
            else:
                continue
            code.activation.variables[key] = place

    def _instruction(self, code: Code, instruction: ptx.Instruction) -> None:
        word = word_of(instruction.word)
        # A jump has blocks of its own for its predicate.
        guard = "" if word.opcode == "bra" else instruction.guard[1:].strip()
        after = ""
        lines, opened = len(code.lines), code.open
        try:
            if guard:
                here, after = code.fresh(), code.fresh()
                code.fork(code.bits(guard, 1), here, after)
                code.label(here)
            lines, opened = len(code.lines), code.open
            if word.opcode == "bra":
                jump(code, instruction)
            elif word.opcode == "call":
                call(code, instruction)
            else:
                _TABLES.get(word.opcode, compute)(code, word, instruction.operands)
        except (Unknown, KeyError, ValueError, IndexError):
            code.rewind(lines, was_open=opened)
            code.fault(Fault.UNDEFINED if word.opcode == "call" else Fault.UNKNOWN)
        if after:
            code.label(after)

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


def _size(variable: ptx.Variable) -> int:
    return max(variable.size, 1)


def places(params: Sequence[ptx.Variable]) -> list[int]:
    """Return where each parameter of a kernel is, and where they end."""
    found, top = [], 0
    for each in params:
        alignment = each.param.align or each.bits // 8 or 1
        top = -(-top // alignment) * alignment
        found.append(top)
        top += _size(each)
    return found
