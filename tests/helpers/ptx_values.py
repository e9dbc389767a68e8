"""Values of statements, written briefly."""

from __future__ import annotations

from numba_ptxlink._formats.ptx import Address, Expression, Immediate, Instruction, Name, Vector


def name(text: str) -> Name:
    """Return a name, with its selector after a dot."""
    symbol, _, selector = text.partition(".")
    return Name(symbol, selector)


def imm(text: object) -> Immediate:
    """Return a number."""
    return Immediate(str(text))


def op(opcode: str, *operands: object, predicate: object = None) -> Instruction:
    """Return an instruction; strings are names, and integers are numbers."""
    word, *modifiers = opcode.split(".")
    return Instruction(word, tuple(modifiers), tuple(map(value, operands)), predicate)


def value(operand: object) -> object:
    """Return an operand."""
    if isinstance(operand, str):
        return name(operand)
    return imm(operand) if isinstance(operand, int) else operand


def vec(*elements: object) -> Vector:
    """Return a vector."""
    return Vector(tuple(map(value, elements)))


def at(*elements: object, **more: str) -> Address:
    """Return an address."""
    return Address(tuple(map(value, elements)), **more)


def sum_of(*parts: object) -> Expression:
    """Return an expression; strings that are no words are operators."""
    return Expression(
        tuple(
            value(each) if not isinstance(each, str) or each[0].isalpha() or each[0] in "%$" else each
            for each in parts
        )
    )
