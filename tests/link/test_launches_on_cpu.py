"""Exports and links on the CPU: the launch tests of a device, calls of functions, and refused calls."""

from __future__ import annotations

import math
import pickle
import re
import subprocess
import sys
from collections import namedtuple
from types import SimpleNamespace

import launches
import loaded_kernels
import numpy as np
import pytest
from linkcases import CALLEE, CALLER, KERNEL, function
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl
from numba_ptxlink._formats.kinds import FATBIN
from numba_ptxlink._link.one_ptx import one_ptx
from numba_ptxlink._link.read import Input
from numba_ptxlink._tools import nvfatbin
from numba_ptxlink._tools.options import Options

ARCH, SIZE = "sm_90", 1000
Point = namedtuple("Point", "x y")  # noqa: PYI024 - Numba's type of it is given below
body = np.dtype([("id", "i8"), ("place", "f4", 3), ("axes", "i2", (2, 3)), ("tag", "S3")], align=True)
BODY, AXES = from_dtype(body), np.arange(6).reshape(2, 3)
WHOLE = np.array([(-7, (1, 2, 0.5), AXES, b"ab"), (8, (0, 0, 1), AXES + 1, b"c")], body)


@pl.udf("float32(float32, int8)")
def scaled(value, factor):
    """Multiply."""
    return value * factor


@pl.udf(types.float64(BODY))
def third(record):
    """Read a record."""
    return record.id + record.place[2]


@pl.udf("int32(float32[::1], int32)")
def raised(values, count):
    """Write to an array."""
    for i in range(count):
        values[i] += 1
    return values.size


@pl.udf("float32[::1](float32[::1])")
def same_array(values):
    """Return an array."""
    return values


@pytest.fixture(scope="module")
def udfs(tmp_path_factory):
    """Return the kernels and functions of the tests, loaded for the CPU."""
    kernels = [getattr(loaded_kernels, name) for name in ("scale", "fill", "exchange", "through_shared")]
    marked = [*kernels, scaled, third, raised, same_array]
    folder = tmp_path_factory.mktemp("build")
    return pl.load(pl.export(marked, folder, arch=ARCH, emit=["ptx"], name="udfs").manifest, device="cpu")


# Launches, as tests/gpu has them.


def test_arrays_are_written_in_place(udfs):
    """NumPy's arrays, views of them, and tensors that DLPack describes are written by kernels."""
    values = np.arange(2 * SIZE, dtype=np.float32)
    whole = values.copy()
    udfs.scale[8, 128](whole[:SIZE], 3)
    tensor = SimpleNamespace(__dlpack__=whole[SIZE:].__dlpack__, __dlpack_device__=lambda: (1, 0))
    udfs.scale.launch(tensor, 2, grid=8, block=128, stream=0, programmatic_dependent=True, cooperative=True)
    assert np.concatenate([3 * values[:SIZE], 2 * values[SIZE:]]).tolist() == whole.tolist()
    udfs.fill[8, 128](whole, SIZE, 0.5)
    assert (np.arange(SIZE) / 2).tolist() == whole[:SIZE].tolist()


def test_shared_memory_and_a_grid_that_meets(udfs):
    """A launch has the dynamic shared memory of its configuration; blocks wait for each other."""
    out = np.zeros(64, np.float32)
    udfs.through_shared[1, 64, None, 60000](out)
    assert list(range(64)) == out.tolist()
    source, target = np.zeros((2, 64), np.int32)
    udfs.exchange[64, 1](source, target)
    assert list(range(64))[::-1] == target.tolist()


def run(linked: pl.Linked, name: str = "k") -> int:
    """Launch the kernel *name*, which writes one integer, and return that."""
    out = np.zeros(1, np.int32)
    linked.kernel(name, device="cpu")[1, 1](out)
    return int(out[0])


@pytest.mark.parametrize("lto", [False, True])
def test_linked_sources(lto):
    """CUDA C++ sources linked with and without LTO run, also by the name of a template's instance."""
    assert 7 == run(pl.link(CALLER, CALLEE.format(value=7), arch=ARCH, lto=lto))
    source = "namespace ns { template <int N> __global__ void write(int* p) { *p = N; } }\n"
    linked = pl.link(source, arch=ARCH, lto=lto, name_expressions=("ns::write<9>",))
    assert 9 == run(linked, "ns::write<9>")


