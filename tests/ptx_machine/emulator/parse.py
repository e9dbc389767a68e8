"""
Read PTX into functions of flat code, with every name resolved.

This is no part of the package on purpose: an oracle must not share a fault with what it checks.
"""

from __future__ import annotations

import re
from collections import ChainMap
from dataclasses import dataclass, field
from functools import lru_cache


class PtxError(Exception):
    """PTX that is wrong, executes a forbidden operation, or has an instruction that the machine lacks."""


@dataclass(frozen=True)
class Register:
    """A register of a function, by its index, with its type such as "b32"."""

    index: int
    type: str


@dataclass(frozen=True)
class Number:
    """An immediate, as an integer; of a floating-point literal the bits."""

    value: int


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


@dataclass(eq=False)
class Variable:
    """A variable or parameter; its address is in a state space, or an offset in the frame of a function."""

    name: str
    space: str
    type: str
    alignment: int
    size: int
    linkage: str = ""
    values: tuple[str, ...] = ()
    address: int = -1


@dataclass
class Instruction:
    """An instruction with its guard, mnemonic, operands and source text."""

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
    """A function: its declarations, and its code if it has a body."""

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
        """Return the symbol *name* in this scope."""
        name = self.aliases.get(name, name)
        return self.functions.get(name) or self.variables.get(name)


class Scope:
    """The names and labels of a block; an inner one sees its labels, and the names that come before."""

    def __init__(self, function: Function, outer: Scope | None = None) -> None:
        self.function, self.outer = function, outer
        self.names: dict[str, object] = dict(outer.names) if outer else {}
        self.labels: ChainMap[str, int] = outer.labels.new_child() if outer else ChainMap()


