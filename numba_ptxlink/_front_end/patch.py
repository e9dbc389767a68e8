"""
Patches of a front end's compiler: attributes of its modules and classes, and their replacements.

A patch that is applied twice has to be undone twice. `Context` passes values from a patched function to other
patched functions that it calls indirectly, through code of the compiler.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import sys
from collections.abc import Callable
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from numba_ptxlink._locks import Lock

if TYPE_CHECKING:
    from collections.abc import Iterator

Wrap = Callable[[Any], Any]
"""A function that returns the replacement of an attribute; the argument is the original value."""
T = TypeVar("T", bound=NamedTuple)
F = TypeVar("F", bound=Callable[..., Any])

PURPOSES = ("linker", "driverless", "C ABI", "first kernel", "cache", "CPU device")
"""The values of `Patch.purpose`, which the documentation shows."""


class Patch(NamedTuple):
    """
    An attribute of a front end and its replacement.

    Args:
        module: The module that defines the attribute.
        path: The dotted path of the attribute in the module, such as "Linker.link".
        wrap: Returns the replacement; the argument is the original. Must not import modules of the front end:
            another thread that imports them may wait for a lock that `apply` holds. The replacement itself
            may import them when it is called.
        reason: The reason for the patch, in one line, which the documentation shows.
        importers: A package, such as "numba.cuda": in all its modules that have imported the original by
            `from ... import`, the name is bound to the replacement, too. "" if the attribute alone is
            replaced.
        purpose: A member of `PURPOSES`.
    """

    module: str
    path: str
    wrap: Wrap
    reason: str
    importers: str = ""
    purpose: str = "linker"

    @property
    def target(self) -> str:
        """The text "module:path", which identifies the attribute."""
        return f"{self.module}:{self.path}"

    def owner(self) -> Any:
        """Return the module or class that has the attribute."""
        *parents, _ = self.path.split(".")
        # Not import_module first: it would wait for a thread that is importing the module, and the thread may
        # wait for the lock of the module `_plugin`, which the caller may hold.
        module = sys.modules.get(self.module) or importlib.import_module(self.module)
        return functools.reduce(getattr, parents, module)

    @property
    def attribute(self) -> str:
        """The name of the attribute in its module or class: the last part of the path."""
        return self.path.rpartition(".")[2]


class PatchTable(list[Patch]):
    """
    Patches of one purpose. Its decorators add them; the docstring of a decorated function is the reason.

    Args:
        purpose: A member of `PURPOSES`.
    """

    def __init__(self, purpose: str) -> None:
        super().__init__()
        self.purpose = purpose

    def replace(self, module: str, path: str, *, importers: str = "") -> Callable[[Wrap], Wrap]:
        """Return a decorator for a function that returns the replacement; see `Patch` for the arguments."""

        def decorate(wrap: Wrap) -> Wrap:
            reason = " ".join((wrap.__doc__ or "").split())
            self.append(Patch(module, path, wrap, reason, importers, self.purpose))
            return wrap

        return decorate

    def around(self, module: str, path: str, *, importers: str = "") -> Callable[[F], F]:
        """
        Return a decorator for a function that replaces the original, and may call it.

        Its first argument is the original function; the others are those of the call.
        """

        def decorate(function: F) -> F:
            @functools.wraps(function)
            def wrap(original: Any) -> Any:
                @functools.wraps(original)
                def replacement(*args: Any, **kwargs: Any) -> Any:
                    return function(original, *args, **kwargs)

                return replacement

            self.replace(module, path, importers=importers)(wrap)
            return function

        return decorate


class _Applied:
    """
    The original value of a patched attribute.

    Attributes:
        uses: The number of calls of `apply` minus that of `undo`.
    """

    def __init__(self, original: Any) -> None:
        self.original = original
        self.uses = 1


# The applied patches, by their targets.
_applied: dict[str, _Applied] = {}
_lock = Lock()


def apply(patch: Patch) -> None:
    """Replace the attribute, unless it is replaced already; each call needs an `undo`."""
    key = patch.target
    # Outside of the lock: `owner` may import the module, and so wait for another thread that is importing it.
    # The other thread's import may apply patches, and would wait for the lock.
    owner = patch.owner()
    with _lock.held:
        if key in _applied:
            _applied[key].uses += 1
            return
        # Read the attribute as it is stored: for a static method, getattr would return the function within,
        # and `undo` would restore that.
        original = owner.__dict__[patch.attribute]
        replacement = patch.wrap(original)
        setattr(owner, patch.attribute, replacement)
        if patch.importers:
            _bind_everywhere(original, replacement, patch)
        _applied[key] = _Applied(original)


def undo(patch: Patch) -> None:
    """Restore the original, once `undo` has been called as often as `apply`."""
    key = patch.target
    owner = patch.owner()
    with _lock.held:
        record = _applied[key]
        record.uses -= 1
        if record.uses:
            return
        del _applied[key]
        replacement = owner.__dict__[patch.attribute]
        setattr(owner, patch.attribute, record.original)
        if patch.importers:
            _bind_everywhere(replacement, record.original, patch)


@contextlib.contextmanager
def applied(patches: tuple[Patch, ...]) -> Iterator[None]:
    """Apply *patches* for the length of a `with` block."""
    with contextlib.ExitStack() as stack:
        for patch in patches:
            apply(patch)
            stack.callback(undo, patch)
        yield


def _bind_everywhere(old: Any, new: Any, patch: Patch) -> None:
    """Replace *old* by *new* in all modules of `patch.importers` that have it under the attribute's name."""
    package, attribute = patch.importers, patch.attribute
    for name, module in list(sys.modules.items()):
        if (
            (name == package or name.startswith(f"{package}."))
            and isinstance(module, ModuleType)
            and module.__dict__.get(attribute) is old
        ):
            setattr(module, attribute, new)


class Context(Generic[T]):
    """
    Named values that hold in this thread for the length of a `with` block.

    Args:
        name: The name of the context variable, which only debuggers show.
        default: The values outside of any block, as a named tuple.
    """

    def __init__(self, name: str, default: T) -> None:
        self._variable: ContextVar[T] = ContextVar(name, default=default)

    def current(self) -> T:
        """Return the values of the innermost block of this thread."""
        return self._variable.get()

    @contextlib.contextmanager
    def override(self, **changes: Any) -> Iterator[None]:
        """Override the values named in *changes* for the length of a `with` block."""
        token = self._variable.set(self.current()._replace(**changes))
        try:
            yield
        finally:
            self._variable.reset(token)
