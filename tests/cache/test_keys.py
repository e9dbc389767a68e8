"""Keys: equal where they must be and different where they must be."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from linkcases import KERNEL, function

import numba_ptxlink as pl
from numba_ptxlink import cache
from numba_ptxlink._config import Config
from numba_ptxlink._tools import isolated, nvptxcompiler
from numba_ptxlink.cache import Cache, Key
from numba_ptxlink.cache.key import source_digest

PARTS = {"tool": ("a", "1"), "flags": ("-O3", "-g"), "ptx": b"text"}


@pytest.mark.parametrize(
    "other",
    [
        {**PARTS, "tool": ("a", "2")},
        {**PARTS, "flags": ("-O3-g",)},
        {**PARTS, "flags": ("-g", "-O3")},
        {**PARTS, "ptx": b"texts"},
        {"tool": PARTS["tool"], "flags": PARTS["flags"], "PTX": b"text"},
    ],
)
def test_other_parts_give_another_key(other):
    """Contents, the borders between them, their order and their labels all change the key."""
    assert Key.of("link", PARTS).digest != Key.of("link", other).digest


def test_the_source_is_part_of_every_key(tmp_path):
    """Two builds of one version differ in the content of the package's files, and in nothing else."""
    digests = []
    for number, (name, content) in enumerate([("a", "1"), ("a", "1"), ("a", "2"), ("b", "1")]):
        inner = tmp_path / str(number) / "inner"
        inner.mkdir(parents=True)
        (inner / f"{name}.py").write_text(content)
        (inner / f"{number}.pyc").write_bytes(b"compiled")
        os.utime(inner / f"{name}.py", (number, number))
        digests.append(source_digest(inner.parent))
    assert digests[0] == digests[1]
    assert 3 == len(set(digests))
    assert cache.package_version() == f"{pl.__version__} {source_digest(Path(pl.__file__).parent)}"


@pytest.fixture
def count_misses(monkeypatch, tmp_path):
    """Give the default cache a directory of its own; return a function that counts the misses of a call."""
    default_cache = Cache(Config(cache_dirs=(str(tmp_path / "cache"),)))
    for home in (cache, cache.tiered):
        monkeypatch.setattr(home, "default", lambda: default_cache)

    def count(function, *arguments, **options) -> int:
        before = default_cache.counters.misses
        function(*arguments, **options)
        return default_cache.counters.misses - before

    return count


SOURCE = '#include "part.h"\nextern "C" __global__ void f(int* x) { *x = PART; }\n'


@pytest.fixture
def calls(kernel, tmp_path):
    """Return calls of `assemble` and `link`, each with a different result."""
    folders = [tmp_path / name for name in "ab"]
    for number, folder in enumerate(folders):
        folder.mkdir()
        (folder / "part.h").write_text(f"#define PART {number}\n")
    source, linker = {"include_dirs": [folders[0]]}, {"backend": "nvjitlink", "checks": "none"}
    return [
        *(
            (pl.assemble, (ptx,), {})
            for ptx in (kernel, kernel.replace("7;", "8;"), kernel.replace("kernel", "k"))
        ),
        *((pl.assemble, (kernel,), {name: value}) for name, value in ASSEMBLED.items()),
        (pl.link, (SOURCE,), source),
        (pl.link, (SOURCE + "\n",), source),
        *((pl.link, (SOURCE,), {**source, name: value}) for name, value in COMPILED.items()),
        (pl.link, (SOURCE,), {"include_dirs": [folders[1]]}),
        (pl.link, (KERNEL, function()), linker),
        (pl.link, (function(), KERNEL), linker),
        (pl.link, (KERNEL, pl.assemble(function(), "sm_90", relocatable=True).code), linker),
        (pl.link, (KERNEL, function()), {**linker, "arch": "sm_80"}),
        (pl.link, (KERNEL, function()), {**linker, "max_registers": 32}),
    ]


