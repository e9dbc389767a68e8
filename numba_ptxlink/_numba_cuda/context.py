"""
State shared by the replaced functions: the context of a compilation, and notes on numba-cuda's objects.

Every import of numba.cuda imports this module, so what it defines are named tuples and plain classes: a
dataclass takes several times as long to define.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from numba_ptxlink._front_end.substitution import Context

T = TypeVar("T")


class CompileContext(NamedTuple):
    """
    The values that outer replaced functions pass to inner ones.

    Args:
        cc: The requested compute capability, in place of the device's.
        sought: Names that numba-cuda searches a new kernel's code for.
        remarks: NVVM's logs.
        stable: Whether all names in the LLVM IR depend on the program alone.
        checked: Whether functions check divisions and indices; None for numba-cuda's own ways.
    """

    cc: tuple[Any, ...] | None = None
    sought: tuple[str, ...] = ()
    remarks: list[str] | None = None
    stable: bool = False
    checked: bool | None = None


_context = Context("numba_ptxlink_compile", CompileContext())
current, entered = _context.current, _context.entered


class LibraryNotes:
    """
    Notes on a code library.

    Args:
        cc: The compute capability it was compiled for; None for the device's.
        checked: As in `CompileContext`, for a device function.
        origin: The Python function it was compiled from, with file and line.
        given: The decorator's link files that are not paths.
        sites: The file and line of each raise.
    """

    def __init__(self) -> None:
        self.cc: tuple[Any, ...] | None = None
        self.checked: bool | None = None
        self.origin = ""
        self.given: tuple[Any, ...] = ()
        self.sites: set[tuple[str, int]] = set()


class CacheNotes:
    """
    Notes on the disk cache of a dispatcher.

    Args:
        options: The decorator's options, None if it was created without the plugin.
        link: The decorator's link files.
        digests: The digest of both at the first look-up of a kernel, by numba-cuda's key.
    """

    def __init__(self) -> None:
        self.options: dict[str, Any] | None = None
        self.link: tuple[Any, ...] = ()
        self.digests: dict[Any, str] = {}


_notes: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def notes(owner: Any, kind: type[T]) -> T:
    """Return the notes of *kind* on *owner*, created if missing; they live as long as *owner*."""
    entry: T = _notes.setdefault(owner, kind())
    return entry
