"""
Check names against what C, C++ and CUDA C++ reserve and declare, and propose legal ones.

The words of the languages are listed here, after their standards. What CUDA's compilers, their headers and
the C library take beyond them is in `compiler_names`, which is generated.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from numba_ptxlink.errors import AbiError

from . import compiler_names
from .spelling import spell

if TYPE_CHECKING:
    from collections.abc import Collection

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Also reserved, but allowed: it gives a function the mangled name of a C++ declaration.
_MANGLED = re.compile(r"_Z\w+", re.ASCII)
_OWN = re.compile("numba_ptxlink", re.IGNORECASE)
# PTX has no symbol "_", and WARP_SZ is a constant of it. The others NVVM gives to parameters and
# results, which a call among them reaches instead; ptxas crashes at a function that is named like its result.
_IN_PTX = re.compile(r"_|WARP_SZ|temp_param_reg|param\d+|(func_)?retval\d+", re.ASCII)
_PRIVATE = re.compile(r"__|_[A-Z]")

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
        "typeof_unqual",
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

# The functions that C23 adds to <math.h>, for C libraries newer than those that the lists were made with.
_C23 = frozenset(
    f"{name}{suffix}"
    for name in (
        *("acospi", "asinpi", "atan2pi", "atanpi", "compoundn", "cospi", "exp10m1", "exp2m1", "log10p1"),
        *("log2p1", "logp1", "pown", "powr", "rootn", "rsqrt", "sinpi", "tanpi"),
    )
    for suffix in ("", "f", "l")
)
_MACROS = frozenset(compiler_names.EVERYWHERE.split()) - _RESERVED
_DECLARED = frozenset(compiler_names.OUTSIDE.split()) | _C23
RUNTIME = re.compile(r"cuda[A-Z]|cu[A-Z]|CU[a-z]|CUDA_|CU_")
"""What the names of CUDA's runtime and driver start with: too many to list, and more in each release."""
LIBRARIES = re.compile(r"CUB_|THRUST_|CCCL_|LIBCUDACXX_|NVTX|Nvtx|nvtx|PFN_cu")
"""What the macros of CUDA's libraries start with, and the types of the driver's functions, as many."""

_BY_RULE = (
    (_PRIVATE, "is reserved for the compiler: it starts with two underscores or one and a capital"),
    (_OWN, "starts like the names that generated headers use"),
    (LIBRARIES, "starts like the names of CUDA's libraries"),
)


def check(name: object, what: str, taken: Collection[str] = ()) -> str:
    """
    Return *name* if C, C++ and CUDA C++ all accept it as an external function's name.

    Args:
        name: The requested name.
        what: What is to have the name, for the message: "function saxpy".
        taken: Names in use in the same export.

    Raises:
        AbiError: The name is illegal, reserved or taken. Proposes another.
    """
    if not isinstance(name, str):
        raise AbiError(f"The C name of {what} must be a str, not {type(name).__name__}: {name!r}.")
    reason = "is taken by another function of this export" if name in taken else problem(name)
    if reason is None:
        return name
    raise AbiError(f"{name!r}, the C name of {what}, {reason}; use {propose(name, taken)!r}, for example.")


def check_inside(name: str, what: str) -> None:
    """
    Check that C++ accepts *name* inside of a namespace.

    Raises:
        AbiError: It does not. Proposes another.
    """
    reason = problem_anywhere(name)
    if reason:
        raise AbiError(
            f"{what} has its Python name in its namespace, and {name!r} {reason}; call it "
            f"{propose(name)!r}, for example."
        )


def problem(name: str) -> str | None:
    """
    Return why C, C++ or CUDA C++ would refuse an external function called *name*, None if they accept it.

    The text completes a sentence: "is a reserved word of C, C++ or CUDA C++". A mangled C++ name is accepted.
    """
    reason = problem_anywhere(name)
    if reason and not _MANGLED.fullmatch(name):
        return reason
    if name in _DECLARED:
        return "is declared by CUDA C++ or the C library, where a call would reach that or nothing"
    if RUNTIME.match(name):
        return "starts like the names of CUDA's runtime or driver"
    if _IN_PTX.fullmatch(name):
        return "is no symbol in PTX, or what compilers call something else there"
    return None


def problem_anywhere(name: str) -> str | None:
    """Return why *name* cannot even name a parameter, a member or what is in a namespace, None if it can."""
    if not _IDENTIFIER.fullmatch(name):
        return "is not a C identifier"
    if name in _RESERVED:
        return "is a reserved word of C, C++ or CUDA C++"
    if name in _MACROS:
        return "is a macro of CUDA C++ or the C library"
    return next((reason for pattern, reason in _BY_RULE if pattern.match(name)), None)


def is_mangled(name: object) -> bool:
    """Return whether *name* is a mangled C++ name, as callers of `numba.cuda.compile` may request."""
    return isinstance(name, str) and bool(re.fullmatch(r"_Z[\dN]\w+", name, re.ASCII))


def is_for_compilers(name: str) -> bool:
    """Return whether *name* is left to compilers and their libraries by C++: `__f`, `_F`, `f$1`."""
    return "$" in name or bool(_PRIVATE.match(name))


def legal(name: str, taken: Collection[str] = ()) -> str:
    """Return *name*, or the closest legal and unused name, for a parameter or member."""
    return name if problem_anywhere(name) is None and name not in taken else propose(name, taken)


def legal_type(name: str) -> str:
    """Return *name*, or the closest legal name, for a struct."""
    return name if problem(name) is None else propose(name)


def propose(name: str, taken: Collection[str] = ()) -> str:
    """Return a legal, unused name as close to *name* as possible, for anything."""
    base = spell(name)
    if base[0].isdigit():
        base = f"f{base}"
    if RUNTIME.match(base) or LIBRARIES.match(base) or _OWN.match(base):
        base = f"my_{base}"
    candidate = base if problem(base) is None else f"{base}_"
    number = 2
    while candidate in taken or problem(candidate) is not None:
        candidate = f"{base}_{number}"
        number += 1
    return candidate
