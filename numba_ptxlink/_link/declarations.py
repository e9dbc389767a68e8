"""
Compare the declarations in CUDA C++ and LLVM IR with the functions of an export.

PTX of CUDA 13 spells `float` and `int` alike, so that a call through a wrong declaration of the same width
links. NVRTC checks the declared types: assertions that are appended to the source generate no code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._formats.ptx import Prototype

    from .manifests import Manifest

# The message of a failed assertion, without the name of the function.
_ASSERTION = "numba-ptxlink declares"
# The directive `#line 1 "numba-ptxlink: f"` gives this file name to NVRTC's errors about the assertion for f.
_LINE_PREFIX = "numba-ptxlink: "
# For example: `numba-ptxlink: f(1): error: static assertion failed with "numba-ptxlink declares f."`.
_ERROR = re.compile(
    r"^(?P<file>[^\n]*?)\(\d+\): (?:catastrophic )?error(?: #\S+)?: (?P<message>.*)$", re.MULTILINE
)
# A part of NVRTC's message when it stops because of too many errors.
_ERROR_LIMIT = "Error limit reached"
# The preprocessor's operator `##`, in all its spellings: a macro that uses it can declare any name.
_TOKEN_PASTING = (b"##", b"%:%:", b"??=")
# The kinds of types. A type is represented by its kind plus its size in bytes, such as 16 + 4 for int, and by
# 0 if it is not compared. Classes have the largest number, since their size has no limit. The templates below
# have the same numbers.
_INTEGRAL, _REAL, _VOID, CLASS = 16, 32, 48, 64
_FLOATING_BYTES = {"float": 4, "double": 8}
# Names of integers and addresses in C and in LLVM IR: `uint32_t`, `float *`, `i32`, `ptr`.
_INTEGER = re.compile(r"u?int(\d+)_t|bool|.*\*|i(\d+)|ptr")
# The integer types of C++, for which the templates are specialised.
_INTEGER_TYPES = (
    *("bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int"),
    *("long", "unsigned long", "long long", "unsigned long long", "wchar_t", "char16_t", "char32_t"),
)
# The templates compare void, arithmetic types, enumerations, addresses, and the sizes of classes.
# `@kind<T>::@is` is the number of a type; `@all` compares the types of a list with a list of numbers;
# `@agrees` does so for the types of a function, and is 1 for what is no function. `@T` stands for
# `__numba_ptxlink_T`: such names are reserved, so that no macro of the source replaces them. The namespace
# `@declared` has the templates; `_assertion` adds declarations of functions to `@undeclared`.
_TEMPLATES = """
namespace @undeclared {}
using namespace @undeclared;
namespace @declared {
template <class @T, int = __is_enum(@T) ? 16 : __is_class(@T) ? 64 : 0>
struct @kind { enum { @is = 0 }; };
template <class @T> struct @kind<@T, 16> { enum { @is = 16 + sizeof(@T) }; };
template <class @T> struct @kind<@T, 64> { enum { @is = 64 + sizeof(@T) }; };
template <class @T> struct @kind<@T*, 0> { enum { @is = 16 + sizeof(@T*) }; };
template <class @T> struct @kind<@T&, 0> { enum { @is = 16 + sizeof(@T*) }; };
template <class @T> struct @kind<const @T, 0> : @kind<@T> {};
template <class @T> struct @kind<volatile @T, 0> : @kind<@T> {};
template <class @T> struct @kind<const volatile @T, 0> : @kind<@T> {};
template <> struct @kind<void, 0> { enum { @is = 48 }; };
template <class... @T> struct @types {};
template <int... @K> struct @kinds {};
template <class @T, class @K> struct @all { enum { @are = 0 }; };
template <> struct @all<@types<>, @kinds<> > { enum { @are = 1 }; };
template <class @H, class... @T, int @k, int... @K> struct @all<@types<@H, @T...>, @kinds<@k, @K...> > {
  enum { @are = (@k == 0 || int(@kind<@H>::@is) == 0 || int(@kind<@H>::@is) == @k)
      && @all<@types<@T...>, @kinds<@K...> >::@are };
};
template <class @F, class @K> struct @agrees { enum { @is = 1 }; };
template <class @R, class... @A, class @K> struct @agrees<@R(@A...), @K> {
  enum { @is = @all<@types<@R, @A...>, @K>::@are };
};
#ifdef __cpp_noexcept_function_type
template <class @R, class... @A, class @K> struct @agrees<@R(@A...) noexcept, @K> : @agrees<@R(@A...), @K> {};
#endif
"""
_TEMPLATES += "".join(
    f"template <> struct @kind<{name}, 0> {{ enum {{ @is = {kind} + sizeof({name}) }}; }};\n"
    for kind, names in ((_INTEGRAL, _INTEGER_TYPES), (_REAL, _FLOATING_BYTES))
    for name in names
)
_TEMPLATES = re.sub(r"@(?=\w)", "__numba_ptxlink_", _TEMPLATES) + "}\n"
# Macros of the source may also have the names of keywords: `assertions` undefines those that it uses.
_KEYWORDS = sorted({"decltype", "static_assert", *re.findall(r"(?<![\w#])[a-z]+\b", _TEMPLATES)})


@dataclass(frozen=True)
class DeclaredFunction:
    """
    A function of an export, as C declares it.

