"""Order the LLVM IR modules of a program, and rename their symbols, independently of the process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .context import DEBUG_VERSION
from .stable_names import QuotedModule, RenamedProgram, rename, rename_by_module, topologically_sorted

if TYPE_CHECKING:
    from collections.abc import Iterable

# Definitions that Numba leaves visible: environments, which only CPU code uses, and shared arrays.
_VARIABLE = re.compile(
    r'^(@"(?:_ZN08NumbaEnv[^"]*|_cudapy_smem_\d+)" = )(?:common (?=global )|(?=addrspace\(3\) global ))',
    re.MULTILINE,
)


def ordered_modules(library: Any, stable_symbols: Iterable[str], salt: str, root: str) -> list[str]:
    """
    Return the LLVM IR of *library* and its transitive callees, each once, callers first.

    Names and order are those of `stable_names`: deterministic across processes. Variables are internal. The
    modules themselves, which other programs may share, are unchanged.

    Args:
        library: Numba's code library.
        stable_symbols: Symbols that keep their names, even if they look like Numba's.
        salt: Other inputs of the code: NVVM's options.
        root: The LLVM IR of *library* itself.
    """
    texts = rename_by_module(_quoted_modules(library, root), stable_symbols, salt).texts
    return [_VARIABLE.sub(r"\1internal ", text) for text in texts]


def rename_program(library: Any, *, keep_visible: bool) -> RenamedProgram:
    """
    Return the program whose root is *library*, with names that do not depend on the process.

    Args:
        library: Numba's code library.
        keep_visible: Whether the visible symbols of the root keep their names.
    """
    modules = _quoted_modules(library)
    return rename(modules, modules[0].visible if keep_visible else ())


def _quoted_modules(library: Any, root: str = "") -> list[QuotedModule]:
    root_module, *modules = filter(
        None, (next(iter(member.modules), None) for member in all_libraries(library))
    )
    texts = [text.replace(*DEBUG_VERSION) for text in (root or str(root_module), *map(str, modules))]
    return topologically_sorted(list(map(QuotedModule, texts)))


def all_libraries(library: Any) -> list[Any]:
    """Return *library* and its transitive callees, each once."""
    reached: dict[int, Any] = {}
    pending = [library]
    while pending:
        member = pending.pop()
        if id(member) not in reached:
            reached[id(member)] = member
            # Libraries of link files have no callees.
            pending.extend(getattr(member, "_linking_libraries", ()))
    return list(reached.values())
