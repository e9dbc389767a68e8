"""What travels from one replaced function to another, and what is noted about objects of numba-cuda."""

from __future__ import annotations

import contextlib
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


@dataclass
class Result:
    """
    What a compilation makes, filled in as it goes along.

    Args:
        compiled: The CUDACompileResult of the function, once those that it calls are compiled.
        library: The code library.
        cc: The compute capability it is for.
        symbols: The device functions that have the C ABI.
    """

    compiled: Any = None
    library: Any = None
    cc: tuple[Any, ...] = ()
    symbols: tuple[str, ...] = ()


@dataclass(frozen=True)
class CompileContext:
    """
    What the replaced functions around the one that runs want it to know.

    Args:
        cc: The compute capability that is asked for, in place of the device's.
        sought: Names that a new kernel's code is searched for.
        places: The place of each inlined function in the compilation, by its counter.
        remarks: What NVVM remarks.
        result: What the compilation makes.
    """

    cc: tuple[Any, ...] | None = None
    sought: tuple[str, ...] = ()
    places: dict[str, int] | None = None
    remarks: list[str] | None = None
    result: Result | None = None


_current: ContextVar[CompileContext] = ContextVar("numba_ptxlink_compile")
_NONE = CompileContext()


def current() -> CompileContext:
    """Return the context of the compilation that this thread is in."""
    return _current.get(_NONE)


@contextlib.contextmanager
def entered(**changes: Any) -> Iterator[None]:
    """Change the context for the length of a `with` block."""
    token = _current.set(replace(current(), **changes))
    try:
        yield
    finally:
        _current.reset(token)


@dataclass
class LibraryNotes:
    """
    What is noted about a code library.

    Args:
        cc: The compute capability it was compiled for, where that is not the device's.
        origin: The Python function it was compiled from, and where that stands.
        given: The link files that are no paths and were given by the decorator.
        stamps: Digests of the link files that are paths, when the kernel was linked.
    """

    cc: tuple[Any, ...] | None = None
    origin: str = ""
    given: tuple[Any, ...] = ()
    stamps: dict[str, str] = field(default_factory=dict)


@dataclass
class DispatcherNotes:
    """
    What is noted about a dispatcher.

    Args:
        by_cc: What a device function was compiled to, by argument types and compute capability.
    """

    by_cc: dict[tuple[Any, tuple[Any, ...]], Any] = field(default_factory=dict)


@dataclass
class CacheNotes:
    """
    What is noted about the disk cache of a dispatcher.

    Args:
        options: The decorator's options, None where it was made without the plugin.
        link: The decorator's link files.
        key: What the key of the kernel last looked up says of both; "" before one was.
        before: The same when the kernel that is being compiled was looked up.
    """

    options: dict[str, Any] | None = None
    link: tuple[Any, ...] = ()
    key: str = ""
    before: str = ""


_notes: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def notes(owner: Any, kind: type[T]) -> T:
    """Return what is noted about *owner*, which goes when it goes."""
    known: T = _notes.setdefault(owner, kind())
    return known
