"""The standard library's headers in CUDA C++ for NVRTC, and the errors for headers that are missing."""

from __future__ import annotations

import pytest

import numba_ptxlink as pl

SOURCE = """
#include <cstdint>
#include <cstddef>
#include <climits>
#include <limits>
#include <type_traits>
#include <utility>
#include <cmath>
#include <cstdio>
#include <cassert>
static_assert(std::is_same<std::uint16_t, unsigned short>::value && INT64_MAX == LLONG_MAX, "");
static_assert(std::is_same<decltype(sizeof(0)), std::size_t>::value && sizeof(intptr_t) == sizeof(void*), "");
static_assert(std::numeric_limits<std::int32_t>::max() == INT_MAX, "");
extern "C" __global__ void spread(float* p, std::uint8_t n) {
  assert(n > 0);
  std::printf("%d", int(n));
  std::pair<float, float> both{std::sqrt(p[0]), std::abs(p[1])};
  p[n] = std::move(both).first * float(M_PI);
}
"""


@pytest.mark.slow
def test_the_standard_headers_are_those_of_cudas_library(tmp_path):
    """`link` compiles CUDA C++ that includes headers of C++ through a header of the user."""
    (tmp_path / "own.h").write_text(SOURCE)
    (tmp_path / "spread.cu").write_text('#include "own.h"\n')
    assert b"spread" in pl.link(tmp_path / "spread.cu", arch="sm_90").cubin


def test_the_headers_of_c_have_what_is_not_built_in():
    """C's names of them bring macros and types, without a namespace."""
    names = ("stdint", "stddef", "stdbool", "limits", "float", "math", "stdio", "stdlib", "string", "assert")
    source = "".join(f"#include <{name}.h>\n" for name in names) + (
        'static_assert(UINT8_MAX == 255 && CHAR_BIT == 8 && FLT_DIG == 6 && M_PI > 3.14, "");\n'
        'static_assert(sizeof(ptrdiff_t) == 8 && sizeof(int_least16_t) == 2, "");\n'
        'extern "C" __global__ void f(char* p) { assert(p); memcpy(p, p + 1, abs(-1)); printf("%p", p); }\n'
    )
    assert b"f" in pl.link(source, arch="sm_90").cubin


def test_cub_and_thrust_compile_beside_the_standard_headers():
    """CUDA's library configures itself by <version>, which is empty; `std::` comes from the other headers."""
    cuda = "#include <cub/util_type.cuh>\n#include <thrust/pair.h>\n"
    standard = "#include <stdio.h>\n#include <cstdint>\n#include <version>\n"
    kernel = 'extern "C" __global__ void f(std::uint8_t* p) { *p = thrust::pair<int, int>(1, *p).first; }\n'
    assert pl.link(cuda + standard + kernel, arch="sm_90").cubin


def test_what_compiles_without_them_stays_as_it_is():
    """A source that tests for a header finds none, and a user's header of that name comes first."""
    asks = '#if __has_include(<cstdint>)\n#error "there"\n#endif\nextern "C" __global__ void f() {}\n'
    assert pl.link(asks, arch="sm_90").cubin
    source = (
        '#include <limits>\n#include <cstdint>\nstatic_assert(MINE == 7 && sizeof(std::int8_t) == 1, "");\n'
    )
    source += 'extern "C" __global__ void f() {}\n'
    assert pl.link(source, arch="sm_90", headers={"limits": "#define MINE 7\n"}).cubin


@pytest.mark.parametrize(
    ("source", "cure"),
    [
        (
            "#include <vector>\nint main() {}\n",
            "folder of vector as include_dirs.* by `nvcc -dc` and link the object",
        ),
        ("__global__ void f() {}\nint main() {}\n", "such as main, by `nvcc -dc` and link the object"),
        ("#include <cuda.h>\n", "such as cuda.h, pass nvrtc_flags=.'-default-device'."),
    ],
)
def test_what_nvrtc_does_not_have_comes_with_the_cure(source, cure):
    """Headers and code of the host are for nvcc, and other headers are in a folder that is not searched."""
    with pytest.raises(pl.LinkError, match=f"(?s){cure}"):
        pl.link(source, arch="sm_90")
