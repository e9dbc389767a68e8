"""Check names against the identifiers and reserved words of C, C++ and CUDA C++, and propose legal ones."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Collection

_IDENTIFIER = re.compile(r"[A-Za-z_]\w*", re.ASCII)
# Also reserved, but allowed: it gives a function the mangled name of a C++ declaration.
_MANGLED = re.compile(r"_Z\w+", re.ASCII)
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

# CUDA Math API, and CUDA C++ Programming Guide, "C++ Language Extensions". If a function of the same types is
# declared, calls reach CUDA's function without a diagnostic.
_FUNCTIONS = frozenset(
    """
    abs acos acosf acosh acoshf asin asinf asinh asinhf assert atan atan2 atan2f atanf atanh atanhf cbrt
    cbrtf ceil ceilf clock clock64 copysign copysignf cos cosf cosh coshf cospi cospif cyl_bessel_i0
    cyl_bessel_i0f cyl_bessel_i1 cyl_bessel_i1f dim3 erf erfc erfcf erfcinv erfcinvf erfcx erfcxf erff
    erfinv erfinvf exp exp10 exp10f exp2 exp2f expf expm1 expm1f fabs fabsf fdim fdimf fdividef floor
    floorf fma fmaf fmax fmaxf fmin fminf fmod fmodf free frexp frexpf hypot hypotf ilogb ilogbf
    isfinite isinf isnan j0 j0f j1 j1f jn jnf labs ldexp ldexpf lgamma lgammaf llabs llmax llmin llrint
    llrintf llround llroundf log log10 log10f log1p log1pf log2 log2f logb logbf logf lrint lrintf
    lround lroundf malloc max memcmp memcpy memmove memset min modf modff nearbyint nearbyintf nextafter
    nextafterf norm norm3d norm3df norm4d norm4df normcdf normcdff normcdfinv normcdfinvf normf pow powf
    printf rcbrt rcbrtf remainder remainderf remquo remquof rhypot rhypotf rint rintf rnorm rnorm3d
    rnorm3df rnorm4d rnorm4df rnormf round roundf rsqrt rsqrtf scalbln scalblnf scalbn scalbnf signbit
    sin sincos sincosf sincospi sincospif sinf sinh sinhf sinpi sinpif sqrt sqrtf std tan tanf tanh
    tanhf tgamma tgammaf trunc truncf ullmax ullmin umax umin y0 y0f y1 y1f yn ynf
    """.split()  # noqa: SIM905 - one name per line would take 192 lines
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


def problem(name: str) -> str | None:
    """
    Return why C, C++ or CUDA C++ would refuse an external function called *name*, None if they accept it.

    The text completes a sentence: "is a reserved word of C, C++ or CUDA C++". A mangled C++ name is accepted.
    """
    if not _IDENTIFIER.fullmatch(name):
        return "is not a C identifier"
    if name in _RESERVED:
        return "is a reserved word of C, C++ or CUDA C++"
    if _PRIVATE.match(name) and not _MANGLED.fullmatch(name):
        return "is reserved for the compiler: it starts with two underscores or one and a capital"
    if name in _FUNCTIONS:
        return "is a name of CUDA C++ itself, which a call would reach instead"
    return None


def is_mangled(name: object) -> bool:
    """Return whether *name* is a mangled C++ name, as callers of `numba.cuda.compile` may request."""
    return isinstance(name, str) and bool(re.fullmatch(r"_Z[\dN]\w+", name, re.ASCII))


def is_free(name: str) -> bool:
    """Return whether *name* can name a parameter or member in C, C++ and CUDA C++."""
    return bool(_IDENTIFIER.fullmatch(name)) and name not in _RESERVED


def legal(name: str, taken: Collection[str] = ()) -> str:
    """Return *name*, or the closest legal and unused name, for a parameter, member or struct."""
    return name if is_free(name) and name not in taken else propose(name, taken)


def propose(name: str, taken: Collection[str] = ()) -> str:
    """Return a legal, unused name as close to *name* as possible."""
    base = re.sub(r"\W+", "_", name, flags=re.ASCII).strip("_") or "unnamed"
    if base[0].isdigit():
        base = f"f{base}"
    candidate = f"{base}_" if base in _RESERVED | _FUNCTIONS else base
    number = 2
    while candidate in taken or candidate in _RESERVED | _FUNCTIONS:
        candidate = f"{base}_{number}"
        number += 1
    return candidate
