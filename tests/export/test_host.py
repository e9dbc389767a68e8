"""Host versions of exported functions: the same bits in C++, one header for host and device, and reasons."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

import cuda_toolkit
import front_ends
import host_udfs
import processes
import pytest
from host_calls import HostCalls

import numba_ptxlink as pl

if TYPE_CHECKING:
    from pathlib import Path

# A few functions, together with all families of types, for the default tests.
FEW = (
    *("small", "half_sum", "product", "along", "records", "functions"),
    *("total", "maybe", "lookup", "fibonacci", "bump", "drag", "either"),
)
GCC, CLANG, ARM = "g++", "clang++", "aarch64-linux-gnu-g++"
SANITIZERS = "-O1 -g -fsanitize=undefined,address -fno-sanitize-recover"
COMPILERS = [
    *(
        f"{compiler} {options}"
        for compiler in (GCC, CLANG)
        for options in ("-O0", "-O2", "-O3 -march=native")
    ),
    f"{GCC} -O3 -march=native -flto",
    *(f"{ARM} -static {options}" for options in ("-O0", "-O3")),
    *(f"{compiler} {SANITIZERS}" for compiler in (GCC, CLANG)),
]
UDFS = """
import math
from typing import NamedTuple

from numba import types
from numba_ptxlink import udf


class Point(NamedTuple):
    x: types.float32
    y: types.float32


@udf("float64(float64, float64)")
def damp(value, time):
    return value * math.exp(-0.5 * time)


@udf((Point, types.float32))
def moved(p, step):
    return Point(p.x + step, p.y * step)


@udf("int64(int64)", on_error="trap")
def positive(n):
    if n < 0:
        raise ValueError("negative")
    return n


@udf("float32(float32)", namespace="physics")
def drag(v):
    return v * v
"""
MAIN = """
#include <assert.h>
#include <stdio.h>
#include "udfs.h"
int main(int count, char** arguments)
{
  (void)arguments;
  Point p = {1.0f, 2.0f};
  p = moved(p, 3.0f);
  assert(p.x == 4.0f && p.y == 6.0f);
#ifdef __cplusplus
  assert(physics::drag(3.0f) == 9.0f);
#endif
  printf("%.17g %d\\n", damp(2.0, 1.0), (int)positive(count > 1 ? -1 : 5));
  return 0;
}
"""
RESULT = "1.2130613194252668 5\n"
DEVICE_FUNCTIONS = {
    "thread": (
        "return cuda.threadIdx.x + n",
        "it reads %tid.x, which only a kernel has; pass it as a parameter",
    ),
    "lane": ("return cuda.laneid + n", "it reads %laneid, which only a kernel has; pass it as a parameter"),
    "barrier": (
        "cuda.syncthreads()\n    return n",
        "it waits for other threads (bar.sync); move that to the kernel that calls it",
    ),
    "shuffled": (
        "return cuda.shfl_sync(0xFFFFFFFF, n, 0)",
        "it waits for other threads (shfl.sync.idx.b32); move that to the kernel that calls it",
    ),
    "shared": (
        "a = cuda.shared.array(32, types.int32)\n    a[n] = n\n    return a[n & 31]",
        "it uses shared memory, which belongs to a block of threads; pass a pointer to memory",
    ),
    "printed": ("print(n)\n    return n", "it prints; print in the caller"),
    "calls_cxx": (
        "return supplied(n)",
        "it calls supplied, which CUDA C++ defines; write supplied in Python instead",
    ),
    "calls_thread": (
        "return index() + n",
        "it reads %tid.x, which only a kernel has; pass it as a parameter",
    ),
}


def compile_cxx(folder: Path, *arguments: str | Path, compiler: str = GCC) -> Path:
    """Compile and link a program; skip the test if the compiler is not installed."""
    if shutil.which(compiler) is None:
        pytest.skip(f"{compiler} is not installed")
    includes = ("-Wall", "-Wextra", "-Werror", *cuda_toolkit.host_includes())
    processes.run(compiler, *includes, *arguments, "-o", folder / "program", cwd=folder)
    return folder / "program"


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return the folder of an export with host versions, and a program that calls them."""
    folder = tmp_path_factory.mktemp("host")
    (folder / "udfs.py").write_text(UDFS)
    pl.export(folder / "udfs.py", folder, emit=["ptx", "host"])
    (folder / "main.cpp").write_text(MAIN)
    (folder / "main.c").write_text(MAIN)
    return folder


@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_functions_return_the_same_bits_in_cxx(tmp_path, front_end):
    """Results, and memory that functions write, are those of `load(device="cpu")`."""
    front_ends.get(front_end)
    (tmp_path / "udfs.py").write_text(host_udfs.source(front_end, *FEW))
    export = pl.export(tmp_path / "udfs.py", tmp_path, emit=["ptx", "host"])
    calls = HostCalls(export.manifest, host_udfs.LIMITS, 50)
    assert (len(FEW) + 1, {}) == (len(calls.expected), calls.different(GCC, "-O2", "-march=native"))


