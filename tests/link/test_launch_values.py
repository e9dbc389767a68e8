"""Arguments of loaded kernels: their bytes are those of C++, and values that do not fit are refused."""

from __future__ import annotations

import ctypes
import math
import struct
import subprocess
from collections import namedtuple
from types import SimpleNamespace

import launches
import numpy as np
import pytest
from numba.cuda import types
from numba.cuda.np.numpy_support import from_dtype
from numba.cuda.vector_types import vector_types

import numba_ptxlink as pl
from numba_ptxlink._launch import arrays
from numba_ptxlink._tools import nvrtc
from numba_ptxlink.linker import INCLUDE_DIR

Point = namedtuple("Point", "x y")  # noqa: PYI024 - Numba's type of it is given below
Turned = namedtuple("Turned", "y x")  # noqa: PYI024 - as the one before
POINT = types.NamedTuple([types.float32, types.int8], Point)
particle = np.dtype([("pos", "f4", 3), ("id", "i8"), ("tag", "S3"), ("word", "U2")], align=True)
wire = np.dtype([("kind", "u1"), ("value", "f8"), ("half", "f2")])
part = np.dtype([("x", "f4"), ("y", "f4")], align=True)
swapped = np.dtype([("y", "f4"), ("x", "f4")], align=True)
unordered = np.dtype({"names": ["y", "x"], "formats": ["f4", "f4"], "offsets": [4, 0]})
outer = np.dtype([("a", part, 2), ("class", "i4")], align=True)
shorts, text = np.dtype([("values", "u2", 4)]), np.dtype([("values", "U2")])
pair_of_bytes = np.dtype([("x", "u1"), ("y", "u1")])
packed = np.dtype([("x", "u1"), ("y", "f4")])
PARTICLE, WIRE, PART = map(from_dtype, (particle, wire, part))
# Zeros first: the padding between members in NumPy's array equals that of a static variable in C++.
RECORD = np.zeros((), dtype=particle)
RECORD[...] = ((1, 2, 3), -4, b"ab", "xy")
# The Numba type of a parameter, the value in Python, and the same in C++.
CASES = {
    "bool": (types.boolean, True, "true"),
    "int8": (types.int8, -128, "-128"),
    "int16": (types.int16, -2, "-2"),
    "int64": (types.int64, np.int64(-(2**63)), "-9223372036854775807 - 1"),
    "float32": (types.float32, 0.1, "0.1f"),
    "infinity": (types.float32, math.inf, "__builtin_inff()"),
    "float16": (types.float16, 1.5, "__float2half(1.5f)"),
    "bfloat16": (types.bfloat16, 1.01171875, "__float2bfloat16(1.01171875f)"),
    "complex64": (types.complex64, 1 - 2j, "make_cuFloatComplex(1, -2)"),
    "vector": (vector_types["float32x4"], (1, 2, 3, 4), "{1, 2, 3, 4}"),
    "tuple": (types.Tuple((types.int8, types.UniTuple(types.float64, 2))), (1, (2.0, 3.0)), "{1, {2, 3}}"),
    "namedtuple": (POINT, Point(1.5, -1), "{1.5f, -1}"),
    "mapping": (POINT, {"y": -1, "x": 1.5}, "{1.5f, -1}"),
    "record": (PARTICLE, RECORD[()], "{{1, 2, 3}, -4, {'a', 'b', 0}, {'x', 'y'}}"),
    "record_by_members": (
        PARTICLE,
        ((1, 2, 3), -4, b"ab", [ord("x"), ord("y")]),
        "{{1, 2, 3}, -4, {'a', 'b', 0}, {'x', 'y'}}",
    ),
    "packed_record": (WIRE, np.array((1, 0.5, 2), dtype=wire), "{1, 0.5, __half_raw(__float2half(2.0f))}"),
    "optional": (types.Optional(types.int32), 7, "{7, true}"),
    "optional_none": (types.Optional(POINT), None, "{}"),
    "pointer": (types.CPointer(types.float32), launches.array(4, "<f4"), "(float*)0x7000"),
    "address": (types.voidptr, 0x123456789ABC, "(void*)0x123456789abc"),
    "array": (types.float32[::1], launches.array(5, "<f4"), "{(float*)0x7000, 5}"),
    "array_of_records": (
        types.Array(PARTICLE, 1, "C"),
        launches.array(2, f"|V{particle.itemsize}", dtype=particle),
        "{(particle*)0x7000, 2}",
    ),
    "strided": (
        types.int16[:, :],
        launches.array((2, 3), "<i2", strides=(64, -2)),
        "{(int16_t*)0x7000, {2, 3}, {64, -2}}",
    ),
    "fortran": (
        types.Array(types.float64, 2, "F"),
        launches.array((2, 3), "<f8", strides=(8, 16)),
        "{(double*)0x7000, 2, 3}",
    ),
    "empty": (types.float64[:, ::1], launches.array((0, 3), "<f8", address=0), "{(double*)0, 0, 3}"),
    "readonly": (
        types.Array(types.int8, 1, "C", readonly=True),
        launches.array(3, "|i1", readonly=True),
        "{(const int8_t*)0x7000, 3}",
    ),
    "bfloat16_array": (types.bfloat16[::1], launches.array(3, "<V2"), "{(__nv_bfloat16*)0x7000, 3}"),
}