def test_an_array_without_dimensions_is_memory():
    """A kernel reads and writes the element of an array that has no dimensions."""
    kernel = pl.link('extern "C" __global__ void k(long long* p) { *p += 7; }', arch=ARCH).kernel(
        "k", device="cpu"
    )
    value = np.array(35)
    kernel[1, 1](value)
    assert value == 42


def test_kernels_of_one_link_share_variables():
    """Kernels of one link read each other's values of a variable; another link has its own variable."""
    source = "__device__ int n; template <int N> __global__ void k(int* p) { *p = n += N; }"
    names = ("k<1>", "k<10>")
    linked = pl.link(source, arch=ARCH, name_expressions=names)
    assert [1, 11] == [run(linked, name) for name in names]
    assert 1 == run(pickle.loads(pickle.dumps(linked)), "k<1>")  # noqa: S301 - its own pickle


@pytest.mark.parametrize("backend", ["nvptxcompiler", "nvjitlink"])
def test_one_ptx_of_every_backend(backend):
    """PTX runs, whichever tool compiled it, and several modules are joined."""
    whole = KERNEL.replace(
        ".extern .func (.param .b32 r) f(.param .b32 a);", function(5).partition("64\n")[2]
    )
    assert 5 == run(pl.link(whole, arch=ARCH, backend=backend))
    if backend == "nvjitlink":
        assert 5 == run(pl.link(KERNEL, function(5), arch=ARCH, backend=backend))


@pytest.mark.parametrize(("directive", "limits"), [("", ["64"]), (".maxnreg 32", ["32"])])
def test_a_limit_of_registers_leaves_that_of_a_kernel(directive, limits):
    """On the CPU, max_registers is the limit of the kernels that declare no `.maxnreg`."""
    heading = KERNEL.partition("\n{")[0]
    kernel = KERNEL.replace(heading, f"{heading}\n{directive}", 1)
    ptx = pl.link(kernel, function(5), arch=ARCH, max_registers=64).one_ptx().decode()
    assert limits == re.findall(r"\.maxnreg (\d+)", ptx)


def test_code_for_newer_gpus_names_the_architecture_that_runs_it():
    """The message about a fat binary with PTX for sm_90 alone gives the option for a newer device."""
    code = nvfatbin.pack([("ptx", pl.Arch(9, 0), "a.ptx", KERNEL.encode())])
    with pytest.raises(pl.LinkError, match=r"newer GPUs.* cpu --arch 9\.0, or build it for compute_75"):
        one_ptx([Input(FATBIN, "udfs.fatbin", code)], pl.Arch(7, 5), Options())


def test_a_cxx_kernel_calls_a_function_on_arrays():
    """By PTX alone, an array is passed for a pointer or an array view, and numbers have their sizes."""
    source = """
#include "numba_ptxlink/array_view.h"
#include "udfs.h"
using view = numba_ptxlink::array_view<float, 1, numba_ptxlink::layout_c>;
extern "C" __global__ void apply(view x, double* sum, int8_t n) {
    x[threadIdx.x] = scaled(x[threadIdx.x], n);
    atomicAdd(sum, (double)x[threadIdx.x]);
}
"""
    exported = pl.export([scaled], arch=ARCH, emit=["ptx"], name="udfs")
    headers = {"udfs.h": exported.contents["udfs.h"].decode()}
    linked = pl.link(source, exported.read("ptx"), arch=ARCH, lto=False, headers=headers)
    kernel, x, total = linked.kernel("apply", device="cpu"), np.arange(4, dtype=np.float32), np.zeros(1)
    kernel[1, 4](x, total, np.int8(-3))
    assert ([0, -3, -6, -9], -18) == (x.tolist(), total[0])
    for arguments, reason in (
        ((x, total), "takes 3 arguments, but 2 were passed"),
        (
            (x, np.ones(4)[::2], np.int8()),
            r"argument 2, .* of 8 bytes, is not contiguous; pass numpy\.ascontiguousarray",
        ),
        *(
            (
                (x, array, np.int8()),
                "argument 2, .* Python objects, or another byte order .*; pass a converted copy",
            )
            for array in (total.astype(">f8"), np.array(1, ">u8"), total.astype("O"))
        ),
        (
            (x, total, 3),
            r"argument 3, for a parameter of 1 bytes, is 3, .*; pass .* numpy\.int32",
        ),
        ((x, total, np.int32(3)), r"argument 3, .* of 1 bytes, .* has 4 bytes; pass a value of 1 bytes"),
        (
            (x.reshape(2, 2), total, np.int8(3)),
            r"array of 2 dimensions, which fits a pointer \(8 bytes\) or an array_view \(40 bytes\); pass",
        ),
        ((x, launches.array(1, "<f8"), np.int8(3)), "an array on a device; copy it to the host"),
    ):
        with pytest.raises(pl.LaunchError, match=reason):
            kernel[1, 4](*arguments)
    with pytest.raises(pl.LaunchError, match="has no kernel 'other'; its kernels are: apply"):
        linked.kernel("other", device="cpu")


