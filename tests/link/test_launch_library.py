"""`load`: what it makes of an export, how its kernels are launched, and what it imports."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
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
def noted(monkeypatch):
    """Return the list of launches, which do nothing."""
    return launches.stand_in(monkeypatch)


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
    """An `Export` and a loaded one give LTO-IR and PTX for other linkers, and say what they have else."""
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


def test_a_launch_is_configured_by_brackets_or_by_keywords(noted, scale):
    """Grid, block, stream and shared memory arrive, numbers as one to three dimensions."""
    array = launches.array(7, "<f4")
    scale[3, 128](array, 2.0)
    scale[(3, 2), (8, 4, 2), 0x55, 1024](array, 2.0)
    scale.launch(array, 2.0, grid=(1, 2, 3), block=[np.int64(32)], stream=None, shared=64)
    assert [
        ((3, 1, 1), (128, 1, 1), 0, 0),
        ((3, 2, 1), (8, 4, 2), 0x55, 1024),
        ((1, 2, 3), (32, 1, 1), 0, 64),
    ] == [(launch.grid, launch.block, launch.stream, launch.shared) for launch in noted]
    assert {launch.buffer for launch in noted} == {noted[0].buffer}
    assert [0, 24] == noted[0].offsets
    assert len(noted[0].buffer) == 28


STREAMS = {
    "none": (None, 0),
    "handle": (0x1234, 0x1234),
    "numpy": (np.uint64(0x99), 0x99),
    "protocol": (SimpleNamespace(__cuda_stream__=lambda: (0, 0x77), ptr=1), 0x77),
    "torch": (SimpleNamespace(cuda_stream=0x88), 0x88),
    "cupy": (SimpleNamespace(ptr=0), 0),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_streams_of_other_packages_are_known(noted, scale, kind):
    """A stream is known by the protocol, by its package's attribute, or is its handle."""
    stream, handle = STREAMS[kind]
    scale[1, 32, stream](launches.array(7, "<f4"), 1)
    assert handle == noted[0].stream


def test_a_launch_waits_for_the_streams_of_its_arrays(noted, scale):
    """The stream that an array's interface names is waited for, unless it is the launch's own."""
    for stream, producer, waits in (
        (0x55, 0x66, [(0x55, 0x66)]),
        (0x55, 0x55, []),
        (0x55, None, []),
        (0, 1, []),
        (0, 2, [(0, 2)]),
    ):
        scale[1, 32, stream](launches.array(7, "<f4", stream=producer), 1)
        assert waits == noted[-1].waits


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
def test_a_wrong_configuration_is_refused(noted, scale, config, reason):
    """The message says what is wrong with it."""
    with pytest.raises(pl.LaunchError, match=reason):
        scale[config](launches.array(7, "<f4"), 1)
    assert noted == []


def test_errors_name_kernel_and_parameter(noted, scale):
    """A refused argument is named with its C type; so is a wrong number of arguments."""
    with pytest.raises(
        pl.LaunchError, match=r"^Kernel scale: parameter 'factor' is float: it is 'x', a str; pass"
    ):
        scale[1, 32](launches.array(7, "<f4"), "x")
    with pytest.raises(
        pl.LaunchError, match=r"Kernel scale takes \(out, factor\), and 1 arguments were passed"
    ):
        scale[1, 32](1)
    assert noted == []


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


def test_a_kernel_that_synchronises_its_grid_is_launched_cooperatively(noted, tmp_path):
    """It is linked with the device runtime; the manifest tells, and load() and the launcher ask for it."""
    exported = pl.export(
        grid_kernels(), tmp_path, arch=["sm_80", "sm_90"], emit=["kernels", "launcher"], name="made"
    )
    functions = json.loads(exported.manifest.read_text())["functions"]
    assert {"together": True, "alone": False} == {each["symbol"]: each["cooperative"] for each in functions}
    library = pl.load(tmp_path / "made.json")
    for name in ("together", "alone"):
        library[name][4, 32](launches.array(7, "<i4"))
    assert [True, False] == [launch.cooperative for launch in noted]
    image = exported.artifacts["kernels", ""].read_bytes()
    # PTX would want the device runtime of the driver, which has none.
    assert ["cubin", "cubin"] == [entry.kind for entry in programs.pieces(image, "k")]
    text = exported.artifacts["launcher", ""].read_text()
    assert 'together{numba_ptxlink_detail::code, "together", true}' in text
    assert 'alone{numba_ptxlink_detail::code, "alone", false}' in text


PROGRAM = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite", "cuda", "numba_cuda", "numpy", "cffi"):
            raise ImportError(name + " is blocked")

sys.meta_path.insert(0, Blocked())
import numba_ptxlink as pl

class Array:
    __cuda_array_interface__ = {
        "shape": (7,), "typestr": "<f4", "data": (0x7000, False), "version": 3, "stream": 0x66
    }

