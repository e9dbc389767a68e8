"""
Describe what a program adds to a front end, by `@overload` for one.

No function tells which of it Numba uses. So where a module other than those of the front end adds anything,
all of the source that was imported counts, and so do the values that the functions which were added read.
"""

from __future__ import annotations

import copyreg
import functools
import hashlib
import logging
import os
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.describe import IndescribableError
from numba_ptxlink._imports import import_state, python_sources

from . import described

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numba_ptxlink._front_end.protocol import FrontEnd

log = logging.getLogger(__name__)

# Of classes, these fill while a program runs.
_FILLED = ("_cache", "_overloads", "_registry", "_abc_impl")
# What is looked up in a class, and is made around functions.
_DESCRIPTORS = (
    "builtins.staticmethod",
    "builtins.classmethod",
    "builtins.property",
    "functools.cached_property",
)
_WITHIN = ("__func__", "fget", "fset", "fdel", "func")


def of_program(front_end: FrontEnd, modules: Iterable[str]) -> Iterator[str]:
    """
    Yield what extends *front_end* as text: the source of the program, and values; nothing where nothing does.

    Args:
        front_end: What compiles.
        modules: The names of the modules that define the functions of the program.
    """
    extending = {
        name: runs for name, runs in front_end.extensions().items() if not described.is_versioned(name)
    }
    if not extending:
        return
    if any(name.partition(".")[0] in import_state.PROTECTED for name in extending):
        # Such as a package below `cuda`, whose source is not looked for: this holds for one process.
        yield os.urandom(16).hex()
    for path in python_sources.of_modules({*modules, *extending}, {}):
        try:
            yield f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}"
        except OSError:
            # Whatever it holds, it is not what another process has.
            yield f"{path.name} {os.urandom(16).hex()}"
    for name, runs in sorted(extending.items()):
        # A module that was run twice, and is the same, has added the same.
        added = sorted({f"{name} {_values(front_end, run)}" for run in runs})
        log.debug("Numba is extended by %s", "; ".join(added))
        yield from added


def _values(front_end: FrontEnd, added: Sequence[Any]) -> str:
    """Return a digest of the functions and classes *added*, and of what they read."""
    try:
        return hashlib.sha256(_Added(front_end).text(added).encode("utf-8", "surrogateescape")).hexdigest()
    except IndescribableError as error:
        return f"reads {error}, {os.urandom(16).hex()}"
    except RecursionError:
        return f"reads values within values within values, {os.urandom(16).hex()}"


class _Added(described.Description):
    """
    Functions that add to a front end as text: all that can be pickled determines itself.

    They run as they are, and may use whatever Python has. Each function and class is described once, one
    after the other, since they lead far.
    """

    def __init__(self, front_end: FrontEnd) -> None:
        super().__init__(front_end)
        self._pending: list[Callable[[], str]] = []

    def text(self, added: Sequence[Any]) -> str:
        """Return the functions and classes *added* as text."""
        parts = [self.value(each) for each in added]
        while self._pending:
            parts.append(self._pending.pop()())
        return described.group(parts)

    def function(self, function: Any) -> str:
        return self._later(function, self._function)

    def _later(self, value: Any, describe: Callable[[Any], str]) -> str:
        again = self._again(value)
        if not again:
            self._pending.append(functools.partial(describe, value))
        return again or self._again(value)

    def _globals(self, function: Any) -> Iterator[str]:
        # Numba's own functions around a user's read what its version tells.
        return iter(()) if described.is_versioned(str(function.__module__)) else super()._globals(function)

    def _computes(self, module: ModuleType) -> None:
        """Leave what *module* computes to its source."""

    def _other(self, value: Any, what: str) -> str:
        if isinstance(value, ModuleType):
            return f"module {value.__name__}"
        if isinstance(value, type):
            return self._later(value, self._members)
        if isinstance(value, MappingProxyType):
            return self.value(dict(value))
        kind = type(value)
        if any(base.__name__ == "Type" and described.is_protected(base) for base in kind.__mro__):
            return described.group([self.value(kind), str(value)])
        if f"{kind.__module__}.{kind.__qualname__}" in _DESCRIPTORS:
            within = (getattr(value, name, None) for name in _WITHIN)
            return described.group([kind.__qualname__, *map(self.value, within)])
        return self._reduced(value, what)

    def _reduced(self, value: Any, what: str) -> str:
        """Describe what pickle would write for *value*."""
        kind = type(value)
        reduce = copyreg.dispatch_table.get(kind)
        try:
            parts = reduce(value) if reduce else value.__reduce_ex__(4)
        except Exception as error:
            raise IndescribableError(what) from error
        if isinstance(parts, str):
            # It is found by its name; what `lru_cache` makes is a function of the module.
            within = self.value(getattr(value, "__wrapped__", None))
            return described.group([kind.__qualname__, str(getattr(value, "__module__", "")), parts, within])
        made, arguments, state, *items = (*parts, None, None, None)[:5]
        listed = [None if each is None else list(each) for each in items]
        return described.group(map(self.value, (made, arguments, state, *listed)))

    def _members(self, kind: type) -> str:
        members = [
            f"{name}={self.value(getattr(member, '__func__', member))}"
            for name, member in vars(kind).items()
            if not name.endswith(_FILLED) and (callable(member) or not name.startswith("__"))
        ]
        bases = [self.value(base) for base in kind.__bases__]
        return described.group(["class", kind.__module__, kind.__qualname__, *bases, *members])