# Parameters whose arguments are looked at more closely.
PARAMETERS = {
    **{name: ty for name, (ty, _, _) in CASES.items()},
    "pair": types.UniTuple(types.int64, 2),
    "views": types.UniTuple(types.float32[::1], 2),
    "part": PART,
    "outer": from_dtype(outer),
    "parts": types.Array(PART, 1, "C"),
    "target": types.CPointer(PART),
    "times": types.Array(types.NPTimedelta("ns"), 1, "C"),
    "float32x2": vector_types["float32x2"],
    "float64": types.float64,
    "bytes": types.Array(from_dtype(pair_of_bytes), 1, "C"),
    "shorts": types.Array(from_dtype(shorts), 1, "C"),
}


@pytest.fixture
def recorded_launches(monkeypatch):
    """Return the list of launches, which do nothing."""
    return launches.install_stand_in(monkeypatch)


def test_the_argument_buffer_is_that_of_cxx(recorded_launches, tmp_path):
    """Offsets and bytes of every kind of parameter are those of a C++ struct with the same members."""
    kernel = launches.kernel_of(*(ty for ty, _, _ in CASES.values()))
    exported = pl.export([kernel], tmp_path, arch="sm_90", emit=["kernels"], name="made")
    loaded = pl.load(exported.manifest).taking
    loaded[1, 32](*(value for _, value, _ in CASES.values()))
    (signature,) = exported.signatures
    members = "".join(f"  {ctype.declare(name)};\n" for name, ctype in signature.params)
    fills = "".join(
        f"  {{ static {ctype.name} value = {text}; std::memcpy(&a.p{number}, &value, sizeof value); }}\n"
        f'  std::printf("%zu ", offsetof(arguments, p{number}));\n'
        for number, ((_, ctype), (_, _, text)) in enumerate(
            zip(signature.params, CASES.values(), strict=True)
        )
    )
    source = tmp_path / "made.cpp"
    source.write_text(
        '#include <cstddef>\n#include <cstdio>\n#include <cstring>\n#include "made.h"\n'
        f"struct arguments {{\n{members}}};\n"
        f"using particle = decltype(arguments::p{[*CASES].index('record')});\n"
        f"int main() {{\n  static arguments a;\n{fills}"
        '  for (std::size_t at = 0; at < sizeof a; ++at) std::printf("%02x", ((unsigned char*)&a)[at]);\n}\n'
    )
    includes = [f"-I{path}" for path in (tmp_path, INCLUDE_DIR, *nvrtc.toolkit_include_dirs())]
    command = [
        "g++",
        "-std=c++17",
        "-O0",
        "-Wno-narrowing",
        *includes,
        str(source),
        "-o",
        str(tmp_path / "made"),
    ]
    subprocess.run(command, check=True)
    *offsets, content = subprocess.check_output([tmp_path / "made"], text=True).split()
    (launch,) = recorded_launches
    assert [int(offset) for offset in offsets] == launch.offsets
    # Padding of the values differs: each is compared on its own.
    expected = bytes.fromhex(content)
    for name, offset, (_, ctype) in zip(CASES, launch.offsets, signature.params, strict=True):
        actual_bytes, expected_bytes = (
            buffer[offset : offset + ctype.size] for buffer in (launch.buffer, expected)
        )
        assert (name, expected_bytes.hex()) == (name, actual_bytes.hex())


class Tensor:
    """An array that only DLPack describes, at NumPy's address."""

    def __init__(
        self, content: np.ndarray, *, device: int = 2, versioned: bool = True, lanes: int = 1
    ) -> None:
        self.content, self.device, self.versioned, self.lanes = content, device, versioned, lanes
        self.streams: list[int] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return the type and the number of the device."""
        return self.device, 0

    def __dlpack__(self, *, stream: int, **version: tuple[int, int]) -> object:
        """Return NumPy's capsule; producers from before 1.0 know no version."""
        self.streams.append(stream)
        if version and not self.versioned:
            raise TypeError("max_version")
        capsule = self.content.__dlpack__(**version)
        if self.lanes != 1:
            # NumPy has elements of one lane only: change `dtype.lanes` of the `DLTensor`.
            address = arrays._open_capsule(capsule)[0]
            ctypes.c_uint16.from_address(address + 22).value = self.lanes
        return capsule