    Args:
        name: The symbol.
        declaration: The declaration, for messages.
        types: The names of its C types: of the result, and of each parameter.
        kinds: The kind of each type plus its size; 0 for a type that is not compared.
        origin: The file or function that has this declaration, for messages.
    """

    name: str
    declaration: str
    types: tuple[str, ...]
    kinds: tuple[int, ...]
    origin: str


def from_signature(signature: Signature, origin: str) -> DeclaredFunction:
    """Return the function of *signature*, which *origin* defines or calls."""
    sizes = {ctype.name: ctype.size for ctype in signature.types}
    types = (signature.result.name, *(ctype.name for _, ctype in signature.params))
    return DeclaredFunction(signature.name, f"{signature};", types, _kinds(types, sizes), origin)


def from_prototype(prototype: Prototype, origin: str) -> DeclaredFunction:
    """Return a function without C types: only the number of its parameters is compared."""
    count = 1 + len(prototype.params)
    return DeclaredFunction(prototype.name, str(prototype), ("",) * count, (0,) * count, origin)


def declarations_of(manifest: Manifest) -> list[DeclaredFunction]:
    """Return the device functions that *manifest* lists."""
    sizes = {name: described.size for name, described in manifest.types.items()}
    functions = []
    for function in manifest.functions:
        if function.kind == "function" and function.symbol.isidentifier():
            types = (function.result, *(parameter.type for parameter in function.parameters))
            kinds, origin = _kinds(types, sizes), str(manifest.path)
            functions.append(DeclaredFunction(function.symbol, function.declaration, types, kinds, origin))
    return functions


def _kinds(types: Iterable[str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the kinds of C types; types that `_kind` does not know are classes, such as structs."""
    return tuple(_kind(name) or (CLASS + sizes[name] if sizes.get(name) else 0) for name in types)


def check_declared_types(
    name: str, declared: Mapping[str, Sequence[str]], functions: Sequence[DeclaredFunction]
) -> None:
    """
    Compare the declarations of a program with the functions that are linked with it.

    Args:
        name: The program, for messages.
        declared: The symbols that the program declares, each with its types: of the result, and of each
            parameter, as C or LLVM IR names them.
        functions: The functions that are linked with the program.

    Raises:
        LinkError: The program declares one of the functions with other types.
    """
    raise_contradictions(name, contradictions(declared, functions, compare_counts=True))


def contradictions(
    declared: Mapping[str, Sequence[str]],
    functions: Iterable[DeclaredFunction],
    *,
    compare_counts: bool = False,
) -> list[DeclaredFunction]:
    """
    Return the *functions* that a program declares with types of other kinds than they have.

    Args:
        declared: The symbols and their types, as for `check_declared_types`.
        functions: The functions.
        compare_counts: Whether functions that are declared with another number of types are returned, too:
            True for C, and False for Numba's calling convention, which passes each member of a struct, and
            has a parameter for the result.
    """

    def is_contradicted(function: DeclaredFunction) -> bool:
        types = declared.get(function.name)
        if not types:
            return False
        if len(types) != len(function.types):
            return compare_counts
        return any(map(_kinds_differ, map(_kind, function.types), map(_kind, types)))

