"""
What travels between exports and a front end: a function in LLVM IR, and the files that it links.

`FrontEnd` says what a front end is: one of Numba's compilers for CUDA, in a package of its own. `registry`
lists the packages. Each has a module `front_end` with an object `FRONT_END`, which is a `FrontEnd`, and a
module `compile` with a function `lower`. Nothing else names a module of a front end, and no front end imports
the other.

A package holds what is private to its compiler and no more. Common to all, and below them, are:

- `_front_end`: `patch`, how an attribute is replaced and put back, and what travels between replaced
  functions; `compiler`, the base class of front ends; `disk_keys`, keys of kernels on disk; `errors`, what
  link errors have in common; `codegen`, the C function around one that a compiler made, for which a package
  has a `Convention`.
- `abi`: which C type a type is. The classes of types have equal names in all front ends.
- `_export`: `signatures` resolves signatures; `externs` and `link_files` read what a function calls and
  links; `compile` verifies prototypes, merges link files and makes cubins.

An export calls `normalize` once for each signature. For each architecture it calls `lower` for each function,
which returns its IR, C function and all, and `compile_ir` for the IR of several functions: to PTX, and to
LTO-IR where it is wanted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from .compiler import FrontEnd

if TYPE_CHECKING:
    from pathlib import Path

    from numba_ptxlink._cabi.header import CFunction
    from numba_ptxlink._cabi.options import AbiOptions
    from numba_ptxlink._cabi.signatures import Signature

__all__ = ["Declare", "FrontEnd", "LinkFile", "LoweredFunction"]


@dataclass(frozen=True)
class LinkFile:
    """
    A file that a compiled function links.

    Args:
        name: What messages call it.
        kind: Its kind, one of `_formats.kinds`.
        content: What it holds.
        path: Where it is, absolute; None for code in memory.
    """

    name: str
    kind: str
    content: bytes
    path: Path | None = None


@dataclass(frozen=True)
class LoweredFunction:
    """
    A function of an export for one architecture, in LLVM IR that depends on no other function.

    Args:
        declaration: What a header says of its C function.
        abi: What an error does in it.
        modules: The NVVM IR of the C function and of all that it calls, callers first. A module has the same
            text wherever it occurs. All but the C function is internal or has a name by its content, so that
            neither another process nor what this one compiled before makes a difference.
        links: The files that it links, without the compiler's memory manager.
        calls: The functions that `cuda.declare_device` declares and it may call: symbol, and C signature
            where C has the types.
        raises: The source lines where it or its callees may raise, as "file.py:line", its own first. Lines
            that are proved never to raise may be left out.
    """

    declaration: CFunction
    abi: AbiOptions
    modules: tuple[str, ...]
    links: tuple[LinkFile, ...] = ()
    calls: tuple[tuple[str, Signature | None], ...] = ()
    raises: tuple[str, ...] = ()

    @property
    def signature(self) -> Signature:
        """Its C signature."""
        return self.declaration.signature

    @property
    def title(self) -> str:
        """How messages name it: "name (file.py:line)"."""
        return f"{self.signature.name} ({self.declaration.source})"

    @property
    def location(self) -> str:
        """Where it is defined, as "/home/me/file.py:line"."""
        return self.declaration.location


class Declare(Protocol):
    """Says what a header has of a C function, once its compiler knows the types."""

    def __call__(self, args: tuple[Any, ...], result: Any, /, *, raises: bool) -> CFunction:
        """
        Return the declaration of the C function, with its signature.

        Args:
            args: The types of the parameters, as the compiler takes them.
            result: The type of the result, inferred or as declared.
            raises: Whether it or a callee may raise.

        Raises:
            AbiError: C has not one of the types.
        """
