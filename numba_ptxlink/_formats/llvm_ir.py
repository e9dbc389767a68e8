"""Read LLVM IR as text: the subset of the LLVM Language Reference Manual that Numba writes."""

from __future__ import annotations

import enum
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numba_ptxlink._arch import Arch

# `declare noundef float @f(float*, i32) #1` gives "noundef float", "f" and "float*, i32) #1".
_DECLARATION = re.compile(r'^declare\s+([^@\n]*?)@"?([\w$.]+)"?\((.*)$', re.MULTILINE)
# `{i32, float*} %"x"` has the words `{`, `i32`, `,`, `float`, `*`, `}` and `%"x"`.
_WORD = re.compile(r'%?"[^"]*"|[\w.%$]+|\S')
# The attribute of a parameter such as `ptr byval(%"Particle") %p`.
_TYPED_BYVAL = re.compile(r'\bbyval\(%"[^"]*"\)')
# Words that may stand before the type of a result.
_ATTRIBUTES = frozenset(
    ("dso_local", "external", "extern_weak", "noundef", "signext", "zeroext", "fastcc", "ccc")
)
_OPENING, _CLOSING = "{[<(", "}]>)"


class NvvmDialect(enum.Enum):
    """The LLVM IR that NVVM reads: that of LLVM 7 before sm_100, and that of a newer LLVM from sm_100 on."""

    TYPED_POINTERS = "before sm_100"
    OPAQUE_POINTERS = "from sm_100 on"

    @classmethod
    def of(cls, arch: Arch) -> NvvmDialect:
        """Return the dialect that NVVM reads for *arch*."""
        return cls.OPAQUE_POINTERS if arch.cc >= (10, 0) else cls.TYPED_POINTERS

    @property
    def is_opaque(self) -> bool:
        """Whether pointers have no target type: they are spelled "ptr"."""
        return self is NvvmDialect.OPAQUE_POINTERS

    def pointer(self, target: str) -> str:
        """Return the type of pointers to the type *target*."""
        return "ptr" if self.is_opaque else f"{target}*"

    def adapt_byval(self, modules: Iterable[str]) -> list[str]:
        """Return *modules* in this dialect: with typed pointers, `byval(%"Particle")` becomes `byval`."""
        return [module if self.is_opaque else _TYPED_BYVAL.sub("byval", module) for module in modules]


def declared_types(text: str) -> dict[str, tuple[str, ...]]:
    """
    Return the functions that *text* declares, with their types: of the result, and of each parameter.

    The types are "ptr" for pointers, "byval" for structs that are passed or returned in memory, and others as
    written.
    """
    # Deferred: most users of this module read no types.
    from .llvm_types import split

    types = {}
    for result, name, params in _DECLARATION.findall(text):
        words = [word for word in _WORD.findall(result) if word not in _ATTRIBUTES]
        types[name] = tuple(map(_type, [words, *map(_WORD.findall, split(params)[0])]))
    return types


def parameter_names(text: str, function: str) -> list[str]:
    """
    Return the names of the parameters of *function* without the `%`; "" for unnamed ones.

    The result is empty if the module *text* does not define *function*.
    """
    from .llvm_types import split

    match = re.search(rf'^define [^\n@]*@"?{re.escape(function)}"?\((.*)$', text, re.MULTILINE)
    params = split(match[1])[0] if match else []
    names = [re.search(r'%"?([A-Za-z_][\w.]*)"?$', param.strip()) for param in params]
    return [name[1] if name else "" for name in names]


def _type(words: list[str]) -> str:
    """
    Return the type that *words* begin with, as `declared_types` spells it; attributes and a name may follow.

    For example, "[ 4 x i8 ]" for the words `[`, `4`, `x`, `i8`, `]` and `%y`.
    """
    end, depth = 1, int(words[0] in _OPENING)
    while depth and end < len(words):
        depth += (words[end] in _OPENING) - (words[end] in _CLOSING)
        end += 1
    after_type = words[end:]
    if "byval" in after_type or "sret" in after_type:
        return "byval"
    return "ptr" if "*" in after_type else " ".join(words[:end])


def has_line_numbers(text: str) -> bool:
    """Return whether the module *text* maps its instructions to source lines."""
    return "!DILocation(" in text


def is_for_debugging(text: str) -> bool:
    """Return whether the module *text* has full debug information, as of debug=True."""
    return "emissionKind: FullDebug" in text
