"""`load`: the library of an export, the launches of its kernels, and its imports."""

from __future__ import annotations

import ctypes
import json
import re
import sys
from types import SimpleNamespace

import launches
import numpy as np
import processes
import pytest
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink._tools import driver, programs

UDFS = """
from numba import cuda
from numba_ptxlink import kernel, udf

@udf("float32(float32)")
def twice(x):
    return x + x

@kernel("void(float32[::1], float32)")
def scale(out, factor):
    i = cuda.grid(1)
    if i < out.size:
        out[i] = twice(out[i]) * factor

@kernel("void()")
def nothing():
    pass
"""


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return an export of two kernels and a function, as a user writes it."""
    folder = tmp_path_factory.mktemp("exported")
    (folder / "udfs.py").write_text(UDFS)
    return pl.export(folder / "udfs.py", folder / "build", arch=["sm_80", "sm_90"])


@pytest.fixture
def recorded_launches(monkeypatch):
    """Return the list of launches, which do nothing."""
    return launches.install_stand_in(monkeypatch)


@pytest.fixture
def scale(exported):
    """Return a kernel of an array and a float."""
    return pl.load(exported.manifest).scale


def test_the_kernels_of_an_export_are_there(exported):
    """`load` takes the manifest's path or the export itself; kernels are items and attributes."""
    for source in (exported.manifest, str(exported.manifest), exported):
        library = pl.load(source)
        assert ["scale", "nothing"] == list(library)
        assert library["scale"] is library.scale
        assert "scale" in dir(library)
        assert "void scale(" in repr(library.scale)
        with pytest.raises(
            AttributeError, match=r"'twice' is not loaded: .* nothing; .* device='cpu' to call"
        ):
            library.twice  # noqa: B018 - it raises


def test_artifacts_are_read_as_bytes(exported):
    """An `Export` and a loaded one return their artifacts as bytes; an error lists the existing ones."""
    library = pl.load(exported.manifest)
    for kind in ("ptx", "ltoir", "cubin"):
        assert exported.artifacts[kind, "sm_90"].read_bytes() == exported.read(kind, "sm_90")
        assert exported.read(kind, (9, 0)) == library.read(kind, "sm_90")
    assert exported.read("fatbin") == library.read("fatbin")
    for read, error in ((exported.read, pl.ExportError), (library.read, pl.LaunchError)):
        with pytest.raises(error, match=r"2 artifacts of ptx.*ptx for sm_80"):
            read("ptx")
        with pytest.raises(error, match="ptx for sm_75"):
            read("ptx", "sm_75")


def test_the_code_is_machine_code_and_ptx_of_every_architecture(exported):
    """The fat binary that is loaded holds executable cubins, and PTX for devices that are not built yet."""
    entries = programs.pieces(exported.read("kernels"), "kernels")
    assert [("cubin", "sm_80"), ("ptx", "sm_80"), ("cubin", "sm_90"), ("ptx", "sm_90")] == [
        (entry.kind, entry.arch) for entry in entries
    ]
    # Executable machine code is of the ELF type 2, relocatable of type 1.
    assert {2} == {entry.code[16] for entry in entries if entry.kind == "cubin"}


def test_a_launch_is_configured_by_brackets_or_by_keywords(recorded_launches, scale):
    """Grid, block, stream and shared memory arrive, numbers as one to three dimensions."""
    array = launches.array(7, "<f4")
    scale[3, 128](array, 2.0)
    scale[(3, 2), (8, 4, 2), 0x55, 1024](array, 2.0)
    scale.launch(array, 2.0, grid=(1, 2, 3), block=[np.int64(32)], stream=None, shared=64)
    assert [
        ((3, 1, 1), (128, 1, 1), 0, 0),
        ((3, 2, 1), (8, 4, 2), 0x55, 1024),
        ((1, 2, 3), (32, 1, 1), 0, 64),
    ] == [(launch.grid, launch.block, launch.stream, launch.shared) for launch in recorded_launches]
    assert {launch.buffer for launch in recorded_launches} == {recorded_launches[0].buffer}
    assert [0, 24] == recorded_launches[0].offsets
    assert len(recorded_launches[0].buffer) == 28


