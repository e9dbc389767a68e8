"""The LLVM IR of a program: its modules in an order, and under names, that depend on it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import stable_names

if TYPE_CHECKING:
    from collections.abc import Sequence


def ordered_modules(libraries: Sequence[Any]) -> list[str]:
    """
    Return the LLVM IR of *libraries* and all they call, each once, callers first.

    Names and order are those of `stable_names`: the same in every process.
    """
    for library in _all_libraries(libraries):
        for name, variable in _module(library).globals.items() if _module(library) else ():
            # Device code has no use for the environment that CPU code finds by this symbol.
            if name.startswith("_ZN08NumbaEnv"):
                variable.linkage = "internal"
    return list(renamed(libraries).texts)


def renamed(libraries: Sequence[Any], *, keep_visible: bool = False) -> stable_names.Renamed:
    """
    Return the program that *libraries* are the roots of, under names that depend on it alone.

    Args:
        libraries: Numba's code libraries.
        keep_visible: Whether what the roots offer to others keeps its names.
    """
    given = dict.fromkeys((*libraries, *_all_libraries(libraries)))
    modules = {each: stable_names.Module(str(_module(each))) for each in given if _module(each) is not None}
    roots = [modules[each] for each in libraries if each in modules]
    kept = [name for root in roots for name in root.visible] if keep_visible else ()
    return stable_names.rename(stable_names.in_order(list(modules.values()), len(roots)), kept)


def _all_libraries(libraries: Sequence[Any]) -> list[Any]:
    reached: dict[int, Any] = {}
    pending = list(libraries)
    while pending:
        library = pending.pop()
        if id(library) not in reached:
            reached[id(library)] = library
            pending.extend(_linked(library))
    return list(reached.values())


def _linked(library: Any) -> Sequence[Any]:
    # Code that is linked as a file calls nothing that Numba knows of.
    return tuple(getattr(library, "_linking_libraries", ()))


def _module(library: Any) -> Any:
    return next(iter(library.modules), None)
