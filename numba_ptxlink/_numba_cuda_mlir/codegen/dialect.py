"""Mend what numba-cuda-mlir writes and NVVM refuses, or reads in another way than is meant."""

from __future__ import annotations

import os
import re
from pathlib import Path

_FILE = re.compile(r'!DIFile\(filename: "(?P<name>[^"]*)", directory: "(?P<folder>[^"]*)"')
_ESCAPED = re.compile(rb"\\([0-9A-Fa-f]{2})")
_NOT_PLAIN = re.compile(rb'[^ -~]|["\\]')
_SHARED = re.compile(r"^(@\S+ = \w+ addrspace\(3\) global .*) zeroinitializer\b", re.MULTILINE)
_DYNAMIC = re.compile(
    r"^(@\S+ = )(?:internal|private) (addrspace\(3\) global \[0 x [^\]]+\]) (?:undef|poison|zeroinitializer)",
    re.MULTILINE,
)


def mended(text: str) -> str:
    """Return LLVM IR *text*, in either dialect, as NVVM is to read it."""
    # It is said of all index arithmetic, which is wrong where a stride is negative.
    text = text.replace(" nuw ", " ")
    # LLVM 7 cannot spell the kind that NVVM has for lines alone.
    text = text.replace("emissionKind: ,", "emissionKind: DebugDirectivesOnly,")
    # A linker refuses what nvcc says otherwise.
    text = text.replace('!{i32 2, !"Debug Info Version"', '!{i32 1, !"Debug Info Version"')
    # NVVM's verifier asks for the alignment of i128.
    text = text.replace("-i64:64:64-f32", "-i64:64:64-i128:128:128-f32", 1)
    # Shared memory has no value at first, and what has no size comes from the launch.
    return _SHARED.sub(r"\1 undef", _DYNAMIC.sub(r"\1external \2", text))


def located(text: str) -> str:
    """Return LLVM IR *text* in which source files have absolute paths, for tools in other folders."""
    return _FILE.sub(_absolute, text)


def _absolute(match: re.Match[str]) -> str:
    folder = Path.cwd() / _path(match["folder"])
    # Other names stand for code that is in no file.
    if not (folder / _path(match["name"])).is_file():
        return match[0]
    quoted = _NOT_PLAIN.sub(lambda byte: b"\\%02X" % ord(byte[0]), os.fsencode(folder))
    return f'!DIFile(filename: "{match["name"]}", directory: "{quoted.decode()}"'


def _path(quoted: str) -> Path:
    """Return the path that a string of LLVM IR stands for."""
    return Path(os.fsdecode(_ESCAPED.sub(lambda digits: bytes([int(digits[1], 16)]), quoted.encode())))
