"""Files that CUDA C++ includes: the key misses none that the compiler reads."""

from __future__ import annotations

from pathlib import Path

import pytest

import numba_ptxlink as pl
from numba_ptxlink._tools import includes, nvrtc
from numba_ptxlink.errors import ConfigError


def lines(source: str, folder: Path, dirs=(), headers=None) -> tuple[str, ...]:
    """Return the part of a key for the includes of *source*."""
    key = includes.find_includes(source.encode(), folder, dirs, headers).key
    assert key is not None
    return key


@pytest.mark.parametrize("folders", [5, None, [5], [b"folder"], "a\0b"], ids=repr)
def test_what_is_no_folder_is_refused(folders):
    """The error of a link or an export names the option."""
    with pytest.raises(ConfigError, match=r"^include_dirs is .*; pass a folder or a list of them"):
        includes.check_include_dirs(folders)


@pytest.mark.parametrize(
    "directive",
    [
        '#include "a.h"',
        "#include <a.h>",
        '  #  include "a.h"',
        '#/* why */include/* not */"a.h"',
        '/* first */ #include "a.h"',
        '#inc\\\nlude "a.h"',
        "#ifdef NEVER\n#include <a.h>\n#endif",
        "#if __has_include(<a.h>)\n#endif",
        "#include_next <a.h>",
        '#embed "a.h"',
    ],
)
def test_every_way_to_include_is_seen(tmp_path, directive):
    """A header counts however it is included, and whether or not a condition lets it."""
    (tmp_path / "a.h").write_text("1")
    before = lines(directive, Path("nowhere"), [tmp_path])
    (tmp_path / "a.h").write_text("2")
    assert before != lines(directive, Path("nowhere"), [tmp_path])


def test_a_header_that_comes_first_counts(tmp_path):
    """A header of the same name in an earlier directory is another key."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    (second / "a.h").write_text("1")
    before = lines("#include <a.h>", Path("nowhere"), [first, second])
    (first / "a.h").write_text("1")
    assert before != lines("#include <a.h>", Path("nowhere"), [first, second])


@pytest.mark.parametrize(
    "text", ["#include NAME(any)", '%:include "a.h"', "__TIME__", "__DATE__", "__TIMESTAMP__"]
)
@pytest.mark.parametrize("header", [False, True])
def test_what_cannot_be_told_has_no_key(tmp_path, text, header):
    """A source has no key if it, or a file that it includes, has the time or an include by a macro."""
    (tmp_path / "own.h").write_text(text)
    source = '#include "own.h"' if header else text
    assert includes.find_includes(source.encode(), tmp_path).key is None
    if text.startswith("__"):
        assert (
            includes.find_includes(b"", tmp_path, flags=["--define-macro=STAMP", f"-DNOW={text}"]).key is None
        )


def test_source_from_nowhere_does_not_search_the_working_directory(tmp_path, monkeypatch):
    """Includes in quotes do not search it either; errors and warnings name the source alone."""
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "mine.h").write_text("#define MINE 2.0f\n")
    (tmp_path / "mine.h").write_text("#error of the working directory\n")
    monkeypatch.chdir(tmp_path)
    source = '#include "mine.h"\nextern "C" __device__ float f(float x) { int unused; return x + MINE; }\n'
    options = nvrtc.SourceOptions(("headers",))
    compiled = nvrtc.compile_source(source, "mine.cu", pl.Arch.of("sm_90"), options, folder=nvrtc.NOWHERE)
    assert b"0f40000000" in compiled.code
    assert compiled.log.startswith("mine.cu(2): warning")
