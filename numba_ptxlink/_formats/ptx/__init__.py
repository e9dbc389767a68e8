"""Parse PTX: the header and items of a module, and the statements of its functions."""

from __future__ import annotations

from numba_ptxlink._formats.ptx_header import Header, read_header

from .lexer import find_names, find_symbols, is_dwarf, parse_integer, rename_symbols
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
    format_body,
    parse_call,
    parse_statements,
    split_vector,
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
    "declaration",
    "find_names",
    "find_symbols",
    "format_body",
    "has_line_numbers",
    "is_dwarf",
    "parse",
    "parse_call",
    "parse_integer",
    "parse_statements",
    "read_header",
    "rename_symbols",
    "split_vector",
    "width",
    "with_labels",
    "with_scopes",
]
