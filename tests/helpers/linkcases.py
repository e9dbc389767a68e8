"""Define links that have to fail, and the inputs of these links."""

from __future__ import annotations

import shutil

from numba_ptxlink import assembler
from numba_ptxlink._arch import Arch
from numba_ptxlink._tools import nvrtc

HEAD = ".version 8.0\n.target {target}\n.address_size 64\n"
KERNEL = (
    HEAD.format(target="sm_80")
    + """\
.extern .func (.param .b32 r) f(.param .b32 a);
.visible .entry k(.param .u64 p)
{
    .reg .b64 %d<2>;
    .reg .b32 %r<2>;
    ld.param.u64 %d1, [p];
    {
    .param .b32 a;
    .param .b32 r;
    mov.u32 %r1, 1;
    st.param.b32 [a], %r1;
    call (r), f, (a);
    ld.param.b32 %r1, [r];
    }
    st.global.u32 [%d1], %r1;
    ret;
}
"""
)
CALLER = 'extern "C" __device__ int f(int); extern "C" __global__ void k(int* p) { *p = f(1); }\n'
CALLEE = 'extern "C" __device__ int f(int a) {{ return {value}; }}\n'


def function(
    value: int = 1,
    *,
    name: str = "f",
    linkage: str = ".visible",
    param: str = ".b32 a",
    target: str = "sm_80",
) -> str:
    """Return PTX that defines a function of one parameter that returns *value*."""
    return (
        HEAD.format(target=target)
        + f"{linkage} .func (.param .b32 r) {name}(.param {param})\n"
        + f"{{\n    .reg .b32 %r<2>;\n    mov.u32 %r1, {value};\n    st.param.b32 [r], %r1;\n    ret;\n}}\n"
    )


def cubin(ptx: str, arch: str = "sm_80") -> bytes:
    """Return *ptx* as a relocatable cubin."""
    return assembler.assemble(ptx, arch, relocatable=True).code


def ltoir(source: str, arch: str = "sm_80") -> bytes:
    """Return CUDA C++ as LTO-IR."""
    return nvrtc.compile_source(source, "source.cu", Arch.of(arch), output="ltoir").code


def find_nvcc() -> str | None:
    """Return the path of nvcc, None if nvcc or its host compiler is missing."""
    from numba_ptxlink._tools import find

    return find.program("nvcc") if shutil.which("g++") else None


def _ptx(*texts: str) -> list[tuple[str, str, bytes]]:
    return [("ptx", f"{letter}.ptx", text.encode()) for letter, text in zip("kab", texts, strict=False)]


def _lto(*sources: str) -> list[tuple[str, str, bytes]]:
    codes = map(ltoir, sources)
    return [("ltoir", f"{letter}.ltoir", code) for letter, code in zip("kab", codes, strict=False)]


WIDE = ".b64 a"
MISSPELT_LTO = 'extern "C" __device__ int ff(int a) { return 1; }\n'
BLANK_LTO = 'extern "C" { __device__ int v; }\n'
VARIABLE = ".visible .global .align 4 .u32 v = {value};\n"
RATED = 'extern __device__ int vv; extern "C" __global__ void k(int* p) { *p = vv; }\n'
WEAK_ALIAS = function(1, name="g") + ".weak .func (.param .b32 r) f(.param .b32 a);\n.alias f, g;\n"

# Wrong links. nvJitLink links most of them, with no more than a line on stderr.
CASES = {
    "prototype in PTX": lambda: _ptx(KERNEL, function(param=WIDE)),
    "alignment in PTX": lambda: _ptx(
        KERNEL.replace("f(.param .b32 a)", "f(.param .b32 b, .param .align 4 .b8 a[8])")
        .replace(".param .b32 a;", ".param .b32 b;\n    .param .align 4 .b8 a[8];\n    st.param.b32 [b], 1;")
        .replace("(a);", "(b, a);"),
        function(param=".b32 b, .param .align 8 .b8 a[8]"),
    ),
    "definitions in PTX": lambda: _ptx(KERNEL, function(1), function(2)),
    "definitions in LTO-IR": lambda: _lto(CALLER, CALLEE.format(value=1), CALLEE.format(value=2)),
    "variables in PTX": lambda: _ptx(
        KERNEL,
        function() + VARIABLE.format(value=1),
        HEAD.format(target="sm_80") + VARIABLE.format(value=2),
    ),
    "alias in PTX": lambda: _ptx(KERNEL, WEAK_ALIAS, function(2)),
    "undefined in PTX": lambda: _ptx(KERNEL, function(name="ff")),
    "undefined in LTO-IR": lambda: _lto(CALLER, MISSPELT_LTO),
    "undefined variable in LTO-IR": lambda: _lto(RATED, BLANK_LTO),
    "cubin of another arch": lambda: [*_ptx(KERNEL), ("cubin", "a.cubin", cubin(function(), "sm_90"))],
    "PTX of a newer arch": lambda: _ptx(KERNEL, function(target="sm_90")),
    "PTX of a variant": lambda: _ptx(KERNEL, function(target="sm_80a")),
    "LTO-IR of a newer arch": lambda: [
        *_ptx(KERNEL),
        ("ltoir", "a.ltoir", ltoir(CALLEE.format(value=1), "sm_90")),
    ],
    "PTX of a newer ISA": lambda: _ptx(KERNEL, function().replace(".version 8.0", ".version 9.99")),
    "LTO-IR of a newer version": lambda: [
        *_ptx(KERNEL),
        ("ltoir", "a.ltoir", _newer(ltoir(CALLEE.format(value=1)))),
    ],
}


def _newer(code: bytes) -> bytes:
    """Return LTO-IR whose header has the next version of the container."""
    return code[:5] + bytes([code[5] + 1]) + code[6:]


def flags(inputs: list[tuple[str, str, bytes]]) -> tuple[str, ...]:
    """Return the flags of a link of *inputs*."""
    return ("-arch=sm_80", *(("-lto",) if any(kind == "ltoir" for kind, _, _ in inputs) else ()))
