"""Functions in namespaces of C++, with an overload for each signature."""

from __future__ import annotations

import front_ends
import pytest

import numba_ptxlink as pl


def twice(x):
    """Double a number."""
    return 2 * x


def length(values):
    """Return how many there are."""
    return values.shape[0]


def fill(values, x):
    """Write a number."""
    values[0] = x


def last(vector):
    """Return the fourth number."""
    return vector.w


@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_signatures_are_overloads(front_end, tmp_path):
    """C++ chooses the function by its arguments; nothing of the calls is left where LTO is on."""
    front_ends.get(front_end)
    common = {"namespace": "app::math", "front_end": front_end}
    both = pl.udf("float64(float64)", **common)(pl.udf("float32(float32)", **common)(twice))
    counted = pl.udf("int64(float32[:])", **common)(length)
    fourth = pl.udf("float64(float64x4)", name="last", **common)(last)
    kernel = pl.kernel("void(float32[::1], float32)", **common)(fill)
    marked = [both, counted, kernel, fourth]
    exported = pl.export(marked, tmp_path, name="udfs", arch="sm_90", emit=["ptx", "ltoir"])
    symbols = ["app_math_twice_f32", "app_math_twice_f64", "app_math_length_view1a_f32", "fill", "last"]
    assert symbols == [signature.name for signature in exported.signatures]
    source = """
        #include "udfs.h"
        template <class A, class B> struct same { static constexpr bool value = false; };
        template <class A> struct same<A, A> { static constexpr bool value = true; };
        static_assert(same<decltype(app::math::twice(1.0f)), float>::value, "");
        static_assert(same<decltype(app::math::twice(1.0)), double>::value, "");
        static_assert(app::math::fill == ::fill, "");
        extern "C" __global__ void use(float* p, double* q, int n, double4 former) {
          *p = app::math::twice(*p);
          *q = app::math::twice(*q) + app::math::length({p, n}) + app::math::last(former);
        }
    """
    for kind in ("ptx", "ltoir"):
        code = exported.artifacts[kind, "sm_90"]
        linked = pl.link(source, code, arch="sm_90", include_dirs=[tmp_path])
        assert b"use" in linked.cubin


def first(values):
    """Return the first one."""
    return values[0]


@pytest.mark.parametrize(
    ("ty", "cxx"),
    [("CPointer(float32)", "{}float*"), ("float32[::1]", "array_view<{}float, 1, layout_c>")],
)
def test_a_constant_is_another_type(ty, cxx, tmp_path):
    """C++ takes the overload of the argument's own type, for constants and for others."""

    def start(values):
        values[0] = 0

    start.__name__ = "first"
    constant = pl.udf(f"float32({ty})", namespace="app", const="values")(first)
    variable = pl.udf(f"void({ty})", namespace="app")(start)
    exported = pl.export([constant, variable], tmp_path, name="udfs", arch="sm_90", emit=["ptx"])
    assert 2 == len({signature.name for signature in exported.signatures})
    source = f"""
        #include "numba_ptxlink/array_view.h"
        #include "udfs.h"
        template <class T> struct is_float {{ enum {{ value = 0 }}; }};
        template <> struct is_float<float> {{ enum {{ value = 1 }}; }};
        using numba_ptxlink::array_view;
        using numba_ptxlink::layout_c;
        __device__ void use({cxx.format("")} variable, {cxx.format("const ")} constant) {{
          static_assert(is_float<decltype(app::first(constant))>::value, "");
          static_assert(!is_float<decltype(app::first(variable))>::value, "");
        }}
    """
    assert pl.link(source, exported.artifacts["ptx", "sm_90"], arch="sm_90", include_dirs=[tmp_path])


def test_a_name_is_kept_for_c():
    """With a name, C calls the symbol by it, and C++ by the Python name."""
    named = pl.udf("float32(float32)", name="app_twice", namespace="app")(twice)
    text = pl.export(named, emit=["ptx"]).contents["app_twice.h"].decode()
    assert "NUMBA_PTXLINK_DEVICE float app_twice(float x);" in text
    assert "NUMBA_PTXLINK_INLINE float twice(float x)\n{ return ::app_twice(x); }" in text


@pytest.mark.parametrize(
    ("function", "signatures", "restrict"),
    [
        (twice, ("float32(float32)", "float64(float32)"), ()),
        (first, ("float32(CPointer(float32))",) * 2, "values"),
    ],
)
def test_overloads_that_cxx_has_not_are_refused(function, signatures, restrict):
    """C++ overloads differ neither by result nor by `restrict`: the error says to rename one in Python."""
    one, other = signatures
    both = pl.udf(one, namespace="app")(pl.udf(other, namespace="app", restrict=restrict)(function))
    with pytest.raises(pl.AbiError, match="tells overloads apart by their parameters: rename one of them"):
        pl.export(both, emit=["ptx"])


@pytest.mark.parametrize(
    ("namespace", "reason"),
    [
        ("std", "is the namespace of another library"),
        ("cuInit::own", "'cuInit' starts like the names of CUDA's runtime or driver"),
        ("cuda::detail", "'cuda' is the namespace of another library; use a name such as 'my_cuda'"),
        ("a::class", "reserved word"),
        ("a::", "not a C identifier"),
    ],
)
def test_other_namespaces_are_refused(namespace, reason):
    """Words of the languages, and namespaces that belong to others."""
    with pytest.raises(pl.AbiError, match=reason):
        pl.udf("float32(float32)", namespace=namespace)(twice)
