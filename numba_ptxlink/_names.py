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
_NAME = re.compile(r'\bc"[^"]*"|_ZN[\w$.]+|\.bytes\.-?\d+|(?:discriminator-|identifier: ")\d+')
_COUNTER = re.compile(r"B(\d+)v(\d+)(?=[BEI])")
_MODULE_ID = re.compile(r"^; ModuleID = .*\n", re.MULTILINE)
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
        The modules, or None where modules call each other in a circle.
    """
    graph: TopologicalSorter[int] = TopologicalSorter({module: callees.get(module, ()) for module in texts})
    try:
        bottom_up = list(graph.static_order())
    except CycleError:
        return None
    number_of_kept = {number for name in kept for number in _numbers(name)}
    new_numbers = {number: number for number in number_of_kept}
    done: dict[int, str] = {}
    renamed: dict[str, str] = {}
    for module in bottom_up:
        text = _MODULE_ID.sub("", texts[module])
        own = [
            number
            for number in dict.fromkeys(n for _, name in _DEFINED.findall(text) for n in _numbers(name))
            if number not in new_numbers
        ]
        # A function's own number cannot be part of what its new number is made from.
        blank = _rename(text, {**new_numbers, **{number: f"-{i}" for i, number in enumerate(own)}}, "")
        digest = hashlib.sha256(blank.encode()).hexdigest()[:_DIGITS]
        new_numbers |= {number: f"{digest}{i or ''}" for i, number in enumerate(own)}
        done[module] = _rename(text, new_numbers, digest)
        for _, name in _DEFINED.findall(text):
            renamed[name] = _rename(name, new_numbers, digest)
    return Canonical(
        tuple(dict.fromkeys(_in_order(done, callees, roots))),
        {old: new for old, new in renamed.items() if old != new},
    )


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

    def number(match: re.Match[str]) -> str:
        new = new_numbers.get(match[2])
        if new is None or len(match[2]) + 1 != int(match[1]):
            return match[0]
        return f"B{len(new) + 1}v{new}"

    def name(match: re.Match[str]) -> str:
        found = match[0]
        if found.startswith("_ZN"):
            return _COUNTER.sub(number, found)
        if found.startswith('c"'):
            return found
        prefix = found.rstrip("-0123456789")
        # Debug information of several modules may meet, and there a name stands for one type.
        return f"{prefix}{module}_{local.setdefault(found, len(local))}"

    return _NAME.sub(name, text)
