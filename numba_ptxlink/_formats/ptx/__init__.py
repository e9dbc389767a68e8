"""PTX as values: the header and items of a module, and the statements of its functions."""

from __future__ import annotations

from .header import Header, begins_module, read_header
from .lexer import MalformedError, Token, names, tokens, with_words
from .module import Alias, Function, Item, Module, Part, parse
from .prototypes import Param, Prototype
from .statements import (
    CLOSE,
    OPEN,
    Brace,
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
    references,
    scoped,
    with_labels,
)
from .variables import Declaration, Span, Variable, width

__all__ = [
    "CLOSE",
    "OPEN",
    "Alias",
    "Brace",
    "Call",
    "Declaration",
    "Directive",
    "Function",
    "Header",
    "Instruction",
    "Item",
    "Label",
    "MalformedError",
    "Module",
    "Param",
    "Part",
    "Prototype",
    "Register",
    "Scope",
    "Span",
    "Statement",
    "Token",
    "Variable",
    "address",
    "begins_module",
    "block",
    "called",
    "edited",
    "elements",
    "names",
    "parse",
    "read",
    "read_header",
    "references",
    "scoped",
    "tokens",
    "width",
    "with_labels",
    "with_words",
]
