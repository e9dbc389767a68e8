"""
Every way in which the fusion is broken here is found by what programs compute.

A mutant is the fusion with one text in place of another. One whose text is gone fails: write another for it.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from typing import TYPE_CHECKING, NamedTuple

import comparison
import pytest
from programs import CALLS, CXX, RANDOM, units
from random_ptx import Program

from numba_ptxlink._link import fusion

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROGRAMS = 200
PACKAGE = "numba_ptxlink._link.mutant"


class Mutant(NamedTuple):
    """A module of the fusion, a text that it has once, and what stands there instead."""

    module: str
    text: str
    other: str


MUTANTS = {
    # Registers for memory.
    "halves are joined the wrong way round": Mutant(
        "cells", 'whole, f"{{{low}, {high}}}")', 'whole, f"{{{high}, {low}}}")'
    ),
    "halves are spread the wrong way round": Mutant(
        "cells", 'f"{{{low}, {high}}}", whole)', 'f"{{{high}, {low}}}", whole)'
    ),
    "a half is joined with itself": Mutant(
        "cells", "self._joined(offset + half, half)", "self._joined(offset, half)"
    ),
    "signs are lost": Mutant("cells", 'sign = "s" if kind[0] == "s" else "u"', 'sign = "u"'),
    "all is signed": Mutant("cells", 'sign = "s" if kind[0] == "s" else "u"', 'sign = "s"'),
    "the predicate of an access is lost": Mutant(
        "cells", "ptx.Instruction(self._guard,", 'ptx.Instruction("",'
    ),
    "an offset is not added": Mutant("cells", "offset + address[1], kind", "address[1], kind"),
    "elements of a vector are in the wrong order": Mutant(
        "cells",
        "self.offset + size * number, size",
        "self.offset + size * (len(self.values) - 1 - number), size",
    ),
    "a number loses its highest bit": Mutant("cells", "0) & 255)", "0) & 127)"),
    "what is stored is not spread": Mutant(
        "cells", "        if not cell:\n            self._spread", "        if 0:\n            self._spread"
    ),
    "a part at the start of a range is overlooked": Mutant(
        "cells", "any(offset <= start <", "any(offset < start <"
    ),
    "a wider register is not narrowed": Mutant("cells", "elif bits > size * 8:", "elif bits > 64:"),
    "a result of 32 bits is not extended": Mutant(
        "cells", "if size == 1 or bits > size * 8:", "if size == 1:"
    ),
    # The block of a call.
    "the predicate of a call is lost": Mutant("inline", "if not call.guard:", "if True:"),
    "the predicate of a call is negated": Mutant(
        "inline", '"!" else f"@!{register}"', '"?" else f"@{register}"'
    ),
    "returns fall through": Mutant("inline", "[] if falls else [", "[] if True else ["),
    "the predicate of a return is lost": Mutant(
        "inline", 'ptx.Instruction(guard, "bra"', 'ptx.Instruction("", "bra"'
    ),
    "a return of some lanes is none": Mutant("inline", "- 1 and not guard", "- 1 or guard"),
    "parameters in memory are at its start": Mutant("inline", 'f"[{name}+{access.offset}]"', 'f"[{name}]"'),
    "loads and stores of memory lose predicates": Mutant(
        "inline", "ptx.Instruction(access.guard, word", 'ptx.Instruction("", word'
    ),
    "loads of memory are stores": Mutant("inline", "if access.stores else operands[::-1]", ""),
    "names of registers are equal": Mutant("inline", '{self._prefix}{self._count}_"', '{self._prefix}_"'),
    # Local variables in registers.
    "a moved address is that of the start": Mutant(
        "depots", "offset=address.offset + offset)", "offset=address.offset)"
    ),
    "variables that escape stay in registers": Mutant(
        "depots", "escaped.update(addresses[register].variable for register in held)", "continue"
    ),
    # State spaces.
    "all that is generic is global": Mutant("spaces", 'in (["global"], ["to", "global"])', 'or ["global"]'),
    "the first definition of a register counts": Mutant(
        "spaces", "writers.get(register.name, ())", "writers.get(register.name, ())[:1]"
    ),
    "what is loaded is known": Mutant("spaces", "return [] if is_param else None", "return []"),
    "what depends on the unknown is known": Mutant("spaces", "fresh += readers.get(register, ())", "pass"),
}


class Finder(importlib.abc.MetaPathFinder, importlib.machinery.SourceFileLoader):
    """Finds the modules of the fusion under another name, one of them changed."""

    def __init__(self, mutant: Mutant) -> None:
        super().__init__(PACKAGE, "")
        self.mutant = mutant

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        """Return the spec of a module of the mutant."""
        del path, target
        if name.rpartition(".")[0] != PACKAGE and name != PACKAGE:
            return None
        return importlib.util.spec_from_loader(name, self, is_package=name == PACKAGE)

    def is_package(self, fullname: str) -> bool:
        """Return whether it is the package."""
        return fullname == PACKAGE

    def get_code(self, fullname: str) -> object:
        """Return the code of a module."""
        name = fullname.removeprefix(PACKAGE).lstrip(".")
        path = importlib.util.find_spec(f"{fusion.__name__}.{name}" if name else fusion.__name__).origin
        with open(path, encoding="utf-8") as file:  # noqa: PTH123 - a loader's
            source = file.read()
        if name == self.mutant.module:
            assert 1 == source.count(self.mutant.text), f"{name}.py has no {self.mutant.text!r}, or several"
            source = source.replace(self.mutant.text, self.mutant.other)
        return compile(source, path, "exec", dont_inherit=True)


@pytest.fixture
def broken(request) -> Iterator[object]:
    """Load a mutant; return its function."""
    finder = Finder(MUTANTS[request.param])
    sys.meta_path.insert(0, finder)
    try:
        yield importlib.import_module(PACKAGE).fuse
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if name.startswith(PACKAGE)]:
            del sys.modules[name]


@functools.cache
def program(number: int) -> tuple[comparison.Launch, Sequence[str]]:
    """Return the modules of a program and how they are launched: some of CUDA C++, and random PTX."""
    if number < len(CALLS):
        return CXX, units(list(CALLS)[number])
    return RANDOM, Program(number).texts


@pytest.mark.parametrize("broken", MUTANTS, indirect=True)
def test_the_text_of_a_mutant_is_there(broken):
    """And what is made of it is Python."""
    assert callable(broken)


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("broken", MUTANTS, indirect=True)
def test_a_broken_fusion_is_found(broken, monkeypatch):
    """Within 200 programs, one computes something else."""
    monkeypatch.setattr(comparison, "fuse", broken)
    for number in range(PROGRAMS):
        launch, texts = program(number)

        def fused(texts: Sequence[str], everything: bool = number % 2 == 1) -> str:  # noqa: FBT001
            return comparison.fused(texts, everything=everything)

        try:
            if comparison.difference(launch, texts, fused):
                break
        except comparison.LeftError:
            continue
    else:
        pytest.fail("all programs compute the same")
