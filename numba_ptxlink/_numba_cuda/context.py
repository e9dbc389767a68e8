"""
State that patched functions of numba-cuda share: the context of a compilation, and notes on Numba's objects.

Every import of numba.cuda imports this module, which therefore defines no dataclasses: the definition of one
takes several times as long as that of a named tuple or a plain class.
"""

from __future__ import annotations

from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from numba_ptxlink._front_end.patch import Context

# The start of the module flag "Debug Info Version" in numba-cuda's LLVM IR, and in NVRTC's. The first number
# is the behaviour for different versions: 2 is a warning, 1 an error.
_NUMBA_DEBUG_FLAG = '!{ i32 2, !"Debug Info Version"'
_NVRTC_DEBUG_FLAG = '!{ i32 1, !"Debug Info Version"'


class CompileContext(NamedTuple):
    """
    The values that outer patched functions pass to inner ones, through code of numba-cuda.

    Args:
        cc: The requested compute capability; None for that of the device.
        searched_names: While a kernel is created, the functions that numba-cuda looks for in its code, to
            link the files that define them. Empty otherwise.
        checked: Whether functions check divisions and indices, as the export requires; None if no export
            runs.
    """

    cc: tuple[Any, ...] | None = None
    searched_names: tuple[str, ...] = ()
    checked: bool | None = None


_context = Context("numba_ptxlink_compile", CompileContext())
current_context, override = _context.current, _context.override


def with_nvrtc_debug_version(text: str) -> str:
    """Return the LLVM IR *text* with NVRTC's flag: LTO refuses modules whose flags differ in behaviour."""
    return text.replace(_NUMBA_DEBUG_FLAG, _NVRTC_DEBUG_FLAG)


class Notes:
    """
    Values that this package attaches to a code library or to the disk cache of a dispatcher.

    A code library is Numba's object for the code of a compiled function.

    Attributes:
        variant: Of the library of a device function: the compute capability that it was compiled for, and
            `checked` of its `CompileContext`. (None, None) if it was compiled while the plugin was inactive.
        origin: Of the library of a kernel: the Python function, with file and line, such as
            "saxpy (udfs.py:3)"; "" if it is unknown.
        sites: Of a library: the file and line of each statement that may raise.
        link: Of a dispatcher's disk cache: the files of the decorator's `link=`.
        options: Of a dispatcher's disk cache: the decorator's options without `link=`; None if the cache was
            created while the plugin was inactive.
    """

    variant: tuple[tuple[Any, ...] | None, bool | None] = (None, None)
    origin: str = ""
    link: tuple[Any, ...] = ()
    options: dict[str, Any] | None = None

    def __init__(self) -> None:
        self.sites: set[tuple[str, int]] = set()


_notes: WeakKeyDictionary[Any, Notes] = WeakKeyDictionary()


def notes(owner: Any) -> Notes:
    """Return the notes on *owner*, which are created by the first call, and live as long as *owner*."""
    return _notes.setdefault(owner, Notes())
