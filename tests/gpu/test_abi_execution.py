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
particle = np.dtype([("pos", "f4", 3), ("id", "i2"), ("z", "c16")], align=True)
# numba-cuda refuses to read a field at an unaligned offset.
packed = np.dtype([("b", "f8"), ("a", "i1")])


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


@pytest.fixture(params=["ptx", "ltoir", "cubin"])
def run(request, tmp_path, front_end):
    """Return a function that calls an exported function for each argument."""
    tools = pl.toolchain()
    if request.param == "cubin" and tools.nvjitlink < tools.nvptxcompiler:
        pytest.skip(f"nvJitLink {tools.nvjitlink} reads no cubin of nvPTXCompiler {tools.nvptxcompiler}")

    def call(udf, arguments: np.ndarray, out: np.dtype) -> np.ndarray:
        library = Library([udf], tmp_path, request.param, front_end=front_end.name)
        return library.call(udf.name, arguments, np.dtype(out))

    return call


@pytest.fixture
def _shims(request):
    """Skip where nvJitLink cannot merge the LTO-IR of a function and of the shims it calls."""
    if request.node.callspec.params["run"] == "ltoir" and pl.toolchain().nvjitlink <= (13, 0):
        pytest.skip("nvJitLink 13.0 gives no LTO-IR")


@pytest.mark.usefixtures("_shims")
def test_half_arithmetic(run, types):
    """float16 multiplication and addition are contracted, and round once."""

    def square_and_add(x):
        return x * x + x

    values = np.linspace(-100, 100, 97).astype(np.float16)
    got = run(pl.udf(types.float16(types.float16), name="f")(square_and_add), values, np.float16)
    # Exact in double precision.
    assert square_and_add(values.astype(np.float64)).astype(np.float16).tobytes() == got.tobytes()


@pytest.mark.usefixtures("_shims")
def test_bfloat16_arithmetic(run, types):
    """bfloat16 doubling is exact, like a change of the exponent."""

    def double(x):
        return x + x

    floats = np.linspace(-100, 100, 97, dtype=np.float32)
    values = (floats.view(np.uint32) >> 16).astype(np.uint16)
    got = run(pl.udf(types.bfloat16(types.bfloat16), name="f")(double), values, np.uint16)
    wide = (values.astype(np.uint32) << 16).view(np.float32) * 2
    assert (wide.view(np.uint32) >> 16).astype(np.uint16).tobytes() == got.tobytes()


@pytest.mark.parametrize("kind", ["ptx", "ltoir"])
def test_records_through_pointers(tmp_path, kind, types, front_end):
    """Packed and aligned records, and booleans, are read and written through pointers and views of them."""
    if front_end.name == "numba-cuda-mlir":
        pytest.skip("numba-cuda-mlir takes records behind pointers for their addresses, which is refused")

    def change(p, particles, flags):
        p[1].b = p[0].b + p[0].a
        p[2] = p[1]
        particles[1].id = particles[0].id + 1
        particles[1].pos[2] = particles[0].pos[1]
        flags[1] = not flags[0]
        return p[2].b

    def total(a):
        found = 0.0
        for i in range(a.size):
            found += a[i].b
        return found

    its_packed, its_particle = front_end.from_dtype(packed), front_end.from_dtype(particle)
    arguments = (types.CPointer(its_packed), types.CPointer(its_particle), types.CPointer(types.boolean))
    udfs = [
        pl.udf(arguments, name="change")(change),
        pl.udf((types.Array(its_packed, 1, "C"),), name="total")(total),
    ]
    source = """
        #include "lib.h"
        extern "C" __global__ void caller(double* out, packed* p) {
            particle many[2] = {};
            many[0].pos[1] = 2.5f;
            many[0].id = 41;
            bool flags[2] = {true, true};
            out[0] = change(p, many, flags);
            out[1] = p[1].b;
            out[2] = p[2].a;
            out[3] = many[1].id;
            out[4] = many[1].pos[2];
            out[5] = flags[1];
            out[6] = total({p, 3});
        }
    """
    values = np.array([(1.5, -3), (0.25, 7), (0, 0)], packed)
    got = Library(udfs, tmp_path, kind, source, front_end=front_end.name).launch(
        "caller", np.zeros(7), values
    )
    assert [-1.5, -1.5, 7, 42, 2.5, 0, 1.5 - 1.5 - 1.5] == got.tolist()


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
