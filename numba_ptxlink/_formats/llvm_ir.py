"""
Read LLVM IR: its externally visible symbols, with the prototypes that NVVM will give them in PTX.

The syntax is that of the LLVM Language Reference Manual, in the subset that llvmlite and Numba write. Which
types NVVM passes in 32 or 64 bits and which as byte arrays was observed in its PTX.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .ptx import Param, Prototype
from .symbol import Symbol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numba_ptxlink._arch import Arch

_FUNCTION = re.compile(
    r'^(?P<what>declare|define)\s+(?P<before>[^@\n]*?)@"?(?P<name>[\w$.]+)"?\((?P<after>.*)$', re.MULTILINE
)
_VARIABLE = re.compile(
    r'^@"?(?P<name>[\w$.]+)"?\s*=\s*(?P<words>[\w\s()]*?)\b(?:global|constant)\b', re.MULTILINE
)
_NOTED = r'@"?([\w$.]+)"?,\s*(?:metadata\s+)?!'
_KERNEL, _MANAGED = re.compile(f'{_NOTED}"kernel"'), re.compile(f'{_NOTED}"managed"')
_ADDRESS_SPACE = re.compile(r"\baddrspace\((\d+)\)")
# NVVM IR Specification, "Address Spaces".
_SPACES = {"1": "global", "3": "shared", "4": "const"}
_WORD = re.compile(r'%?"[^"]*"|[\w.%$]+|\S')
_TYPED_BYVAL = re.compile(r'\bbyval\(%"[^"]*"\)')
_HIDDEN = frozenset({"internal", "private", "appending"})
_WEAK = frozenset({"weak", "weak_odr", "linkonce", "linkonce_odr", "common", "available_externally"})
_WORDS = frozenset({"dso_local", "external", "extern_weak", "noundef", "signext", "zeroext", "fastcc", "ccc"})
_CLOSING = {"{": "}", "[": "]", "<": ">", "(": ")"}
_SIZES = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}
_NARROW_FLOATS = ("half", "bfloat")


def is_modern(arch: Arch) -> bool:
    """Return whether NVVM uses its newer LLVM for *arch*."""
    return arch.cc >= (10, 0)


def in_dialect(modules: Iterable[str], arch: Arch) -> list[str]:
    """Return *modules* in the dialect of LLVM IR that NVVM reads for *arch*."""
    return [module if is_modern(arch) else _TYPED_BYVAL.sub("byval", module) for module in modules]


def symbols(text: str, arch: Arch) -> Iterator[Symbol]:
    """
    Yield the symbols of LLVM IR, one for each declaration or definition with external linkage.

    Functions of types that Numba does not use have no prototype.

    Args:
        text: One module, or several concatenated.
        arch: The architecture that NVVM compiles it for.
    """
    modern = is_modern(arch)
    kernels = set(_KERNEL.findall(text))
    for match in _FUNCTION.finditer(text):
        before = match["before"].split()
        if _HIDDEN.isdisjoint(before):
            name, entry = match["name"], match["name"] in kernels
            yield Symbol(
                name=name,
                kind="entry" if entry else "func",
                defined=match["what"] == "define",
                weak=not _WEAK.isdisjoint(before),
                prototype=None if entry else _prototype(name, match["before"], match["after"], modern=modern),
            )
    managed = set(_MANAGED.findall(text))
    for match in _VARIABLE.finditer(text):
        words = set(match["words"].replace("(", " ").split())
        if _HIDDEN.isdisjoint(words):
            space = _ADDRESS_SPACE.search(match["words"])
            yield Symbol(
                match["name"],
                "variable",
                "external" not in words,
                not _WEAK.isdisjoint(words),
                space="managed" if match["name"] in managed else _SPACES.get(space[1], "") if space else "",
            )


def declared_floats(text: str) -> dict[str, tuple[bool | None, ...]]:
    """
    Return which values of each function that *text* declares are floating point, which PTX may not tell.

    Each function has an item for its result and for each parameter: True for `float` and `double`, False for
    an integer or an address, None for anything else, `void` included.
    """
    floats: dict[str, tuple[bool | None, ...]] = {}
    for match in _FUNCTION.finditer(text):
        if match["what"] == "declare":
            try:
                values = [_words_of_result(match["before"]), *_split(_WORD.findall(match["after"]), ")")]
                floats[match["name"]] = tuple(map(_is_float, values))
            except (KeyError, IndexError, ValueError):
                continue
    return floats


def _is_float(words: list[str]) -> bool | None:
    if words == ["void"] or "byval" in words or "sret" in words or not _layout(words).scalar:
        return None
    if words[0] in _NARROW_FLOATS:
        return None
    return words[0] in ("float", "double") and words[1:2] not in (["*"], ["addrspace"])


def has_line_numbers(text: str) -> bool:
    """Return whether the module *text* maps its instructions to source lines."""
    return "!DILocation(" in text


def is_for_debugging(text: str) -> bool:
    """Return whether the module *text* asks for full debug information."""
    return "emissionKind: FullDebug" in text


@dataclass(frozen=True)
class _Layout:
    size: int
    align: int
    scalar: bool = False


def _prototype(name: str, before: str, after: str, *, modern: bool) -> Prototype | None:
    try:
        words = _words_of_result(before)
        result = None if words == ["void"] else _param(words, modern=modern)
        params = [_param(param, modern=modern) for param in _split(_WORD.findall(after), ")")]
    except (KeyError, IndexError, ValueError):
        return None
    return Prototype(name, result, tuple(params))


def _words_of_result(before: str) -> list[str]:
    return [word for word in _WORD.findall(before) if word not in _WORDS | _WEAK]


def _split(words: list[str], end: str) -> list[list[str]]:
    """Split *words* at top-level commas, up to the bracket *end*."""
    parts: list[list[str]] = [[]]
    closings: list[str] = []
    for word in words:
        if not closings and word == end:
            break
        if closings and word == closings[-1]:
            closings.pop()
        elif word in _CLOSING:
            closings.append(_CLOSING[word])
        if not closings and word == ",":
            parts.append([])
        else:
            parts[-1].append(word)
    return [part for part in parts if part]


def _param(words: list[str], *, modern: bool) -> Param:
    if "byval" in words or "sret" in words:
        raise ValueError
    layout = _layout(words)
    if layout.scalar and layout.size <= 8 and not (modern and words[0] in _NARROW_FLOATS):
        bits = 64 if layout.size == 8 else 32
        return Param(bits=bits, type=f"b{bits}")
    return Param(align=layout.align, size=layout.size, type="b8")


def _layout(words: list[str]) -> _Layout:
    """Return the memory layout of the type at the start of *words*; attributes and a name may follow."""
    if words[0] in _CLOSING:
        length = _closed(words)
        inside, rest = words[1 : length - 1], words[length:]
    else:
        inside, rest = [], words[1:]
    if rest and (rest[0] in ("*", "addrspace") or (rest[0] == "(" and "*" in rest)):
        return _Layout(8, 8, scalar=True)
    if words[0] == "{":
        return _struct([_layout(member) for member in _split([*inside, "}"], "}")])
    if words[0] == "[":
        element = _layout(inside[2:])
        return _Layout(int(inside[0]) * element.size, element.align)
    if words[0][0] == "i" and words[0][1:].isdigit():
        size = 1 << (max(8, int(words[0][1:])) - 1).bit_length() >> 3
        return _Layout(size, size, scalar=True)
    size = _SIZES[words[0]]
    return _Layout(size, size, scalar=True)


def _closed(words: list[str]) -> int:
    depth = 0
    for number, word in enumerate(words, start=1):
        depth += (word in _CLOSING) - (word in _CLOSING.values())
        if not depth:
            return number
    raise ValueError


def _struct(members: list[_Layout]) -> _Layout:
    end, align = 0, 1
    for member in members:
        end = -(-end // member.align) * member.align + member.size
        align = max(align, member.align)
    return _Layout(-(-end // align) * align, align)