@pytest.fixture(scope="module")
def pack():
    """Return a function that packs a value for one of the parameters."""
    return launches.packer(PARAMETERS)


@pytest.mark.parametrize("versioned", [True, False])
def test_dlpack_describes_an_array(pack, versioned):
    """A tensor is read from its capsule, of either form, and exported for the stream of the launch."""
    content = np.arange(6, dtype="i2").reshape(2, 3)[:, ::2]
    tensor = Tensor(content, versioned=versioned)
    expected = struct.pack("<Q4q", content.ctypes.data, *content.shape, *content.strides)
    assert expected == pack("strided", tensor)
    assert expected == pack("strided", tensor, stream=77)
    assert set(tensor.streams) == {1, 77}


def test_a_readonly_tensor_is_told_by_its_flags(pack):
    """DLPack marks a tensor as read-only, which only a parameter of constants accepts."""
    content = np.arange(3, dtype="i1")
    content.flags.writeable = False
    assert len(pack("readonly", Tensor(content))) == 24
    floats = np.arange(3, dtype="f4")
    floats.flags.writeable = False
    with pytest.raises(pl.LaunchError, match="read-only"):
        pack("array", Tensor(floats))


def test_a_tensor_of_vectors_is_refused_with_its_lanes(pack):
    """The error for elements of several lanes has their number, since a single one has a C type."""
    tensor = Tensor(np.arange(3, dtype="f4"), versioned=False, lanes=4)
    with pytest.raises(pl.LaunchError, match="code 2, bits 32 and lanes 4, have no C type; convert them"):
        pack("array", tensor)


@pytest.mark.parametrize(
    "bits", [0x7FC00000, 0x7FFFFFFF, 0x7FFF8000, 0x7F800001, 0xFF80FFFF, 0xFFFFFFFF], ids=hex
)
@pytest.mark.parametrize(("case", "mantissa"), [("bfloat16", 7), ("float16", 10), ("float32", 23)])
def test_a_nan_stays_one(pack, case, mantissa, bits):
    """No bit pattern of a NaN, such as that of GPUs, becomes infinite or a number."""
    (value,) = np.array([bits], "u4").view("f4")
    packed = int.from_bytes(pack(case, value), "little")
    size = len(pack(case, value)) * 8
    assert packed & (1 << mantissa) - 1
    assert (1 << size - 1 - mantissa) - 1 == packed >> mantissa & (1 << size - 1 - mantissa) - 1


class Raising:
    """A number of another package that has none."""

    def __float__(self) -> float:
        """Fail as such packages do."""
        raise RuntimeError("no value yet")

    __index__ = __complex__ = __float__


def device(dtype, **more):
    """Return an array of *dtype* on the device."""
    return launches.array(3, f"|V{dtype.itemsize}", dtype=dtype, **more)


