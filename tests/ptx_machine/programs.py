"""How random programs are launched, and programs of CUDA C++ that are written down."""

from __future__ import annotations

import pytest
from comparison import Launch, compiled
from cxx_pointers import THREADS
from random_ptx import LANES, ROOM, SLOTS

RANDOM = Launch(LANES, ROOM * LANES, variables=(("trace", 8 * SLOTS * LANES),))
CXX = Launch(THREADS, 8 * THREADS)
TYPES = """
union Word { unsigned w; unsigned short h[2]; unsigned char m[4]; };
struct Mixed { unsigned char a; unsigned short b; unsigned c; double d; unsigned char e[3]; };
struct Pointing { unsigned* p; unsigned char n; };
"""
# Functions, and the statements of a kernel with `unsigned* out`, `int n` and `unsigned i` that call them.
CALLS = {
    "a union of which one byte is set": (
        "unsigned f(Word* p) { return (p->w >> 8) & 255; }",
        "Word s; s.m[1] = i + n; out[i] = f(&s);",
    ),
    "a union by value": (
        "unsigned f(Word p) { return p.h[1] + (p.w >> 16); }",
        "Word s; s.m[2] = i; s.m[3] = n; out[i] = f(s);",
    ),
    "a union that is returned": (
        "Word f(unsigned a) { Word r; r.h[0] = a; r.m[3] = a >> 3; return r; }",
        "Word r = f(i * 77); out[i] = r.m[0] + r.m[1] * 3 + r.m[3];",
    ),
    "a struct of which parts are set": (
        "double f(Mixed p) { return p.a + p.d + p.e[1]; }",
        "Mixed m; m.a = i; m.d = n; m.e[1] = 200; out[i] = (unsigned)f(m);",
    ),
    "a struct by address": (
        "void f(Mixed* p, int k) { p->b = p->a + k; p->e[k & 1] = p->a; if (k & 2) return; p->c = k; }",
        "Mixed m; m.a = i; m.c = 9; f(&m, i); out[i] = m.b + m.c + m.e[i & 1];",
    ),
    "a pointer in a struct": (
        "unsigned f(Pointing p) { p.p[p.n & 1] += 5; return p.p[0]; }",
        (
            "__shared__ unsigned t[2]; t[0] = t[1] = n; __syncthreads(); if (i < 2) out[i] = 7; "
            "Pointing p; p.p = i & 1 ? t : out + i; p.n = 1; __syncthreads(); if (i == 1) out[1] = f(p);"
        ),
    ),
    "calls in some lanes": (
        "unsigned f(unsigned char a, short b) { if (a & 4) return b; if (b < 0) return a; return a * b; }",
        "out[i] = 1; if (i & 1) out[i] = f(i * 37, i * 3001); if (i & 2) out[i] += f(i, -(int)i);",
    ),
    "a shuffle and a barrier in a function": (
        (
            "unsigned f(unsigned v) { __shared__ unsigned t[64]; t[threadIdx.x] = v; __syncthreads(); "
            "return t[63 - threadIdx.x] + __shfl_xor_sync(-1, v, 3); }"
        ),
        "out[i] = f(i * 3); __syncthreads(); out[i] += f(out[i] & 63);",
    ),
    "an address out of parts": (
        (
            "unsigned f(unsigned long long a, unsigned b) { unsigned lo = (unsigned)a, hi = a >> 32; "
            "unsigned long long k = 1ull << (b & 32); return *(unsigned*)(hi * k + lo) + b; }"
        ),
        "unsigned l = i + 3; out[i] = f((unsigned long long)&l, n | 32);",
    ),
}


def batches(first: int, last: int, size: int, *marks: pytest.MarkDecorator) -> list:
    """Return the seeds from *first* on, some at a time."""
    return [
        pytest.param(range(start, start + size), marks=marks, id=str(start))
        for start in range(first, last, size)
    ]


def units(name: str) -> list[str]:
    """Return a kernel and a function of `CALLS` as PTX."""
    function, body = CALLS[name]
    declared = f'extern "C" __device__ {function.partition("{")[0]};'
    kernel = f'extern "C" __global__ void k(unsigned* out, int n) {{ unsigned i = threadIdx.x; {body} }}'
    callee = f'extern "C" __device__ {function}'
    return [compiled(TYPES + text) for text in (f"{declared} {kernel}", callee)]