# Calls

VALUES = {
    "bool": (types.boolean, [True, False]),
    "int8": (types.int8, [-128, 127]),
    "uint64": (types.uint64, [2**64 - 1]),
    "float64": (types.float64, [0.1, math.inf]),
    "float32": (types.float32, [np.float32(0.1)]),
    "float16": (types.float16, [np.float16(1.5)]),
    "bfloat16": (types.bfloat16, [np.float32(1.5)]),
    "complex64": (types.complex64, [np.complex64(1 - 2j)]),
    "vector": (vector_types["float32x4"], [(1, 2, 3, 4)]),
    "tuple": (types.Tuple((types.int8, types.UniTuple(types.float64, 2))), [(-1, (2.0, 3.0))]),
    "namedtuple": (types.NamedTuple([types.float32, types.int8], Point), [Point(1.5, -1)]),
    "record": (BODY, [(-7, (1.0, 2.0, 0.5), ((0, 1, 2), (3, 4, 5)), b"ab")]),
    "optional": (types.Optional(types.int32), [7, None]),
}


@pytest.fixture(scope="module")
def same():
    """Return a function for each type, which returns its argument."""
    udfs = [pl.udf(ty(ty), name=f"same_{name}")(lambda value: value) for name, (ty, _) in VALUES.items()]
    return pl.load(pl.export(udfs, arch=ARCH, emit=["ptx"], name="same"), device="cpu")


@pytest.mark.parametrize("name", VALUES)
def test_a_value_comes_back(same, name):
    """Results are values of Python, or of NumPy where Python has none of that precision."""
    for value in VALUES[name][1]:
        result = same[f"same_{name}"](value)
        assert value == result
        if not isinstance(value, tuple):
            assert type(value) is type(result)
    assert name != "namedtuple" or (result.x, result.y) == (1.5, -1)


def test_a_function_is_called_for_each_element(udfs, same):
    """Arrays are broadcast together; integers of another type are checked, and records are read by member."""
    column, row = np.array([[1.5], [-2]]), np.array([1, -3, 100])
    result = udfs.scaled(column, row)
    assert ((column * row).tolist(), np.float32) == (result.tolist(), result.dtype)
    with pytest.raises(pl.LaunchError, match=r"parameter 'factor' is int8_t: it is .*200.*from -128 to 127"):
        udfs.scaled(column, 2 * row)
    assert [-6.5, 9.0] == udfs.third(WHOLE).tolist()
    returned = same.same_record(WHOLE)
    for member in ("place", "axes"):
        assert WHOLE[member].tolist() == returned[member].tolist()
        assert body[member] == returned.dtype[member]
    for kind in ("int8", "bool", "float16", "bfloat16", "complex64"):
        assert [0, 1, 1] == same[f"same_{kind}"](
            np.array([0, 1, 1]).astype(kind if kind != "bfloat16" else "f4")
        ).tolist()
    assert [(7, True), (0, False)] == same.same_optional(np.array([7, None])).tolist()
    assert (0, 3) == udfs.scaled(np.zeros((0, 1)), row).shape


def test_arrays_of_functions(udfs):
    """An array is written in place, by each element of another too."""
    array = np.zeros(4, np.float32)
    assert [4, 4] == udfs.raised(array, np.array([2, 3])).tolist()
    assert [2, 2, 1, 0] == array.tolist()


words = np.dtype([("_a", "f4"), ("class", "i4"), ("index", "f8", 2), ("__members", "i2")], align=True)
unnamed = np.dtype("f4,i4", align=True)
optional_gain = np.dtype([("value", "f4"), ("has_value", "i4")], align=True)


