"""Order the LLVM IR modules of a program, and rename their symbols, independently of the process."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from .context import DEBUG_VERSION
from .stable_names import QuotedModule, RenamedProgram, rename, rename_by_module, topologically_sorted

if TYPE_CHECKING:
    from collections.abc import Iterable

# Definitions that Numba leaves visible: environments, which only CPU code uses, and shared arrays, such as
# `@"_ZN08NumbaEnv4udfs1f" = common global` and `@"_cudapy_smem_1" = addrspace(3) global`.
_VISIBLE_VARIABLE = re.compile(
    r'^(@"(?:_ZN08NumbaEnv[^"]*|_cudapy_smem_\d+)" = )(?:common (?=global )|(?=addrspace\(3\) global ))',
    re.MULTILINE,
)


def ordered_modules(library: Any, stable_symbols: Iterable[str], salt: str, root_text: str) -> list[str]:
    """
    Return the LLVM IR of *library* and its transitive callees, each once, callers first.

    Names and order are those of `stable_names`: deterministic across processes. Variables are internal.
    Numba's modules themselves, which other programs may share, are unchanged.

    Args:
        library: Numba's code library.
        stable_symbols: Symbols that keep their names, even if they look like Numba's.
        salt: Other inputs of the code: NVVM's options.
        root_text: The LLVM IR of *library* itself.
    """
    texts = rename_by_module(_quoted_modules(library, root_text), stable_symbols, salt).texts
    return [_VISIBLE_VARIABLE.sub(r"\1internal ", text) for text in texts]


def rename_program(library: Any, *, keep_visible: bool) -> RenamedProgram:
    """
    Return the program whose root is *library*, with names that do not depend on the process.

    Args:
        library: Numba's code library.
        keep_visible: Whether the visible symbols of the root keep their names.
    """
    modules = _quoted_modules(library)
    return rename(modules, modules[0].visible if keep_visible else ())


def _quoted_modules(library: Any, root_text: str = "") -> list[QuotedModule]:
    """Return the modules of *library*, whose text is *root_text* unless that is "", and of its callees."""
    root_module, *modules = filter(
        None, (next(iter(member.modules), None) for member in all_libraries(library))
    )
    texts = [text.replace(*DEBUG_VERSION) for text in (root_text or str(root_module), *map(str, modules))]
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
