"""Define PTX for tests, compiled by NVRTC or written by hand, and assemble it."""

from __future__ import annotations

import re

import cuda_cxx

import numba_ptxlink as pl
from numba_ptxlink._formats import elf

HEAD = ".version 8.6\n.target sm_90a\n.address_size 64\n"
_CODE = (".text", ".nv.constant", ".nv.global", ".nv.shared", ".nv.info", ".rel.text", ".rela.text")

CUDA = """\
struct Base { virtual __device__ float f(float) = 0; int a; };
struct Derived : Base { float k; __device__ float f(float x) override { return x * k; } };
struct Large { float v[12]; };
__device__ float (*table[2])(float);
__constant__ int coefficients[4] = {1, 2, 3, 4};
__managed__ int managed;
static __device__ const char* message = "a {brace} // no comment; \\n";
__device__ int* pointer = (int*)coefficients;
extern "C" __device__ float elsewhere(Large, float);
extern "C" __device__ int printf(const char*, ...);
template <class T> __device__ __noinline__ T recurse(T x, int n) { return n ? recurse(x * x, n - 1) + x : x; }
__device__ __noinline__ Large enlarge(Large l, float x) { l.v[3] += x; return l; }
__shared__ int fixed[32];
extern __shared__ double dynamic[];
extern "C" __global__ void __launch_bounds__(128, 2) kernel(float* p, Base* b, int n, Large large) {
    int i = threadIdx.x + blockIdx.x * blockDim.x;
    fixed[threadIdx.x] = n;
    __syncthreads();
    if (n > 3) printf("%s %d %f\\n", message, i, p[i]);
    switch (n) {
        case 0: p[i] = 1; break;
        case 1: p[i] = recurse(p[i], 3); break;
        case 2: p[i] = b->f(p[i]); break;
        case 3: p[i] = table[i & 1](p[i]); break;
        case 4: p[i] = sinf(p[i]); break;
        case 5: p[i] = 9; break;
        case 6: p[i] = coefficients[i & 3] + *pointer; break;
        case 7: p[i] = elsewhere(enlarge(large, p[i]), p[i]); break;
        default: atomicAdd(p, 1.f);
    }
    asm volatile("{ .reg .pred q; setp.ne.b32 q, %0, 0; @q st.global.u32 [%1], %0; }" :: "r"(n), "l"(p));
    managed = i;
    double d = p[i];
    p[i] = sin(d) / pow(d, 3.3) + fixed[(i + 1) & 31] + dynamic[i] + __shfl_xor_sync(~0u, p[i], 1);
    #pragma unroll 1
    for (int k = 0; k < n; ++k) p[k] *= 2;
}
"""


def machine_code(ptx: str, *, relocatable: bool = True) -> dict[str, bytes]:
    """Return the code and the variables that the machine code of *ptx* has, by the section."""
    words = re.findall(r"\w+", re.split(r"\.target|\.address_size", ptx, maxsplit=2)[1])
    arch = next(word for word in words if word.startswith("sm_"))
    cubin = pl.assemble(
        ptx.encode(errors="surrogateescape"), arch, relocatable=relocatable, debug="debug" in words
    )
    sections = elf.read(cubin.code).sections
    return {section.name: section.content for section in sections if section.name.startswith(_CODE)}


def by_nvrtc(arch: str, *flags: str) -> str:
    """Return the PTX that NVRTC makes of CUDA C++."""
    return cuda_cxx.ptx(CUDA, arch, *flags)
