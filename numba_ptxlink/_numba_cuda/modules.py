"""The LLVM IR of a program, in an order and under names that depend on it alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from . import stable_names
from .context import DEBUG_VERSION

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# Definitions that Numba leaves visible: environments, which only CPU code looks up, and shared arrays.
_VARIABLE = re.compile(
    r'^(@"(?:_ZN08NumbaEnv[^"]*|_cudapy_smem_\d+)" = )(?:common (?=global )|(?=addrspace\(3\) global ))',
    re.MULTILINE,
)


def ordered_modules(libraries: Sequence[Any], kept: Iterable[str] = (), salt: str = "") -> list[str]:
    """
    Return the LLVM IR of *libraries* and their transitive callees, each once, callers first.

    Names and order are those of `stable_names`: deterministic across processes. Variables are internal. The
    modules of *libraries*, which other programs may share, are unchanged.

    Args:
        libraries: Numba's code libraries.
        kept: Symbols that keep their names, which a caller may have chosen to look like Numba's.
        salt: What else the code depends on: NVVM's options.
    """
    modules, _ = _ordered(libraries)
    texts = stable_names.rename_apart(modules, kept, salt).texts
    return [_VARIABLE.sub(r"\1internal ", text) for text in texts]


def renamed(
    libraries: Sequence[Any], kept: Iterable[str] = (), *, keep_visible: bool = False
) -> stable_names.Renamed:
    """
    Return the program whose roots are *libraries*, under names that depend on the program alone.

    Args:
        libraries: Numba's code libraries.
        kept: Symbols that keep their names.
        keep_visible: Whether the visible symbols of the roots keep their names.
    """
    modules, roots = _ordered(libraries)
    visible = [name for root in modules[:roots] for name in root.visible] if keep_visible else ()
    return stable_names.rename(modules, (*kept, *visible))


def _ordered(libraries: Sequence[Any]) -> tuple[list[stable_names.Module], int]:
    """Return the modules of the program whose roots are *libraries*, and the number of roots."""
    reached = dict.fromkeys((*libraries, *all_libraries(libraries)))
    modules = {
        library: stable_names.Module(str(module_of(library)).replace(*DEBUG_VERSION))
        for library in reached
        if module_of(library) is not None
    }
    roots = sum(library in modules for library in libraries)
    return stable_names.in_order(list(modules.values()), roots), roots


def all_libraries(libraries: Sequence[Any]) -> list[Any]:
    """Return *libraries* and their transitive callees, each once."""
    reached: dict[int, Any] = {}
    pending = list(libraries)
    while pending:
        library = pending.pop()
        if id(library) not in reached:
            reached[id(library)] = library
            pending.extend(_linked(library))
    return list(reached.values())


def _linked(library: Any) -> Sequence[Any]:
    # Code that is linked as a file has no callees that Numba compiled.
    return tuple(getattr(library, "_linking_libraries", ()))


def module_of(library: Any) -> Any:
    """Return the LLVM module of *library*, None if it has none."""
    return next(iter(library.modules), None)
