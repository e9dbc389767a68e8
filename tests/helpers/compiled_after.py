"""
Compile kernels after other compilations whose options would change the result, for test_isolated.py.

Arguments: an architecture, "tools" or "all", and keys of `BEFORE`. Output: digests as JSON.
"""

from __future__ import annotations

import hashlib
import json
import sys

import numba_ptxlink as pl
from numba_ptxlink._tools import nvrtc, nvvm

SOURCE = """\
struct Big { float v[40]; };
extern "C" __device__ __noinline__ float pick(Big b, int i) { return b.v[i]; }
extern "C" __global__ void k(const __grid_constant__ Big b, float* p, int i) { *p = b.v[i] + pick(b, i); }
extern "C" __global__ void by_value(Big b, float* p, int i) { b.v[i] = 3; *p = b.v[1] + pick(b, i); }
"""
MODULE = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64\
:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
%big = type { [40 x float] }
declare float @pick(TYPE)
define void @k(TYPE %b) {
  %v = call float @pick(TYPE %b)
  ret void
}
!nvvm.annotations = !{!1}
!1 = !{KERNEL @k, !"kernel", i32 1}
!nvvmir.version = !{!0}
!0 = !{i32 2, i32 0}
"""
FAST = ["--Ofast-compile=max"]
DEBUG = nvrtc.SourceOptions(flags=("-G",))


def ir(arch: pl.Arch) -> str:
    """Return LLVM IR of a kernel with a large struct."""
    if arch.major < 10:
        return (
            MODULE.replace("TYPE", "%big* byval").replace("KERNEL", "void (%big*)*").replace("@k(", "@k(", 1)
        )
    return MODULE.replace("TYPE", "ptr byval(%big) align 4").replace("KERNEL", "ptr")


def by_numba_cuda(arch: pl.Arch, **options: object) -> bytes:
    """Return the machine code of a kernel of numba-cuda that calls CUDA C++."""
    import fakedevice
    from numba import cuda, types

    fakedevice.install(cc=arch.cc)
    callee = cuda.CUSource(
        'extern "C" __device__ int twice(int* r, int a) { *r = 2 * a; return 0; }', name="f.cu"
    )
    twice = cuda.declare_device("twice", "int32(int32)", link=callee)

    def kernel(x):
        x[0] = twice(x[1])

    return bytes(fakedevice.compile_kernel(kernel, (types.int32[::1],), **options)[1].code)


def by_mlir(arch: pl.Arch, **options: object) -> bytes:
    """Return the PTX of a kernel of numba-cuda-mlir."""
    from numba_cuda_mlir import cuda, types

    def kernel(x):
        x[0] += 1

    text, _ = cuda.compile(
        kernel, types.void(types.int32[::1]), cc=arch.cc, device=False, abi="numba", **options
    )
    return text.encode()


def by_export(arch: pl.Arch, **options: object) -> bytes:
    """Return the PTX of an exported function."""
    add = pl.udf("int32(int32, int32)", name="add")(lambda x, y: x + y)
    return pl.export([add], arch=arch, name="udfs", emit="ptx", **options).contents[f"udfs.{arch.sm}.ptx"]


def by_another(arch: pl.Arch) -> None:
    """Call NVRTC and libNVVM as another package does, with options for debugging."""
    from cuda.bindings import nvrtc as compiler
    from cuda.bindings import nvvm as back_end

    _, program = compiler.nvrtcCreateProgram(SOURCE.encode(), b"a.cu", 0, [], [])
    compiler.nvrtcCompileProgram(program, 2, [f"-arch={arch.compute}".encode(), b"-G"])
    program, text = back_end.create_program(), ir(arch).encode()
    back_end.add_module_to_program(program, text, len(text), "")
    back_end.compile_program(program, 2, [f"-arch={arch.compute}", "-opt=0"])


# Compilations that change later results of the compilers in the same process.
BEFORE = {
    "nvrtc": lambda arch: nvrtc.compile_source("", "a.cu", arch, DEBUG),
    "nvrtc to a cubin": lambda arch: nvrtc.compile_source(SOURCE, "a.cu", arch, DEBUG, output="cubin"),
    "nvrtc, quickly": lambda arch: pl.link(SOURCE, arch=arch, lto=False, nvrtc_flags=FAST),
    "nvrtc, for nvvm": lambda arch: pl.link(SOURCE, arch=arch, lto=False, nvrtc_flags=["-Xnvvm", "-opt=0"]),
    "link": lambda arch: pl.link(SOURCE, arch=arch, lto=False, debug=True),
    "lto -g": lambda arch: pl.link(SOURCE, arch=arch, lto=True, debug=True),
    "lto -O0": lambda arch: pl.link(SOURCE, arch=arch, lto=True, extra_flags=["-O0"]),
    "lto, for nvvm": lambda arch: pl.link(SOURCE, arch=arch, lto=True, extra_flags=["-Xnvvm=-opt=0"]),
    "nvvm": lambda arch: nvvm.compile_ir([ir(arch)], [f"-arch={arch.compute}", "-opt=0"], b""),
    "export": lambda arch: by_export(arch, opt=False),
    "numba-cuda": lambda arch: by_numba_cuda(arch, debug=True, opt=False),
    "numba-cuda, lto": lambda arch: by_numba_cuda(arch, debug=True, opt=False, lto=True),
    "mlir": lambda arch: by_mlir(arch, debug=True, opt=False),
}
AFTER = {
    "nvrtc": lambda arch: nvrtc.compile_source(SOURCE, "a.cu", arch).code,
    "nvrtc to a cubin": lambda arch: nvrtc.compile_source(SOURCE, "a.cu", arch, output="cubin").code,
    "link": lambda arch: pl.link(SOURCE, arch=arch, lto=False).cubin,
    "lto": lambda arch: pl.link(SOURCE, arch=arch, lto=True).cubin,
    "nvvm": lambda arch: nvvm.compile_ir([ir(arch)], [f"-arch={arch.compute}"], b""),
    "export": by_export,
    "numba-cuda": by_numba_cuda,
    "mlir": by_mlir,
}


OTHERS = {"another package": by_another}
FRONT_ENDS = ("export", "numba-cuda", "mlir")

if __name__ == "__main__":
    arch, tools_or_all, *before = sys.argv[1:]
    target = pl.Arch.of(arch)
    for name in before:
        {**BEFORE, **OTHERS}[name](target)
    names = [name for name in AFTER if tools_or_all == "all" or name not in FRONT_ENDS]
    print(json.dumps({name: hashlib.sha256(AFTER[name](target)).hexdigest() for name in names}))  # noqa: T201
