"""array_view.h: the conversions between views and from std::mdspan, and the elements of a view."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_toolkit import host_includes
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink import abi

RULES = Path(__file__).with_name("array_view_rules.h")
WARNINGS = ("-Wall", "-Wextra", "-Wconversion", "-Wsign-conversion")


def run(compiler: str, *arguments: object) -> None:
    """Run *compiler*, without a word from it."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    command = [compiler, "-std=c++17", f"-I{RULES.parent}", *host_includes(), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stdout + done.stderr), done.stderr


@pytest.mark.parametrize("compiler", ["g++", "clang++"])
def test_the_rules_hold_on_the_host(compiler, tmp_path):
    """Host compilers accept the valid conversions, refuse all others, and print no warning."""
    source = tmp_path / "rules.cpp"
    source.write_text(f'#include "{RULES.name}"\n')
    run(compiler, *WARNINGS, "-Wshadow", "-Wold-style-cast", "-pedantic", "-Werror", "-fsyntax-only", source)


def test_the_rules_hold_with_nvrtc():
    """So does NVRTC."""
    assert pl.link(f'#include "{RULES.name}"\n', arch="sm_90", include_dirs=[RULES.parent], checks="none")


VIEWS = """
#include <cuda/std/mdspan>
#include <cuda/std/span>
#include <numba_ptxlink/array_view.h>
using namespace numba_ptxlink;
using extents = cuda::std::dextents<int, 2>;
template <class Layout>
using md = cuda::std::mdspan<float, extents, Layout>;
template <class Layout>
using view = array_view<float, 2, Layout>;
extern "C" {
view<layout_c> c_extents(float* p) { return {p, 3, 4}; }
view<layout_c> c_unsigned(float* p) { return {p, 3u, sizeof(float)}; }
view<layout_c> c_mdspan(float* p) { return md<cuda::std::layout_right>(p, 3, 4); }
view<layout_c> c_static(float* p) { return cuda::std::mdspan<float, cuda::std::extents<int, 3, 4>>(p); }
view<layout_c> c_checked(float* p) { return to_contiguous<layout_c>(view<layout_any>(p, 3, 4)); }
view<layout_f> f_extents(float* p) { return {p, 3, 4}; }
view<layout_f> f_mdspan(float* p) { return md<cuda::std::layout_left>(p, 3, 4); }
view<layout_f> f_assumed(float* p) { return assume_contiguous<layout_f>(view<layout_any>(p, 3, 4)); }
view<layout_any> a_extents(float* p) { return {p, 3, 4}; }
view<layout_any> a_strides(float* p) { return {p, {3, 4}, {4, 12}}; }
view<layout_any> a_pitch(float* p) {
  const unsigned long height = 3, pitch = 16;
  return {p, {height, 4u}, {pitch, sizeof(float)}};
}
view<layout_any> a_mixed(float* p) {
  const int extents[] = {3, 4};
  return {p, extents, {static_cast<short>(4), 12ull}};
}
view<layout_any> a_reversed(float* p) { return {p + 11, {3, 4}, {-16, -4}}; }
view<layout_any> a_from_c(float* p) { return c_extents(p); }
view<layout_any> a_from_f(float* p) { return f_extents(p); }
view<layout_any> a_from_left(float* p) { return md<cuda::std::layout_left>(p, 3, 4); }
view<layout_any> a_stride(float* p) {
  return md<cuda::std::layout_stride>(p, {extents(3, 2), cuda::std::array<int, 2>{4, 2}});
}
float at(view<layout_any> v, long i, long j) { return v(i, j); }
}
"""
# The values of a[1, 0] and a[2, 1], in an array of twelve numbers, each of which is its own index.
EXPECTED = {
    **dict.fromkeys(("c_extents", "c_unsigned", "c_mdspan", "c_static", "c_checked"), (4, 9)),
    **dict.fromkeys(("f_extents", "f_mdspan", "f_assumed"), (1, 5)),
    **dict.fromkeys(("a_extents", "a_from_c", "a_pitch"), (4, 9)),
    **dict.fromkeys(("a_strides", "a_mixed", "a_from_f", "a_from_left"), (1, 5)),
    "a_reversed": (7, 2),
    "a_stride": (4, 10),
}


WRONG = (
    "to_contiguous<layout_c>(view<layout_any>(p, {3, 4}, {4, 12}))",
    "to_contiguous<layout_f>(view<layout_c>(p, 3, 4))",
    "view<layout_c>(p, 3, static_cast<unsigned long>(-1))",
    "view<layout_any>(p, {3, ~0ull}, {16, 4})",
    "view<layout_any>(p, {3, 4}, {16, ~0ul})",
)


class View2(ctypes.Structure):
    """A view of two dimensions."""

    _fields_ = (("data", ctypes.c_void_p), ("shape", ctypes.c_int64 * 2), ("strides", ctypes.c_int64 * 2))


@pytest.fixture(scope="module")
def views(tmp_path_factory):
    """Return the functions of VIEWS, and those that stop the process."""
    folder = tmp_path_factory.mktemp("views")
    source = folder / "views.cpp"
    stops = "\n".join(
        f'extern "C" long stops_{number}(float* p) {{ return {wrong}.data - p; }}'
        for number, wrong in enumerate(WRONG)
    )
    source.write_text(VIEWS + stops)
    run("g++", *WARNINGS, "-Werror", "-O1", "-shared", "-fPIC", "-o", folder / "views.so", source)
    return ctypes.CDLL(str(folder / "views.so"))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_view_has_the_elements_that_it_is_made_of(views, name):
    """Views of each layout, made in each way, have the elements that they are made of."""
    make = getattr(views, name)
    make.restype, make.argtypes = View2, [ctypes.c_void_p]
    views.at.restype, views.at.argtypes = ctypes.c_float, [View2, ctypes.c_long, ctypes.c_long]
    numbers = (ctypes.c_float * 12)(*range(12))
    view = make(ctypes.addressof(numbers))
    assert EXPECTED[name] == (views.at(view, 1, 0), views.at(view, 2, 1))


CALL = """
import ctypes, sys
function = ctypes.CDLL(sys.argv[1])[sys.argv[2]]
function.argtypes, function.restype = [ctypes.c_void_p], ctypes.c_long
print("calls", flush=True)
print(function(ctypes.addressof((ctypes.c_float * 12)())))
"""


@pytest.mark.parametrize("number", range(len(WRONG)), ids=WRONG.__getitem__)
def test_what_is_not_so_stops_the_program(views, number):
    """A checked conversion of an array that is not contiguous, and an extent that is none, do not return."""
    command = [sys.executable, "-S", "-c", CALL, views._name, f"stops_{number}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "calls\n" == done.stdout, done.stderr
    assert done.returncode < 0


@pytest.mark.parametrize("ndim", [0, 1])
def test_equal_layouts_are_one_type(ndim):
    """Arrays of no dimension, and contiguous ones of one dimension, have one C++ type."""
    layouts = "CFA" if ndim == 0 else "CF"
    names = {abi.c_type(types.Array(types.int8, ndim, layout)).name for layout in layouts}
    assert {f"numba_ptxlink::array_view<int8_t, {ndim}, numba_ptxlink::layout_c>"} == names