@pytest.mark.slow
@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_all_families_of_types_by_all_compilers(tmp_path, front_end):
    """38 functions and more, without and with optimisation, on another processor, and with sanitizers."""
    front_ends.get(front_end)
    (tmp_path / "udfs.py").write_text(host_udfs.source(front_end))
    export = pl.export(tmp_path / "udfs.py", tmp_path, emit=["ptx", "host"])
    calls = HostCalls(export.manifest, host_udfs.LIMITS, 1000)
    assert len(calls.expected) >= 38
    for compiler in COMPILERS:
        name, *options = compiler.split()
        if shutil.which(name) and (name != ARM or shutil.which("qemu-aarch64")):
            runner = ["qemu-aarch64"] if name == ARM else []
            assert (compiler, {}) == (compiler, calls.different(name, *options, runner=runner))


def test_one_header_serves_c_and_cxx(exported):
    """A program in C and one in C++ call the host versions, whose file is C++."""
    compile_cxx(exported, "-std=c++11", "-c", "udfs.host.cpp").rename(exported / "udfs.host.o")
    cxx = compile_cxx(exported, "-std=c++11", "main.cpp", "udfs.host.o")
    assert RESULT == processes.run(cxx).stdout
    c = compile_cxx(exported, "-std=c11", "main.c", "udfs.host.o", "-lm", compiler="gcc")
    assert RESULT == processes.run(c).stdout


def test_a_trap_aborts_the_process(exported):
    """`on_error="trap"` ends the program as abort() does."""
    program = compile_cxx(exported, "main.cpp", "udfs.host.cpp")
    done = subprocess.run([program, "negative"], check=False, capture_output=True)
    assert -6 == done.returncode


LINES = """
from numba import types
from numba_ptxlink import udf


@udf((types.CPointer(types.float64), types.int64))
def pick(a, i):
    return a[i]
"""
LINES_MAIN = """
#include <stdlib.h>
#include "lines.h"
int main() { return (int)pick((double*)malloc(32), 4); }
"""


def test_sanitizers_and_debuggers_see_lines_of_python(tmp_path):
    """With lineinfo, statements have the lines of Python, and the code is the same."""
    (tmp_path / "lines.py").write_text(LINES)
    (tmp_path / "main.cpp").write_text(LINES_MAIN)
    plain, lined = (
        pl.export(tmp_path / "lines.py", tmp_path, emit=["ptx", "host"], lineinfo=lineinfo)
        for lineinfo in (False, True)
    )
    texts = [export.contents["lines.host.cpp"].decode() for export in (plain, lined)]
    stable_texts = [re.sub(r" *#line .*\n|numba_ptxlink_host_\w+|sha256:\w+", "", text) for text in texts]
    assert stable_texts[0] == stable_texts[1]
    options = ("-g", "-fsanitize=address", "main.cpp", "lines.host.cpp")
    done = subprocess.run([compile_cxx(tmp_path, *options)], check=False, capture_output=True, text=True)
    assert re.search(r"in f_pick \S*/lines\.py:8\n.* in pick \S*lines\.host\.cpp:\d+\n", done.stderr)
    (number,) = re.search(r"in pick \S*lines\.host\.cpp:(\d+)\n", done.stderr).groups()
    assert "f_pick(" in texts[1].splitlines()[int(number) - 1]


def test_a_missing_file_is_an_error_of_the_linker(exported):
    """The header declares the functions, so a program without their file does not link."""
    done = subprocess.run(
        [GCC, *cuda_toolkit.host_includes(), "main.cpp", "-o", "missing"],
        cwd=exported,
        check=False,
        capture_output=True,
        text=True,
    )
    assert "undefined reference to `damp'" in done.stderr


def test_one_declaration_is_for_the_host_and_for_devices(exported):
    """Functions in C, and those in namespaces, have the macro that CUDA C++ reads as both."""
    header = (exported / "udfs.h").read_text()
    assert "#define NUMBA_PTXLINK_HOST_UDFS __host__ __device__\n" in header
    assert "NUMBA_PTXLINK_HOST_UDFS double damp(" in header
    assert "NUMBA_PTXLINK_HOST_UDFS inline float drag(" in header


def test_the_header_without_host_versions_stays_as_it_is(exported):
    """Only macros of the export's own differ."""
    plain = pl.export(exported / "udfs.py", emit=["ptx"]).contents["udfs.h"].decode()
    header = (exported / "udfs.h").read_text()
    host = re.sub(r"#if[^#]*#define NUMBA_PTXLINK_HOST_UDFS .*\n#else\n.*\n#endif\n\n", "", header)
    host = host.replace("NUMBA_PTXLINK_HOST_UDFS inline", "NUMBA_PTXLINK_INLINE")
    guard = re.compile(r"NUMBA_PTXLINK_UDFS_\w+_H")
    assert guard.sub("", plain) == guard.sub(
        "", host.replace("NUMBA_PTXLINK_HOST_UDFS", "NUMBA_PTXLINK_DEVICE")
    )


