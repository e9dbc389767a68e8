"""
One attribute of a front end and what takes its place: put there and taken back, counting who wants it.

And what travels from outer replaced functions to inner ones, through a compiler that knows nothing of it.
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
T = TypeVar("T", bound=NamedTuple)
F = TypeVar("F", bound=Callable[..., Any])

PURPOSES = ("linker", "driverless", "C ABI", "first kernel", "cache")
"""What rows are for, as the documentation shows it."""


class Patch(NamedTuple):
    """
    One attribute of a front end and what takes its place.

    Args:
        module: Where it lives.
        path: Its dotted path inside the module.
        wrap: Makes the replacement out of the original. It imports nothing of the front end, as the
            replacement may: a thread that is importing that may wait for a lock that *wrap*'s caller holds.
        reason: Why, in one line; the documentation shows it.
        bound: The package whose modules may hold it by the same name, and get the replacement too; "" for
            none. Others that hold it keep it.
        purpose: One of `PURPOSES`.
    """

    module: str
    path: str
    wrap: Wrap
    reason: str
    bound: str = ""
    purpose: str = "linker"

    @property
    def target(self) -> str:
        """The attribute as "module:path"."""
        return f"{self.module}:{self.path}"

    def owner(self) -> Any:
        """Return the module or class that holds the attribute."""
        *parents, _ = self.path.split(".")
        # Asking for the import of a module that is there waits for a thread that is importing it.
        module = sys.modules.get(self.module) or importlib.import_module(self.module)
        return functools.reduce(getattr, parents, module)

    @property
    def attribute(self) -> str:
        """The attribute's own name."""
        return self.path.rpartition(".")[2]


class PatchTable(list[Patch]):
    """
    The replacements of one purpose, which decorators add; the docstring of what they decorate is the reason.

    Args:
        purpose: One of `PURPOSES`.
    """

    def __init__(self, purpose: str) -> None:
        super().__init__()
        self.purpose = purpose

    def replace(self, module: str, path: str, *, bound: str = "") -> Callable[[Wrap], Wrap]:
        """Return a decorator of what makes the replacement out of the original; see `Patch`."""

        def decorated(wrap: Wrap) -> Wrap:
            reason = " ".join((wrap.__doc__ or "").split())
            self.append(Patch(module, path, wrap, reason, bound, self.purpose))
            return wrap

        return decorated

    def around(self, module: str, path: str, *, bound: str = "") -> Callable[[F], F]:
        """Return a decorator of what is called in place of the original, which is its first argument."""

        def decorated(function: F) -> F:
            @functools.wraps(function)
            def wrap(original: Any) -> Any:
                @functools.wraps(original)
                def replacement(*args: Any, **kwargs: Any) -> Any:
                    return function(original, *args, **kwargs)

                return replacement

            self.replace(module, path, bound=bound)(wrap)
            return function

        return decorated


class _InPlace:
    def __init__(self, original: Any) -> None:
        self.original = original
        self.uses = 1


_in_place: dict[str, _InPlace] = {}
_lock = Lock()


def apply(patch: Patch) -> None:
    """Put the replacement in place, where it is not yet; each call wants an `undo`."""
    key = patch.target
    # Its import may apply it, in this thread or in another that waits for the lock.
    owner = patch.owner()
    with _lock.held:
        if key in _in_place:
            _in_place[key].uses += 1
            return
        original = owner.__dict__[patch.attribute]
        replacement = patch.wrap(original)
        setattr(owner, patch.attribute, replacement)
        if patch.bound:
            _bind_everywhere(original, replacement, patch)
        _in_place[key] = _InPlace(original)


def undo(patch: Patch) -> None:
    """Put back what stood there, once nobody wants the replacement any more."""
    key = patch.target
    owner = patch.owner()
    with _lock.held:
        there = _in_place[key]
        there.uses -= 1
        if there.uses:
            return
        del _in_place[key]
        replacement = owner.__dict__[patch.attribute]
        setattr(owner, patch.attribute, there.original)
        if patch.bound:
            _bind_everywhere(replacement, there.original, patch)


@contextlib.contextmanager
def applied(patches: tuple[Patch, ...]) -> Iterator[None]:
    """Keep *patches* in place for the length of a `with` block."""
    with contextlib.ExitStack() as stack:
        for each in patches:
            apply(each)
            stack.callback(undo, each)
        yield


def _bind_everywhere(old: Any, new: Any, patch: Patch) -> None:
    """Replace *old* by *new* wherever a module of the package has bound it by the attribute's name."""
    package, attribute = patch.bound, patch.attribute
    for name, module in list(sys.modules.items()):
        if (
            (name == package or name.startswith(f"{package}."))
            and isinstance(module, ModuleType)
            and module.__dict__.get(attribute) is old
        ):
            setattr(module, attribute, new)


class Context(Generic[T]):
    """
    Values of a thread, changed for the length of a `with` block.

    Args:
        name: What debuggers call the variable.
        none: The values outside of any block.
    """

    def __init__(self, name: str, none: T) -> None:
        self._variable: ContextVar[T] = ContextVar(name, default=none)

    def current(self) -> T:
        """Return the values of the blocks that this thread is in."""
        return self._variable.get()

    @contextlib.contextmanager
    def entered(self, **changes: Any) -> Iterator[None]:
        """Change values for the length of a `with` block."""
        token = self._variable.set(self.current()._replace(**changes))
        try:
            yield
        finally:
            self._variable.reset(token)
