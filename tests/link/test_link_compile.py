"""CUDA C++ inputs: what reaches NVRTC."""

from __future__ import annotations

import pytest

import numba_ptxlink as pl
from numba_ptxlink._link.compile import SourceOptions, compile_source
from numba_ptxlink._link.read import Input

ARCH = pl.Arch.of("sm_80")
TEMPLATE = """\
namespace ns {
template <class T> __global__ void scale(T* p) { *p *= 2; }
__device__ int counter;
}
"""


def source(text: str, name: str = "a.cu") -> Input:
    """Return *text* as an input."""
    return Input("cu", name, text.encode())


def test_an_edited_header_is_read_again(tmp_path):
    """A header that has changed since makes the source another one, however deep it is included."""
    tmp_path.joinpath("outer.h").write_text('#include "inner.h"\n')
    inner = tmp_path / "inner.h"
    options = SourceOptions(include_dirs=(str(tmp_path),))
    symbols = []
    for name in ("before", "after_edit"):
        inner.write_text(f'extern "C" __device__ int {name}() {{ return 1; }}\n')
        made = compile_source(source("#include <outer.h>\n"), ARCH, "ptx", options)
        symbols.append(name.encode() in made.code)
    assert [True, True] == symbols


def test_name_expressions_have_symbols():
    """A template named in name_expressions is instantiated, and its symbol is told."""
    expressions = ("ns::scale<float>", "ns::scale<int>", "&ns::counter")
    linked = pl.link(TEMPLATE, arch="sm_80", name_expressions=expressions)
    assert set(expressions) == set(linked.lowered_names)
    assert "_ZN2ns5scaleIfEEvPT_" == linked.lowered_names["ns::scale<float>"]
    names = [each.name for each in pl.inspect(linked.cubin, sass=False).symbols]
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
