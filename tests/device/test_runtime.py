"""Programs that nvcc builds run without a GPU: the CUDA runtime of the CPU device."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import cuda_toolkit
import processes
import pytest

from numba_ptxlink._cpu import device

CPU = (sys.executable, "-m", "numba_ptxlink", "cpu", "--")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the program against the runtime of CUDA 13."""
    if not device._libpython():
        pytest.skip("this Python has no shared library")
    folder = tmp_path_factory.mktemp("program")
    toolkit = cuda_toolkit.lay_out(folder)
    source = Path(__file__).with_name("runtime_program.cu")
    options = ["-arch=compute_75", "-lineinfo", "-cudart", "shared", "-o", folder / "app"]
    subprocess.run([toolkit / "bin" / "nvcc", source, *options], check=True)
    return folder / "app"


def exported(library: Path | str) -> set[str]:
    """Return the functions that a library exports, with their versions."""
    nm = shutil.which("nm")
    if nm is None:
        pytest.skip("binutils are not installed")
    nm_output = subprocess.run(
        [nm, "-D", "--defined-only", library], check=True, capture_output=True, text=True
    )
    return set(re.findall(r"\b[TW] (\S+)$", nm_output.stdout, re.MULTILINE))


def run(program: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the program on the CPU device."""
    return subprocess.run(
        [*CPU, program, *arguments],
        env=processes.environ(),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_values(program):
    """Variables, streams, managed memory, attributes, pitched copies and properties are those of a GPU."""
    done = run(program, "values")
    expected = [
        "850 84, 108 calls",
        "22",
        "63 0, at most 1024 threads, block 1024, managed",
        "abcd",
        "7.5, warps of 32, 49152 bytes, a bus of 256 bits",
        "values: cudaSuccess",
    ]
    assert (done.stdout.splitlines(), done.stderr, done.returncode) == (expected, "", 0)


def test_errors(program):
    """Wrong calls give the runtime's errors; a fault stays until the reset, and is reported with its line."""
    done = run(program, "errors")
    expected = [
        "block: cudaErrorInvalidConfiguration",
        "direction: cudaErrorInvalidMemcpyDirection",
        "pitch: cudaErrorInvalidPitchValue",
        "device: cudaErrorInvalidDevice",
        "symbol: cudaErrorInvalidValue",
        "graph: cudaErrorNotSupported",
        "launch: cudaErrorIllegalAddress",
        "cudaErrorIllegalAddress",
        "reset: cudaSuccess",
        "cudaErrorNotSupported",
    ]
    assert done.stdout.splitlines() == expected
    missing, fault, *_ = done.stderr.splitlines()
    assert missing.startswith("numba-ptxlink: cudaGraphCreate is not supported on the CPU device; ")
    pattern = r"runtime_program\.cu:18: error: saxpy, block \(0, 0, 0\), thread \(1, 0, 0\): 4 bytes at "
    assert re.search(pattern, fault)


def test_peers(program):
    """Kernels access memory of a pool on the pool's device, and on devices that the pool gives access."""
    environ = processes.environ(NUMBA_PTXLINK_CPU_DEVICES="2")
    done = subprocess.run([*CPU, program, "peers"], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["cudaErrorIllegalAddress", "cudaSuccess"]


def test_libraries(program):
    """A program loads PTX, launches its kernel and reads its variable."""
    done = run(program, "libraries")
    expected = "7, 4 bytes, 7, 4 bytes, libraries: cudaSuccess\n"
    assert (done.stdout, done.stderr) == (expected, "")


def test_threads(program):
    """Eight threads launch at once."""
    done = run(program, "threads")
    sums = " ".join(f"{8.5 * 1000 * number:g}" for number in range(1, 9))
    assert (done.stdout, done.returncode) == (f"{sums} 36000\n", 0), done.stderr


@pytest.mark.parametrize("major", [12, 13])
def test_symbols(major):
    """Programs of each major version find their versions of the functions, which need only the driver."""
    library, readelf = device.RUNTIME_FOLDER / f"libcudart.so.{major}", shutil.which("readelf")
    if readelf is None:
        pytest.skip("binutils are not installed")
    dynamic = subprocess.run([readelf, "-d", library], check=True, capture_output=True, text=True).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*?)\.so", dynamic))
    assert needed <= {"libcuda", "libc", "libpthread", "ld-linux-x86-64", "ld-linux-aarch64"}
    assert f"[libcudart.so.{major}]" in dynamic
    properties = "cudaGetDeviceProperties_v2" if major == 12 else "cudaGetDeviceProperties"
    names = {
        f"{name}@@libcudart.so.{major}" for name in (properties, "cudaMemcpy_ptds", "__cudaLaunchKernel")
    }
    assert names <= exported(library)


def test_all_functions_of_nvidias_library():
    """A program finds each function that NVIDIA's library has."""
    files = metadata.files("nvidia-cuda-runtime") or ()
    (nvidia_library,) = (str(file.locate()) for file in files if file.name == "libcudart.so.13")
    missing = exported(nvidia_library) - exported(device.RUNTIME_FOLDER / "libcudart.so.13")
    assert sorted(missing) == []
