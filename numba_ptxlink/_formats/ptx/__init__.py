"""Parse PTX: the header and items of a module, and the statements of its functions."""

from __future__ import annotations

from numba_ptxlink._formats.ptx_header import Header, read_header

from .lexer import is_dwarf, names, number, rename_symbols, symbols
from .module import Alias, Function, Module, UnparsedItem, has_line_numbers, parse
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
    apply_edits,
    block,
    elements,
    parse_call,
    read,
    with_labels,
    with_scopes,
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
    "Prototype",
    "Register",
    "Scope",
    "Span",
    "Statement",
    "UnparsedItem",
    "Variable",
    "address",
    "apply_edits",
    "block",
    "declaration",
    "elements",
    "has_line_numbers",
    "is_dwarf",
    "names",
    "number",
    "parse",
    "parse_call",
    "read",
    "read_header",
    "rename_symbols",
    "symbols",
    "width",
    "with_labels",
    "with_scopes",
]
