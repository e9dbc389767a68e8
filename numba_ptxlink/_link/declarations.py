"""
Compare what CUDA C++ and LLVM IR declare with what the functions of an export are.

PTX of CUDA 13 spells `float` and `int` alike, so that a call through a wrong declaration of the same width
links. NVRTC knows the declared types: assertions about them, appended to the source, generate no code.
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

_MARK = "numba-ptxlink declares"
# What errors about one function are in, as NVRTC tells it.
_PLACE = "numba-ptxlink: "
_ERROR = re.compile(
    r"^(?P<place>[^\n]*?)\(\d+\): (?:catastrophic )?error(?: #\S+)?: (?P<said>.*)$", re.MULTILINE
)
_LIMIT = "Error limit reached"
# The operator that makes a name of others, in all its spellings.
_MAKES_NAMES = (b"##", b"%:%:", b"??=")
# What a type is; the bytes of the type are added, but for void.
_INTEGRAL, _REAL, _VOID, CLASS = 16, 32, 48, 64
_FLOATING = {"float": 4, "double": 8}
# Of C, and of LLVM IR.
_INTEGER = re.compile(r"u?int(\d+)_t|bool|.*\*|i(\d+)|ptr")
# Void, arithmetic types, enumerations, addresses and classes are compared, these by their size. Every name is
# reserved: a macro of the source is none of them.
_NUMBERS = (
    *("bool", "char", "signed char", "unsigned char", "short", "unsigned short", "int", "unsigned int"),
    *("long", "unsigned long", "long long", "unsigned long long", "wchar_t", "char16_t", "char32_t"),
)
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
    for kind, names in ((_INTEGRAL, _NUMBERS), (_REAL, _FLOATING))
    for name in names
)
_TEMPLATES = re.sub(r"@(?=\w)", "__numba_ptxlink_", _TEMPLATES) + "}\n"
_KEYWORDS = sorted({"decltype", "static_assert", *re.findall(r"(?<![\w#])[a-z]+\b", _TEMPLATES)})


@dataclass(frozen=True)
class Declared:
    """
    A function of an export, as C declares it.

    Args:
        name: Its symbol.
        declaration: Its declaration, for messages.
        types: The names of its C types: of the result, and of each parameter.
        kinds: What each of them is, and its size.
        origin: What says so, for messages.
    """

    name: str
    declaration: str
    types: tuple[str, ...]
    kinds: tuple[int, ...]
    origin: str


def declaration(signature: Signature, origin: str) -> Declared:
    """Return the function of *signature*, which *origin* has."""
    sizes = {ctype.name: ctype.size for ctype in signature.types}
    types = (signature.result.name, *(ctype.name for _, ctype in signature.params))
    return Declared(signature.name, f"{signature};", types, _kinds(types, sizes), origin)


def counted(prototype: Prototype, origin: str) -> Declared:
    """Return a function whose types have no names in C, of which the number of parameters is compared."""
    count = 1 + len(prototype.params)
    return Declared(prototype.name, str(prototype), ("",) * count, (0,) * count, origin)


def declarations_of(manifest: Manifest) -> list[Declared]:
    """Return the device functions that *manifest* lists."""
    sizes = {name: described.get("size", 0) for name, described in manifest.types.items()}
    found = []
    for function in manifest.functions:
        if function["kind"] == "function" and function["symbol"].isidentifier():
            types = (function["result"], *(parameter["type"] for parameter in function["parameters"]))
            shown, origin = function["declaration"], str(manifest.path)
            found.append(Declared(function["symbol"], shown, types, _kinds(types, sizes), origin))
    return found


def _kinds(types: Iterable[str], sizes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the kinds of *types* of C; what is none of `_kind` is a class, such as a struct or a half."""
    return tuple(_kind(name) or (CLASS + sizes[name] if sizes.get(name) else 0) for name in types)


def check(name: str, declared: Mapping[str, Sequence[str]], functions: Sequence[Declared]) -> None:
    """
    Compare what a program declares of *functions* with what they are.

    Args:
        name: The program, for messages.
        declared: The symbols that it declares, each with its types: of the result, and of each parameter, as
            C or LLVM IR names them.
        functions: What is linked with it.

    Raises:
        LinkError: It declares one of them with other types.
    """
    refuse(name, contradicted(declared, functions, counts=True))


def contradicted(
    declared: Mapping[str, Sequence[str]], functions: Iterable[Declared], *, counts: bool = False
) -> list[Declared]:
    """
    Return those of *functions* that are *declared* with as many types of other kinds.

    Args:
        declared: The symbols and their types, as for `check`.
        functions: What they are.
        counts: Whether those of another number of types are returned, too. LLVM IR has as many as C where all
            are numbers or pointers. Of what else C passes as one, Numba passes each member, as no C function
            takes it; a declaration with its own calling convention has one more.
    """
    return [
        function
        for function in functions
        if (types := declared.get(function.name))
        and (
            any(map(_contradict, map(_kind, function.types), map(_kind, types)))
            if len(types) == len(function.types)
            else counts
        )
    ]