@pytest.mark.numba_cuda
def test_functions_without_a_host_version_have_reasons(tmp_path):
    """The manifest and the result name each such function with the cause and the cure."""
    functions = "".join(
        f'\n\n@udf("int32(int32)")\ndef {name}(n):\n    {body}\n'
        for name, (body, _) in DEVICE_FUNCTIONS.items()
    )
    (tmp_path / "udfs.py").write_text(
        "from numba import cuda, types\nfrom numba_ptxlink import kernel, udf\n"
        'supplied = cuda.declare_device("supplied", "int32(int32)", abi="c")\n\n\n'
        "@cuda.jit(device=True)\ndef index():\n    return cuda.threadIdx.x\n\n\n"
        '@udf("int32(int32)")\ndef plain(n):\n    return n + 1\n\n\n'
        '@kernel("void(int32[::1])")\ndef launched(a):\n    a[0] = 1\n' + functions
    )
    export = pl.export(tmp_path / "udfs.py", tmp_path, emit=["ptx", "host"])
    entries = {entry["symbol"]: entry for entry in json.loads(export.manifest.read_text())["functions"]}
    reasons = {name: reason for name, (_, reason) in DEVICE_FUNCTIONS.items()}
    assert reasons == {name: entries[name]["host_reason"] for name in reasons}
    assert {"plain": True, **dict.fromkeys(reasons, False)} == {
        name: entry["host"] for name, entry in entries.items() if entry["kind"] == "function"
    }
    assert "host" not in entries["launched"]
    assert {f"host version of {name}": reason for name, reason in reasons.items()} == {
        omission.kind: str(omission) for omission in export.left_out
    }
    assert "NUMBA_PTXLINK_DEVICE int32_t thread(" in export.header.read_text()


@pytest.mark.numba_cuda
def test_an_export_without_host_versions_is_an_error(tmp_path):
    """The error names each function, with the reason."""
    (tmp_path / "udfs.py").write_text(
        "from numba import cuda\nfrom numba_ptxlink import udf\n\n\n"
        '@udf("int32()")\ndef thread():\n    return cuda.threadIdx.x\n'
    )
    with pytest.raises(
        pl.ExportError, match=r"No function of udfs has a host version; .*\n  thread: it reads %tid"
    ):
        pl.export(tmp_path / "udfs.py", emit=["host"])


CUDA_MAIN = """
#include <cstdio>
#include <thrust/execution_policy.h>
#include <thrust/transform.h>
#include "other.h"
#include "udfs.h"
__global__ void kernel(double* values) { *values = damp(*values, physics::drag(1.0f)) + twice(3); }
struct damped { __host__ __device__ double operator()(double x) const { return damp(x, 1.0); } };
int plain(int);
int main()
{
  double in[] = {2.0, 4.0}, out[2];
  thrust::transform(thrust::host, in, in + 2, out, damped());
  auto lambda = [](double x) { return damp(x, 1.0); };
  printf("%.17g %.17g %.17g %d %d\\n", out[0], out[1], lambda(2.0), twice(3), plain(4));
  return 0;
}
"""
CXX_FILE = '#include "udfs.h"\nint plain(int n) { return positive(n) + (int)moved(Point{1, 2}, 3).x; }\n'
OTHER = """
from numba_ptxlink import udf


@udf("int32(int32)")
def twice(n):
    return 2 * n


@udf("int64(float64)")
def helper(x):
    return int(x)
"""


@pytest.mark.slow
@pytest.mark.numba_cuda
@pytest.mark.parametrize("options", ["-rdc=true", "-dlto", "-rdc=true -x cu"])
def test_nvcc_calls_both_versions_by_one_declaration(tmp_path, options):
    """Kernels, thrust's host policy, lambdas, files without CUDA, and two exports are one program."""
    toolkit = cuda_toolkit.lay_out(tmp_path, installed=True)
    (tmp_path / "udfs.py").write_text(UDFS)
    (tmp_path / "other.py").write_text(OTHER)
    for stem in ("udfs", "other"):
        release = cuda_toolkit.release(toolkit)
        pl.export(tmp_path / f"{stem}.py", tmp_path, emit=["object", "host"], arch="sm_80", cuda=release)
    (tmp_path / "main.cu").write_text(CUDA_MAIN)
    (tmp_path / "plain.cpp").write_text(CXX_FILE)
    includes = " ".join(cuda_toolkit.host_includes())
    for source in ("main.cu", "plain.cpp", "udfs.host.cpp", "other.host.cpp"):
        command = f"nvcc -std=c++17 -arch=sm_80 {options} {includes} -c {source} -o {source}.o"
        cuda_toolkit.shell(command, tmp_path, toolkit)
    objects = "main.cu.o plain.cpp.o udfs.host.cpp.o other.host.cpp.o udfs.o other.o"
    linking = options.removesuffix(" -x cu")
    cuda_toolkit.shell(f"nvcc -arch=sm_80 {linking} {objects} -o program", tmp_path, toolkit)
    assert (
        "1.2130613194252668 2.4261226388505337 1.2130613194252668 6 8\n"
        == processes.run(tmp_path / "program").stdout
    )