library = pl.load(sys.argv[1])
if sys.argv[2:]:
    try:
        library.nothing[1, 1]()
    except pl.LaunchError as error:
        print(error)
else:
    library.scale[3, 128, 0x55](Array, 1.5)
    library.scale[1, 32, None, 50000](Array, 1.5)
"""


def test_a_launch_reaches_the_driver_and_imports_nothing(exported, tmp_path):
    """Kernels are launched where Numba, llvmlite, NumPy and NVIDIA's bindings cannot be imported."""
    environ = launches.fake_driver(tmp_path, sizes="24,4")
    processes.run(sys.executable, "-c", PROGRAM, str(exported.manifest), env=environ, quiet=True)
    array = "0070000000000000" + "0700000000000000" + "0400000000000000"
    assert [
        "context 0x56",
        "record 0x202 0x66",
        "wait 0x55 0x202 0",
        "destroy 0x202",
        "load ba55ed50 0",
        f"launch scale 3,1,1 128,1,1 0 0x55 0 {array} 0000c03f ",
        "record 0x202 0x66",
        "wait (nil) 0x202 0",
        "destroy 0x202",
        "attribute 8 232448 scale 5",
        f"launch scale 1,1,1 32,1,1 50000 (nil) 0 {array} 0000c03f ",
    ] == launches.log_of(tmp_path)


@pytest.mark.parametrize(
    ("failure", "reason"),
    [
        ("cuInit:100", r"The driver cannot be used: .*; make a device visible"),
        (
            "cuLibraryLoadData:209",
            r"udfs\.json could not be loaded: CUDA_ERROR_NO_BINARY_FOR_GPU.*; export for the",
        ),
        ("cuLibraryGetKernel:500", r"Kernel nothing could not be loaded"),
        (
            "cuLaunchKernelEx:701",
            r"Kernel nothing could not be launched on a grid of \(1, 1, 1\).*; use a smaller block",
        ),
    ],
)
def test_errors_of_the_driver_name_the_cure(exported, tmp_path, failure, reason):
    """What the driver refuses is an error with its name and what helps."""
    environ = launches.fake_driver(tmp_path, fail=failure)
    output = subprocess.check_output(
        [sys.executable, "-c", PROGRAM, str(exported.manifest), "nothing"], env=environ, text=True
    )
    assert re.search(reason, output), output


@pytest.mark.parametrize(
    ("elsewhere", "refused"), [("0x7000:1", True), ("0x7000:?", False), ("0x8000:1", False)]
)
@pytest.mark.parametrize("value", ["Array", "(Array, 1)", "0x7000"])
def test_memory_of_another_device_is_refused(tmp_path, elsewhere, refused, value):
    """What the driver says that a kernel cannot access is an error; what it does not know is passed on."""
    view, address = types.float32[::1], types.CPointer(types.float32)
    parameter = {"Array": view, "0x7000": address}.get(value, types.Tuple((view, types.int32)))
    made = pl.export([launches.kernel_of(parameter)], tmp_path, arch="sm_90", emit=["kernels"], name="made")
    program = f"{PROGRAM.partition('if sys')[0]}library.taking[1, 1]({value})\n"
    run = subprocess.run(
        [sys.executable, "-c", program, str(made.manifest)],
        env=launches.fake_driver(tmp_path, elsewhere=elsewhere),
        capture_output=True,
        text=True,
        check=False,
    )
    assert refused is not any("launch taking" in line for line in launches.log_of(tmp_path)), run.stderr
    error = (
        "LaunchError: Kernel taking: parameter 'p0' is in the memory of device 1, which the device of this"
    )
    assert refused is (error in run.stderr)


def test_the_attributes_of_a_launch_reach_the_driver(exported, tmp_path):
    """Clusters, programmatic dependent launches and cooperative ones; large clusters are allowed first."""
    program = PROGRAM + (
        "nothing = library.nothing.launch\n"
        "nothing(grid=4, block=1, cluster=(2, 1), programmatic_dependent=True)\n"
        "nothing(grid=16, block=1, cluster=16, cooperative=True)\n"
    )
    environ = launches.fake_driver(tmp_path, plain="nothing", sizes="24,4")
    subprocess.run([sys.executable, "-c", program, str(exported.manifest)], env=environ, check=True)
    assert [
        "programmatic cluster 2,1,1 launch nothing 4,1,1 1,1,1 0 (nil) 0 ",
        "attribute 14 1 nothing 5",
        "cooperative cluster 16,1,1 launch nothing 16,1,1 1,1,1 0 (nil) 0 ",
    ] == launches.log_of(tmp_path)[-3:]


def test_the_numbers_of_attributes_are_the_drivers():
    """What is asked for and how a launch is laid out is as in NVIDIA's header."""
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