STREAMS = {
    "none": (None, 0),
    "handle": (0x1234, 0x1234),
    "numpy": (np.uint64(0x99), 0x99),
    "protocol": (SimpleNamespace(__cuda_stream__=lambda: (0, 0x77), ptr=1), 0x77),
    "torch": (SimpleNamespace(cuda_stream=0x88), 0x88),
    "cupy": (SimpleNamespace(ptr=0), 0),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_streams_of_other_packages_are_known(recorded_launches, scale, kind):
    """A stream is known by the protocol, by its package's attribute, or is its handle."""
    stream, handle = STREAMS[kind]
    scale[1, 32, stream](launches.array(7, "<f4"), 1)
    assert handle == recorded_launches[0].stream


def test_a_launch_waits_for_the_streams_of_its_arrays(recorded_launches, scale):
    """The stream that an array's interface names is waited for, unless it is the launch's own."""
    for stream, producer, waits in (
        (0x55, 0x66, [(0x55, 0x66)]),
        (0x55, 0x55, []),
        (0x55, None, []),
        (0, 1, []),
        (0, 2, [(0, 2)]),
    ):
        scale[1, 32, stream](launches.array(7, "<f4", stream=producer), 1)
        assert waits == recorded_launches[-1].waits


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (3, r"no launch configuration; call scale\[grid, block\]"),
        ((1,), r"scale has no launch configuration"),
        ((1, 2, None, 0, 5), r"scale has no launch configuration"),
        ((0, 32), r"The grid is 0; pass one to three numbers from 1 to 2147483647"),
        ((1, (1, 2, 3, 4)), r"The block is \(1, 2, 3, 4\)"),
        ((1.5, 32), r"The grid is 1.5"),
        (
            ((1, 65536), 32),
            r"The grid is \(1, 65536\); pass one to three numbers from 1 to 2147483647, 65535, 65535",
        ),
        ((1, (1, 1, 65)), r"The block is \(1, 1, 65\); pass one to three numbers from 1 to 1024, 1024, 64"),
        ((1 << 31, 32), r"The grid is 2147483648; pass one to three numbers"),
        ((1, (1, 10**5000)), r"The block is a value; pass one to three numbers"),
        ((1, 32, None, 10**5000), r"The shared memory is a value; pass a number of bytes"),
        ((1, 32, None, -1), r"The shared memory is -1"),
    ],
)
def test_a_wrong_configuration_is_refused(recorded_launches, scale, config, reason):
    """The error names the wrong value of the configuration."""
    with pytest.raises(pl.LaunchError, match=reason):
        scale[config](launches.array(7, "<f4"), 1)
    assert recorded_launches == []


def test_errors_name_kernel_and_parameter(recorded_launches, scale):
    """A refused argument is named with its C type; so is a wrong number of arguments."""
    with pytest.raises(
        pl.LaunchError, match=r"^Kernel scale: parameter 'factor' is float: it is 'x', a str; pass"
    ):
        scale[1, 32](launches.array(7, "<f4"), "x")
    with pytest.raises(
        pl.LaunchError, match=r"Kernel scale takes \(out, factor\), and 1 arguments were passed"
    ):
        scale[1, 32](1)
    assert recorded_launches == []


def grid_kernels():
    """Return a kernel that synchronises its grid in a function that it calls, and one that does not."""
    from numba import cuda

    @cuda.jit(device=True, inline="never")
    def meet():
        cuda.cg.this_grid().sync()

    @pl.kernel("void(int32[::1])")
    def together(out):
        out[0] = 1
        meet()
        out[1] = out[0]

    @pl.kernel("void(int32[::1])")
    def alone(out):
        out[0] = 1

    return [together, alone]


def test_a_kernel_that_synchronises_its_grid_is_launched_cooperatively(recorded_launches, tmp_path):
    """The device runtime is linked; load() and the launcher launch cooperatively, as the manifest says."""
    exported = pl.export(
        grid_kernels(), tmp_path, arch=["sm_80", "sm_90"], emit=["kernels", "launcher"], name="made"
    )
    functions = json.loads(exported.manifest.read_text())["functions"]
    assert {"together": True, "alone": False} == {
        function["symbol"]: function["cooperative"] for function in functions
    }
    library = pl.load(tmp_path / "made.json")
    for name in ("together", "alone"):
        library[name][4, 32](launches.array(7, "<i4"))
    assert [True, False] == [launch.cooperative for launch in recorded_launches]
    image = exported.artifacts["kernels", ""].read_bytes()
    assert ["cubin", "ptx", "cubin", "ptx"] == [entry.kind for entry in programs.pieces(image, "k")]
    text = exported.artifacts["launcher", ""].read_text()
    assert 'together{numba_ptxlink_detail::code, "together", true}' in text
    assert 'alone{numba_ptxlink_detail::code, "alone", false}' in text


PROGRAM = """
import ctypes, json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "cuda", "numba_cuda", "cffi"):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
import driver_api as api
import numba_ptxlink as pl

class Array:
    def __init__(self, address):
        data = {"shape": (7,), "data": (address, False), "stream": 1}
        self.__cuda_array_interface__ = {"typestr": "<f4", "version": 3, **data}

def error_of(launch, *args, **options):
    try:
        launch(*args, **options)
    except pl.LaunchError as error:
        return str(error)

library = pl.load(sys.argv[1])
context, numbers = api.start(), (ctypes.c_float * 7)(*range(7))
array = Array(api.allocate(28))
address = ctypes.c_uint64(array.__cuda_array_interface__["data"][0])
"""
LAUNCHES = """
api.call("cuMemcpyHtoD_v2", address, numbers, api.SIZE(28))
library.scale[3, 128](array, 1.5)
library.scale[1, 32, None, 50000](array, 0.5)
nothing = library.nothing.launch
nothing(grid=4, block=1, programmatic_dependent=True)
nothing(grid=4, block=1, cooperative=True)
api.call("cuMemcpyDtoH_v2", numbers, address, api.SIZE(28))
errors = [
    error_of(library.scale[1, 32, None, 1_000_000], array, 1.5),
    error_of(nothing, grid=1 << 20, block=1, cooperative=True),
    error_of(nothing, grid=16, block=1, cluster=16),
]
print(json.dumps([list(numbers), errors]))
"""


