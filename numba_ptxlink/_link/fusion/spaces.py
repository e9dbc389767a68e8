"""
Give generic accesses the state space that they can only reach, where a compiler could not see it before.

A 64-bit register holds numbers, or what depends on addresses of one state space, or what is not known. These
labels form a lattice, from numbers at the bottom by the state spaces to what is not known. All definitions of
a register count, whatever their order and predicates; it has the least label above those of all of them:

- Constants, and what has 32 bits or fewer or is masked by a constant to them, are numbers.
- A parameter of a kernel, or a member of one, is an address of global memory, as NVVM takes it too. A host
  cannot have another one: shared, local and parameter memory exist while a grid runs ("Device Memory Space
  Specifiers" and "Dynamic Parallelism" in the CUDA Programming Guide). If it is a number, that does no harm:
  what is accessed is one address and numbers.
- `cvta` of a state space, and `cvta.to.global`, give an address of that space.
- What is moved, added, multiplied, divided, rounded, chosen or scaled has the least label above those of all
  operands: a quotient of an address, times the divisor, is an address again.
- Everything else is not known: what was loaded with 64 bits, returned, received from other threads or put
  together of parts, which shifts and constant factors of more than 15 bits may do, and the names of
  variables, whose addresses are not generic.

So the sum of a parameter and a loaded word of 64 bits is not known, and an access to it stays generic: either
could be the address. What only branches tell of an address is not followed.
A generic address of global memory is its address there (PTX ISA, "Generic Addressing"), so `.global` is all
that changes. An address in a window is converted by `cvta.to` first, which costs nothing in machine code.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx.declarations import width

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_DIGITS = "0123456789"
_ORDERS = r"(?:\.(?:weak|volatile|relaxed|acquire|release|acq_rel|mmio|cta|cluster|gpu|sys)(?![\w:]))*"
_SPACES = r"(?:global|shared|local|param|const)\b"
_REST = rf"(?![\w.:]*\.{_SPACES})\.[\w.:]+"
_GENERIC = re.compile(rf"\b(ld|st|atom|red)({_ORDERS})({_REST})", re.ASCII)
# As in the code of an outline, which has no comments, strings or blocks.
_GUARD = r"@!?\s*[%\w$]+\s+"
_OPCODE = r"[a-z]\w*(?:\.\w+|::\w+)*"
_LABELS = r"(?:[%\w$]+[ \t]*:(?!:)\s*)*"
_INSTRUCTION = re.compile(rf"({_GUARD})?({_OPCODE})\s+([^;:]*);", re.ASCII)
_BASE = re.compile(r"\[\s*([%\w$]+)\s*(?:\+[^\]]*)?\]", re.ASCII)
_NAME = re.compile(r"[%\w$]+", re.ASCII)
# What every state space has: a vector and a type.
_PLAIN = re.compile(r"(?:\.v[24])?\.[bsuf]\d+", re.ASCII)
# The operands after the result that it depends on; what other opcodes give is not known.
_SOURCES: dict[str, tuple[int, ...]] = {
    **dict.fromkeys(("mov", "neg", "not", "abs", "shr", "cvt"), (0,)),
    **dict.fromkeys(("add", "sub", "mul", "div", "rem", "min", "max", "selp"), (0, 1)),
    **dict.fromkeys(("and", "or", "xor", "shl"), (0, 1)),
    "mad": (0, 1, 2),
}
# Bits that a number may be scaled by: more may make it the upper half of an address.
_LARGEST_SCALE = 15
_ADDRESSED = ("global", "shared", "local", "const")
_UNKNOWN = ""
_ACCESSING = frozenset(("ld", "st", "atom", "red"))

# The number of the block that declares it, and its name.
_Register = tuple[int, str]


class _Access(NamedTuple):
    """An access to a generic address: where its statement is found, and the register of the address."""

    start: int
    match: re.Match[str]
    base: _Register

    @property
    def parts(self) -> tuple[str, str, str]:
        """The opcode, what orders it, and its other modifiers."""
        parts = _GENERIC.fullmatch(self.match[2])
        assert parts  # noqa: S101 - it was one when it was found
        return parts[1], parts[2], parts[3]

    @property
    def span(self) -> ptx.Span:
        """Where the statement is."""
        start = self.match.start(1 if self.match[1] else 2)
        return ptx.Span(self.start + start, self.start + self.match.end(3) + 1)

    def exists(self, space: str) -> bool:
        """Return whether PTX has this access for the window *space*."""
        opcode, order, rest = self.parts
        if opcode in ("atom", "red"):
            return space == "shared" and "::" not in rest
        return order in ("", ".weak") and bool(_PLAIN.fullmatch(rest)) and (opcode, space) != ("st", "const")

    def converted(self, space: str, temporary: str) -> str:
        """Return the access to an address of *space*, in a block of its own."""
        opcode, order, rest = self.parts
        guard, _, operands = self.match.groups("")
        address = _BASE.sub(lambda base: base[0].replace(base[1], temporary, 1), operands, count=1)
        return (
            f"{{ .reg .b64 {temporary}; cvta.to.{space}.u64 {temporary}, {self.base[1]}; "
            f"{guard}{opcode}{order}.{space}{rest} {address}; }}"
        )


def proven(text: str, temporary: str) -> str:
    """
    Return *text* with state spaces for the generic accesses that can only reach one.

    Takes time linear in the text.

    Args:
        text: A function with a body.
        temporary: A name of a register that is not in the text.

    Raises:
        LinkError: The body is malformed.
    """
    if not _GENERIC.search(text):
        return text
    (function,) = ptx.parse(text).functions
    flow = _Flow(function)
    spaces = flow.spaces()
    edits: dict[ptx.Span, str] = {}
    for access in flow.accesses:
        space = spaces.get(access.base, _UNKNOWN)
        if space == "global":
            opcode, order, _ = access.parts
            place = access.start + access.match.start(2) + len(opcode) + len(order)
            edits[ptx.Span(place, place)] = ".global"
        elif space and access.exists(space):
            edits[access.span] = access.converted(space, temporary)
    return ptx.replaced(text, edits)


class _Flow:
    """
    Where the addresses in the registers of *function* come from.

    Attributes:
        accesses: The accesses to generic addresses.
    """

    def __init__(self, function: ptx.Function) -> None:
        self.accesses: list[_Access] = []
        self._function = function
        self._params = {parameter.name for parameter in function.params if function.kind == "entry"}
        self._facts: list[tuple[_Register, str]] = []
        self._flows: dict[_Register, list[_Register]] = {}
        self._blocks = 0
        outline = function.outline
        self._relevant = _relevant(outline)
        self._walk(outline, None)

    def spaces(self) -> dict[_Register, str]:
        """Return the state space of the addresses in each register that may hold one, "" if not known."""
        spaces: dict[_Register, str] = {}
        facts = self._facts.copy()
        while facts:
            register, space = facts.pop()
            space = space if space in _ADDRESSED else _UNKNOWN
            known = spaces.get(register)
            if known not in (space, _UNKNOWN):
                space = space if known is None else _UNKNOWN
                spaces[register] = space
                facts += [(target, space) for target in self._flows.get(register, ())]
        return spaces

    def _walk(self, statements: Iterable[ptx.Statement], outer: _Scope | None) -> None:
        scope = _Scope(self._blocks, outer)
        self._blocks += 1
        for statement in statements:
            if isinstance(statement, ptx.Code):
                for match in self._relevant.finditer(f";{statement.text}"):
                    self._instruction(match, statement.start - 1, scope)
            elif isinstance(statement, ptx.Block):
                self._walk(statement.statements, scope)
            elif isinstance(statement, ptx.Registers):
                scope.declare(statement)
            elif isinstance(statement, ptx.Declaration):
                scope.hide(variable.name for variable in statement.variables)
            elif isinstance(statement, ptx.Call):
                self._define(map(str, statement.results), _UNKNOWN, scope)
            elif isinstance(statement, ptx.Instruction):
                self._other(statement, scope)

    def _other(self, statement: ptx.Instruction, scope: _Scope) -> None:
        """Follow an instruction that is not in the code of the outline."""
        if statement.opcode == "ld" and any(word.startswith("param") for word in statement.modifiers):
            address = statement.operands[-1]
            base = address.base if isinstance(address, ptx.Address) else None
            passed = base and base.name in self._params and not scope.hides(base.name)
            self._define(_NAME.findall(str(statement.operands[0])), "global" if passed else _UNKNOWN, scope)
            return
        spelled = self._function.text[statement.start : statement.end]
        # With a comment in it, its places in the text are not known.
        start = -1 if "/" in spelled else statement.start
        match = _INSTRUCTION.fullmatch(spelled if start >= 0 else str(statement))
        if match:
            self._instruction(match, start, scope)

    def _instruction(self, match: re.Match[str], start: int, scope: _Scope) -> None:
        _, spelled, listed = match.groups()
        opcode, *modifiers = spelled.split(".")
        first, _, others = listed.partition(",")
        if opcode in _ACCESSING and start >= 0 and _GENERIC.fullmatch(spelled):
            address = _BASE.search(listed)
            base = scope.register(address[1]) if address else None
            if base:
                self.accesses.append(_Access(start, match, base))
        if first[:1] == "{":
            self._define(_NAME.findall(listed.partition("}")[0]), _UNKNOWN, scope)
        elif "|" in first:
            self._define(_NAME.findall(first), _UNKNOWN, scope)
        elif target := scope.register(first.rstrip()):
            self._derive(target, opcode, modifiers, [operand.strip() for operand in others.split(",")], scope)

    def _derive(
        self, target: _Register, opcode: str, modifiers: Sequence[str], operands: list[str], scope: _Scope
    ) -> None:
        if opcode == "cvta":
            self._facts.append((target, _space_of(modifiers)))
            return
        sources = _sources(opcode, modifiers, operands)
        if sources is None:
            self._facts.append((target, _UNKNOWN))
            return
        for operand in sources:
            source = scope.register(operand)
            if source:
                self._flows.setdefault(source, []).append(target)
            elif not _is_number(operand):
                self._facts.append((target, _UNKNOWN))

    def _define(self, names: Iterable[str], space: str, scope: _Scope) -> None:
        self._facts += [(register, space) for register in map(scope.register, names) if register]


def _relevant(outline: Iterable[ptx.Statement]) -> re.Pattern[str]:
    """Return what finds, after a semicolon, the accesses and the instructions that may write an address."""
    names = {
        register.name
        for statement in ptx.flattened(outline)
        if isinstance(statement, ptx.Registers) and _holds_addresses(statement)
        for register in statement.registers
    }
    # Few begin in different ways: those of one function are mostly numbered.
    begins = "|".join(sorted({re.escape(re.split(r"\d", name, maxsplit=1)[0]) for name in names}))
    first = rf"(?:{begins}|\{{|[^,;:\[{{]*\|)"
    return re.compile(
        rf";\s*{_LABELS}({_GUARD})?((?:ld|st|atom|red){_ORDERS}{_REST}(?=\s)|{_OPCODE}(?=\s+{first}))\s+([^;:]*)(?=;)",
        re.ASCII,
    )


def _holds_addresses(statement: ptx.Registers) -> bool:
    return not statement.vector and width(statement.type) == 64 and statement.type != "f64"


class _Scope:
    """The names that a block declares, *number* of which no other block of the function has."""

    def __init__(self, number: int, outer: _Scope | None) -> None:
        self._number = number
        self._outer = outer
        # Whether they hold addresses; those with a count have it.
        self._single: dict[str, bool] = {}
        self._counted: dict[str, tuple[int, bool]] = {}
        self._registers: dict[str, _Register | None] = {}

    def declare(self, statement: ptx.Registers) -> None:
        """Add registers."""
        self._registers.clear()
        holds = _holds_addresses(statement)
        for register in statement.registers:
            if register.count is None:
                self._single[register.name] = holds
            else:
                self._counted[register.name] = (register.count, holds)

    def hide(self, names: Iterable[str]) -> None:
        """Add names that are no registers."""
        self._registers.clear()
        self._single.update(dict.fromkeys(names, False))

    def hides(self, name: str) -> bool:
        """Return whether the block, or one around it, declares *name*."""
        return name in self._single or (self._outer is not None and self._outer.hides(name))

    def register(self, name: str) -> _Register | None:
        """Return the register *name*, None if it is none that can hold an address."""
        try:
            return self._registers[name]
        except KeyError:
            register = self._registers[name] = self._declared(name)
            return register

    def _declared(self, name: str) -> _Register | None:
        prefix = name.rstrip(_DIGITS)
        number = name[len(prefix) :]
        holds = self._single.get(name)
        if holds is None and number:
            count, counted = self._counted.get(prefix, (0, False))
            holds = counted if len(number) < 9 and int(number) < count else None
        if holds is None:
            return self._outer.register(name) if self._outer else None
        return (self._number, name) if holds else None


def _space_of(modifiers: Sequence[str]) -> str:
    """Return the state space of the address that a `cvta` gives."""
    to = modifiers[:1] == ["to"]
    space = "".join(modifiers[to : to + 1])
    # An address of a window is not generic.
    return space.removesuffix("::cta") if space == "global" or not to else _UNKNOWN


def _sources(opcode: str, modifiers: Sequence[str], operands: list[str]) -> list[str] | None:
    """Return the operands that the label of the result depends on, None for an unknown result."""
    if _is_narrow(opcode, modifiers, operands):
        return []
    places = _SOURCES.get(opcode)
    if places is None or len(operands) <= max(places) or _joins(opcode, modifiers, operands):
        return None
    if opcode in ("mul", "mad") and "wide" in modifiers:
        return operands[2:]
    return [operands[place] for place in places]


def _is_narrow(opcode: str, modifiers: Sequence[str], operands: Sequence[str]) -> bool:
    """Return whether the result is made of 32 bits or fewer."""
    if opcode in ("ld", "cvt"):
        return any(0 < width(kind) < 64 for kind in modifiers)
    return opcode == "and" and any(0 <= value < 1 << 32 for value in map(_constant, operands))


def _joins(opcode: str, modifiers: Sequence[str], operands: Sequence[str]) -> bool:
    """Return whether an instruction may put an address together of parts, or move one to its place."""
    if opcode == "shl":
        return not 0 <= _constant(operands[1]) <= _LARGEST_SCALE
    if opcode in ("or", "xor"):
        return not any(map(_is_number, operands))
    return opcode in ("mul", "mad") and "hi" not in modifiers and not all(map(_scales, operands[:2]))


def _scales(factor: str) -> bool:
    """Return whether *factor* is no constant that moves bits of the other one into the upper half."""
    return not _is_number(factor) or abs(_constant(factor)) <= 1 << _LARGEST_SCALE


def _constant(operand: str) -> int:
    """Return the integer *operand*, one below all of 64 bits if it is another operand."""
    try:
        return int(operand.removesuffix("U"), 0)
    except ValueError:
        return -1 << 64


def _is_number(operand: str) -> bool:
    return operand.removeprefix("-")[:1].isdigit() and operand.replace("-", "").isalnum()
