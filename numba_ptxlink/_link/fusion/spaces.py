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

from .scan import NAME, NotReadError

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence

    from .scan import Instruction, Register, Scanned, Scope

_ORDERS = r"(?:\.(?:weak|volatile|relaxed|acquire|release|acq_rel|mmio|cta|cluster|gpu|sys)(?![\w:]))*"
_SPACES = r"(?:global|shared|local|param|const)\b"
_REST = rf"(?![\w.:]*\.{_SPACES})\.[\w.:]+"
_GENERIC = re.compile(rf"\b(ld|st|atom|red)({_ORDERS})({_REST})", re.ASCII)
_BASE = re.compile(r"\[\s*([%\w$]+)\s*(?:\+[^\]]*)?\]", re.ASCII)
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


class _Access(NamedTuple):
    """
    An access to a generic address.

    Args:
        instruction: The access.
        parts: The opcode, what orders it, and its other modifiers.
        base: The register of the address.
    """

    instruction: Instruction
    parts: tuple[str, str, str]
    base: Register

    @property
    def span(self) -> ptx.Span:
        """Where the statement is, after its labels."""
        return ptx.Span(self.instruction.start, self.instruction.end)

    def exists(self, space: str) -> bool:
        """Return whether PTX has this access for the window *space*."""
        opcode, order, rest = self.parts
        if opcode in ("atom", "red"):
            return space == "shared" and "::" not in rest
        return order in ("", ".weak") and bool(_PLAIN.fullmatch(rest)) and (opcode, space) != ("st", "const")

    def converted(self, space: str, temporary: str) -> str:
        """Return the access to an address of *space*, in a block of its own."""
        opcode, order, rest = self.parts
        guard, operands = self.instruction.guard, self.instruction.operands
        address = _BASE.sub(lambda base: base[0].replace(base[1], temporary, 1), operands, count=1)
        return (
            f"{{ .reg .b64 {temporary}; cvta.to.{space}.u64 {temporary}, {self.base.name}; "
            f"{guard}{opcode}{order}.{space}{rest}{address}; }}"
        )


def proven(scanned: Scanned, function: ptx.Function, temporary: str) -> Scanned:
    """
    Return a function with state spaces for the generic accesses that can only reach one.

    Takes time linear in the text. Where there are statements of an unknown form, nothing is changed.

    Args:
        scanned: The function.
        function: What it was before its calls were inlined: its heading is the same.
        temporary: A name of a register that is not in its text.
    """
    if not _GENERIC.search(scanned.text):
        return scanned
    flow = _Flow({parameter.name for parameter in function.params if function.kind == "entry"})
    try:
        flow.read(scanned)
    except NotReadError:
        return scanned
    spaces = flow.spaces()
    edits: dict[ptx.Span, str] = {}
    for access in flow.accesses:
        space = spaces.get(access.base, _UNKNOWN)
        if space == "global":
            opcode, order, _ = access.parts
            place = access.instruction.place + len(opcode) + len(order)
            edits[ptx.Span(place, place)] = ".global"
        elif space and access.exists(space):
            edits[access.span] = access.converted(space, temporary)
    return scanned.edited(edits)


class _Flow:
    """
    Where the addresses in the registers of a function come from.

    Args:
        params: The parameters that hold addresses of global memory.

    Attributes:
        accesses: The accesses to generic addresses.
    """

    def __init__(self, params: Container[str]) -> None:
        self.accesses: list[_Access] = []
        self._params = params
        self._facts: list[tuple[Register, str]] = []
        self._flows: dict[Register, list[Register]] = {}

    def spaces(self) -> dict[Register, str]:
        """Return the state space of the addresses in each register that may hold one, "" if not known."""
        spaces: dict[Register, str] = {}
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

    def read(self, scanned: Scanned) -> None:
        """
        Follow the instructions of a function.

        Raises:
            NotReadError: A statement has an unknown form.
        """
        for instruction, scope in scanned.instructions(wide=True):
            self._instruction(instruction, scope)

    def _instruction(self, instruction: Instruction, scope: Scope) -> None:
        spelled, listed = instruction.opcode, instruction.operands
        opcode, *modifiers = spelled.split(".")
        first, _, others = listed.partition(",")
        first = first.strip()
        if opcode in _ACCESSING and (generic := _GENERIC.fullmatch(spelled)):
            address = _BASE.search(listed)
            base = _address(scope, address[1]) if address else None
            if base:
                self.accesses.append(_Access(instruction, (generic[1], generic[2], generic[3]), base))
        if opcode == "call":
            self._define(NAME.findall(listed.partition(")")[0]), _UNKNOWN, scope)
        elif opcode == "ld" and ".param" in spelled:
            address = _BASE.search(listed)
            passed = address and address[1] in self._params and not scope.declares(address[1])
            self._define(NAME.findall(listed.partition("[")[0]), "global" if passed else _UNKNOWN, scope)
        elif first[:1] == "{":
            self._define(NAME.findall(listed.partition("}")[0]), _UNKNOWN, scope)
        elif "|" in first:
            self._define(NAME.findall(first), _UNKNOWN, scope)
        elif target := _address(scope, first):
            self._derive(target, opcode, modifiers, [operand.strip() for operand in others.split(",")], scope)

    def _derive(
        self, target: Register, opcode: str, modifiers: Sequence[str], operands: list[str], scope: Scope
    ) -> None:
        if opcode == "cvta":
            self._facts.append((target, _space_of(modifiers)))
            return
        sources = _sources(opcode, modifiers, operands)
        if sources is None:
            self._facts.append((target, _UNKNOWN))
            return
        for operand in sources:
            source = _address(scope, operand)
            if source:
                self._flows.setdefault(source, []).append(target)
            elif not _is_number(operand):
                self._facts.append((target, _UNKNOWN))

    def _define(self, names: Iterable[str], space: str, scope: Scope) -> None:
        self._facts += [(register, space) for name in names if (register := _address(scope, name))]


def _address(scope: Scope, name: str) -> Register | None:
    """Return the register *name*, None if it is none that can hold an address."""
    register = scope.find(name)
    return register if register and register.type in ("b64", "u64", "s64") else None


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
