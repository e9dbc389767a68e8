"""Keys: one test per axis, equal where they must be and different where they must be."""

from __future__ import annotations

import itertools
import os

import pytest

from numba_ptxlink import assembler, cache
from numba_ptxlink._arch import Arch
from numba_ptxlink._config import Config
from numba_ptxlink._tools import nvjitlink as nvjitlink_tool
from numba_ptxlink._tools import nvptxcompiler, nvrtc
from numba_ptxlink.cache import Cache
from numba_ptxlink.cache import key as cache_key
from numba_ptxlink.cache.key import Key

PARTS = {"tool": ("a", "1"), "flags": ("-O3", "-g"), "ptx": b"text"}


def test_the_same_parts_give_the_same_key():
    """A key is a function of its parts alone, whether text or bytes."""
    assert Key.of("link", PARTS).digest == Key.of("link", {**PARTS, "ptx": "text"}).digest


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
    """Contents, their borders, their order and their labels all count."""
    assert Key.of("link", PARTS).digest != Key.of("link", other).digest


def test_the_source_is_part_of_every_key(tmp_path):
    """What tells two builds of one version apart is the content of the package's files, and nothing else."""
    one, same, other, renamed = (tmp_path / name for name in ("one", "same", "other", "renamed"))
    contents = {
        one: ("a.py", "x = 1"),
        same: ("a.py", "x = 1"),
        other: ("a.py", "x = 2"),
        renamed: ("b.py", "x = 1"),
    }
    for folder, (name, content) in contents.items():
        (folder / "inner").mkdir(parents=True)
        (folder / "__init__.py").write_text("")
        (folder / "inner" / name).write_text(content)
    os.utime(same / "inner" / "a.py", (0, 0))
    (same / "inner" / "a.cpython-311.pyc").write_bytes(b"compiled")
    digests = [cache_key.source_digest(folder) for folder in contents]
    assert digests[0] == digests[1]
    assert 3 == len(set(digests))


def test_every_tools_key_has_the_package_in_it(kernel, monkeypatch):
    """Another build of this package finds no entry of this one."""
    pytest.importorskip("cuda.bindings.nvrtc")
    nvjitlink = pytest.importorskip("cuda.bindings.nvjitlink") and nvjitlink_tool

    def digests() -> list[bytes]:
        seen: list[bytes] = []
        with monkeypatch.context() as patched:
            patched.setattr(cache, "cached", lambda key, make: seen.append(key.digest) or make())
            assembler.assemble(kernel, "sm_90")
            nvrtc.compile_source("", "f.cu", Arch.of("sm_90"))
        return [*seen, nvjitlink.key([("ptx", "a", b"1")], ["-arch=sm_90"]).digest]

    before = digests()
    monkeypatch.setattr(cache, "package_version", lambda: "0.1.0 another build")
    assert all(one != other for one, other in zip(before, digests(), strict=True))


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Give the default cache a directory of its own; return what says how many results it had to make."""
    from numba_ptxlink import cache

    found = Cache(Config(cache_dirs=(str(tmp_path / "cache"),)))
    for home in (cache, cache.tiered):
        monkeypatch.setattr(home, "default", lambda: found)
    return lambda: found.counters.misses


OPTIONS = (
    {},
    {"arch": "sm_80"},
    {"opt_level": 1},
    {"debug": True},
    {"lineinfo": True},
    {"max_registers": 32},
    {"relocatable": True},
    {"extra_flags": ("-v",)},
)


def test_every_option_of_assemble_counts(kernel, counted):
    """Each option, arch and text makes another cubin; the same ones again make none."""
    for _ in range(2):
        for options in OPTIONS:
            assembler.assemble(kernel, **{"arch": "sm_90", **options})
        assembler.assemble(kernel.replace("7;", "8;"), "sm_90")
        assembler.assemble(kernel.replace("kernel", "other"), "sm_90")
    assert len(OPTIONS) + 2 == counted()


def test_the_build_of_the_tool_counts(kernel, counted, monkeypatch):
    """Another build of the compiler makes its own cubin."""
    assembler.assemble(kernel, "sm_90")
    monkeypatch.setattr(nvptxcompiler, "identity", lambda: ("nvPTXCompiler", "13.5", "another build"))
    assembler.assemble(kernel, "sm_90")
    assert 2 == counted()


def test_inputs_of_a_link_count_with_kind_and_order():
    """Each input's kind and content, their order, the flags and the kind of output make another link."""
    pytest.importorskip("cuda.bindings.nvjitlink")
    a, b = ("ptx", "a", b"1"), ("cubin", "b", b"2")
    keys = [
        nvjitlink_tool.key([a, b], ["-arch=sm_90"]),
        nvjitlink_tool.key([b, a], ["-arch=sm_90"]),
        nvjitlink_tool.key([a], ["-arch=sm_90"]),
        nvjitlink_tool.key([a, b], ["-arch=sm_80"]),
        nvjitlink_tool.key([a, b], ["-arch=sm_90", "-lto"]),
        nvjitlink_tool.key([a, b], ["-arch=sm_90"], "ptx"),
        nvjitlink_tool.key([("ltoir", "a", b"1"), b], ["-arch=sm_90"]),
    ]
    assert len(keys) == len({key.digest for key in keys})


