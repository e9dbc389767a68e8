"""
Define and check the options for compiling CUDA C++.

A link without CUDA C++ imports this module, but not the modules that compile, which would delay it.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink.errors import ConfigError, short_repr

from .options import as_texts, source_flags

if TYPE_CHECKING:
    from pathlib import Path

    from .includes import Includes


class SourceOptions(NamedTuple):
    """
    The options for compiling CUDA C++.

    Args:
        include_dirs: Directories that `#include` searches, in order.
        headers: Headers held in memory, as pairs of the name that `#include` uses and the text.
        defines: Macros, as pairs of name and value; None defines without a value.
        cxx_standard: The C++ standard, such as "c++20"; None for NVRTC's default.
        name_expressions: Names of kernels and variables, also of template instances; the compilation returns
            the symbol of each.
        flags: Further NVRTC options.
    """

    include_dirs: tuple[Path | str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()
    defines: tuple[tuple[str, str | None], ...] = ()
    cxx_standard: str | None = None
    name_expressions: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()

    @classmethod
    def checked(
        cls,
        *,
        include_dirs: Any = (),
        headers: Any = None,
        defines: Any = None,
        cxx_standard: Any = None,
        name_expressions: Any = (),
        nvrtc_flags: Any = (),
    ) -> SourceOptions:
        """
        Return the options that a caller passes, after a check.

        Raises:
            ConfigError: An option has a wrong type, or a flag is one for which `link` has a parameter.
        """
        if include_dirs != ():
            # Deferred: most links have none.
            from .includes import check_include_dirs

            include_dirs = tuple(check_include_dirs(include_dirs))
        if cxx_standard is not None and not (isinstance(cxx_standard, str) and cxx_standard):
            raise ConfigError(f'cxx_standard is {short_repr(cxx_standard)}; pass text such as "c++20".')
        return cls(
            include_dirs,
            _checked_texts("headers", headers, (str,)),
            _checked_texts("defines", defines, (str, NoneType)),
            cxx_standard,
            as_texts("name_expressions", name_expressions),
            source_flags(nvrtc_flags),
        )

    def arguments(self) -> tuple[str, ...]:
        """Return NVRTC's options for the standard, the macros and the flags, but not for the other fields."""
        return (
            *((f"--std={self.cxx_standard}",) if self.cxx_standard else ()),
            *(
                f"--define-macro={name}" + ("" if value is None else f"={value}")
                for name, value in self.defines
            ),
            *self.flags,
        )

    def find_includes(self, source: bytes, folder: Path) -> Includes:
        """Return the files that *source* in *folder* can include."""
        from .includes import find_includes

        # A name expression is compiled, too, and may contain a macro such as __FILE__.
        texts = (*self.arguments(), *self.name_expressions)
        return find_includes(source, folder, self.include_dirs, dict(self.headers), texts)

    def content_of(self, source: bytes, folder: Path) -> tuple[bytes, tuple[str, ...]] | None:
        """
        Return *source* with the `Includes.key` that it has in *folder*; None if that key is None.

        Two sources for which this returns equal values are compiled to the same code.
        """
        key = self.find_includes(source, folder).key
        return None if key is None else (source, key)


def _checked_texts(option: str, mapping: Any, types: tuple[type, ...]) -> tuple[Any, ...]:
    """Return the items of *mapping*, checked: keys of `str`, values of *types*; () if *mapping* is None."""
    if mapping is None:
        return ()
    if not isinstance(mapping, Mapping):
        raise ConfigError(f"{option} is {short_repr(mapping)}; pass a dict, from each name to its text.")
    for name, text in mapping.items():
        if not isinstance(name, str) or not isinstance(text, types):
            cure = "pass a str for each name" + (", or None" if NoneType in types else "")
            raise ConfigError(f"{option}[{short_repr(name)}] is {short_repr(text)}; {cure}.")
    return tuple(mapping.items())
