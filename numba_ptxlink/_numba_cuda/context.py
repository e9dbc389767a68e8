"""
State shared by the patched functions: the context of a compilation, and notes on numba-cuda's objects.

Every import of numba.cuda imports this module. So it has no dataclasses: defining one takes several times as
long as defining a named tuple or a plain class.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from numba_ptxlink._front_end.patch import Context

DEBUG_VERSION = ('!{ i32 2, !"Debug Info Version"', '!{ i32 1, !"Debug Info Version"')
"""
The version of debug information in numba-cuda's LLVM IR, and the version that replaces it: that of NVRTC.

LTO refuses to link modules with different versions.
"""


class CompileContext(NamedTuple):
    """
    The values that outer patched functions pass to inner ones, through code of numba-cuda.

    Args:
        cc: The requested compute capability; None for the device's.
        searched_names: Names that numba-cuda looks for in a new kernel's code; empty outside of the creation
            of a kernel.
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

    Attributes:
        variant: For the library of a device function, the compute capability that it was compiled for, None
            for the device's; and `checked` of its `CompileContext`.
        origin: For a library, the Python function that it was compiled from, with file and line, such as
            "saxpy (udfs.py:3)".
        link: For a disk cache, the decorator's link files.
        sites: For a library, the file and line of each raise.
        options: For a disk cache, the decorator's options without link files; None if the cache was created
            while the plugin was inactive.
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
