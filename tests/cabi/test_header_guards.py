"""Headers in one translation unit: what a header keeps from being read twice, and what it does not."""

from __future__ import annotations

import shutil
import subprocess
from collections import namedtuple

import pytest
from numba.cuda import types

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


def test_a_header_may_be_included_twice(tmp_path):
    """A copy of a header in another folder declares nothing anew."""
    text = one("udfs", "first")
    assert compile_together(tmp_path, [text, text], "__device__ float f(float x) { return first(x); }").code


@pytest.mark.parametrize("stem", STEMS)
def test_any_stem_makes_a_guard(tmp_path, stem):
    """A header's name can be anything that a file's can."""
    texts = [one(stem, "first"), one("other", "second")]
    assert guard(texts[0]).isidentifier()
    assert guard(texts[0]).isascii()
    body = "__device__ float both(float value) { return first(second(value)); }"
    assert compile_together(tmp_path, texts, body).code


def test_stems_that_look_alike_have_different_guards(tmp_path):
    """Two headers are told apart by what they declare."""
    texts = [one(stem, f"f{number}") for number, stem in enumerate(STEMS)]
    assert len({guard(text) for text in texts}) == len(STEMS)
    body = (
        f"__device__ float all_of(float x) {{ return {' + '.join(f'f{n}(x)' for n in range(len(STEMS)))}; }}"
    )
    assert compile_together(tmp_path, texts, body).code


def test_a_guard_is_deterministic():
    """The same declarations have the same guard."""
    assert one("udfs", "first") == one("udfs", "first")


def test_one_function_in_two_headers_is_one_function(tmp_path):
    """Two exports may declare the same function; two that disagree are refused."""
    texts = [one("first", "shared"), one("second", "shared")]
    assert compile_together(tmp_path, texts, "").code
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(pl.LinkError, match="shared"):
        compile_together(other, [texts[0], one("second", "shared", DOUBLE)], "")


def test_a_comment_ends_where_the_header_says():
    """A stem cannot end the comment it is in."""
    assert one("a*/b", "first").splitlines()[0].count("*/") == 1


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


@pytest.mark.parametrize(("compiler", "suffix"), [("g++", ".cpp"), ("gcc", ".c")])
def test_host_compilers_read_both_headers_of_a_stem(tmp_path, compiler, suffix):
    """C and C++ see the declarations of two headers of one name, structs that both define included."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    wire = types.NamedTuple([types.float32, types.int32], namedtuple("wire", "x y"))  # noqa: PYI024
    for name in ("first", "second"):
        function = pl.udf(wire(wire), name=name)(lambda value: value)
        pl.export([function], tmp_path / name, archs=["sm_90"], emit=["ptx"], name="udfs")
    source = tmp_path / f"both{suffix}"
    source.write_text(
        '#include "first/udfs.h"\n#include "second/udfs.h"\n'
        "wire both(wire value);\nwire both(wire value) { return first(second(value)); }\n"
    )
    command = [compiler, "-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only", str(source)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
