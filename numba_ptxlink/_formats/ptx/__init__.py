"""
PTX: tokens, a syntax tree of modules, functions and statements, and a printer.

Each name is imported when it is first asked for: the syntax tree takes 20 ms, and a header needs none of it.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .declarations import (
        Declaration,
        Directive,
        Parameter,
        Pointer,
        Pragma,
        Register,
        Registers,
        Variable,
    )
    from .header import Header, begins_module, read_header
    from .lexer import Token, tokens
    from .module import Alias, File, Function, Item, Module, Section, Unknown, render
    from .module_parser import parse
    from .naming import names, renamed
    from .operands import (
        Address,
        Expression,
        Immediate,
        Name,
        Negated,
        Node,
        Operand,
        Pair,
        Span,
        String,
        Vector,
        Word,
    )
    from .printer import replaced
    from .prototypes import Param, Prototype
    from .statements import (
        Block,
        Call,
        CallPrototype,
        Code,
        Instruction,
        Label,
        Line,
        Location,
        Statement,
        Targets,
        Values,
        block,
        flattened,
    )

__all__ = [
    "Address",
    "Alias",
    "Block",
    "Call",
    "CallPrototype",
    "Code",
    "Declaration",
    "Directive",
    "Expression",
    "File",
    "Function",
    "Header",
    "Immediate",
    "Instruction",
    "Item",
    "Label",
    "Line",
    "Location",
    "Module",
    "Name",
    "Negated",
    "Node",
    "Operand",
    "Pair",
    "Param",
    "Parameter",
    "Pointer",
    "Pragma",
    "Prototype",
    "Register",
    "Registers",
    "Section",
    "Span",
    "Statement",
    "String",
    "Targets",
    "Token",
    "Unknown",
    "Values",
    "Variable",
    "Vector",
    "Word",
    "begins_module",
    "block",
    "flattened",
    "names",
    "parse",
    "read_header",
    "renamed",
    "render",
    "replaced",
    "tokens",
]

# No module may be called like a name, which it would hide.
_HOMES = {
    "declarations": (
        "Declaration",
        "Directive",
        "Parameter",
        "Pointer",
        "Pragma",
        "Register",
        "Registers",
        "Variable",
    ),
    "header": ("Header", "begins_module", "read_header"),
    "lexer": ("Token", "tokens"),
    "module": ("Alias", "File", "Function", "Item", "Module", "Section", "Unknown", "render"),
    "module_parser": ("parse",),
    "naming": ("names", "renamed"),
    "operands": (
        "Address",
        "Expression",
        "Immediate",
        "Name",
        "Negated",
        "Node",
        "Operand",
        "Pair",
        "Span",
        "String",
        "Vector",
        "Word",
    ),
    "printer": ("replaced",),
    "prototypes": ("Param", "Prototype"),
    "statements": (
        "Block",
        "Call",
        "CallPrototype",
        "Code",
        "Instruction",
        "Label",
        "Line",
        "Location",
        "Statement",
        "Targets",
        "Values",
        "block",
        "flattened",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f".{_HOME_OF[name]}", __name__), name)
    return value
