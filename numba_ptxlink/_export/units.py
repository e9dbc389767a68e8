"""
The work of an export in units, which other processes can do: a group of functions for one arch.

A unit names its functions, and brings the source of the modules that define them. A worker imports these as
the export did, compares what it finds with what the export depends on, and compiles.
"""

from __future__ import annotations

import functools
import importlib
import os
import pickle
import secrets
import zlib
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end import registry
from numba_ptxlink._imports import python_imports
from numba_ptxlink.errors import ExportError

from . import choice, definitions, function_keys, groups, lowering
from .signatures import resolved

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import ModuleType

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import CompileOptions
    from numba_ptxlink._imports.source_loader import Imported

    from .function_keys import FunctionKey
    from .signatures import Typed


class _Packed:
    """
    A value that travels between processes compressed.

    A pipe holds 64 kB. With more to pass on, a worker would wait for a thread of a process that compiles.
    """

    def __reduce__(self) -> tuple[Any, ...]:
        kept = vars(self)
        if "_packed" not in kept:
            kept["_packed"] = zlib.compress(pickle.dumps(kept), level=1)
        return _unpacked, (type(self), kept["_packed"])


def _unpacked(kind: type[_Packed], packed: bytes) -> _Packed:
    value = kind.__new__(kind)
    vars(value).update(pickle.loads(zlib.decompress(packed)))  # noqa: S301 - a pickle holds it
    return value


@dataclass(frozen=True)
class Program(_Packed):
    """
    Where the functions of an export come from.

    Args:
        front_end: The name of what compiles them.
        modules: The modules that define them.
        imported: What the export has imported, with its source; None if the modules were there before.
        export: A name that no other export has, anywhere.
    """

    front_end: str
    modules: tuple[str, ...]
    imported: Imported | None
    export: str = field(default_factory=lambda: secrets.token_hex(16))


@dataclass(frozen=True, eq=False)
class Unit:
    """
    A group of functions to compile for one arch.

    Args:
        program: Where they come from.
        names: Their C names.
        keys: What each of them depends on.
        arch: The GPU.
        options: The options of the export.
        cubin: Whether machine code is made, too.
    """

    program: Program
    names: tuple[str, ...]
    keys: tuple[FunctionKey, ...]
    arch: Arch
    options: CompileOptions
    cubin: bool

    @property
    def title(self) -> str:
        """What it is, in a few words."""
        more = f" and {len(self.names) - 1} more" if len(self.names) > 1 else ""
        return f"{self.arch.sm}: {self.names[0]}{more}"


@dataclass(frozen=True)
class Done(_Packed):
    """
    What a unit became.

    Args:
        lowered: What each function was lowered to.
        code: The code of all.
        refusal: Why the worker did not compile them, "" where it did.
    """

    lowered: tuple[lowering.Lowering, ...] = ()
    code: groups.GroupCode = field(default_factory=lambda: groups.GroupCode(b""))
    refusal: str = ""


def compile_here(unit: Unit, functions: Sequence[Typed]) -> Done:
    """Lower and compile *functions*, which are those of *unit*."""
    lowered = tuple(
        lowering.lower(function, unit.arch, unit.options, key)
        for function, key in zip(functions, unit.keys, strict=True)
    )
    front_end = functions[0].front_end
    code = groups.compile_group(front_end, lowered, unit.arch, unit.options, cubin=unit.cubin)
    return Done(lowered, code)


def prepare(front_end: str | None = None) -> None:
    """
    Import, in a worker, what its first unit is likely to want.

    Args:
        front_end: The name of what compiles, None for the one that is installed.
    """
    compiler = registry.require(registry.get(front_end) if front_end else choice.default())
    # Numba fills its tables of types then.
    function_keys.environment(compiler, (), "")


def run(unit: Unit) -> Done:
    """
    Do *unit* in a worker.

    Raises:
        PtxlinkError: A compiler refused a function.
    """
    with _functions(unit.program) as (functions, reason):
        if reason:
            return Done(refusal=reason)
        found = [functions.get(name) for name in unit.names]
        missing = [name for name, each in zip(unit.names, found, strict=True) if each is None]
        if missing:
            return Done(refusal=f"a worker does not find {missing[0]} in {', '.join(unit.program.modules)}")
        typed = [each for each in found if each is not None]
        program = unit.program
        keys = function_keys.of_each(typed, _around(program.export, program.front_end, program.modules))
        for name, here, there in zip(unit.names, keys, unit.keys, strict=True):
            if here != there:
                return Done(
                    refusal=f"{name} or what compiles it differs in a worker: {_difference(here, there)}"
                )
        return compile_here(unit, typed)


def _difference(here: FunctionKey, there: FunctionKey) -> str:
    if here.code is None:
        return here.reason
    parts = [
        f"{one} and not {other}"
        for one, other in zip(here.environment, there.environment, strict=False)
        if one != other
    ]
    return "; ".join(parts[:3]) or "its code, or a value that it reads"


@functools.lru_cache(maxsize=1)
def _around(export: str, front_end: str, modules: tuple[str, ...]) -> tuple[str, ...]:
    """Return what all functions of one export, whose program is imported, depend on."""
    return function_keys.environment(registry.get(front_end), modules, export)


_known: list[Any] = []

# The functions of the exports that this process makes; a forked one has another id, and makes none of them.
_exported_here: dict[tuple[int, str], dict[str, Typed]] = {}


@contextmanager
def under_way(program: Program, functions: Sequence[Typed]) -> Iterator[None]:
    """Let threads of this process compile *functions* as they are, in a `with` block."""
    key = (os.getpid(), program.export)
    _exported_here[key] = {function.symbol: function for function in functions}
    try:
        yield
    finally:
        del _exported_here[key]


@contextmanager
def _functions(program: Program) -> Iterator[tuple[dict[str, Typed], str]]:
    """Import *program*; yield its functions by C name, and why they cannot be imported."""
    # A thread of the process that exports would wait for the end of the block that has imported them.
    here = _exported_here.get((os.getpid(), program.export))
    if here is not None:
        yield here, ""
        return
    front_end = registry.require(registry.get(program.front_end))
    if program.imported is None:
        try:
            modules = [importlib.import_module(name) for name in program.modules]
        except Exception as error:  # noqa: BLE001 - whatever a module raises
            yield {}, f"a worker cannot import its module: {type(error).__name__}: {error}"
            return
        yield _resolved(modules, front_end), ""
        return
    block = python_imports.imported_again(program.imported, functools.partial(registry.require, front_end))
    try:
        module = block.__enter__()
    except ExportError as error:
        yield {}, f"a worker cannot import it: {error}"
        return
    try:
        yield _resolved([module], front_end), ""
    finally:
        block.__exit__(None, None, None)


def _resolved(modules: list[ModuleType], front_end: Any) -> dict[str, Typed]:
    known = _known[:]  # An executor of threads changes it meanwhile.
    if known[:2] == [modules, front_end.name]:
        return dict(known[2])
    found: dict[str, Typed] = {}
    names: dict[int, dict[Any, str]] = {}
    for module in modules:
        for each in definitions.of_module(module):
            for variant in (*each.others, each):
                function = resolved(variant, front_end, modules=names)
                found.setdefault(function.symbol, function)
    _known[:] = [modules, front_end.name, found]
    return found