ASSEMBLED = {
    "arch": "sm_80",
    "opt_level": 1,
    "debug": True,
    "lineinfo": True,
    "max_registers": 32,
    "relocatable": True,
    "extra_flags": ("-v",),
}
COMPILED = {
    "arch": "sm_80",
    "defines": {"X": "1"},
    "headers": {"part.h": "#define PART 2\n"},
    "name_expressions": ["f"],
    "lto": True,
    "lineinfo": True,
}


def test_everything_that_a_tool_gets_counts(calls, count_misses, monkeypatch):
    """Each text, option and order makes another result; the same call makes none, but in another build."""
    for build, expected in (("one", True), ("one", False), ("other", True)):
        monkeypatch.setattr(cache, "package_version", lambda build=build: build)
        for verb, inputs, options in calls:
            count = count_misses(verb, *inputs, **{"arch": "sm_90", **options})
            assert expected == (count > 0), (verb, inputs, options)


def test_the_build_of_the_tool_counts(kernel, count_misses, monkeypatch):
    """Another build of the compiler makes its own cubin."""
    assert 1 == count_misses(pl.assemble, kernel, "sm_90")
    monkeypatch.setattr(nvptxcompiler, "identity", lambda: ("nvPTXCompiler", "13.5", "another build"))
    assert 1 == count_misses(pl.assemble, kernel, "sm_90")


@pytest.mark.parametrize(("options", "count"), [({}, 0), ({"lineinfo": True}, 1)])
def test_places_count_only_where_they_reach_the_code(tmp_path, count_misses, options, count):
    """The folder of a header and the name of an input change a result only with line numbers."""
    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        (folder / "part.h").write_text("#define PART 1\n")
        (folder / f"{folder.name}.ptx").write_text(function())
        source = count_misses(pl.link, SOURCE, arch="sm_90", include_dirs=[folder], **options)
        inputs = (KERNEL, folder / f"{folder.name}.ptx")
        linked = count_misses(pl.link, *inputs, arch="sm_90", backend="nvjitlink", checks="none", **options)
    assert (count, count) == (min(source, 1), linked)


ONCE = "#pragma once\n#ifdef ONE\n#define TWO\n#endif\n#define ONE\n"
COUNTED = (
    '#include "p/a.h"\n#include "q/a.h"\n#ifdef TWO\n#define N 2\n#else\n#define N 1\n#endif\n'
    'extern "C" __global__ void f(int* x) { *x = N; }\n'
)


@pytest.mark.parametrize("join", [Path.symlink_to, Path.hardlink_to])
def test_a_header_that_becomes_another_name_of_a_file_counts(tmp_path, count_misses, join):
    """`#pragma once` includes one file under two names once, and two files with one content twice."""
    for name in "pq":
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.h").write_text(ONCE)
    options = {"arch": "sm_90", "include_dirs": [tmp_path]}
    assert 0 < count_misses(pl.link, COUNTED, **options)
    assert 0 == count_misses(pl.link, COUNTED, **options)
    (tmp_path / "q" / "a.h").unlink()
    join(tmp_path / "q" / "a.h", tmp_path / "p" / "a.h")
    assert 0 < count_misses(pl.link, COUNTED, **options)


@pytest.mark.parametrize("restored", [False, True], ids=["edited", "restored"])
def test_a_header_that_is_edited_during_the_compilation_is_not_kept(
    tmp_path, count_misses, monkeypatch, restored
):
    """Code of a header that was edited meanwhile is not found by the content that it had before."""
    header, original = tmp_path / "part.h", isolated.call

    def call(function, *arguments, **options):
        if function != "nvrtc":
            return original(function, *arguments, **options)
        header.write_text("#define PART 2222\n")
        result = original(function, *arguments, **options)
        if restored:
            header.write_text("#define PART 1111\n")
        return result

    def values() -> list[bool]:
        ptx = pl.link(SOURCE, arch="sm_90", include_dirs=[tmp_path]).ptx
        return [value in ptx for value in ("1111", "2222")]

    header.write_text("#define PART 1111\n")
    with monkeypatch.context() as patched:
        patched.setattr(isolated, "call", call)
        assert [False, True] == values()
    header.write_text("#define PART 1111\n")
    assert 0 < count_misses(values)
    assert [True, False] == values()