_NOISE = re.compile(r'("[^"]*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
# Each ends after its operands, wherever the line does.
_SKIPPED = re.compile(
    r"\.loc(?:\s+\w+){3}(?:\s*,\s*function_name\s+[\w$]+(?:\s*\+\s*\w+)?\s*,\s*inlined_at(?:\s+\w+){3})?"
    r'|\.file\s+\w+\s*"[^"]*"(?:\s*,\s*\w+)*|\.version\s+\d+\.\d+|\.target\s+\w+(?:\s*,\s*\w+)*'
    r"|\.address_size\s+\w+|\.section\b[^{]*\{[^}]*\}|[\s;]+"
)
_STATEMENT = re.compile(r'((?:[^;"]|"[^"]*")*);')
_LABEL = re.compile(r"([\w$%]+)\s*:(?!:)")
_HEADING = re.compile(
    r"(?:\.(visible|extern|weak)\s*)?(?:\.attribute\s*\(.*?\)\)?\s*)?\.(entry|func)\s*(?:\(([^()]*)\)\s*)?"
    r"([\w$%]+)\s*(?:\(([^()]*)\))?[^;{]*([;{])"
)
_VARIABLE = re.compile(
    r"(?:\.(visible|extern|weak|common)\s*)?\.(global|const|shared|local|param)\s*(?:\.attribute\s*\(.*?\)\s*)?"
    r"(?:\.align\s+(\w+)\s*)?(?:\.v([24])\s*)?\.([a-z]+\d+)\s*"
    r"(?:\.ptr\s*(?:\.(?:global|const|shared|local)\s*)?(?:\.align\s+\d+\s*)?)?"
    r"([\w$%]+)\s*((?:\[[^\]]*\]\s*)*)(?:=(.*))?",
    re.DOTALL,
)
_REGISTERS = re.compile(r"\.reg\s*\.(\w+)\s*(.*)", re.DOTALL)
_INSTRUCTION = re.compile(r"(?:@\s*(!?)\s*([\w$%]+)\s+)?([a-z]\w*)((?:\s*\.[\w:]+)*)\s*(.*)", re.DOTALL)
_FLOAT = re.compile(r"0[fFdD]([0-9a-fA-F]+)")
_INTEGER = re.compile(r"(-?)\s*(?:(0[0-7]+)|(0[xX][0-9a-fA-F]+|0[bB][01]+|[0-9]+))U?")
_OFFSET = re.compile(r"([\w$%]+)\s*([+-])\s*(-?\s*\w+)")
_DIRECTIVES = (".pragma", ".max", ".min", ".req", ".noreturn", ".callprototype")


@lru_cache
def width(kind: str) -> int:
    """Return how many bits a value of a type has, 1 for a predicate."""
    return 1 if kind == "pred" else int(kind.lstrip("bfsu"))


def split(text: str) -> list[str]:
    """Split a list at its commas, but for those in brackets."""
    parts = re.findall(r"(?:\{[^}]*\}|\([^)]*\)|\[[^\]]*\]|[^,{(\[])+", text)
    return [part.strip() for part in parts if part.strip()]


@lru_cache(4096)
def number(text: str) -> Number | None:
    """Return the immediate that *text* is, None if it is none."""
    if match := _FLOAT.fullmatch(text):
        return Number(int(match[1], 16))
    if match := _INTEGER.fullmatch(text):
        sign, octal, other = match.groups()
        return Number(int(f"{sign}1") * (int(octal, 8) if octal else int(other, 0)))
    return None


@lru_cache(1 << 14)
def _split_statement(text: str) -> tuple[str, str, str, tuple[str, ...], list[str]]:
    """Return the parts of an instruction: "!" of its guard, the predicate, opcode, words and operands."""
    match = _INSTRUCTION.fullmatch(text)
    if not match:
        raise PtxError(f"not PTX: {text}")
    negated, predicate, opcode, words, operands = match.groups()
    words = tuple(re.sub(r"::(cta|func|entry)$", "", word) for word in re.findall(r"[\w:]+", words))
    return negated, predicate, opcode, words, split(operands)


def parse(text: str) -> Module:
    """Return the module that *text* is."""
    text = _NOISE.sub(lambda match: match[1] or " ", text)
    module, at = Module(), 0
    while at < len(text):
        if match := _SKIPPED.match(text, at):
            at = match.end()
        elif match := _HEADING.match(text, at):
            linkage, kind, results, name, params, end = match.groups()
            declared = [[_variable(text) for text in split(part or "")] for part in (results, params)]
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
    if not match:
        raise PtxError(f"not a variable: {statement}")
    linkage, space, alignment, count, kind, name, extents, initial = match.groups()
    size = element = width(kind) // 8 * int(count or 1)
    values = tuple(value for value in re.split(r"[{},\s]+", initial or "") if value)
    for extent in re.findall(r"\[\s*(\w*)\s*\]", extents):
        size *= number(extent).value if extent else len(values)
    aligned = number(alignment).value if alignment else element
    return Variable(name, space, kind, aligned, size, linkage or "", values)


def _body(function: Function, text: str, at: int) -> int:
    """Read the body of *function*, which begins at *at*; return the position after it."""
    function.code = []
    function.frame = [*function.results, *function.params]
    scope = outermost = Scope(function)
    scope.names.update({variable.name: variable for variable in function.frame})
    while text[at] != "}" or scope is not outermost:
        if text[at] == "{":
            scope, at = Scope(function, scope), at + 1
        elif text[at] == "}":
            scope, at = scope.outer, at + 1
        elif match := _SKIPPED.match(text, at):
            at = match.end()
        elif match := _LABEL.match(text, at):
            at = match.end()
            scope.labels[match[1]] = len(function.code)
        elif match := _STATEMENT.match(text, at):
            at = match.end()
            _statement(scope, match[1])
        else:
            raise PtxError(f"not PTX: {text[at : at + 60]!r}")
    for instruction in function.code:
        if instruction.opcode == "bra":
            (label,) = instruction.operands
            if label.name not in instruction.scope.labels:
                raise PtxError(f"no label {label.name}")
            instruction.operands = [instruction.scope.labels[label.name]]
    for variable in function.frame:
        # Some bytes after each belong to none, so that an access that goes beyond is seen.
        variable.address = -(-function.size // variable.alignment) * variable.alignment
        function.size = -(-(variable.address + variable.size + 16) // 16) * 16
    return at + 1


def _statement(scope: Scope, text: str) -> None:
    function = scope.function
    if text.startswith(".reg"):
        match = _REGISTERS.fullmatch(text)
        for name in split(match[2]):
            stem, _, count = name.rstrip("> ").partition("<")
            numbered = range(number(count.strip()).value) if count else ()
            for register_name in [f"{stem.strip()}{index}" for index in numbered] if count else [name]:
                scope.names[register_name] = Register(len(function.registers), match[1])
                function.registers.append(match[1])
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
    else:
        negated, predicate, opcode, words, operands = _split_statement(text)
        guard = scope.names.get(predicate)
        if predicate and not isinstance(guard, Register):
            raise PtxError(f"no predicate {predicate}: {text}")
        parsed_operands = [_operand(scope, part) for part in operands]
        function.code.append(
            Instruction(Not(guard) if negated else guard, opcode, words, parsed_operands, text, scope)
        )


def _operand(scope: Scope, text: str) -> object:
    if text in scope.names:
        return scope.names[text]
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
        return Address(_operand(scope, match[1]), int(f"{match[2]}1") * number(match[3]).value)
    return Symbol(text)
