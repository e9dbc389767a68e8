"""
State shared by the replaced functions: the context of a compilation, and notes on numba-cuda's objects.

Every import of numba.cuda imports this module, so what it defines are named tuples and plain classes: a
dataclass takes several times as long to define.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from numba_ptxlink._front_end.carried import Carried

if TYPE_CHECKING:
    from collections.abc import Collection

T = TypeVar("T")


class Result:
    """
    The results of a compilation, filled in as it proceeds.

    Args:
        compiled: The CUDACompileResult of the function, set after those of its callees.
        library: The code library.
        cc: The compute capability of the library.
        symbols: The device functions that have the C ABI.
        signature: The C signature of the function, None if its aggregates are flat.
    """

    def __init__(self) -> None:
        self.compiled: Any = None
        self.library: Any = None
        self.cc: tuple[Any, ...] = ()
        self.symbols: tuple[str, ...] = ()
        self.signature: Any = None


class Nested:
    """
    The device functions compiled within the compilation of another.

    Args:
        calls: Their dispatchers, argument types and compute capabilities.
        cyclic: Whether one of them calls a function whose compilation is not finished.
    """

    def __init__(self) -> None:
        self.calls: list[tuple[Any, Any, tuple[Any, ...]]] = []
        self.cyclic = False


class CompileContext(NamedTuple):
    """
    The values that outer replaced functions pass to inner ones.

    Args:
        cc: The requested compute capability, in place of the device's.
        sought: Names that numba-cuda searches a new kernel's code for.
        places: The place of each inlined function in the compilation, by its counter.
        remarks: NVVM's logs.
        stable: Whether all names in the LLVM IR depend on the program alone.
        result: The results of the compilation.
        checked: Whether functions check divisions and indices; None for numba-cuda's own ways.
        nested: The device functions compiled within the outermost one; None outside.
        returns: The type that an export declares of the function's result; None for none.
    """

    cc: tuple[Any, ...] | None = None
    sought: tuple[str, ...] = ()
    places: dict[str, int] | None = None
    remarks: list[str] | None = None
    stable: bool = False
    result: Result | None = None
    checked: bool | None = None
    nested: Nested | None = None
    returns: Any = None


_context = Carried("numba_ptxlink_compile", CompileContext())
current, entered = _context.current, _context.entered


class LibraryNotes:
    """
    Notes on a code library.

    Args:
        cc: The compute capability it was compiled for, if it is not the device's.
        origin: The Python function it was compiled from, with file and line.
        given: The decorator's link files that are not paths.
        stamps: Digests, at link time, of the link files that are paths.
        sites: The file and line of each raise, by the function's symbol and the status that it returns.
        unaligned: The types in LLVM IR of what its C function's records need not align.
    """

    def __init__(self) -> None:
        self.cc: tuple[Any, ...] | None = None
        self.unaligned: Collection[str] = ()
        self.origin = ""
        self.given: tuple[Any, ...] = ()
        self.stamps: dict[str, str] = {}
        self.sites: dict[str, dict[int, tuple[str, int]]] = {}


class DispatcherNotes:
    """
    Notes on a dispatcher.

    Args:
        by_cc: The compile results of a device function by argument types, and by compute capability and
            whether it is checked.
    """

    def __init__(self) -> None:
        self.by_cc: dict[tuple[Any, tuple[Any, ...]], Any] = {}


class CacheNotes:
    """
    Notes on the disk cache of a dispatcher.

    Args:
        options: The decorator's options, None if it was created without the plugin.
        link: The decorator's link files.
        key: The digest of both in the key of the last look-up; "" before the first.
        before: That digest at the look-up of the kernel being compiled.
    """

    def __init__(self) -> None:
        self.options: dict[str, Any] | None = None
        self.link: tuple[Any, ...] = ()
        self.key = ""
        self.before = ""


_notes: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def notes(owner: Any, kind: type[T]) -> T:
    """Return the notes of *kind* on *owner*, created if missing; they live as long as *owner*."""
    entry: T = _notes.setdefault(owner, kind())
    return entry
