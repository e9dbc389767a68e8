"""Which names C, C++ and CUDA C++ leave to a function."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Collection

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Reserved too, but the way to give a function the name that C++ mangles a declaration to.
_MANGLED = re.compile(r"_Z\w+", re.ASCII)

# ISO/IEC 9899:2011 6.4.1, ISO/IEC 14882:2020 lex.key and lex.digraph, CUDA C++ Programming Guide
# "C++ Language Extensions".
_RESERVED = frozenset(
    [
        "_Alignas",
        "_Alignof",
        "_Atomic",
        "_Bool",
        "_Complex",
        "_Generic",
        "_Imaginary",
        "_Noreturn",
        "_Static_assert",
        "_Thread_local",
        "alignas",
        "alignof",
        "and",
        "and_eq",
        "asm",
        "atomic_cancel",
        "atomic_commit",
        "atomic_noexcept",
        "auto",
        "bitand",
        "bitor",
        "bool",
        "break",
        "case",
        "catch",
        "char",
        "char16_t",
        "char32_t",
        "char8_t",
        "class",
        "co_await",
        "co_return",
        "co_yield",
        "compl",
        "concept",
        "const",
        "const_cast",
        "consteval",
        "constexpr",
        "constinit",
        "continue",
        "decltype",
        "default",
        "delete",
        "do",
        "double",
        "dynamic_cast",
        "else",
        "enum",
        "explicit",
        "export",
        "extern",
        "false",
        "float",
        "for",
        "friend",
        "goto",
        "if",
        "inline",
        "int",
        "long",
        "mutable",
        "namespace",
        "new",
        "noexcept",
        "not",
        "not_eq",
        "nullptr",
        "operator",
        "or",
        "or_eq",
        "private",
        "protected",
        "public",
        "reflexpr",
        "register",
        "reinterpret_cast",
        "requires",
        "restrict",
        "return",
        "short",
        "signed",
        "sizeof",
        "static",
        "static_assert",
        "static_cast",
        "struct",
        "switch",
        "synchronized",
        "template",
        "this",
        "thread_local",
        "throw",
        "true",
        "try",
        "typedef",
        "typeid",
        "typename",
        "typeof",
        "union",
        "unsigned",
        "using",
        "virtual",
        "void",
        "volatile",
        "wchar_t",
        "while",
        "xor",
        "xor_eq",
        "blockDim",
        "blockIdx",
        "gridDim",
        "threadIdx",
        "warpSize",
        "main",
    ]
)


def check(name: object, what: str, taken: Collection[str] = ()) -> str:
    """
    Return *name* if C, C++ and CUDA C++ all accept it as an external function's name.

    Args:
        name: The name asked for.
        what: What carries the name, for the message: "function saxpy".
        taken: Names that others in the same export already have.

    Raises:
        AbiError: They do not, or it is taken. Proposes a name.
    """
    if not isinstance(name, str):
        raise AbiError(f"The C name of {what} must be a str, not {type(name).__name__}: {name!r}.")
    if not _IDENTIFIER.fullmatch(name):
        problem = "is not a C identifier"
    elif name in _RESERVED:
        problem = "is a reserved word of C, C++ or CUDA C++"
    elif (name.startswith("__") or re.match(r"_[A-Z]", name)) and not _MANGLED.fullmatch(name):
        problem = "is reserved for the compiler: it starts with two underscores or one and a capital"
    elif name in taken:
        problem = "is taken by another function of this export"
    else:
        return name
    raise AbiError(f"{name!r}, the C name of {what}, {problem}; use {propose(name, taken)!r}, for example.")


def is_mangled(name: object) -> bool:
    """Return whether *name* is a mangled C++ name, as callers of `numba.cuda.compile` ask for."""
    return isinstance(name, str) and bool(re.fullmatch(r"_Z[\dN]\w+", name, re.ASCII))


def is_free(name: str) -> bool:
    """Return whether *name* can name a parameter or member in C, C++ and CUDA C++."""
    return bool(_IDENTIFIER.fullmatch(name)) and name not in _RESERVED


def legal(name: str, taken: Collection[str] = ()) -> str:
    """Return *name*, or the name closest to it that is legal and free, for a parameter, member or struct."""
    return name if is_free(name) and name not in taken else propose(name, taken)


def propose(name: str, taken: Collection[str] = ()) -> str:
    """Return a legal, free name as close to *name* as can be."""
    base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "unnamed"
    if base[0].isdigit():
        base = f"f{base}"
    candidate = f"{base}_" if base in _RESERVED else base
    number = 2
    while candidate in taken or candidate in _RESERVED:
        candidate = f"{base}_{number}"
        number += 1
    return candidate