def test_members_have_any_name():
    """A record that a function returns has its members by attribute and by name, and is an argument again."""

    @pl.udf("words(words)")
    def same_words(record):
        return record

    @pl.udf("unnamed(unnamed)", name="same_unnamed")
    def same_unnamed(record):
        return record

    loaded = pl.load(pl.export([same_words, same_unnamed], arch=ARCH, emit="ptx"), device="cpu")
    result = loaded.same_words((1.5, 2, (3, 4), 5))
    assert "words(_a=np.float32(1.5), class=2, index=(3.0, 4.0), __members=5)" == repr(result)
    assert (1.5, 2, (3, 4), 5) == result == pickle.loads(pickle.dumps(result))  # noqa: S301 - its own pickle
    assert (1.5, 2, (3, 4), 5) == (result._a, result["class"], result[2], getattr(result, "__members"))
    result.index = (6, 7)
    result["class"] += 1
    assert (1.5, 3, (6, 7), 5) == loaded.same_words(result)
    assert result != loaded.same_words((1.5, 2, (3, 4), 5))
    with pytest.raises(AttributeError, match="words has no member 'count'"):
        result.count = 1
    # NumPy's names of members without names are not those of a tuple.
    assert (1.5, 2) == (loaded.same_unnamed((1.5, 2)).f0, loaded.same_unnamed({"f1": 2, "f0": 0})["f1"])


def test_an_optional_is_not_known_by_its_name(same):
    """A record that looks like an Optional is a record, and an Optional of a result is an argument again."""

    @pl.udf("float32(optional_gain)")
    def gain(record):
        return record.value * record.has_value

    loaded = pl.load(pl.export([gain], arch=ARCH, emit="ptx"), device="cpu")
    assert 15 == loaded.gain(np.array((3, 5), optional_gain)[()])
    with pytest.raises(pl.LaunchError, match="it is None, a NoneType; for optional_gain pass 2 values"):
        loaded.gain(None)
    returned = same.same_optional(np.array([7, None]))
    assert [7, None] == [same.same_optional(element) for element in returned]
    assert [(7, True), (0, False)] == same.same_optional(returned).tolist()


def test_functions_have_the_names_of_methods():
    """An export's names take precedence over the methods of a mapping and of the library."""
    names = ("get", "items", "read", "_items")

    def function(number, name):
        return pl.udf("int32(int32)", name=name)(lambda value: value + number)

    udfs = [function(number, name) for number, name in enumerate(names)]
    loaded = pl.load(pl.export(udfs, arch=ARCH, emit="ptx"), device="cpu")
    assert [10, 11, 12, 13] == [getattr(loaded, name)(10) for name in loaded]
    assert b".visible .func" in pl.Library.read(loaded, "ptx")
    assert [*loaded] == [*loaded.keys()]


