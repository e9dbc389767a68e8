"""What a content is that no linker takes: other kinds of text, and a few binaries."""

from __future__ import annotations

import ast
import codecs
import json
import re

_BINARIES = {
    b"BC\xc0\xde": "LLVM bitcode",
    b"\xde\xc0\x17\x0b": "LLVM bitcode",
    b"PK\x03\x04": "a ZIP archive, as wheels are",
    b"\x1f\x8b": "compressed by gzip",
    b"(\xb5/\xfd": "compressed by zstd",
    b"MZ": "a program or library for Windows",
}
_LLVM_IR = re.compile(
    r'^(?:; ModuleID|source_filename = |target (?:triple|datalayout) = "|'
    r"(?:define|declare)\b[^\n]*@|!llvm\.)",
    re.MULTILINE,
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
# No sentence of prose has these; what quotes them does so in a code block of Markdown.
_SIGN = re.compile(
    r'\b__(?:global|device|host|constant|shared)__\b|\bextern\s+"C"|^\s*#\s*include\s*[<"]', re.MULTILINE
)
_MARKDOWN = re.compile(r"^(?:```|#+ [A-Z]|=+$|---+$)", re.MULTILINE)
# Without the white space of C, and without those of Latin-1, for which Windows has letters.
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f\x7f]")
_DIRECTIVE = re.compile(r"\s*#\s*(?:define|elif|else|endif|error|if|ifdef|ifndef|include|pragma|undef)\b")


def is_cxx(text: str) -> bool:
    """
    Return whether *text* has the form of a C++ source: keywords of CUDA, or an end as C++ has it.

    Prose, LLVM IR, JSON and Python do not pass; other languages with C's punctuation do, for the compiler to
    refuse.
    """
    if _LLVM_IR.search(text) or _is_json(text):
        return False
    code = _COMMENT.sub(" ", text).replace("\\\n", " ").rstrip()
    if not code:
        return bool(text.strip())
    ends = code.endswith((";", "}")) or _DIRECTIVE.match(code.rpartition("\n")[2])
    signed = _SIGN.search(code) and not _MARKDOWN.search(text)
    return bool(ends or signed) and not _is_python(text)


def is_text(code: bytes) -> bool:
    """Return whether *code* is UTF-8, or has no control characters: text in Latin-1 has none, binaries do."""
    return is_utf_8(code) or not _CONTROL.search(code)


def is_utf_8(code: bytes) -> bool:
    """Return whether *code* is UTF-8."""
    try:
        code.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_utf_16(code: bytes) -> bool:
    """Return whether *code* begins as text in UTF-16 with a byte order mark does."""
    if not code.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return False
    try:
        text = codecs.getincrementaldecoder("utf-16")().decode(code[:4096])
    except UnicodeDecodeError:
        return False
    return bool(text) and "\0" not in text


def describe(code: bytes) -> str:
    """Return in words what *code* is, which is of none of the kinds that can be linked."""
    for magic, name in _BINARIES.items():
        if code.startswith(magic):
            return name
    if is_utf_16(code):
        return "text in UTF-16, not UTF-8"
    if b"\0" in code or not is_text(code):
        return "of no known kind"
    text = code.decode(errors="surrogateescape")
    strange = _strange_line(code)
    names = {
        "empty": not text,
        "blank": not text.strip(),
        "LLVM IR as text": _LLVM_IR.search(text),
        "JSON": _is_json(text),
        "Python": _is_python(text),
        f"text that is not UTF-8 in line {strange}": strange,
    }
    return next((name for name, is_it in names.items() if is_it), "text of no known kind")


def _strange_line(code: bytes) -> int:
    """Return the number of the first line of *code* that is not UTF-8, 0 where there is none."""
    try:
        code.decode()
    except UnicodeDecodeError as error:
        return code.count(b"\n", 0, error.start) + 1
    return 0


def _is_json(text: str) -> bool:
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _is_python(text: str) -> bool:
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    # Preprocessor directives are comments of Python, and a call or a name is a statement of both languages.
    return any(not isinstance(statement, ast.Expr) for statement in body)