def run_on_cpu(program, exported, *, arch="9.0"):
    """Return the JSON that a program prints, which has two devices of the CPU."""
    variables = {"NUMBA_PTXLINK_DEVICE": "cpu", "NUMBA_PTXLINK_CPU_DEVICES": "2"}
    environ = processes.environ(**variables, NUMBA_PTXLINK_CPU_ARCH=arch)
    command = [sys.executable, "-c", PROGRAM + program, exported.manifest]
    return json.loads(processes.run(*command, env=environ).stdout)


def test_launches_reach_the_driver_and_import_no_front_end(exported):
    """Kernels run without Numba and NVIDIA's bindings; the driver's errors name the cure."""
    numbers, errors = run_on_cpu(LAUNCHES, exported)
    assert [3.0 * number for number in range(7)] == numbers
    reasons = [
        r"Kernel scale cannot have 1000000 bytes of dynamic shared memory; pass at most \d+",
        r"Kernel nothing could not be launched on a grid of \(1048576, 1, 1\).*; use fewer blocks",
        r"Kernel nothing could not be launched .*: CUDA_ERROR_NOT_SUPPORTED",
    ]
    for reason, error in zip(reasons, errors, strict=True):
        assert re.match(reason, error), error


def test_code_for_newer_devices_is_an_error(exported):
    """The driver's error is named, and the export that helps."""
    error = run_on_cpu("print(json.dumps(error_of(library.nothing[1, 1])))", exported, arch="7.5")
    assert re.search(
        r"udfs\.json could not be loaded: CUDA_ERROR_NO_BINARY_FOR_GPU.*; export for the", error
    ), error


MEMORY = """
second = ctypes.c_void_p(api.ask("cuDevicePrimaryCtxRetain", 1))
api.call("cuCtxPushCurrent_v2", second)
there = api.allocate(28)
api.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

def errors():
    values = {"array": Array, "pair": lambda place: (Array(place), 1), "pointer": lambda place: place}
    return {
        kernel: [error_of(library[kernel][1, 1], value(place)) for place in (there, address.value, 0x7000)]
        for kernel, value in values.items()
    }

before = errors()
api.call("cuCtxEnablePeerAccess", second, 0)
print(json.dumps([before, errors()]))
"""


def test_memory_of_another_device_is_refused(tmp_path):
    """Memory that the driver reports as inaccessible is an error; unknown addresses are passed on."""
    view, pointer = types.float32[::1], types.CPointer(types.float32)
    parameters = {"array": view, "pair": types.Tuple((view, types.int32)), "pointer": pointer}
    kernels = [launches.kernel_of(parameter, name=name) for name, parameter in parameters.items()]
    exported = pl.export(kernels, tmp_path, arch="sm_90", emit=["kernels"], name="made")
    before, after = run_on_cpu(MEMORY, exported)
    nothing = [None, None, None]
    assert dict.fromkeys(parameters, nothing) == after
    for name, (refused, *accepted) in before.items():
        assert f"Kernel {name}: parameter 'p0' is in the memory of device 1, which the device of" in refused
        assert accepted == nothing[1:]


def test_the_numbers_of_attributes_are_the_drivers():
    """Attributes and the layout of a launch have the numbers and offsets of NVIDIA's header."""
    bindings = pytest.importorskip("cuda.bindings.driver")
    limits, functions = bindings.CUdevice_attribute, bindings.CUfunction_attribute
    launch, pointers = bindings.CUlaunchAttributeID, bindings.CUpointer_attribute
    assert [
        limits.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
        functions.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES,
        functions.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
        functions.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED,
        pointers.CU_POINTER_ATTRIBUTE_DEVICE_POINTER,
        pointers.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        launch.CU_LAUNCH_ATTRIBUTE_COOPERATIVE,
        launch.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION,
        launch.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
    ] == [
        driver._OPT_IN_SHARED,
        driver._STATIC_SHARED,
        driver._MAX_DYNAMIC_SHARED,
        driver._NON_PORTABLE,
        driver._DEVICE_POINTER,
        driver._DEVICE_ORDINAL,
        driver._COOPERATIVE,
        driver._CLUSTER,
        driver._PROGRAMMATIC,
    ]
    attribute = bindings.CUlaunchAttribute()
    attribute.id = launch.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    attribute.value.clusterDim.x, attribute.value.clusterDim.y, attribute.value.clusterDim.z = 2, 3, 4
    assert driver._ATTRIBUTE.pack(4, 2, 3, 4) == ctypes.string_at(attribute.getPtr(), 72)
    config = bindings.CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = 1, 2, 3
    config.blockDimX, config.blockDimY, config.blockDimZ = 4, 5, 6
    config.sharedMemBytes, config.hStream, config.numAttrs = 7, bindings.CUstream(8), 0
    assert driver._CONFIG.pack(1, 2, 3, 4, 5, 6, 7, 8, 0, 0) == ctypes.string_at(config.getPtr(), 56)
