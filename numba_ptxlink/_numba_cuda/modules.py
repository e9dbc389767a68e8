"""The LLVM IR of a program, in an order and under names that depend on it alone."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .context import DEBUG_VERSION
from .stable_names import QuotedModule, Renamed, in_order, rename, rename_apart

if TYPE_CHECKING:
    from collections.abc import Iterable

# Definitions that Numba leaves visible: environments, which only CPU code looks up, and shared arrays.
_VARIABLE = re.compile(
    r'^(@"(?:_ZN08NumbaEnv[^"]*|_cudapy_smem_\d+)" = )(?:common (?=global )|(?=addrspace\(3\) global ))',
    re.MULTILINE,
)


def ordered_modules(library: Any, kept: Iterable[str], salt: str, root: str) -> list[str]:
    """
    Return the LLVM IR of *library* and its transitive callees, each once, callers first.

    Names and order are those of `stable_names`: deterministic across processes. Variables are internal. The
    modules themselves, which other programs may share, are unchanged.

    Args:
        library: Numba's code library.
        kept: Symbols that keep their names, which a caller may have chosen to look like Numba's.
        salt: What else the code depends on: NVVM's options.
        root: The LLVM IR of *library* itself.
    """
    texts = rename_apart(_ordered(library, root), kept, salt).texts
    return [_VARIABLE.sub(r"\1internal ", text) for text in texts]


def renamed(library: Any, *, keep_visible: bool) -> Renamed:
    """
    Return the program whose root is *library*, under names that depend on the program alone.

    Args:
        library: Numba's code library.
        keep_visible: Whether the visible symbols of the root keep their names.
    """
    modules = _ordered(library)
    return rename(modules, modules[0].visible if keep_visible else ())


def _ordered(library: Any, root: str = "") -> list[QuotedModule]:
    own, *modules = filter(None, (next(iter(each.modules), None) for each in all_libraries(library)))
    texts = [text.replace(*DEBUG_VERSION) for text in (root or str(own), *map(str, modules))]
    return in_order(list(map(QuotedModule, texts)))


def all_libraries(library: Any) -> list[Any]:
    """Return *library* and its transitive callees, each once."""
    reached: dict[int, Any] = {}
    pending = [library]
    while pending:
        each = pending.pop()
        if id(each) not in reached:
            reached[id(each)] = each
            # Code that is linked as a file has no callees that Numba compiled.
            pending.extend(getattr(each, "_linking_libraries", ()))
    return list(reached.values())
