"""
Read PTX into functions of flat code, with every name resolved.

This is no part of the package on purpose: an oracle must not share a fault with what it checks.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass, field
from functools import lru_cache


class PtxError(Exception):
    """PTX that is wrong, that does what it must not do, or that the machine does not know."""


@dataclass(frozen=True)
class Register:
    """A register of a function, by its index, with its type such as "b32"."""

    index: int
    type: str


@dataclass(frozen=True)
class Number:
    """An immediate; of a floating-point literal the bits, and how many."""

    value: int
    bits: int = 0


@dataclass(frozen=True)
class Symbol:
    """A name that the function does not declare: a special register, a function or a variable."""

    name: str


@dataclass(frozen=True)
class Address:
    """A base and an offset."""

    base: object
    offset: int


@dataclass(frozen=True)
class Not:
    """A negated predicate."""

    operand: object


@dataclass(frozen=True)
class Target:
    """A place in the code of a function."""

    place: int


@dataclass(eq=False)
class Variable:
    """A variable or parameter; its place is in a state space, or in the frame of a function."""

    name: str
    space: str
    type: str
    alignment: int
    size: int
    linkage: str = ""
    values: tuple[str, ...] = ()
    dynamic: bool = False
    place: int = -1


@dataclass
class Instruction:
    """One instruction."""

    guard: Register | Not | None
    opcode: str
    words: tuple[str, ...]
    operands: list[object]
    text: str
    scope: Scope

    def error(self, message: str) -> PtxError:
        """Return an error that names the instruction."""
        return PtxError(f"{message}: {' '.join(self.text.split())}")


@dataclass(eq=False)
class Function:
    """A function: what it declares, and its code if it has a body."""

    name: str
    linkage: str
    results: list[Variable]
    params: list[Variable]
    module: Module
    code: list[Instruction] | None = None
    registers: list[str] = field(default_factory=list)
    frame: list[Variable] = field(default_factory=list)
    size: int = 0


@dataclass(eq=False)
class Module:
    """The functions, variables and aliases of one text, by name."""

    functions: dict[str, Function] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)

    def find(self, name: str) -> Function | Variable | None:
        """Return what *name* is here."""
        name = self.aliases.get(name, name)
        return self.functions.get(name) or self.variables.get(name)


class Scope:
    """The names of a block, which inner blocks see."""

    def __init__(self, function: Function, outer: Scope | None = None) -> None:
        self.function, self.outer = function, outer
        self.names: dict[str, object] = {}
        self.ranges: dict[str, tuple[str, int]] = {}
        self.labels: dict[str, int] = {}
        self.tables: dict[str, list[str]] = {}

    def register(self, name: str, kind: str) -> Register:
        """Declare a register."""
        self.function.registers.append(kind)
        return self.names.setdefault(name, Register(len(self.function.registers) - 1, kind))

    def find(self, name: str) -> object:
        """Return the register, variable or jump table *name*, None if no block has it."""
        stem = name.rstrip("0123456789")
        for scope in self.chain():
            if name in scope.names:
                return scope.names[name]
            kind, count = scope.ranges.get(stem, ("", 0))
            if stem != name and int(name[len(stem) :]) < count:
                return scope.register(name, kind)
        return None

    def label(self, name: str) -> Target:
        """Return where *name* is."""
        for scope in self.chain():
            if name in scope.labels:
                return Target(scope.labels[name])
        raise PtxError(f"no label {name}")

    def table(self, name: str) -> list[Target]:
        """Return the places that the jump table *name* lists."""
        for scope in self.chain():
            if name in scope.tables:
                return [scope.label(each) for each in scope.tables[name]]
        raise PtxError(f"no jump table {name}")

    def chain(self):
        """Yield this scope and those around it."""
        scope = self
        while scope:
            yield scope
            scope = scope.outer


_NOISE = re.compile(r'("(?:[^"\\]|\\.)*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
_SKIPPED = re.compile(r"\.(?:loc|file|version|target|address_size)\b[^\n]*|\.section\b[^{]*\{[^}]*\}|[\s;]+")
_STATEMENT = re.compile(r'((?:[^;"]|"[^"]*")*);')
_LABEL = re.compile(r"([\w$%]+)\s*:(?!:)")
_HEADING = re.compile(
    r"(?:\.(visible|extern|weak)\s+)?(?:\.attribute\(.*?\)\)?\s*)?\.(entry|func)\s*(?:\(([^()]*)\)\s*)?"
    r"([\w$%]+)\s*(?:\(([^()]*)\))?([^;{]*)([;{])"
)
_VARIABLE = re.compile(
    r"(?:\.(visible|extern|weak|common)\s+)?\.(global|const|shared|local|param)\s*(?:\.attribute\(.*?\)\s*)?"
    r"(?:\.align\s+(\d+)\s*)?(?:\.v([24])\s*)?\.([a-z]+\d+)\s*"
    r"(?:\.ptr\s*(?:\.(?:global|const|shared|local)\s*)?(?:\.align\s+\d+\s*)?)?([^=]*)(?:=(.*))?",
    re.DOTALL,
)
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s+(.*)", re.DOTALL)
_INSTRUCTION = re.compile(r"(?:@\s*(!?)\s*([\w$%]+)\s+)?([a-z]\w*)((?:\s*\.[\w:]+)*)\s*(.*)", re.DOTALL)
_INTEGER = re.compile(r"(-?)\s*(0[xX][0-9a-fA-F]+|0[bB][01]+|\d+)U?")
_OFFSET = re.compile(r"([\w$%]+)\s*([+-])\s*(-?\s*\w+)")
_DIRECTIVES = (".pragma", ".max", ".min", ".req", ".noreturn", ".callprototype")


@lru_cache
def width(kind: str) -> int:
    """Return how many bits a value of a type has, 1 for a predicate."""
    return 1 if kind == "pred" else int(re.search(r"\d+", kind)[0]) * int(kind.partition("x")[2] or 1)


def split(text: str) -> list[str]:
    """Split a list at its commas, but for those in brackets."""
    parts = re.findall(r"(?:\{[^}]*\}|\([^)]*\)|\[[^\]]*\]|[^,{(\[])+", text)
    return [part.strip() for part in parts if part.strip()]


@lru_cache(4096)
def number(text: str) -> Number | None:
    """Return the immediate that *text* is, None if it is none."""
    if match := re.fullmatch(r"(-?)0([fFdD])([0-9a-fA-F]+)", text):
        bits = 32 if match[2] in "fF" else 64
        return Number(int(match[3], 16) ^ (bool(match[1]) << (bits - 1)), bits)
    if match := _INTEGER.fullmatch(text):
        octal = re.fullmatch(r"0[0-7]+", match[2])
        return Number(int(match[2], 8 if octal else 0) * (-1 if match[1] else 1))
    if re.fullmatch(r"-?\d+\.\d*(?:[eE][+-]?\d+)?", text):
        return Number(*struct.unpack("<Q", struct.pack("<d", float(text))), 64)
    return None


def parse(text: str) -> Module:
    """Return the module that *text* is."""
    text = _NOISE.sub(lambda match: match[1] or " ", text)
    module, at = Module(), 0
    while at < len(text):
        if match := _SKIPPED.match(text, at):
            at = match.end()
        elif match := _HEADING.match(text, at):
            linkage, kind, results, name, params, _, end = match.groups()
            declared = [[_variable(each) for each in split(part or "")] for part in (results, params)]
            function = Function(name, "visible" if kind == "entry" else linkage or "", *declared, module)
            at = match.end()
            if end == "{":
                at = _body(function, text, at)
            if function.code is not None or name not in module.functions:
                module.functions[name] = function
        elif match := _STATEMENT.match(text, at):
            at = match.end()
            if match[1].startswith(".alias"):
                alias, target = split(match[1].removeprefix(".alias"))
                module.aliases[alias] = target
            elif not match[1].startswith(".pragma"):
                variable = _variable(match[1])
                module.variables[variable.name] = variable
        else:
            raise PtxError(f"not PTX: {text[at : at + 60]!r}")
    return module


def _variable(statement: str) -> Variable:
    match = _VARIABLE.fullmatch(statement.strip())
    declared = re.fullmatch(r"\s*([\w$%]+)\s*((?:\[[^\]]*\]\s*)*)", match[6]) if match else None
    if not declared:
        raise PtxError(f"not a variable: {statement}")
    linkage, space, alignment, count, kind, _, initial = match.groups()
    size = element = width(kind) // 8 * int(count or 1)
    values = tuple(value for value in re.split(r"[{},\s]+", initial or "") if value)
    for extent in re.findall(r"\[\s*(\w*)\s*\]", declared[2]):
        size *= int(extent, 0) if extent else len(values)
    dynamic = not size
    return Variable(
        declared[1], space, kind, int(alignment or element), size, linkage or "", values, dynamic=dynamic
    )


def _body(function: Function, text: str, at: int) -> int:
    """Read the body of *function*, which begins at *at*; return where it ends."""
    function.code = []
    function.frame = [*function.results, *function.params]
    scope = outermost = Scope(function)
    scope.names = {variable.name: variable for variable in function.frame}
    while True:
        if text[at] == "{":
            scope, at = Scope(function, scope), at + 1
        elif text[at] == "}":
            at += 1
            if scope is outermost:
                break
            scope = scope.outer
        elif match := _SKIPPED.match(text, at):
            at = match.end()
        elif match := _LABEL.match(text, at):
            at = match.end()
            scope.labels[match[1]] = len(function.code)
            label = match[1]
        elif match := _STATEMENT.match(text, at):
            at = match.end()
            if match[1].startswith((".branchtargets", ".calltargets")):
                scope.tables[label] = split(match[1].partition("s ")[2])
            else:
                _statement(scope, match[1])
        else:
            raise PtxError(f"not PTX: {text[at : at + 60]!r}")
    for instruction in function.code:
        if instruction.opcode == "bra":
            instruction.operands = [instruction.scope.label(instruction.operands[0].name)]
        elif instruction.opcode == "brx":
            instruction.operands[1] = instruction.scope.table(instruction.operands[1].name)
    for variable in function.frame:
        # Some bytes after each belong to none, so that an access that goes beyond is seen.
        variable.place = -(-function.size // variable.alignment) * variable.alignment
        function.size = -(-(variable.place + variable.size + 16) // 16) * 16
    return at


def _statement(scope: Scope, text: str) -> None:
    function = scope.function
    if text.startswith(".reg"):
        match = _REGISTERS.fullmatch(text)
        for name in split(match[2]):
            stem, _, count = name.rstrip("> ").partition("<")
            if count:
                scope.ranges[stem.strip()] = match[1], int(count)
            else:
                scope.register(name, match[1])
    elif text.startswith(_DIRECTIVES):
        pass
    elif text.startswith("."):
        variable = _variable(text)
        scope.names[variable.name] = variable
        if variable.space in ("local", "param"):
            function.frame.append(variable)
            function.code.append(Instruction(None, "declare", (), [variable], text, scope))
        else:
            function.module.variables[f"{function.name}.{len(function.code)}.{variable.name}"] = variable
    elif match := _INSTRUCTION.fullmatch(text):
        negated, predicate, opcode, words, operands = match.groups()
        guard = scope.find(predicate) if predicate else None
        if predicate and not isinstance(guard, Register):
            raise PtxError(f"no predicate {predicate}: {text}")
        words = tuple(re.sub(r"::(cta|func|entry)$", "", word) for word in re.findall(r"[\w:]+", words))
        listed = [_operand(scope, part) for part in split(operands)]
        made = Instruction(Not(guard) if negated else guard, opcode, words, listed, text, scope)
        function.code.append(made)
    else:
        raise PtxError(f"not PTX: {text}")


def _operand(scope: Scope, text: str) -> object:
    if text[0] in "{(":
        return [_operand(scope, part) for part in split(text[1:-1])]
    if text[0] == "[":
        address = _operand(scope, text[1:-1].strip())
        return address if isinstance(address, Address) else Address(address, 0)
    if text[0] == "!":
        return Not(_operand(scope, text[1:].strip()))
    if "|" in text:
        return tuple(_operand(scope, part.strip()) for part in text.split("|"))
    value = number(text)
    if value is not None:
        return value
    if match := _OFFSET.fullmatch(text):
        return Address(_operand(scope, match[1]), int(match[2] + "1") * number(match[3]).value)
    return scope.find(text) or Symbol(text)
