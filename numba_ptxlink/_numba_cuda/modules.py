"""
Give the LLVM IR modules of a program an order and symbols that are the same in each process.

A program is a compiled function with all functions that it calls; Numba has a code library for each of them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .context import with_nvrtc_debug_version
from .stable_names import QuotedModule, RenamedProgram, rename, rename_by_module, topologically_sorted

if TYPE_CHECKING:
    from collections.abc import Iterable

# Variables that Numba leaves visible to other modules: environments, which only CPU code uses, such as
# `@"_ZN08NumbaEnv4udfs1f" = common global`, and shared arrays, `@"_cudapy_smem_1" = addrspace(3) global`.
# Group 1 is followed by `internal` in the replacement.
_VISIBLE_VARIABLE = re.compile(
    r'^(@"(?:_ZN08NumbaEnv[^"]*|_cudapy_smem_\d+)" = )(?:common (?=global )|(?=addrspace\(3\) global ))',
    re.MULTILINE,
)


def ordered_modules(library: Any, stable_symbols: Iterable[str], salt: str, root_text: str) -> list[str]:
    """
    Return the LLVM IR of *library* and its transitive callees, each once, callers first.

    Order and names are the same in each process; see `stable_names`. Variables become internal to their
    modules. Only the returned texts have these changes: other programs may contain Numba's module objects,
    too.

    Args:
        library: Numba's code library of the program's root.
        stable_symbols: Symbols that keep their names, even if they look as if they depend on the process.
        salt: The other inputs of the code: if they differ, so do the names.
        root_text: The LLVM IR to use for *library* itself.
    """
    texts = rename_by_module(_quoted_modules(library, root_text), stable_symbols, salt).texts
    return [_VISIBLE_VARIABLE.sub(r"\1internal ", text) for text in texts]


def rename_program(library: Any, *, keep_visible: bool) -> RenamedProgram:
    """
    Return the program whose root is *library*, with names that do not depend on the process.

    Args:
        library: Numba's code library of the program's root.
        keep_visible: Whether the functions of the root that other modules may call keep their names.
    """
    modules = _quoted_modules(library)
    return rename(modules, modules[0].visible if keep_visible else ())


def _quoted_modules(library: Any, root_text: str = "") -> list[QuotedModule]:
    """Return the modules of *library*, whose text is *root_text* unless that is "", and of its callees."""
    # The first module of a library is its own, and those of its callees follow; the library of a link file
    # has no module.
    modules = [module for member in all_libraries(library) for module in list(member.modules)[:1]]
    texts = [root_text or str(modules[0]), *map(str, modules[1:])]
    return topologically_sorted([QuotedModule(with_nvrtc_debug_version(text)) for text in texts])


def all_libraries(library: Any) -> list[Any]:
    """Return *library* and its transitive callees, each once, *library* first."""
    reached: dict[Any, None] = {}
    pending = [library]
    while pending:
        member = pending.pop()
        if member not in reached:
            reached[member] = None
            # The library of a link file has no list of callees.
            pending.extend(getattr(member, "_linking_libraries", ()))
    return list(reached)
