"""
State shared by the patched functions: the context of a compilation, and notes on numba-cuda's objects.

Every import of numba.cuda imports this module, so it defines named tuples and plain classes, since defining a
dataclass takes several times as long.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from numba_ptxlink._front_end.patch import Context

# numba-cuda writes version 2 and NVRTC version 1; LTO refuses to link modules with different versions.
DEBUG_VERSION = ('!{ i32 2, !"Debug Info Version"', '!{ i32 1, !"Debug Info Version"')


class CompileContext(NamedTuple):
    """
    The values that outer patched functions pass to inner ones.

    Args:
        cc: The requested compute capability, instead of the device's.
        searched_names: Names that numba-cuda looks for in a new kernel's code.
        checked: Whether functions check divisions and indices; None outside of exports.
        lineinfo: Whether device functions have line numbers, regardless of their decorators.
    """

    cc: tuple[Any, ...] | None = None
    searched_names: tuple[str, ...] = ()
    checked: bool | None = None
    lineinfo: bool = False


_context = Context("numba_ptxlink_compile", CompileContext())
current_context, override = _context.current, _context.override


class Notes:
    """
    Values that this package attaches to a code library, or to the disk cache of a dispatcher.

    Args:
        variant: The compute capability that a device function was compiled for, None for the device's; and
            `checked` of its `CompileContext`.
        origin: The Python function that it was compiled from, with file and line.
        link: The decorator's link files; for a library, those that are not paths.
        sites: The file and line of each raise.
        options: The decorator's options, None if it was created without the plugin.
    """

    variant: tuple[tuple[Any, ...] | None, bool | None] = (None, None)
    origin = ""
    link: tuple[Any, ...] = ()
    options: dict[str, Any] | None = None

    def __init__(self) -> None:
        self.sites: set[tuple[str, int]] = set()


_notes: WeakKeyDictionary[Any, Notes] = WeakKeyDictionary()


def notes(owner: Any) -> Notes:
    """Return the notes on *owner*, created if missing; they live as long as *owner*."""
    return _notes.setdefault(owner, Notes())
