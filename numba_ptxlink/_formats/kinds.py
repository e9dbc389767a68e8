"""List the kinds of code that can be linked, and recognise the kind of a file by its content."""

from __future__ import annotations

import re
import struct
from typing import NamedTuple

PTX, LTOIR, CUBIN, OBJECT = "ptx", "ltoir", "cubin", "object"
FATBIN, ARCHIVE, CU = "fatbin", "archive", "cu"

KERNELS, LAUNCHER, HOST = "kernels", "launcher", "host"
"""Artifacts that no device link reads: a fat binary for a driver, C++ that contains it, and host versions."""

EM_CUDA = 190
"""The e_machine of cubins in their ELF header."""
_ELF = b"\x7fELF"
_THIN_ARCHIVE = b"!<thin>\n"
# Major and minor version at bytes 6 and 7, and ten times the compute capability at byte 26.
_LTOIR_HEADER = struct.Struct("<6x2B18xH")
# Lines that only LLVM IR has, such as `define float @saxpy(` and `target triple = "nvptx64-nvidia-cuda"`.
_LLVM_IR = (
    r'(?m)^(?:; ModuleID|source_filename = |target (?:triple|datalayout) = "|'
    r"(?:define|declare)\b[^\n]*@|!llvm\.)"
)
_COMMENT = r"//[^\n]*|/\*[\s\S]*?\*/"
# Signs of CUDA C++ that no prose has: its keywords, extern "C", directives (#define, #include, #if, #pragma),
# and a final `;` or `}`.
_CXX_SIGNS = r'(?m)\b__(?:global|device|host|constant|shared)__\b|\bextern\s+"C"|^\s*#\s*[dip]\w+|[;}]\s*\Z'


class Kind(NamedTuple):
    """
    A kind of code.

    Args:
        name: The name in options and messages.
        extensions: The extensions of its files, the usual one first.
        magic: The first bytes of its content; b"" if they vary.
        nvjitlink: The name in nvJitLink's enum `nvJitLinkInputType`; "" if nvJitLink does not link the kind.
        is_artifact: Whether exports write files of the kind by default.
    """

    name: str
    extensions: tuple[str, ...]
    magic: bytes = b""
    nvjitlink: str = ""
    is_artifact: bool = False


KINDS = {
    kind.name: kind
    for kind in (
        Kind(PTX, (".ptx",), nvjitlink="PTX", is_artifact=True),
        Kind(LTOIR, (".ltoir",), b"\xedCN\x7f", "LTOIR", is_artifact=True),
        Kind(CUBIN, (".cubin",), nvjitlink="CUBIN", is_artifact=True),
        Kind(OBJECT, (".o", ".obj"), nvjitlink="OBJECT"),
        Kind(FATBIN, (".fatbin",), b"\x50\xed\x55\xba", "FATBIN", is_artifact=True),
        Kind(ARCHIVE, (".a", ".lib"), b"!<arch>\n", "LIBRARY"),
        Kind(CU, (".cu",)),
    )
}
"""The kinds by name."""
EXTENSIONS = {extension: kind.name for kind in KINDS.values() for extension in kind.extensions}
"""The name of the kind for each extension of files, such as "cu" for ".cu"."""
ARTIFACTS = tuple(kind.name for kind in KINDS.values() if kind.is_artifact)
"""The names of the kinds that exports write by default."""


def recognise(code: bytes) -> str | None:
    """Return the name of the kind of *code*; None if it is none of `KINDS`."""
    if code.startswith(_ELF):
        # e_machine is the halfword at byte 18.
        machine = struct.unpack_from("<H", code, 18)[0] if len(code) >= 20 else 0
        return CUBIN if machine == EM_CUDA else OBJECT
    for kind in KINDS.values():
        if kind.magic and code.startswith(kind.magic):
            return kind.name
    from .ptx_header import read_header

    # PTX in a fat binary ends in null bytes. With null bytes elsewhere, *code* is no text.
    stripped = b"" if code.startswith(b"\0") else code.rstrip(b"\0")
    if not stripped.strip() or b"\0" in stripped:
        return None
    # Compilers of PTX accept any bytes in comments and strings, not only UTF-8.
    text = stripped.decode(errors="surrogateescape")
    # `read_header` may import the lexer, which takes long: it is called only for text that may be PTX.
    if ".version" in text and read_header(text).version:
        return PTX
    return CU if is_text(code, ascii_based=False) and _is_cxx(text) else None


def ltoir_header(code: bytes) -> tuple[tuple[int, int], int] | None:
    """
    Return the version of the NVVM IR and the compute capability, such as 90; None if *code* is no LTO-IR.

    NVIDIA does not document the fields. They were found by comparing the output of NVRTC 12.4, 12.9 and 13.5
    for the architectures from compute_75 to compute_120 that each release supports: bytes 6 and 7, the
    version, change only with the release, and the halfword at byte 26 is always ten times the compute
    capability.
    """
    if not code.startswith(KINDS[LTOIR].magic) or len(code) < _LTOIR_HEADER.size:
        return None
    major, minor, tenfold = _LTOIR_HEADER.unpack_from(code)
    return (major, minor), tenfold // 10


def describe(code: bytes) -> str:
    """Describe *code*, which is none of `KINDS`, in words such as "empty" or "LLVM IR as text"."""
    if code.startswith(_THIN_ARCHIVE):
        return "a thin archive, which has no code (create it by `ar rcs`)"
    if b"\0" in code or not is_text(code):
        return "of no known kind"
    text = code.decode(errors="surrogateescape")
    if not text.strip():
        return "empty"
    if re.search(_LLVM_IR, text):
        return "LLVM IR as text"
    return "Python" if _is_python(text) else "text of no known kind"


def is_text(code: bytes, *, ascii_based: bool = True) -> bool:
    """
    Return whether *code* is text in UTF-8.

    Args:
        code: The content.
        ascii_based: Whether text in other encodings that extend ASCII, such as Latin-1, counts as well: any
            bytes without control characters.
    """
    try:
        code.decode()
    except UnicodeDecodeError:
        return ascii_based and not re.search(rb"[\x00-\x08\x0e-\x1f\x7f]", code)
    return True


def _is_cxx(text: str) -> bool:
    """
    Return whether *text* looks like C++: it has keywords of CUDA or directives, or ends in `}` or `;`.

    Prose, LLVM IR, JSON and Python do not look like C++. Other languages with C's punctuation do: the
    compiler then rejects the text.
    """
    code = re.sub(_COMMENT, " ", text).strip()
    if re.search(_LLVM_IR, text) or code.startswith("{"):
        return False
    return bool(re.search(_CXX_SIGNS, code)) and not _is_python(text)


def _is_python(text: str) -> bool:
    # Deferred: few inputs are text of an unknown kind.
    import ast

    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    # C++ may be valid Python, too: directives are comments, and a call or a name is an expression. So only a
    # statement that is no expression shows that *text* is Python.
    return any(not isinstance(statement, ast.Expr) for statement in body)