A = launches.array
REFUSED = {
    "float_for_int": ("int8", 1.0, r"it is 1\.0, a float, and not int8_t; pass an integer"),
    "too_large": ("int8", 128, "it is 128, a.*int, and not int8_t; pass an integer from -128 to 127"),
    "overflow": ("float32", 1e300, "too large for float"),
    "bfloat_rounds_up": ("bfloat16", 3.4e38, "too large for __nv_bfloat16; pass less, or math.inf"),
    "two_for_bool": ("bool", 2, "pass True or False"),
    "member": ("tuple", (1, (2.0, "x")), "member 'f1': member 'f1': it is 'x', a str; pass a number"),
    "other_keys": ("namedtuple", {"x": 1}, "it has x; pass x, y"),
    "other_record": ("record", np.zeros((), wire), "names or offsets of members differ"),
    "no_array": ("array", 1.0, "__cuda_array_interface__ or DLPack"),
    "on_host": ("array", np.zeros(3, "f4"), "in host memory; copy it to the device"),
    "other_device": ("array", Tensor(np.zeros(3, "f4"), device=10), "device of DLPack's type 10"),
    "other_type": ("array", A(5, "<f8"), "its elements are <f8; pass an array of float, of 4 bytes each"),
    "big_endian": ("array", A(5, ">f4"), "its elements are >f4; pass an array of float, .* by .astype"),
    "unit": ("times", A(5, "<m8[s]"), r"its elements are <m8\[s\]; pass an array of int64_t"),
    "strides": ("array", A(5, "<f4", strides=(8,)), "not contiguous in C order"),
    "not_to_be_written": ("array", A(5, "<f4", readonly=True), "read-only, and the kernel may write"),
    "odd_address": ("array", A(5, "<f4", address=0x7002), "its address is not a multiple of 4"),
    "pointer_to_others": ("pointer", A(4, "<i4"), "its elements are <i4; pass an array of float"),
    "pointer_with_gaps": ("pointer", A((4, 4), "<f4", strides=(32, 4)), "it is not contiguous"),
    "no_address": ("address", -1, "is not an address"),
    # Arguments that resemble a value of the parameter's type.
    "float_bits": ("pair", np.array([1.0, 2.0]), "member 'f0': it is .*, a float64, and not int64_t"),
    "bytes_for_views": ("views", bytes(48), "pass a tuple of the members"),
    "bytes_for_a_vector": ("float32x2", b"abcdefgh", "it is b'abcdefgh', a bytes; for .* pass 2 values"),
    "set": ("pair", {20, 3}, "it is .*, a set; for .* pass 2 values"),
    "masked": ("pair", np.ma.array([1, 2], mask=[0, 1]), "pass 2 values, such as a tuple"),
    "swapped": ("part", np.zeros(1, swapped)[0], "names or offsets of members differ"),
    "swapped_array": ("parts", device(swapped), "its elements are .*; pass an array of record"),
    "text_for_shorts": ("shorts", device(text), "its elements are .*; pass an array of record"),
    "swapped_namedtuple": ("namedtuple", Turned(1, 2), "it has y, x; pass x, y"),
    "keys_that_look_alike": ("part", {"x": 1, 2: 2}, "it has x, 2; pass x, y"),
    "long_double": ("float64", np.longdouble("1e400"), "is too large; pass less"),
    "raising_float": ("float32", Raising(), "it is .*, a Raising; pass a number"),
    "other_size": ("parts", A(3, "|V4"), "its elements are |V4"),
    "far_address": ("array", A(3, "<f4", address=1 << 64), "cannot be read"),
    "few_strides": (
        "array",
        A(3, "<f4", strides=()),
        r"its shape \(3,\) and strides \(\) contradict each other",
    ),
    "far_stream": ("array", A(3, "<f4", stream=1 << 64), "is not a stream; pass another array"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused(pack, case):
    """Each value that does not fit its parameter is refused with the reason and a cure."""
    parameter, value, reason = REFUSED[case]
    with pytest.raises(pl.LaunchError, match=rf"(?s)^Kernel takes_{parameter}: .*{reason}"):
        pack(parameter, value)


def test_records_are_taken_by_their_members_names(pack):
    """Members may be in another order in NumPy's type, where they lie as in C; renamed words of C fit."""
    record = np.zeros((), unordered)
    record["x"], record["y"] = 1, 2
    expected = struct.pack("<2f", 1, 2)
    for value in (record, record[()], Point(1, 2), (1, 2), [1, 2], {"y": 2, "x": 1}, expected):
        assert expected == pack("part", value)
    assert expected == pack("float32x2", np.array([1, 2], "f4"))
    assert len(pack("parts", device(part))) == 24
    assert len(pack("target", device(part))) == 8
    whole = np.array(([(1, 2), (3, 4)], 5), outer)
    assert whole.tobytes() == pack("outer", whole)
    # NumPy's own array of integers is a sequence of them.
    assert struct.pack("<2q", 1, 2) == pack("pair", np.array([1, 2], dtype=object))
    assert struct.pack("<2q", 1, 2) == pack("pair", np.array([1, 2], dtype="i1"))
    # A tuple has no names.
    assert struct.pack("<2q", 1, 2) == pack("pair", Turned(1, 2))


def test_arrays_of_records_tell_their_members_or_their_size(pack):
    """Members come from NumPy's dtype, as of Numba's own arrays; without a dtype, only the size counts."""
    from numba.cuda.cudadrv.devicearray import DeviceNDArray

    memory = SimpleNamespace(device_ctypes_pointer=SimpleNamespace(value=0x7000))
    arrays = {dtype: DeviceNDArray((3,), (8,), dtype, gpu_data=memory) for dtype in (part, swapped)}
    assert "descr" not in arrays[part].__cuda_array_interface__
    expected = pack("parts", device(part))
    for value in (arrays[part], launches.array(3, "|V8", dtype=unordered), launches.array(3, "|V8")):
        assert expected == pack("parts", value)
    with pytest.raises(pl.LaunchError, match=r"its elements are .*'y', 'x'.*; pass an array of"):
        pack("parts", arrays[swapped])
    # A number that NumPy has not may be as large.
    assert 24 == len(pack("bytes", launches.array(3, "|V2", dtype=pair_of_bytes)))
