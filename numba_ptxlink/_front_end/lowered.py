"""
The result of `FrontEnd.lower`: a function in LLVM IR, with its declaration in C, callees and link files.

All of it is independent of the front end, so that exports handle the functions of any front end alike.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from pathlib import Path

    from numba_ptxlink._cabi.header import CFunction
    from numba_ptxlink._cabi.options import AbiOptions
    from numba_ptxlink._cabi.signatures import Signature


@dataclass(frozen=True)
class LinkFile:
    """
    A file that a compiled function links.

    Args:
        name: The name for messages.
        kind: The kind, one of `_formats.kinds`.
        content: The bytes.
        path: The absolute path; None for code in memory.
    """

    name: str
    kind: str
    content: bytes
    path: Path | None = None


@dataclass(frozen=True)
class LoweredFunction:
    """
    A function of an export, compiled to LLVM IR for one architecture, with all functions that it calls.

    Args:
        declaration: The declaration of its wrapper for a C header.
        abi: The options that the wrapper was generated with.
        modules: The NVVM IR of the wrapper and its callees, callers first. Names depend only on a module's
            content: all functions but the wrapper are internal or named by a digest, so that neither the
            process nor functions that it has compiled before make a difference.
        links: The files that it links, without the compiler's memory manager.
        calls: The functions of `cuda.declare_device` that it may call, as pairs of symbol and C signature.
            The signature is None if C lacks one of the types.
        raises: The source lines where it or a callee may raise, as "file.py:line", its own first. Lines that
            never raise, as the compiler can prove, may be missing.
    """

    declaration: CFunction
    abi: AbiOptions
    modules: tuple[str, ...]
    links: tuple[LinkFile, ...] = ()
    calls: tuple[tuple[str, Signature | None], ...] = ()
    raises: tuple[str, ...] = ()

    @property
    def signature(self) -> Signature:
        """The C signature."""
        return self.declaration.signature

    @property
    def title(self) -> str:
        """The name for messages: "name (file.py:line)"."""
        return f"{self.signature.name} ({self.declaration.source})"

    @property
    def location(self) -> str:
        """The line of the definition, as "/home/me/file.py:line"."""
        return self.declaration.location


class Declare(Protocol):
    """Creates the declaration of a C function, after the compiler has inferred the types."""

    def __call__(self, args: tuple[Any, ...], result: Any, /, *, raises: bool) -> CFunction:
        """
        Return the declaration of the C function, with its signature.

        Args:
            args: The types of the parameters, as the compiler resolved them.
            result: The type of the result, inferred or as declared.
            raises: Whether the function or a callee may raise.

        Raises:
            AbiError: One of the types has no counterpart in C.
        """