def test_names_of_inputs_count_only_where_they_reach_the_code():
    """A file's name is part of a link with debug information, and of no other."""
    pytest.importorskip("cuda.bindings.nvjitlink")
    plain, debug = (
        [nvjitlink_tool.key([("ptx", name, b"1")], flags).digest for name in ("a", "b")]
        for flags in (["-arch=sm_90"], ["-arch=sm_90", "-g"])
    )
    assert plain[0] == plain[1]
    assert debug[0] != debug[1]


SOURCE = b'#include "part.h"\nextern "C" __global__ void f(int* x) { *x = PART; }\n'


def nvrtc_key(tmp_path, source=SOURCE, name="f.cu", arch="sm_90", **options):
    """Return the key of a compile whose headers are in *tmp_path*, None where it has none."""
    keys: list[cache.Key] = []
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(cache, "cached", lambda key, make: keys.append(key) or make())
        nvrtc.compile_source(source, name, Arch.of(arch), include_dirs=[tmp_path], **options)
    return keys[0].digest if keys else None


def test_the_place_of_headers_does_not_count(tmp_path):
    """The same headers elsewhere give the same key, unless line numbers bring the paths along."""
    pytest.importorskip("cuda.bindings.nvrtc")
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "part.h").write_text("#define PART 1\n")
    plain = [nvrtc_key(tmp_path / folder) for folder in ("a", "b")]
    lines = [nvrtc_key(tmp_path / folder, flags=("--generate-line-info",)) for folder in ("a", "b")]
    assert plain[0] == plain[1]
    assert lines[0] != lines[1]


def test_every_axis_of_nvrtc_counts(tmp_path):
    """Source, name, arch, output, flags, headers in memory and name expressions each make another key."""
    pytest.importorskip("cuda.bindings.nvrtc")
    (tmp_path / "part.h").write_text("#define PART 1\n")
    keys = [
        nvrtc_key(tmp_path),
        nvrtc_key(tmp_path, source=SOURCE + b"\n"),
        nvrtc_key(tmp_path, name="g.cu"),
        nvrtc_key(tmp_path, arch="sm_80"),
        nvrtc_key(tmp_path, output="ltoir"),
        nvrtc_key(tmp_path, flags=("-DX",)),
        nvrtc_key(tmp_path, headers={"part.h": "#define PART 2\n"}),
        nvrtc_key(tmp_path, name_expressions=("f",)),
    ]
    assert all(one != other for one, other in itertools.combinations(keys, 2))