    return [function for function in functions if is_contradicted(function)]


def _kinds_differ(a: int, b: int) -> bool:
    """Return whether two results of `_kind` differ; LLVM IR may extend narrower integers to 32 bits."""
    is_compared = bool(a and b)
    are_integers = max(a, b) < _REAL
    may_be_extended = are_integers and min(a, b) < _INTEGRAL + 4
    return is_compared and a != b and not may_be_extended


def raise_contradictions(name: str, functions: Sequence[DeclaredFunction]) -> None:
    """
    Refuse a program that declares functions with other types than their definitions.

    Args:
        name: The program, for messages.
        functions: The functions that the program declares wrongly; there may be none.

    Raises:
        LinkError: There is such a function.
    """
    if functions:
        lines = "\n".join(f"    {function.declaration}  in {function.origin}" for function in functions)
        raise LinkError(
            f"{name} declares {', '.join(function.name for function in functions)} with other types than "
            f"the definition, so that a call would pass wrong values:\n{lines}\n"
            'Include the generated header, or correct the declaration (in Python: abi="c", and pointers for '
            "arrays, structs and complex numbers).",
            inputs=(name,),
        )


def failed_assertions(log: str, functions: Iterable[DeclaredFunction]) -> list[DeclaredFunction]:
    """Return the *functions* whose assertion failed, by NVRTC's *log*."""
    # The message of an assertion alone is no sign of failure: the log quotes its line for other errors, too,
    # such as an overloaded name.
    failure = f'static assertion failed with "{_ASSERTION}'
    return [function for function in functions if f'{failure} {function.name}."' in log]


def uncompared_reasons(log: str, functions: Iterable[DeclaredFunction]) -> dict[str, str]:
    """
    Return the reasons why assertions were not evaluated, by the names of their functions.

    Args:
        log: NVRTC's log of a source with the assertions.
        functions: The functions that the assertions are about.
    """
    names = [function.name for function in functions]
    # The first error of each origin: the function of an assertion, or a file of the source.
    reasons: dict[str, str] = {}
    errors = [(match["file"].removeprefix(_LINE_PREFIX), match["message"]) for match in _ERROR.finditer(log)]
    for origin, message in errors:
        if f'"{_ASSERTION} {origin}."' not in message:
            reasons.setdefault(origin, message)
    source_errors = [message for origin, message in reasons.items() if origin not in names]
    # An error in the source, one without a file (`_ERROR` matches no line), or too many errors may keep NVRTC
    # from evaluating any assertion.
    if source_errors or not errors or _ERROR_LIMIT in log:
        first_error = next(iter(source_errors), log.strip().partition("\n")[0])
        reasons = {**dict.fromkeys(names, first_error), **reasons}
    return {name: reasons[name] for name in names if name in reasons}


def mentioned_functions(text: bytes, functions: Sequence[DeclaredFunction]) -> tuple[DeclaredFunction, ...]:
    """Return the functions that *text* may declare: all *functions* if a macro may paste names together."""
    if any(spelling in text for spelling in _TOKEN_PASTING):
        return tuple(functions)
    return tuple(function for function in functions if function.name.encode() in text)


def assertions(functions: Sequence[DeclaredFunction], names_maybe_in_namespace: Collection[str]) -> str:
    """
    Return CUDA C++ to append to a source, which fails to compile if the source declares other types.

    The code undefines macros with the name of a function, or of a keyword that it uses.

    Args:
        functions: The functions with their types.
        names_maybe_in_namespace: The names of functions that the source may declare in a namespace. If such a
            function is not declared outside of a namespace, its assertion does not compile, and the function
            counts as not compared.
    """
    if not functions:
        return ""
    words = (*_KEYWORDS, *(function.name for function in functions))
    macros = "".join(f"#undef {word}\n" for word in words)
    lines = (
        _assertion(function, may_be_undeclared=function.name not in names_maybe_in_namespace)
        for function in functions
    )
    return f"\n{macros}{_TEMPLATES}{''.join(lines)}"


def _assertion(function: DeclaredFunction, *, may_be_undeclared: bool) -> str:
    """Return the assertion about one function; with *may_be_undeclared*, it holds without a declaration."""
    name = function.name
    fallback = ""
    if may_be_undeclared:
        # `::f` means this declaration if the source has none. The assertion then holds, since its `...` does
        # not match `@A...`, the parameter types that the template compares.
        fallback = f"namespace __numba_ptxlink_undeclared {{ __device__ void {name}(...); }}\n"
    return (
        f'#line 1 "{_LINE_PREFIX}{name}"\n{fallback}'
        f"static_assert(__numba_ptxlink_declared::__numba_ptxlink_agrees<decltype(::{name}), "
        f"__numba_ptxlink_declared::__numba_ptxlink_kinds<{', '.join(map(str, function.kinds))}> >"
        f'::__numba_ptxlink_is, "{_ASSERTION} {name}.");\n'
    )


def _kind(name: str) -> int:
    """Return the kind of a type plus its size, as the templates do; 0 for a type that is not compared."""
    if name == "void":
        return _VOID
    if name in _FLOATING_BYTES:
        return _REAL + _FLOATING_BYTES[name]
    match = _INTEGER.fullmatch(name)
    if not match:
        return 0
    # Pointers have 64 bits; i1 has one byte.
    bits = int(match[1] or match[2] or (8 if name == "bool" else 64))
    return _INTEGRAL + max(1, bits // 8)
