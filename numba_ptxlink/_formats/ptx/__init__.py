"""PTX as values: the header and items of a module, and the statements of its functions."""

from __future__ import annotations

from numba_ptxlink._formats.ptx_header import Header, read_header

from .lexer import is_dwarf, names, number, symbols, with_words
from .module import Alias, Function, Module, Part, has_line_numbers, parse
from .statements import (
    CLOSE,
    OPEN,
    Call,
    Directive,
    Instruction,
    Label,
    Register,
    Scope,
    Statement,
    address,
    block,
    called,
    edited,
    elements,
    read,
    scoped,
    with_labels,
)
from .variables import Declaration, Param, Prototype, Span, Variable, declaration, width

__all__ = [
    "CLOSE",
    "OPEN",
    "Alias",
    "Call",
    "Declaration",
    "Directive",
    "Function",
    "Header",
    "Instruction",
    "Label",
    "Module",
    "Param",
    "Part",
    "Prototype",
    "Register",
    "Scope",
    "Span",
    "Statement",
    "Variable",
    "address",
    "block",
    "called",
    "declaration",
    "edited",
    "elements",
    "has_line_numbers",
    "is_dwarf",
    "names",
    "number",
    "parse",
    "read",
    "read_header",
    "scoped",
    "symbols",
    "width",
    "with_labels",
    "with_words",
]
