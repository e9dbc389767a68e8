"""Read the inputs of a link: paths, text, bytes, file objects and `LinkableCode`."""

from __future__ import annotations

import codecs
import os
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from numba_ptxlink._formats.kinds import CU, EXTENSIONS, KINDS, describe, is_text, recognise
from numba_ptxlink._formats.ptx_header import read_header
from numba_ptxlink.errors import LinkError, MissingInputError

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba_ptxlink._formats import ptx

T = TypeVar("T")

# A line of CUDA C++ or PTX, and no path: it has a semicolon or a `{` after a `(`, or begins with a comment, a
# preprocessor directive or `.version`; or it has a null byte, which no path has.
_CODE = r"[;\0]|\(.*\{|^\s*(?://|/\*|#\s*\w|\.version\s)"


@dataclass(frozen=True)
class Input:
    """
    An input of a link.

    Args:
        kind: A key of `_formats.kinds.KINDS`, such as "ptx".
        name: The name in messages: the file name, or a name in angle brackets, such as "<ptx 1>".
        code: The content.
        path: The path that the input was read from; None if it was passed as content.
        compiled: Whether this link compiled the input; *name* is then that of its CUDA C++ or Python.
    """

    kind: str
    name: str
    code: bytes = field(repr=False)
    path: Path | None = field(default=None, repr=False, compare=False)
    compiled: bool = field(default=False, repr=False, compare=False)
    _memo: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def text(self) -> str:
        """The content as text; "surrogateescape" in `str.encode` restores bytes that are not UTF-8."""
        return self._once("text", lambda: self.code.decode(errors="surrogateescape"))

    @property
    def header(self) -> ptx.Header:
        """The header of PTX, without parsing the rest."""
        return self._once("header", lambda: read_header(self.text))

    @property
    def module(self) -> ptx.Module:
        """The PTX module."""
        from numba_ptxlink._formats.ptx import parse

        return self._once("module", lambda: parse(self.text))

    def _once(self, key: str, make: Callable[[], T]) -> T:
        """Return the value of *key*; *make* computes it at the first call."""
        # Before Python 3.12, a cached_property has a lock, for which a forked child could wait for ever. No
        # lock is needed: two threads that both compute a value get equal values.
        if key not in self._memo:
            self._memo[key] = make()
        value: T = self._memo[key]
        return value


def read(source: Any, number: int = 1) -> Input:
    """
    Convert anything that `link` takes, except a UDF, to an `Input`.

    Args:
        source: A path; content as bytes, as a file object, or as a `str` that has a line break, or that looks
            like CUDA C++ or PTX and is no path of a file; or a `LinkableCode` of numba-cuda.
        number: The 1-based position of the input in the link, for messages.

    Raises:
        LinkError: The file does not exist, or its kind is unknown. Names the input and the cure.
    """
    if isinstance(source, Input):
        return source
    if isinstance(source, str) and not source:
        raise LinkError(f"Input {number} is empty text; pass a path, PTX or CUDA C++.")
    if isinstance(source, os.PathLike) or (isinstance(source, str) and not _is_content(source)):
        return _read_file(source)
    name = ""
    # A LinkableCode has a kind, a name and data, which may be a file object.
    if hasattr(source, "kind") and hasattr(source, "data"):
        name, source = str(source.name), source.data
    elif _is_file(source):
        name = str(getattr(source, "name", ""))
    if _is_file(source):
        try:
            source = _content_of(source)
        except (OSError, ValueError) as error:
            title = f" ({name})" if name else ""
            raise LinkError(
                f"Input {number}{title} could not be read: {error}; open it again, as bytes."
            ) from error
    if not isinstance(source, (str, bytes, bytearray, memoryview)):
        raise LinkError(
            f"Input {number} is a {type(source).__name__}; pass a path, PTX or CUDA C++ text, bytes, a file "
            f"object, a LinkableCode of numba-cuda, a UDF, or what read() of an export returns."
        )
    code = as_bytes(source)
    kind = recognise(code)
    if kind is None:
        raise LinkError(
            f"Input {number}{f' ({name})' if name else ''} is {describe(code)}; "
            "pass PTX, LTO-IR, a cubin, an object, a fat binary, an archive or CUDA C++ source.",
            inputs=(name,) if name else (),
        )
    return Input(kind, name or f"<{kind} {number}>", code)


def _is_file(source: Any) -> bool:
    """Return whether *source* is a file object."""
    # An Export, which is none, also has a method `read`.
    return hasattr(source, "read") and not hasattr(source, "artifacts")


def as_bytes(content: Any) -> bytes:
    """
    Convert text, anything that `bytes` takes, or a file object to bytes without a byte order mark.

    Raises:
        LinkError: The text is not valid Unicode.
    """
    if hasattr(content, "read"):
        content = _content_of(content)
    try:
        # The error handler restores bytes that are not UTF-8.
        code = content.encode(errors="surrogateescape") if isinstance(content, str) else bytes(content)
    except UnicodeEncodeError as error:
        raise LinkError(f"A text is not valid Unicode ({error}); pass it as bytes.") from error
    return code.removeprefix(codecs.BOM_UTF8)


def _content_of(file: Any) -> Any:
    """Return the whole content of a file object, even if it was read before, as for another kernel."""
    if hasattr(file, "seekable") and file.seekable():
        file.seek(0)
    return file.read()


def _is_content(source: str) -> bool:
    """Return whether *source* is content, and no path: it has a line break, or looks like code."""
    if "\n" in source:
        return True
    path = Path(source)
    if path.suffix.lower() in EXTENSIONS or not re.search(_CODE, source):
        return False
    # A file may have a name that looks like code.
    try:
        return not path.exists()
    except (OSError, ValueError):  # too long for a path, or with a null byte
        return True


def _read_file(source: str | os.PathLike[str]) -> Input:
    path = Path(source)
    try:
        code = path.read_bytes()
    except FileNotFoundError as error:
        # Only a str may be meant as source text instead of a path.
        hint = ""
        if isinstance(source, str):
            hint = " If it is not a path but CUDA C++ or PTX, end it with a line break."
        raise MissingInputError(f"{path} not found; check the path.{hint}", inputs=(path.name,)) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", error)
        raise LinkError(
            f"{str(path)!r} could not be read: {reason}; check the file.", inputs=(path.name,)
        ) from error
    code = code.removeprefix(codecs.BOM_UTF8)
    declared_kind = EXTENSIONS.get(path.suffix.lower())
    kind = recognise(code)
    if kind is None and declared_kind == CU and code.strip():
        # nvcc accepts any encoding that extends ASCII.
        kind = CU if is_text(code) else None
    # A .cu file is CUDA C++ even if its content looks like another kind.
    if kind is None or declared_kind not in (None, CU, kind):
        extension = f"is {declared_kind} by its extension" if declared_kind else "has no known extension"
        content = kind or describe(code)
        raise LinkError(
            f"{path} {extension}, and its content is {content}; pass a file of {', '.join(KINDS)} under its "
            "own extension, or a Python file to `numba-ptxlink export`.",
            inputs=(path.name,),
        )
    return Input(declared_kind or kind, path.name, code, path=path)
