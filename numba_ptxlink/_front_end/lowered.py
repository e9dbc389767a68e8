"""
The result of `FrontEnd.lower`: a function in LLVM IR, with its declaration in C, callees and link files.

Nothing in it depends on the front end, so that exports handle the functions of all front ends in the same
way.
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
        kind: The kind of code, a key of `_formats.kinds.KINDS`, such as "cu" or "ptx".
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
        modules: The LLVM IR of the wrapper and of its callees, callers first, in NVVM's dialect. All
            functions but the wrapper are internal or named by a digest of their module, so that the text is
            the same in each process, whatever the process has compiled before.
        links: The files that it links. Numba's memory manager is left out: an export does not contain it, and
            refuses functions that need it.
        calls: The functions of `cuda.declare_device` that it may call, as pairs of symbol and C signature.
            The signature is None if C lacks one of the types.
        raises: The source lines where it or a callee may raise, as "file.py:line", its own first. A `raise`
            that the compiler has proved unreachable may be missing.
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
        """The name for messages: "symbol (file.py:line)"."""
        return f"{self.signature.name} ({self.declaration.source})"

    @property
    def location(self) -> str:
        """The line of the definition, as "/home/me/file.py:line"."""
        return self.declaration.location


class Declare(Protocol):
    """A function that the front end calls once it has inferred the types, to get the C declaration."""

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
