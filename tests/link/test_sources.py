"""CUDA C++ inputs: what reaches NVRTC, and how often it is asked."""

from __future__ import annotations

import logging
import threading
import time

import pytest

import numba_ptxlink as pl
from numba_ptxlink._link.inputs import Input
from numba_ptxlink._link.sources import SourceOptions, compile_once
from numba_ptxlink._tools import nvrtc

ARCH = pl.Arch.of("sm_80")
TEMPLATE = """\
namespace ns {
template <class T> __global__ void scale(T* p) { *p *= 2; }
__device__ int counter;
}
"""


@pytest.fixture
def compiled(monkeypatch):
    """Return the names of the sources that NVRTC is given, in order."""
    names = []
    original = nvrtc.compile_source

    def record(source, name, *args, **kwargs):
        names.append(name)
        time.sleep(0.05)
        return original(source, name, *args, **kwargs)

    monkeypatch.setattr(nvrtc, "compile_source", record)
    return names


def source(text: str, name: str = "a.cu") -> Input:
    """Return *text* as an input."""
    return Input("cu", name, text.encode())


def test_a_source_is_compiled_once(compiled):
    """The same source, name, architecture and options are compiled once; any other makes one more."""
    text = "__device__ int once;\n"
    first = compile_once(source(text), ARCH, "ptx", SourceOptions())
    assert first is compile_once(source(text), ARCH, "ptx", SourceOptions())
    assert ["a.cu"] == compiled
    compile_once(source(text, "b.cu"), ARCH, "ptx", SourceOptions())
    compile_once(source(text), pl.Arch.of("sm_90"), "ptx", SourceOptions())
    compile_once(source(text), ARCH, "ltoir", SourceOptions())
    compile_once(source(text), ARCH, "ptx", SourceOptions(flags=("-lineinfo",)))
    compile_once(source(text + "\n"), ARCH, "ptx", SourceOptions())
    assert 6 == len(compiled)


def test_threads_wait_for_one_compilation(compiled):
    """Threads that want the same source at the same time share one compilation."""
    text, results = "__device__ int shared_by_threads;\n", []
    threads = [
        threading.Thread(
            target=lambda: results.append(compile_once(source(text), ARCH, "ptx", SourceOptions()))
        )
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ["a.cu"] == compiled
    assert 1 == len({id(each) for each in results})


def test_an_edited_header_is_read_again(compiled, tmp_path):
    """A header that has changed since makes the source another one, however deep it is included."""
    tmp_path.joinpath("outer.h").write_text('#include "inner.h"\n')
    inner = tmp_path / "inner.h"
    options = SourceOptions(include_dirs=(str(tmp_path),))
    symbols = []
    for name in ("before", "after_edit"):
        inner.write_text(f'extern "C" __device__ int {name}() {{ return 1; }}\n')
        made = compile_once(source("#include <outer.h>\n"), ARCH, "ptx", options)
        symbols.append(name.encode() in made.code)
    assert [True, True] == symbols
    assert 2 == len(compiled)


@pytest.mark.parametrize("flags", [("-I{}",), ("-I", "{}"), ("--pre-include={}/a.h",)])
def test_an_edited_header_that_flags_name_is_read_again(tmp_path, flags):
    """What NVRTC finds by its flags alone is not remembered."""
    options = SourceOptions(flags=tuple(flag.format(tmp_path) for flag in flags))
    text = "" if "pre" in flags[0] else "#include <a.h>\n"
    symbols = []
    for name in ("before", "after_edit"):
        (tmp_path / "a.h").write_text(f'extern "C" __device__ int {name}() {{ return 1; }}\n')
        made = compile_once(source(f"{text}// {flags}\n"), ARCH, "ptx", options)
        symbols.append(name.encode() in made.code)
    assert [True, True] == symbols


def test_a_source_that_fails_is_compiled_again(compiled):
    """An error is not remembered."""
    for _ in range(2):
        with pytest.raises(pl.LinkError):
            compile_once(source("syntax error\n"), ARCH, "ptx", SourceOptions())
    assert 2 == len(compiled)


def test_name_expressions_have_symbols():
    """A template named in name_expressions is instantiated, and its symbol is told."""
    expressions = ("ns::scale<float>", "ns::scale<int>", "&ns::counter")
    linked = pl.link(TEMPLATE, arch="sm_80", name_expressions=expressions)
    assert set(expressions) == set(linked.lowered_names)
    assert "_ZN2ns5scaleIfEEvPT_" == linked.lowered_names["ns::scale<float>"]
    names = [each.name for each in pl.inspect(linked.cubin, sass=False).symbols]
    assert {"_ZN2ns5scaleIfEEvPT_", "_ZN2ns5scaleIiEEvPT_"} <= set(names)


def test_a_wrong_name_expression_is_an_error():
    """A name that the source does not know fails with NVRTC's log."""
    with pytest.raises(pl.LinkError, match="nothing_there"):
        pl.link(TEMPLATE, arch="sm_80", name_expressions=("nothing_there<float>",))


def test_standard_and_defines_reach_nvrtc():
    """cxx_standard and defines are NVRTC's."""
    text = (
        "#if __cplusplus != 202002L || VALUE != 3 || !defined(BARE)\n#error missing\n#endif\n"
        'extern "C" __global__ void k() {}\n'
    )
    assert pl.link(text, arch="sm_80", cxx_standard="c++20", defines={"VALUE": "3", "BARE": None}).cubin
    with pytest.raises(pl.LinkError, match="missing"):
        pl.link(text, arch="sm_80")


@pytest.mark.parametrize("output", ["ptx", "ltoir", "cubin"])
def test_every_output(output):
    """CUDA C++ becomes PTX, LTO-IR or a relocatable cubin."""
    code = compile_once(
        source('extern "C" __device__ int f() { return 1; }\n'), ARCH, output, SourceOptions()
    ).code
    assert output == pl.inspect(code, sass=False).kind


def test_warnings_are_logged(caplog, capfd):
    """NVRTC's warnings reach logging, and nothing reaches stderr."""
    with caplog.at_level(logging.WARNING, "numba_ptxlink"):
        linked = pl.link('extern "C" __global__ void warns() { int unused; }\n', arch="sm_80")
    assert 'variable "unused" was declared but never referenced' in caplog.text
    assert "unused" in linked.log
    assert ("", "") == capfd.readouterr()
