"""What can be linked, and where it comes from."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.kinds import CU, EXTENSIONS, KINDS, recognise
from numba_ptxlink.errors import LinkError

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")


@dataclass(frozen=True)
class Input:
    """
    One input of a link.

    Args:
        kind: A name out of `_formats.kinds.KINDS`.
        name: What messages call it: its file name, or a name in angle brackets.
        code: Its content.
        witness: LLVM IR of the same code, where a binary's maker has it at hand; it tells the symbols.
    """

    kind: str
    name: str
    code: bytes = field(repr=False)
    witness: str = field(default="", repr=False, compare=False)
    _read: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        """Its content as text; what is no UTF-8 in it survives `str.encode` with "surrogateescape"."""
        return self._once("text", lambda: self.code.decode(errors="surrogateescape"))

    @property
    def header(self) -> ptx.Header:
        """What PTX says of itself, without reading the rest."""
        return self._once("header", lambda: ptx.read_header(self.text))

    @property
    def module(self) -> ptx.Module:
        """PTX as a tree."""
        return self._once("module", lambda: ptx.parse(self.text))

    def _once(self, what: str, read: Callable[[], T]) -> T:
        # Two threads may both read it, which gives the same.
        if what not in self._read:
            self._read[what] = read()
        value: T = self._read[what]
        return value


def read(source: Any, number: int = 1) -> Input:
    """
    Turn anything that `link` takes, but a UDF, into an `Input`.

    Args:
        source: A path; a `str` without a line break, which is a path too; content as bytes, a `str` with a
            line break or a file object; or a `LinkableCode` of numba-cuda.
        number: The input's place in the link, for the names of nameless ones.

    Raises:
        LinkError: There is no such file, or its kind cannot be told. Names the input and the cure.
    """
    if isinstance(source, Input):
        return source
    if isinstance(source, os.PathLike) or (isinstance(source, str) and "\n" not in source):
        return _read_file(Path(source))
    name = ""
    if hasattr(source, "kind") and hasattr(source, "data"):
        name, source = str(source.name), source.data
    elif hasattr(source, "read"):
        name = str(getattr(source, "name", ""))
    if hasattr(source, "read"):
        source = content_of(source)
    if isinstance(source, str):
        source = source.encode()
    if not isinstance(source, (bytes, bytearray, memoryview)):
        raise LinkError(
            f"Input {number} is a {type(source).__name__}; give a path, PTX or CUDA C++ text, bytes, a file "
            "object, a LinkableCode of numba-cuda or a UDF."
        )
    code = bytes(source)
    kind = recognise(code)
    if kind is None:
        raise LinkError(
            f"Input {number}{f' ({name})' if name else ''} is {'empty' if not code else 'of no known kind'}; "
            "give PTX, LTO-IR, a cubin, an object, a fat binary, an archive or CUDA C++ source.",
            inputs=(name,) if name else (),
        )
    return Input(kind, name or f"<{kind} {number}>", code)


def content_of(file: Any) -> Any:
    """Return all that a file object holds, from its beginning: it may be linked into a second kernel."""
    if hasattr(file, "seekable") and file.seekable():
        file.seek(0)
    return file.read()


def _read_file(path: Path) -> Input:
    try:
        code = path.read_bytes()
    except FileNotFoundError as error:
        raise LinkError(f"{path} not found; check the path.", inputs=(path.name,)) from error
    except OSError as error:
        raise LinkError(f"{path} could not be read: {error.strerror}.", inputs=(path.name,)) from error
    named = EXTENSIONS.get(path.suffix.lower())
    found = recognise(code)
    if found is None or (named is not None and named != found and CU not in (named, found)):
        says = f"its extension says {named}" if named else "it has no known extension"
        holds = f"its content is {found}" if found else "its content is of no known kind"
        raise LinkError(
            f"{path}: {says} and {holds}; give a file of {', '.join(KINDS)} under its own extension.",
            inputs=(path.name,),
        )
    if found == CU and named not in (CU, None):
        raise LinkError(
            f"{path}: its extension says {named} and its content does not; the file may be damaged.",
            inputs=(path.name,),
        )
    return Input(named or found, path.name, code)