def _contradict(one: int, other: int) -> bool:
    """Return whether kinds of types differ; LLVM IR may have integers of 32 bits for what is narrower."""
    extended = max(one, other) < _REAL and min(one, other) < _INTEGRAL + 4
    return bool(one and other) and one != other and not extended


def refuse(name: str, wrong: Sequence[Declared]) -> None:
    """
    Refuse a program that declares functions otherwise than they are.

    Args:
        name: The program, for messages.
        wrong: What it declares wrongly.

    Raises:
        LinkError: There is such a function.
    """
    if wrong:
        lines = "\n".join(f"    {function.declaration}  in {function.origin}" for function in wrong)
        raise LinkError(
            f"{name} declares {', '.join(function.name for function in wrong)} with other types. "
            f"What is linked is:\n{lines}\n"
            "A call would pass wrong values. Include the generated header, or make the declaration agree (in "
            'Python: abi="c", and pointers for arrays, structs and complex numbers).',
            inputs=(name,),
        )


def failed_in(log: str, functions: Iterable[Declared]) -> list[Declared]:
    """Return those of *functions* whose assertion failed, by NVRTC's *log*."""
    # The log quotes the line of any error in an assertion, such as that of an overloaded name.
    return [each for each in functions if f'static assertion failed with "{_MARK} {each.name}."' in log]


def uncompared_in(log: str, functions: Iterable[Declared]) -> dict[str, str]:
    """
    Return why assertions about *functions* tell nothing, by the names of those that are concerned.

    Args:
        log: What NVRTC says of a source with the assertions.
        functions: The functions.
    """
    names = [each.name for each in functions]
    reasons: dict[str, str] = {}
    errors = [(match["place"].removeprefix(_PLACE), match["said"]) for match in _ERROR.finditer(log)]
    for place, said in errors:
        if f'"{_MARK} {place}."' not in said:
            reasons.setdefault(place, said)
    elsewhere = [said for place, said in reasons.items() if place not in names]
    if elsewhere or not errors or _LIMIT in log:
        everywhere = next(iter(elsewhere), log.strip().partition("\n")[0])
        reasons = {**dict.fromkeys(names, everywhere), **reasons}
    return {name: reasons[name] for name in names if name in reasons}


def named_in(text: bytes, functions: Sequence[Declared]) -> tuple[Declared, ...]:
    """Return those of *functions* that *text* may declare: all where it may make names of others."""
    if any(spelling in text for spelling in _MAKES_NAMES):
        return tuple(functions)
    return tuple(each for each in functions if each.name.encode() in text)


def assertions(functions: Sequence[Declared], named: Collection[str]) -> str:
    """
    Return CUDA C++ to append to a source: it does not compile where the source declares one otherwise.

    Macros that have the name of a function or of a keyword are undefined.

    Args:
        functions: What is asserted.
        named: The names of those for which it is an error, too, that no declaration is outside of namespaces.
    """
    if not functions:
        return ""
    words = (*_KEYWORDS, *(function.name for function in functions))
    macros = "".join(f"#undef {word}\n" for word in words)
    lines = (_assertion(function, undeclared=function.name not in named) for function in functions)
    return f"\n{macros}{_TEMPLATES}{''.join(lines)}"


def _assertion(function: Declared, *, undeclared: bool) -> str:
    name = function.name
    # A qualified name is looked for there where it is not declared itself.
    other = f"namespace __numba_ptxlink_undeclared {{ __device__ void {name}(...); }}\n" * undeclared
    return (
        f'#line 1 "{_PLACE}{name}"\n{other}'
        f"static_assert(__numba_ptxlink_declared::__numba_ptxlink_agrees<decltype(::{name}), "
        f"__numba_ptxlink_declared::__numba_ptxlink_kinds<{', '.join(map(str, function.kinds))}> >"
        f'::__numba_ptxlink_is, "{_MARK} {name}.");\n'
    )


def _kind(name: str) -> int:
    """Return what a type is and its size, as the templates do, 0 for what is not compared."""
    if name == "void":
        return _VOID
    if name in _FLOATING:
        return _REAL + _FLOATING[name]
    found = _INTEGER.fullmatch(name)
    if not found:
        return 0
    bits = int(found[1] or found[2] or (8 if name == "bool" else 64))
    return _INTEGRAL + max(1, bits // 8)
