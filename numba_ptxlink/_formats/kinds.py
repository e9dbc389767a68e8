"""The kinds of code that can be linked: a row for each, and how content is recognised."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

PTX, LTOIR, CUBIN, OBJECT = "ptx", "ltoir", "cubin", "object"
FATBIN, ARCHIVE, CU = "fatbin", "archive", "cu"

KERNELS, LAUNCHER = "kernels", "launcher"
"""What an export writes beside code that is linked: a fat binary that a driver loads, and C++ around it."""

EM_CUDA = 190
_ELF = b"\x7fELF"
_LTOIR_HEADER = struct.Struct("<6x2B18xH")
_LLVM_IR = (
    r'(?m)^(?:; ModuleID|source_filename = |target (?:triple|datalayout) = "|'
    r"(?:define|declare)\b[^\n]*@|!llvm\.)"
)
_COMMENT = r"//[^\n]*|/\*[\s\S]*?\*/"
# No sentence of prose has these.
_SIGN = r'(?m)\b__(?:global|device|host|constant|shared)__\b|\bextern\s+"C"|^\s*#\s*[dip]\w+|[;}]\s*\Z'


class Kind(NamedTuple):
    """
    A kind of code.

    Args:
        name: What options and messages call it.
        extensions: The extensions of its files, the usual one first.
        magic: What its content begins with, b"" where that does not tell.
        nvjitlink: nvJitLink's name for it as an `nvJitLinkInputType`, "" for what it does not link.
        artifact: Whether an export writes it.
    """

    name: str
    extensions: tuple[str, ...]
    magic: bytes = b""
    nvjitlink: str = ""
    artifact: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        Kind(PTX, (".ptx",), nvjitlink="PTX", artifact=True),
        Kind(LTOIR, (".ltoir",), b"\xedCN\x7f", "LTOIR", artifact=True),
        Kind(CUBIN, (".cubin",), nvjitlink="CUBIN", artifact=True),
        Kind(OBJECT, (".o", ".obj"), nvjitlink="OBJECT"),
        Kind(FATBIN, (".fatbin",), b"\x50\xed\x55\xba", "FATBIN", artifact=True),
        Kind(ARCHIVE, (".a", ".lib"), b"!<arch>\n", "LIBRARY"),
        Kind(CU, (".cu",)),
    )
}
EXTENSIONS = {extension: kind.name for kind in KINDS.values() for extension in kind.extensions}
ARTIFACTS = tuple(kind.name for kind in KINDS.values() if kind.artifact)


def recognise(code: bytes) -> str | None:
    """Return the kind of *code* by its content, None for one that is none of `KINDS`."""
    if code.startswith(_ELF):
        machine = struct.unpack_from("<H", code, 18)[0] if len(code) >= 20 else 0
        return CUBIN if machine == EM_CUDA else OBJECT
    for kind in KINDS.values():
        if kind.magic and code.startswith(kind.magic):
            return kind.name
    from .ptx_header import read_header

    # Compilers of PTX take any bytes in comments and strings.
    stripped = b"" if code.startswith(b"\0") else code.rstrip(b"\0")
    if not stripped.strip() or b"\0" in stripped:
        return None
    text = stripped.decode(errors="surrogateescape")
    # Most text that is none has not the word: the lexer is not started for it.
    if ".version" in text and read_header(text).version:
        return PTX
    return CU if is_text(code, ascii_based=False) and _is_cxx(text) else None


def ltoir_header(code: bytes) -> tuple[tuple[int, int], int] | None:
    """
    Return the version of the NVVM IR and the compute capability, such as 90; None without LTO-IR.

    NVIDIA does not document them. They were found by comparing the output of NVRTC 12.4, 12.9 and 13.5 for
    the architectures from compute_75 to compute_120 that each supports: bytes 4 to 7 change with the release
    only, and the halfword at byte 26 is ten times the compute capability in every one.
    """
    if not code.startswith(KINDS[LTOIR].magic) or len(code) < _LTOIR_HEADER.size:
        return None
    major, minor, tenfold = _LTOIR_HEADER.unpack_from(code)
    return (major, minor), tenfold // 10


def describe(code: bytes) -> str:
    """Return in words what *code* is, which is of none of the kinds that can be linked."""
    if b"\0" in code or not is_text(code):
        return "of no known kind"
    text = code.decode(errors="surrogateescape")
    if not text.strip():
        return "empty"
    if re.search(_LLVM_IR, text):
        return "LLVM IR as text"
    return "Python" if _is_python(text) else "text of no known kind"


def is_text(code: bytes, *, ascii_based: bool = True) -> bool:
    """Return whether *code* is UTF-8, or with *ascii_based* has no control characters, as has Latin-1."""
    try:
        code.decode()
    except UnicodeDecodeError:
        return ascii_based and not re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", code)
    return True


def _is_cxx(text: str) -> bool:
    """
    Return whether *text* has the form of a C++ source: keywords of CUDA, directives, or an end as C++ has it.

    Prose, LLVM IR, JSON and Python do not pass; other languages with C's punctuation do, for the compiler to
    refuse.
    """
    code = re.sub(_COMMENT, " ", text).strip()
    if re.search(_LLVM_IR, text) or code.startswith("{"):
        return False
    return bool(re.search(_SIGN, code)) and not _is_python(text)


def _is_python(text: str) -> bool:
    # Deferred: few inputs are text of which nothing else is known.
    import ast

    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    # Preprocessor directives are comments of Python, and a call or a name is a statement of both languages.
    return any(not isinstance(statement, ast.Expr) for statement in body)
