"""Exported functions called from C++ on a device: halves, pointers, views, kernels, and what C++ defines."""

from __future__ import annotations

import shutil
import struct
from collections import namedtuple

import front_ends
import numpy as np
import pytest
from abi_device import Library

import numba_ptxlink as pl

Point = namedtuple("Point", "x y")  # noqa: PYI024 - Numba's types are given below


@pytest.fixture(params=front_ends.NAMES)
def front_end(request):
    """Return the front end that compiles the functions."""
    return front_ends.get(request.param)


@pytest.fixture
def types(front_end):
    """Return the types of the front end."""
    return front_end.types


@pytest.fixture
def cuda(front_end):
    """Return the module `cuda` of the front end."""
    return front_ends.cuda(front_end.name)


@pytest.fixture
def point(types):
    """Return the type of a named tuple."""
    return types.NamedTuple([types.float32, types.int64], Point)


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_arrays_are_views(tmp_path, kind, types, front_end):
    """Arrays of each layout arrive with shape and strides, made of pointers, spans, mdspans and views."""

    def corner(a):
        return a[a.shape[0] - 1, a.shape[1] - 1] + a[0, 1]

    def total(a):
        found = np.float32(0)
        for i in range(a.size):
            found += a[i]
        return found

    udfs = [
        pl.udf((types.Array(types.float32, 2, layout),), name=f"corner_{layout.lower()}")(corner)
        for layout in "CFA"
    ]
    udfs.append(pl.udf("float32(float32[:])", name="total")(total))
    source = """
        #include "lib.h"
        #include <cuda/std/mdspan>
        #include <cuda/std/span>
        using numba_ptxlink::array_view;
        using numba_ptxlink::layout_c;
        using numba_ptxlink::layout_f;
        using extents = cuda::std::dextents<int, 2>;
        extern "C" __global__ void caller(float* out, float* p) {
            const long long shape[2] = {4, 3}, strides[2] = {4, 16};
            array_view<float, 2> any(p, shape, strides);
            cuda::std::mdspan<float, extents> right(p, 3, 4);
            cuda::std::mdspan<float, extents, cuda::std::layout_left> left(p, 3, 4);
            out[0] = corner_c({p, 3, 4});
            out[1] = corner_f({p, 3, 4});
            out[2] = corner_a({p, 3, 4});
            out[3] = corner_a(any);
            out[4] = corner_c(right);
            out[5] = corner_f(left);
            out[6] = corner_a(right) - corner_a(left);
            out[7] = corner_a(array_view<float, 2, layout_f>(p, 3, 4));
            out[8] = corner_f(numba_ptxlink::to_contiguous<layout_f>(any));
            out[9] = corner_a({p + 11, {3, 4}, {-16, -4}});
            out[10] = total(cuda::std::span<float>(p, 12));
            out[11] = total({p, 5});
        }
    """
    values = np.arange(12, dtype=np.float32) ** 2
    got = Library(udfs, tmp_path, kind, source, front_end=front_end.name).launch(
        "caller", np.zeros(12, np.float32), values
    )
    c, f = values.reshape(3, 4), values.reshape(3, 4, order="F")

    def expected(table):
        return table[-1, -1] + table[0, 1]

    of_c, of_f, turned = expected(c), expected(f), expected(c.T)
    tables = [of_c, of_f, of_c, turned, of_c, of_f, of_c - of_f, of_f, turned, expected(c[::-1, ::-1])]
    assert [*tables, values.sum(), values[:5].sum()] == got.tolist()


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_pointers_and_integers_of_other_names(tmp_path, kind, types, front_end):
    """A pointer, an enum's and a date's integer reach Python as they are."""
    import enum

    class Level(enum.IntEnum):
        LOW = -3
        HIGH = 9

    level = types.IntEnumMember(Level, types.int64)

    def store(p, value):
        p[1] = value

    def is_high(value):
        return value == Level.HIGH

    def later(date, step):
        return date + step

    second, step = types.NPDatetime("s"), types.NPTimedelta("s")
    udfs = [
        pl.udf(types.void(types.CPointer(types.int16), types.int16), name="store")(store),
        pl.udf(types.boolean(level), name="is_high")(is_high),
        pl.udf(second(second, step), name="later")(later),
    ]
    source = """
        #include "lib.h"
        extern "C" __global__ void caller(int64_t* out, int16_t* p) {
            store(p, -5);
            out[0] = p[1];
            out[1] = is_high(9) + 2 * is_high(-3);
            out[2] = later(1000000, 17);
        }
    """
    got = Library(udfs, tmp_path, kind, source, front_end=front_end.name).launch(
        "caller", np.zeros(3, np.int64), np.zeros(4, np.int16)
    )
    assert [-5, 1, 1000017] == got.tolist()


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_a_kernel_is_launched_by_its_c_name(tmp_path, kind, cuda, point, front_end):
    """An exported kernel takes views and structs, and uses static and dynamic shared memory."""
    types = front_end.types

    def scale(out, p, factor):
        shared = cuda.shared.array(64, types.float32)
        extra = cuda.shared.array(0, types.float32)
        i = cuda.threadIdx.x
        shared[i] = out[i]
        extra[i] = factor
        cuda.syncthreads()
        out[i] = shared[63 - i] * extra[63 - i] + p.x

    kernel = pl.kernel(
        types.void(types.Array(types.float32, 1, "C"), point, types.float32), name="scale", launch_bounds=64
    )(scale)
    library = Library([kernel], tmp_path, kind, front_end=front_end.name)
    values = np.arange(64, dtype=np.float32)
    view = struct.pack("@q", 0) + struct.pack("@qq", 64, 4)
    got = library.launch_with(
        "scale",
        values,
        lambda address: (
            struct.pack("@q", address) + view[8:],
            struct.pack("@fxxxxq", 0.5, 1),
            np.float32(2),
        ),
        shared=256,
    )
    assert (values[::-1] * 2 + np.float32(0.5)).tolist() == got.tolist()


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_an_extern_is_supplied_by_cxx(tmp_path, kind, cuda, front_end):
    """A function that Python declares and C++ defines is called."""
    half_of = cuda.declare_device("half_of", "float32(float32)", abi="c")

    def quarter(x):
        return half_of(half_of(x))

    source = """
        #include "lib.h"
        extern "C" __device__ float half_of(float x) { return x / 2; }
        extern "C" __global__ void caller(float* out, float* p) { out[0] = quarter(p[0]); }
    """
    library = Library(
        [pl.udf("float32(float32)", name="quarter")(quarter)],
        tmp_path,
        kind,
        source,
        front_end=front_end.name,
    )
    assert [2.5] == library.launch("caller", np.zeros(1, np.float32), np.array([10], np.float32)).tolist()


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_callers_by_nvcc(tmp_path, kind, types, point, front_end):
    """C++ that nvcc compiled calls functions of scalars and of structs as NVRTC's does."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        pytest.skip("nvcc is not on the PATH")
    layout = np.dtype([("x", "f4"), ("y", "i8")], align=True)

    def negate(x):
        return -x

    def reflect(z):
        return z.conjugate()

    def swap(p):
        return np.float32(p.y), np.int64(p.x)

    pair = types.Tuple((types.float32, types.int64))
    library = Library(
        [
            pl.udf(types.int8(types.int8), name="negate")(negate),
            pl.udf(types.complex64(types.complex64), name="reflect")(reflect),
            pl.udf(pair(point), name="swap")(swap),
        ],
        tmp_path,
        kind,
        nvcc=nvcc,
        front_end=front_end.name,
    )
    words = np.array([0, 1, -1, 127], np.int8)
    assert (-words).tolist() == library.call("negate", words, np.dtype("i1")).tolist()
    numbers = np.array([1 + 2j, -3.5j, 4], np.complex64)
    assert numbers.conjugate().tolist() == library.call("reflect", numbers, np.dtype("c8")).tolist()
    points = np.array([(1.5, -7), (-2.0, 1 << 20)], layout)
    assert [(-7.0, 1), (float(1 << 20), -2)] == [tuple(row) for row in library.call("swap", points, layout)]
