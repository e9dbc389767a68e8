"""Two PTX that link.py links: a kernel and functions that NVRTC made, and how long each step takes."""

from __future__ import annotations

import time
import timeit
from typing import Any

FUNCTION = """\
extern "C" __device__ float f{number}(float a, int n, const float* table) {{
  float r = a;
  for (int i = 0; i < n; ++i) {{
    r = r * a + table[i + {number}];
    if (r > 100.f) r = sqrtf(r) - expf(-a * {number});
  }}
  return r;
}}
"""
KERNEL = 'extern "C" __global__ void k(float* x, const float* y, int n) {{ {body} }}'
CALL = "x[{number}] = f{number}(x[{number} + 1], n, y);\n"
OTHER = "x[{number} + 9] = expf(x[{number}]) * y[{number} + n] + x[{number} + 1] / y[{number}];\n"


def texts(arch: Any, *, quick: bool) -> dict[str, tuple[bytes, bytes]]:
    """Return the PTX of kernels and of what they call, by a name; few and small ones for *quick*."""
    from numba_ptxlink._tools import nvrtc

    def ptx(source: str) -> bytes:
        code: bytes = nvrtc.compile_source(source, "pair.cu", arch, output="ptx").code
        return code

    def pair(calls: range, functions: int, other: int = 0) -> tuple[bytes, bytes]:
        declared = "".join(
            f'extern "C" __device__ float f{number}(float, int, const float*);\n' for number in calls
        )
        body = "".join(OTHER.format(number=number) for number in range(other))
        body += "".join(CALL.format(number=number) for number in calls)
        callee = "".join(FUNCTION.format(number=number) for number in range(functions))
        return ptx(declared + KERNEL.format(body=body)), ptx(callee)

    small = {
        "1 function": pair(range(1), 1),
        "a kernel of 30 kB, 1 function": pair(range(1), 1, other=60),
    }
    if quick:
        return small
    return {
        **small,
        "10 functions": pair(range(10), 10),
        "30 functions": pair(range(30), 30),
        "1 of 100 functions": pair(range(50, 51), 100),
    }


def steps(pair: tuple[bytes, bytes], arch: Any, turn: int) -> dict[str, float]:
    """
    Return the seconds of a link by nvJitLink, of one by this package, and of two of its steps.

    In every second *turn* this package's is the first.
    """
    import numba_ptxlink as pl
    from numba_ptxlink._formats import ptx
    from numba_ptxlink._fusion.combine import combine
    from numba_ptxlink._fusion.inline import inline

    links = {
        "nvJitLink": lambda: link_by_nvjitlink(pair, arch),
        "link()": lambda: pl.link(*(code.decode() for code in pair), arch=arch, lto=False),
    }
    times = {name: timeit.timeit(links[name], number=1) for name in [*links][:: -1 if turn % 2 else 1]}
    # The checks before a link have read the modules.
    modules = [ptx.parse(code.decode()) for code in pair]
    begin = time.perf_counter()
    text = inline(combine(modules)).text
    middle = time.perf_counter()
    pl.assemble(text, arch)
    end = time.perf_counter()
    return {**times, "inlining": middle - begin, "assembling": end - middle}


def link_by_nvjitlink(pair: tuple[bytes, bytes], arch: Any) -> bytes:
    """Return the cubin that nvJitLink makes."""
    from cuda.bindings import nvjitlink

    handle = nvjitlink.create(2, [f"-arch={arch.sm}", "-O3"])
    try:
        for number, code in enumerate(pair):
            nvjitlink.add_data(handle, nvjitlink.InputType.PTX, code, len(code), f"{number}.ptx")
        nvjitlink.complete(handle)
        cubin = bytearray(nvjitlink.get_linked_cubin_size(handle))
        nvjitlink.get_linked_cubin(handle, cubin)
    finally:
        nvjitlink.destroy(handle)
    return bytes(cubin)
