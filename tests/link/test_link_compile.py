"""CUDA C++ inputs: the options and names that NVRTC receives."""

from __future__ import annotations

import platform
import re

import pytest

import numba_ptxlink as pl

TEMPLATE = """\
namespace ns {
template <class T> __global__ void scale(T* p) { *p *= 2; }
__device__ int counter;
}
"""


def test_an_edited_header_is_read_again(tmp_path):
    """A header that has changed since makes the source another one, however deep it is included."""
    tmp_path.joinpath("outer.h").write_text('#include "inner.h"\n')
    for name in ("before", "after_edit"):
        (tmp_path / "inner.h").write_text(f'extern "C" __global__ void {name}() {{}}\n')
        linked = pl.link("#include <outer.h>\n", arch="sm_80", include_dirs=[tmp_path])
        assert f".entry {name}(" in linked.ptx


def test_name_expressions_have_symbols():
    """A template in name_expressions is instantiated; a variable may be named with "&" or without."""
    expressions = ("ns::scale<float>", "ns::scale<int>", "&ns::counter", "ns::counter")
    linked = pl.link(TEMPLATE, arch="sm_80", name_expressions=expressions)
    assert set(expressions) == set(linked.lowered_names)
    assert "_ZN2ns7counterE" == linked.lowered_names["ns::counter"] == linked.lowered_names["&ns::counter"]
    assert "_ZN2ns5scaleIfEEvPT_" == linked.lowered_names["ns::scale<float>"]
    names = [symbol.name for symbol in pl.inspect(linked.cubin, sass=False).symbols]
    assert {"_ZN2ns5scaleIfEEvPT_", "_ZN2ns5scaleIiEEvPT_"} <= set(names)


def test_standard_and_defines_reach_nvrtc():
    """cxx_standard and defines are NVRTC's."""
    text = (
        "#if __cplusplus != 202002L || VALUE != 3 || !defined(BARE)\n#error missing\n#endif\n"
        'extern "C" __global__ void k() {}\n'
    )
    assert pl.link(text, arch="sm_80", cxx_standard="c++20", defines={"VALUE": "3", "BARE": None}).cubin
    with pytest.raises(pl.LinkError, match="missing"):
        pl.link(text, arch="sm_80")
    with pytest.raises(pl.ConfigError, match=r'cxx_standard is 20; pass text such as "c\+\+20"'):
        pl.link(text, arch="sm_80", cxx_standard=20)


@pytest.mark.parametrize(("machine", "option"), [("x86_64", False), ("aarch64", True)])
def test_char_is_signed_on_every_machine(monkeypatch, machine, option):
    """Plain char is signed: NVRTC for Arm, where it is unsigned, gets an option."""
    read = 'extern "C" __global__ void k(const char* from, int* to) { *to = *from; }\n'
    assert re.search(r"ld\.\S*s8", pl.link(read, arch="sm_80").ptx)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(pl.LinkError) as failure:
        pl.link(f"{read}#error stop\n", arch="sm_80")
    assert option == ("-Xcudafe=--signed_chars" in failure.value.flags)
