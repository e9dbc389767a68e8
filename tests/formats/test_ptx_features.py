"""Which version of the PTX ISA a text needs, against the compiler's own word for it."""

from __future__ import annotations

import re

import pytest
from ptx_features import ROWS, TARGETS, TEXT

from numba_ptxlink._arch import PtxVersion
from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.ptx import features
from numba_ptxlink._tools import nvptxcompiler

VERSIONS = ["6.0", *features._SINCE]


def version(text):
    """Return the version that *text* spells."""
    return PtxVersion(*map(int, text.split(".")))


def refusal(text, target):
    """Return the compiler's log about *text*, "" where it takes it."""
    try:
        nvptxcompiler.compile_ptx(text.encode(), [f"--gpu-name={target}", "--compile-only"])
    except nvptxcompiler.RefusedError as error:
        return error.log
    return ""


@pytest.mark.parametrize(("since", "target", "statement"), ROWS, ids=[row[2] for row in ROWS])
def test_statements_need_the_version_that_introduced_them(since, target, statement):
    """The version is known; the compiler takes it, and no older one where the target has older ones."""
    needed = max(version(since), version(TARGETS[target]))
    module = ptx.parse(TEXT.format(version="9.4", target=target, after="", statement=statement))
    assert needed == features.newest_feature(module).version
    assert features.newest_feature(module).known
    assert "" == refusal(features.relabelled(module, needed), target)
    bare = ptx.parse(TEXT.format(version="9.4", target="sm_70", after="", statement=statement))
    assert version(since) == features.newest_feature(bare).version


@pytest.mark.parametrize("row", [row for row in ROWS if version(row[0]) > version(TARGETS[row[1]])])
def test_the_compiler_asks_for_the_same_version(row):
    """In text of the version before, the compiler names the version that the table has, if it checks."""
    since, target, statement = row
    text = TEXT.format(
        version=VERSIONS[VERSIONS.index(since) - 1], target=target, after="", statement=statement
    )
    asked = re.search(r"requires PTX ISA .version (\d+\.\d+)", refusal(text, target))
    assert asked is None or since == asked[1]


@pytest.mark.parametrize(("since", "word"), [("6.4", ".noreturn"), ("9.0", ".abi_preserve 4")])
def test_directives_need_the_version_that_introduced_them(since, word):
    """A directive is found by its name."""
    module = ptx.parse(TEXT.format(version="9.5", target="sm_70", after=f"\n{word}", statement=""))
    found = features.newest_feature(module)
    assert (version(since), word.split()[0], 6) == (found.version, found.name, found.line)


def test_every_target_has_its_version():
    """The compiler takes each of its targets with the version that introduced it, and none before."""
    for arch in nvptxcompiler.supported_archs():
        variants = ["", *("a" * (arch.number >= 90)), *("f" * (arch.number >= 100))]
        for target in [f"{arch.sm}{variant}" for variant in variants]:
            since = features.arch_since(target)
            if since is None:
                continue  # newer than the table
            before = VERSIONS[VERSIONS.index(str(since)) - 1]
            texts = [
                TEXT.format(version=each, target=target, after="", statement="") for each in (since, before)
            ]
            assert not refusal(texts[0], target), (target, since)
            assert "does not support .target" in refusal(texts[1], target), (target, since)


@pytest.mark.parametrize("statement", ["frobnicate.b32 %r1, %r2;", "add.new.s32 %r1, %r2, %r3;"])
def test_what_no_table_has_needs_the_version_of_its_compiler(statement):
    """An unknown instruction or modifier keeps the text at the version it declares."""
    module = ptx.parse(TEXT.format(version="9.4", target="sm_80", after="", statement=statement))
    found = features.newest_feature(module)
    assert (version("9.4"), statement.split()[0], False) == (found.version, found.name, found.known)
    assert "of which only PTX 9.4" in str(found)


def test_only_the_version_is_replaced():
    """The text keeps everything else, comments included."""
    text = "// .version 9.5\n.version   9.5 // 9.5\n.target sm_80\n.address_size 64\n"
    module = ptx.parse(text)
    assert text.replace("  9.5", "  7.0") == features.relabelled(module, version("7.0"))
