"""Headers in one translation unit: what a header keeps from being read twice, and what it does not."""

from __future__ import annotations

import shutil
import subprocess

import pytest

import numba_ptxlink as pl
from numba_ptxlink._cabi import header
from numba_ptxlink._cabi import types as c
from numba_ptxlink._cabi.signatures import Signature
from numba_ptxlink._tools import nvrtc
from numba_ptxlink.linker import INCLUDE_DIR

FLOAT = c.number("float")
DOUBLE = c.number("double")
STEMS = ("udfs", "my-udfs", "my_udfs", "MY.UDFS", "3 spaces here", "größe", "数", "")


def one(stem: str, name: str, ctype: c.CType = FLOAT) -> str:
    """Return the header *stem* of one function."""
    signature = Signature(name, ctype, (("value", ctype),))
    return header.render(stem, [header.Declaration(signature, f"{name}: test", "", "udfs.py:1")])


def guard(text: str) -> str:
    """Return the macro that guards a header."""
    (line,) = [line for line in text.splitlines() if line.startswith("#ifndef ")][:1]
    return line.split()[1]


def compile_together(tmp_path, texts, body):
    """Compile a source that includes *texts*, in order."""
    for number, text in enumerate(texts):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "udfs.h").write_text(text)
    source = "".join(f'#include "{number}/udfs.h"\n' for number in range(len(texts))) + body
    includes = [tmp_path, INCLUDE_DIR, *nvrtc.toolkit_include_dirs()]
    return nvrtc.compile_source(source, "both.cu", pl.Arch.of("sm_90"), include_dirs=includes)


def test_two_headers_of_one_stem_are_both_read(tmp_path):
    """Two headers of one name in two folders declare what is in both."""
    texts = [one("udfs", "first"), one("udfs", "second")]
    body = "__device__ float both(float value) { return first(second(value)); }"
    assert compile_together(tmp_path, texts, body).code


@pytest.mark.parametrize("stem", STEMS)
def test_any_stem_makes_a_guard(tmp_path, stem):
    """A header's name can be anything that a file's can."""
    texts = [one(stem, "first"), one("other", "second")]
    assert guard(texts[0]).isidentifier()
    assert guard(texts[0]).isascii()
    body = "__device__ float both(float value) { return first(second(value)); }"
    assert compile_together(tmp_path, texts, body).code


def test_one_function_in_two_headers_is_one_function(tmp_path):
    """Two exports may declare the same function; two that disagree are refused."""
    texts = [one("first", "shared"), one("second", "shared")]
    assert compile_together(tmp_path, texts, "").code
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(pl.LinkError, match="shared"):
        compile_together(other, [texts[0], one("second", "shared", DOUBLE)], "")


def test_host_compilers_warn_of_nothing_in_a_docstring(tmp_path):
    """Neither of ends of comments, of a trigraph at the end of a line nor of the direction of text."""
    if shutil.which("g++") is None:
        pytest.skip("g++ is not installed")
    signature = Signature("f", FLOAT, (("value", FLOAT),))
    doc = "right to left \u202e\nends in a backslash??/\n*??/\n/ and \\\n*/ nested /*"
    path = tmp_path / "udfs.h"
    path.write_text(header.render("udfs", [header.Declaration(signature, "f", doc, "udfs.py:1")]))
    warnings = ["-Wall", "-Wextra", "-Werror", "-pedantic"]
    command = ["g++", "-std=c++14", "-x", "c++", "-fsyntax-only", *warnings, str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