READONLY = np.zeros(4, np.float32)
READONLY.flags.writeable = False
FLOATS = np.zeros(4, np.float32)
REFUSED = {
    "read_only": (
        lambda udfs: udfs.scale[1, 4](READONLY, 1),
        "it is read-only, and the kernel may write to it",
    ),
    "masked": (lambda udfs: udfs.scale[1, 4](np.ma.array(FLOATS), 1), "it is a masked array"),
    "device": (
        lambda udfs: udfs.scale[1, 4](launches.array(4, "<f4"), 1),
        "on a device; copy it to the host",
    ),
    "number": (lambda udfs: udfs.scale[1, 4](1.0, 1), "it is 1.0, a float; pass a NumPy array"),
    "stream": (lambda udfs: udfs.scale[1, 4, 0x55](FLOATS, 1), "There are no streams on the CPU"),
    "cluster": (lambda udfs: udfs.scale.launch(FLOATS, 1, grid=2, block=1, cluster=2), "clusters are not"),
    "block": (lambda udfs: udfs.scale[1, (2, 1024)](FLOATS, 1), "no device has more than 1024 threads"),
    "handle": (lambda udfs: udfs.scale.handle, "Kernel scale has no handle on the CPU"),
    "count": (lambda udfs: udfs.scaled(1.0), r"Function scaled takes \(value, factor\), and 1 arguments"),
    "elements": (lambda udfs: udfs.scaled(1.0, np.ones(3)), r"it is .*1\.0.*, a float64, and not int8_t"),
    "shapes": (lambda udfs: udfs.scaled(np.ones(2), np.ones(3, "i1")), "shape mismatch: .*; pass shapes"),
    "returned": (lambda udfs: udfs.same_array(FLOATS), "returns an array; let it write to one"),
    "name": (lambda udfs: udfs.nothing, "'nothing' is not loaded: the export has scale, fill"),
    "no_device": (lambda _: pl.load("udfs.json", device="gpu"), "device is 'gpu'; pass \"cpu\""),
    "no_grid": (
        lambda udfs: udfs.scale(1),
        r"Kernel scale has no launch configuration; call scale\[grid, block\]",
    ),
    "no_steps": (lambda _: pl.load("udfs.json", device="cpu", steps=0), "steps is 0; pass .* from 1 on"),
    "half_a_step": (
        lambda _: pl.load("x.json", device="cpu", steps=2.5),
        "steps is 2.5; pass a whole number",
    ),
    "named_checks": (
        lambda _: pl.load("x.json", checks="none"),
        "checks is 'none'; pass True, False, or a tuple",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(udfs, case):
    """Each is an error with the reason and a cure."""
    attempt, reason = REFUSED[case]
    with pytest.raises(pl.LaunchError, match=reason):
        attempt(udfs)


def test_an_export_without_ptx_is_refused():
    """The error names the kind of artifact that is missing."""
    exported = pl.export([scaled], arch=ARCH, emit=["ltoir"], name="made")
    with pytest.raises(
        pl.LaunchError, match=r"made\.json lists no artifacts of ptx; .*export the missing one"
    ):
        pl.load(exported, device="cpu")


def test_an_index_out_of_bounds_names_the_line(tmp_path):
    """The fault has kernel, file, line, block and thread."""
    (tmp_path / "far.py").write_text(
        "from numba import cuda\nfrom numba_ptxlink import kernel\n\n"
        '@kernel("void(float32[::1])")\ndef far(x):\n    i = cuda.grid(1)\n    x[i] = i\n'
    )
    library = pl.load(pl.export(tmp_path / "far.py", emit=["ptx"], lineinfo=True), device="cpu")
    with pytest.raises(pl.DeviceFaultError) as caught:
        library.far[2, 4](np.zeros(6, np.float32))
    fault = caught.value
    assert ("far", str(tmp_path / "far.py"), 7) == (fault.kernel, fault.file, fault.line)
    assert ((1, 0, 0), (2, 0, 0)) == (tuple(fault.block), tuple(fault.thread))


def test_a_loop_may_go_on_for_so_long():
    """`steps` ends a long loop; without it, and without checks, the same call finishes."""
    exported = pl.export([raised], emit=["ptx"], name="loop")
    array = np.zeros(5000, np.float32)
    with pytest.raises(pl.DeviceFaultError, match=r"loop exceeded .* To see the source line, compile"):
        pl.load(exported, device="cpu", steps=100).raised(array, 5000)
    assert 5000 == pl.load(exported, device="cpu", checks=False).raised(array, 5000)


def test_llvmlite_is_asked_for_by_the_extra(tmp_path):
    """Without llvmlite, the error names the extra that installs it."""
    program = (
        "import sys; sys.modules['llvmlite'] = None\nimport numba_ptxlink as pl\n"
        f"kernel = pl.link({KERNEL!r}, {function()!r}, arch='sm_90').kernel\n"
        "try:\n    kernel('k', device='cpu')\nexcept pl.LaunchError as error:\n    print(error)\n"
    )
    output = subprocess.check_output([sys.executable, "-c", program], text=True, cwd=tmp_path)
    assert "numba-ptxlink[cpu]" in output


def test_a_float_of_the_other_width_is_converted():
    """PTX may write an operand or a value as a float of 32 bits where 64 are wanted, and the reverse."""
    text = (
        ".version 8.0\n.target sm_80\n.address_size 64\n.global .f64 half = 0f3F000000;\n"
        ".visible .entry k(.param .u64 p)\n{\n.reg .b64 %rd<2>;\n.reg .f32 %f<3>;\n.reg .f64 %d<2>;\n"
        "ld.param.u64 %rd1, [p];\nld.global.f32 %f1, [%rd1];\nld.global.f64 %d1, [half];\n"
        "cvt.rn.f32.f64 %f2, %d1;\nadd.f32 %f1, %f1, %f2;\nadd.f32 %f1, %f1, 0d3FF8000000000000;\n"
        "st.global.f32 [%rd1], %f1;\nret;\n}\n"
    )
    values = np.ones(1, "f4")
    pl.link(text, arch="sm_80").kernel("k", device="cpu")[1, 1](values)
    assert [3.0] == values.tolist()
