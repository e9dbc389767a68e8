"""
Make generic accesses global where their addresses can only be such, and a compiler could not see it before.

Each register has a number: how many bits of its value are foreign, which means that they were loaded,
returned, received from other threads or made of an address that is not known to be of global memory. All
definitions of a register count, whatever their order and predicates; it has the largest of their numbers.

- No bit is foreign of constants, special registers, addresses that `cvta` takes for global, what a kernel
  gets as a parameter or as a member of one, and whatever is computed of these alone. A host can have no
  address of other memory: shared, local and parameter memory exist while a grid runs ("Device Memory Space
  Specifiers" and "Dynamic Parallelism" in the CUDA Programming Guide).
- 32 bits are of a foreign value in a register of that width, as of any floating-point number, and more as far
  as such are added up, or scaled by constants. A mask leaves as many as it has.
- All are of everything else, and of what has more than `_MOST`, or grows in a loop: it could be an address of
  another window, put together of parts.

So an address with few foreign bits is one of global memory with a number added, and the access is global: its
generic address is the same there (PTX ISA, "Generic Addressing"). What only predicates and branches tell of
an address is not followed. Nothing becomes shared or local: a sum may reach another window or block.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

_SPACES = frozenset(("global", "shared", "local", "param", "const"))
# What orders an access stands before its state space.
_ORDERS = frozenset(
    ("weak", "volatile", "relaxed", "acquire", "release", "acq_rel", "mmio", "cta", "cluster", "gpu", "sys")
)
_ACCESSING = ("ld", "st", "atom", "red")
# Opcodes whose result depends on their operands alone; what others give is foreign.
_PURE_WORDS = (
    "abs add and bfe bfi bfind brev clz cnot copysign cos cvt div ex2 fma lg2 lop3 mad mad24 max min mov "
    "mul mul24 neg not or popc prmt rcp rem rsqrt sad selp set setp shf shl shr sin slct sqrt sub tanh xor"
)
_PURE = frozenset(_PURE_WORDS.split())
# Types of registers that count as foreign: floating point and predicates.
_NOT_FOLLOWED = ("f", "p")
_DIGITS = "0123456789"
_ALL, _NARROW = 64, 32
# Fewer bits than an address of a window has.
_MOST = 40


class _Value(NamedTuple):
    """
    An operand that is no register.

    Args:
        foreign: How many bits of it are foreign.
        number: The whole number that it is, None for another value.
    """

    foreign: int
    number: int | None = None


class _Definition(NamedTuple):
    """An instruction that writes one register."""

    target: ptx.Register
    opcode: str
    modifiers: Sequence[str]
    operands: Sequence[ptx.Register | _Value]

    def foreign(self, known: dict[ptx.Register, int]) -> int:
        """Return how many bits of what it writes are foreign, -1 while that is not known of an operand."""
        bits = [
            known.get(operand, -1) if isinstance(operand, ptx.Register) else operand.foreign
            for operand in self.operands
        ]
        if min(bits, default=0) < 0:
            return -1
        if self.opcode == "cvta":
            return 0 if self.modifiers[:-1] in (["global"], ["to", "global"]) else _ALL
        if self.opcode in _PURE and not any(bits):
            return 0
        if ptx.width(self.target.type) < _ALL:
            return _NARROW
        rule = _RULES.get(self.opcode)
        if rule is None or not {"hi", "cc", "f32", "f64", "f16"}.isdisjoint(self.modifiers):
            return _ALL
        numbers = [getattr(operand, "number", None) for operand in self.operands]
        foreign = rule(bits, numbers)
        return foreign if foreign <= _MOST else _ALL


def proven(body: Sequence[ptx.Statement], params: Collection[str]) -> Sequence[ptx.Statement]:
    """
    Return *body* with global accesses in place of generic ones that can only be such.

    Takes time linear in the text.

    Args:
        body: The statements of a function.
        params: The parameters of a kernel.
    """
    generic = {place: _base(statement) for place, statement in enumerate(body) if _is_generic(statement)}
    if not generic:
        return body
    skipped = _not_followed(body)
    bases: dict[int, ptx.Register] = {}
    writers: dict[ptx.Register, list[tuple[ptx.Instruction, ptx.Scope]]] = {}
    for place, statement, scope in ptx.scoped(body):
        if not isinstance(statement, ptx.Instruction) or not statement.operands:
            continue
        first = statement.operands[0]
        names = [first] if first[1:].isalnum() else ptx.names(first) if first[:1] != "[" else ()
        for name in names:
            if name.rstrip(_DIGITS) not in skipped and (register := scope.find(name)):
                writers.setdefault(register, []).append((statement, scope))
        if place in generic:
            base = scope.find(generic[place])
            if base and ptx.width(base.type) == _ALL:
                bases[place] = base
    known = _settled(_definitions(bases.values(), writers, params))
    proofs = [place for place, base in bases.items() if known.get(base, _ALL) <= _MOST]
    return ptx.edited(body, {place: [_in_global(body[place])] for place in proofs})


def _not_followed(body: Iterable[ptx.Statement]) -> set[str]:
    """Return the names, without numbers, of registers that count as foreign wherever they are."""
    return {
        variable.name.rstrip(_DIGITS)
        for statement in body
        if isinstance(statement, ptx.Declaration)
        for variable in statement.variables
        if variable.space == "reg" and variable.type[0] in _NOT_FOLLOWED
    }


def _base(access: ptx.Statement) -> str:
    """Return what holds the address of *access*."""
    assert isinstance(access, ptx.Instruction)  # noqa: S101 - it is one
    base, _ = ptx.address(access.operands[access.opcode in ("ld", "atom")]) or ("", 0)
    return base


def _is_generic(statement: ptx.Statement) -> bool:
    return (
        isinstance(statement, ptx.Instruction)
        and statement.word.startswith(_ACCESSING)
        and statement.opcode in _ACCESSING
        and len(statement.operands) > 1
        and _SPACES.isdisjoint(word.partition("::")[0] for word in statement.modifiers)
    )


def _in_global(access: ptx.Statement) -> ptx.Statement:
    assert isinstance(access, ptx.Instruction)  # noqa: S101 - it is an access
    opcode, *modifiers = access.word.split(".")
    orders = sum(word in _ORDERS for word in modifiers)
    return access._replace(word=".".join((opcode, *modifiers[:orders], "global", *modifiers[orders:])))


def _settled(definitions: Sequence[_Definition]) -> dict[ptx.Register, int]:
    """Return how many bits of each register are foreign."""
    known: dict[ptx.Register, int] = {}
    readers: dict[ptx.Register, list[_Definition]] = {}
    for definition in definitions:
        for operand in definition.operands:
            if isinstance(operand, ptx.Register):
                readers.setdefault(operand, []).append(definition)
    fresh = list(reversed(definitions))
    while fresh:
        definition = fresh.pop()
        foreign = definition.foreign(known)
        if foreign > known.get(definition.target, -1):
            known[definition.target] = foreign
            fresh += readers.get(definition.target, ())
    return known


def _definitions(
    bases: Iterable[ptx.Register],
    writers: Mapping[ptx.Register, Sequence[tuple[ptx.Instruction, ptx.Scope]]],
    params: Collection[str],
) -> list[_Definition]:
    """Return what writes *bases*, and all that it depends on."""
    definitions: list[_Definition] = []
    pending, seen = list(bases), set(bases)
    while pending:
        register = pending.pop()
        if register not in writers:
            foreign = min(_ALL, max(_NARROW, ptx.width(register.type)))
            definitions.append(_Definition(register, "mov", (), (_Value(foreign),)))
            continue
        for instruction, scope in writers[register]:
            definition = _definition(register, instruction, scope, params)
            definitions.append(definition)
            fresh = {each for each in definition.operands if isinstance(each, ptx.Register)} - seen
            seen |= fresh
            pending += fresh
    return definitions


def _definition(
    target: ptx.Register, instruction: ptx.Instruction, scope: ptx.Scope, params: Collection[str]
) -> _Definition:
    opcode, *modifiers = instruction.word.split(".")
    first, *others = instruction.operands
    if opcode == "ld":
        address = ptx.address(others[0]) if others else None
        if address and "param" in modifiers and address[0] in params and not scope.find(address[0]):
            return _Definition(target, "mov", (), (_Value(0),))
        foreign = _NARROW if ptx.width(modifiers[-1]) < _ALL else _ALL
        return _Definition(target, "mov", (), (_Value(foreign),))
    if first != target.name:
        return _Definition(target, "mov", (), (_Value(_ALL),))
    sources = others[:2] if opcode == "selp" else others
    return _Definition(target, opcode, modifiers, [_operand(each, scope) for each in sources])


def _operand(spelled: str, scope: ptx.Scope) -> ptx.Register | _Value:
    register = scope.find(spelled.removeprefix("!"))
    if register and register.type:
        return register
    digits = spelled.removeprefix("-")
    if not digits[:1].isdigit():
        # A special register, or the address of a variable in its state space.
        return _Value(0 if spelled[:1] == "%" else _ALL)
    try:
        return _Value(0, int(spelled.removesuffix("U"), 0))
    except ValueError:
        return _Value(0 if digits.replace(".", "").isalnum() else _ALL)


_Numbers = list[int | None]


def _largest(bits: list[int], _: _Numbers) -> int:
    return max(bits)


def _sum(bits: list[int], _: _Numbers) -> int:
    return max(bits) + all(bits)


def _masked(bits: list[int], numbers: _Numbers) -> int:
    masks = [number.bit_length() for number in numbers if number is not None and number >= 0]
    return min(masks, default=max(bits))


def _shifted(bits: list[int], numbers: _Numbers) -> int:
    count = numbers[-1]
    return _ALL if count is None or count < 0 else bits[0] + count


def _product(bits: list[int], numbers: _Numbers) -> int:
    factors = [abs(number).bit_length() for number in numbers[:2] if number is not None]
    product = max(bits[:2]) and max(bits[:2]) + (factors[0] if factors else _ALL)
    return _sum([product, *bits[2:]], numbers) if bits[2:] else product


_RULES: dict[str, Callable[[list[int], _Numbers], int]] = {
    **dict.fromkeys(("mov", "selp", "cvt", "min", "max", "neg", "or", "xor"), _largest),
    **dict.fromkeys(("add", "sub"), _sum),
    **dict.fromkeys(("mul", "mad"), _product),
    "and": _masked,
    "shl": _shifted,
}
