"""
Names that depend on content alone: what Numba's counters in LLVM IR become, so that equal code is equal text.

Numba makes a function's name unique by a number counted up in the process, such as the v23 in
`_ZN4udfs6helperB3v23B54cw51…Ef`. Here the number becomes a digest of the function and of all it calls, which
keeps apart what has to be kept apart, wherever it was compiled, and gives one text to one function. Names
with a hash or an address of the process in them, which only ever are local to a module, are numbered.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_DIGITS = 20
# Texts in quotes first: what a string constant holds is no name, and has a length that is written elsewhere.
# Each alternative starts with a letter of its own, so that the search skips all text without one.
_NAME = re.compile(
    r'c(?<= c)"[^"]*"|_ZN[\w$.]+|\.bytes\.-?\d+(?!\w)|_cudapy_smem_-?\d+(?!\w)'
    r'|discriminator--?\d+(?!\w)|identifier: "-?\d+(?!\w)'
)
_MANGLED = re.compile(r"_ZN[\w$]+")
# What else counts up, or is an address, in the part of a name that tells the types of the arguments.
_IN_TYPES = re.compile(r"(?<=6RecordILi)\d+(?=E)|(?<=0x)[0-9a-f]{8,16}")
# The options it was compiled with. Numba compiles some functions once, with those of whoever asks first.
_FLAGS = re.compile(r"B(\d+)(?=cw51)")
_PLACE = "n"
_PLACED = re.compile(rf"B\d+v({_PLACE}\d+)(?=[BEI])")
_COUNTER = re.compile(r"B(\d+)v(\d+)(?=[BEI])")
_MODULE_ID = re.compile(r"\A; ModuleID = .*\n")
_DEFINED = re.compile(r'^define\s+([^@]*?)@"?(_ZN[\w$.]+)"?\(', re.MULTILINE)
_HIDDEN = ("internal", "private")


@dataclass(frozen=True)
class Canonical:
    """
    Modules that are compiled together.

    Args:
        texts: Their LLVM IR, callers first and otherwise in the order of their content; no text twice.
        names: The new name of each function that was renamed, by its old one.
    """

    texts: tuple[str, ...]
    names: Mapping[str, str]


def canonical(
    texts: Mapping[int, str],
    callees: Mapping[int, Sequence[int]],
    roots: Sequence[int],
    kept: Sequence[str] = (),
) -> Canonical | None:
    """
    Rename and order modules so that the outcome depends on nothing but what they do.

    Args:
        texts: The LLVM IR of each module.
        callees: The modules whose functions each module calls.
        roots: The modules that come first, in this order; everything else is called by one of them.
        kept: Function names that stay as they are.

    Returns:
        The modules, or None where modules call each other in a circle or names do not tell them apart.
    """
    graph: TopologicalSorter[int] = TopologicalSorter({module: callees.get(module, ()) for module in texts})
    try:
        bottom_up = list(graph.static_order())
    except CycleError:
        return None
    new_numbers = {number: number for name in kept for number in _numbers(name)}
    places = {number: f"{_PLACE}k{i}" for i, number in enumerate(new_numbers)}
    content: dict[str, str] = {}
    done: dict[int, str] = {}
    renamed: dict[str, str] = {}
    for module in bottom_up:
        text = _MODULE_ID.sub("", texts[module])
        defined = [name for _, name in _DEFINED.findall(text)]
        numbers = dict.fromkeys(number for name in defined for number in _numbers(name))
        own = [number for number in numbers if number not in new_numbers]
        # A function's own number cannot be part of what its new number is made from.
        places |= {number: f"{_PLACE}{i}" for i, number in enumerate(own)}
        blank = _rename(text, {**new_numbers, **places}, "")
        for number in own:
            del places[number]
        digest = hashlib.sha256(blank.encode()).hexdigest()[:_DIGITS]
        new_numbers |= {number: f"{digest}{i or ''}" for i, number in enumerate(own)}
        done[module] = _rename(text, new_numbers, digest)
        for name in defined:
            new = renamed[name] = _rename(name, new_numbers, digest)
            if content.setdefault(new, blank) != blank:
                # Two functions that only differ in what is left out of names.
                return None
    return Canonical(
        tuple(dict.fromkeys(_in_order(done, callees, roots))),
        {old: new for old, new in renamed.items() if old != new},
    )


def without_numbers(texts: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """
    Replace the counters that are left in names by their order in *texts*.

    Returns:
        The texts, and what `with_numbers` needs to give names in them their counters back.
    """
    names = dict.fromkeys(name for text in texts for name in _NAME.findall(text) if name.startswith("_ZN"))
    numbers = dict.fromkeys(number for name in names for number in _numbers(name))
    places = {number: f"{_PLACE}{i}" for i, number in enumerate(numbers)}
    replaced = [_NAME.sub(lambda match: _renumber(match[0], places), text) for text in texts]
    return replaced, {place: number for number, place in places.items()}


def with_numbers(ptx: str, numbers: Mapping[str, str]) -> str:
    """Return *ptx*, made of what `without_numbers` returned, with the names that were asked for."""

    def number(match: re.Match[str]) -> str:
        old = numbers.get(match[1])
        return match[0] if old is None else f"B{len(old) + 1}v{old}"

    return _MANGLED.sub(lambda match: _PLACED.sub(number, match[0]), ptx) if numbers else ptx


def visible(text: str) -> tuple[str, ...]:
    """Return the mangled names of the functions that the module *text* defines for others to see."""
    return tuple(
        name
        for linkage, name in _DEFINED.findall(text)
        if not any(word in _HIDDEN for word in linkage.split())
    )


def _in_order(
    texts: Mapping[int, str], callees: Mapping[int, Sequence[int]], roots: Sequence[int]
) -> list[str]:
    # NVVM drops a linkable function that nothing before it has asked for, so callees have to follow callers.
    callers: TopologicalSorter[int] = TopologicalSorter()
    for module in texts:
        callers.add(module)
        for callee in callees.get(module, ()):
            callers.add(callee, module)
    ordered = [texts[root] for root in roots]
    callers.prepare()
    while callers.is_active():
        ready = sorted(callers.get_ready(), key=texts.__getitem__)
        ordered += [texts[module] for module in ready]
        callers.done(*ready)
    return ordered


def _numbers(name: str) -> list[str]:
    return [match[2] for match in _COUNTER.finditer(name) if len(match[2]) + 1 == int(match[1])]


def _rename(text: str, new_numbers: Mapping[str, str], module: str) -> str:
    local: dict[str, int] = {}

    def name(match: re.Match[str]) -> str:
        found = match[0]
        if found.startswith("_ZN"):
            renamed = _renumber(found, new_numbers)
            return renamed if renamed == found else _without_flags(_IN_TYPES.sub("0", renamed))
        if found.startswith('c"'):
            return found
        prefix = found.rstrip("-0123456789")
        # Debug information of several modules may meet, and there a name stands for one type.
        place = local.setdefault(found, len(local))
        if prefix.endswith("smem_"):
            # Whoever looks for shared arrays in the IR expects a number.
            return f"{prefix}{int(module or '0', 16)}{place:04}"
        return f"{prefix}{module}_{place}"

    return _NAME.sub(name, text)


def _without_flags(name: str) -> str:
    match = _FLAGS.search(name)
    return name if match is None else name[: match.start()] + name[match.end() + int(match[1]) :]


def _renumber(name: str, new_numbers: Mapping[str, str]) -> str:
    def number(match: re.Match[str]) -> str:
        new = new_numbers.get(match[2])
        if new is None or len(match[2]) + 1 != int(match[1]):
            return match[0]
        return f"B{len(new) + 1}v{new}"

    return _COUNTER.sub(number, name) if name.startswith("_ZN") else name
