"""Common symbols, which linkers merge: in PTX, machine code and LTO-IR, beside each other and definitions."""

from __future__ import annotations

import functools

import pytest
from linkcases import HEAD, KERNEL, cubin, function

import numba_ptxlink as pl
from numba_ptxlink._formats import elf
from numba_ptxlink._link import inputs as link_inputs
from numba_ptxlink._tools import nvjitlink
from numba_ptxlink.errors import LinkError

ARCH = pl.Arch.of("sm_80")
COMMON = ".common .global .align 4 .u32 code;\n"
DEFINITION = ".visible .global .align 4 .u32 code = 7;\n"
IR = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-f64:64\
:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
@code = {linkage} addrspace(1) global i32 0, align 4
define i32 @{name}(i32 %a) {{
  %old = atomicrmw add i32 addrspace(1)* @code, i32 %a seq_cst
  ret i32 %old
}}
!nvvmir.version = !{{!0}}
!0 = !{{i32 2, i32 0}}
"""
CALLER = (
    'extern "C" __device__ int f(int), g(int); extern "C" __global__ void k(int* p) { *p = f(1) + g(2); }\n'
)


@functools.cache
def nvvm(name: str, output: str, linkage: str = "common") -> bytes:
    """Return a function that uses the variable `code`, compiled by libNVVM to PTX or LTO-IR."""
    from cuda.bindings import nvvm

    text = IR.format(name=name, linkage=linkage).encode()
    program = nvvm.create_program()
    try:
        nvvm.add_module_to_program(program, text, len(text), name)
        options = ["-arch=compute_80", *(["-gen-lto"] if output == "ltoir" else [])]
        nvvm.compile_program(program, len(options), options)
        code = bytearray(nvvm.get_compiled_result_size(program))
        nvvm.get_compiled_result(program, code)
    finally:
        nvvm.destroy_program(program)
    return bytes(code).rstrip(b"\0") if output == "ptx" else bytes(code)


def of_kind(kind: str, name: str) -> link_inputs.Input:
    """Return a function with a common symbol, as an input of *kind*."""
    code = nvvm(name, "ltoir" if kind == "ltoir" else "ptx")
    return link_inputs.Input(kind, f"{name}.{kind}", cubin(code.decode()) if kind == "cubin" else code)


def kernel() -> link_inputs.Input:
    """Return a kernel that calls both functions."""
    return link_inputs.Input("cu", "k.cu", CALLER.encode())


def value() -> link_inputs.Input:
    """Return a definition of the variable with a value."""
    return link_inputs.Input("ptx", "v.ptx", (HEAD.format(target="sm_80") + DEFINITION).encode())


def user(name: str) -> str:
    """Return PTX of a function that uses the variable."""
    return (
        f".visible .func (.param .b64 r) {name}()\n"
        "{\n.reg .b64 %d<2>;\nmov.u64 %d1, code;\nst.param.b64 [r], %d1;\nret;\n}\n"
    )


def globals_of(linked: pl.Linked) -> dict[str, int]:
    """Return the sizes of the sections of *linked* that hold variables."""
    return {
        section.name: section.size
        for section in elf.read(linked.cubin).sections
        if section.name.startswith(".nv.global")
    }


@pytest.mark.parametrize("second", ["ptx", "cubin", "ltoir"])
@pytest.mark.parametrize("first", ["ptx", "cubin", "ltoir"])
def test_common_symbols_of_two_inputs_are_one_variable(first, second):
    """Two inputs of any kind that have the same common symbol are linked, with one variable."""
    linked = pl.link(kernel(), of_kind(first, "f"), of_kind(second, "g"), arch=ARCH)
    assert globals_of(linked) == {".nv.global": 4}


@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_a_definition_takes_the_place_of_common_symbols(kind):
    """A definition with a value is the variable that common symbols of PTX and machine code refer to."""
    linked = pl.link(kernel(), of_kind(kind, "f"), of_kind(kind, "g"), value(), arch=ARCH)
    assert globals_of(linked) == {".nv.global.init": 4}


def test_a_definition_in_ptx_beside_common_symbols_in_ltoir_is_refused():
    """It would stay a variable of its own; the message says so."""
    with pytest.raises(LinkError, match=r"code is defined 3 times.* give all of them as LTO-IR, or none"):
        pl.link(kernel(), of_kind("ltoir", "f"), of_kind("ltoir", "g"), value(), arch=ARCH)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_definition_and_a_common_symbol_in_ptx_are_made_one(order):
    """PTX with a common symbol and PTX that defines it need no linker."""
    texts = [KERNEL + COMMON, function() + DEFINITION]
    linked = pl.link(*(texts[number] for number in order), arch=ARCH)
    assert linked.backend == "nvptxcompiler"
    assert linked.ptx.count(" code") == 1
    assert globals_of(linked) == {".nv.global.init": 4}


def test_a_weak_value_takes_the_place_of_a_common_symbol():
    """A weak definition has a value that a common symbol lacks, so it is kept."""
    weak = DEFINITION.replace(".visible", ".weak")
    linked = pl.link(KERNEL + COMMON, function() + weak, arch=ARCH)
    assert linked.backend == "nvptxcompiler"
    assert globals_of(linked) == {".nv.global.init": 4}


@pytest.mark.parametrize("linkage", [".visible", ".weak", ".extern"])
@pytest.mark.parametrize("kind", ["ptx", "cubin"])
def test_a_variable_of_two_sizes_is_refused(kind, linkage):
    """Code that takes a variable for larger than it is would write past its end; nvJitLink links it."""
    first = KERNEL + ".visible .global .align 4 .u32 code = 7;\n"
    second = function() + f"{linkage} .global .align 4 .u32 code[2];\n" + user("g")
    if linkage == ".visible":
        first = KERNEL + ".weak .global .align 4 .u32 code = 7;\n"
    texts = [text if kind == "ptx" else cubin(text) for text in (first, second)]
    with pytest.raises(LinkError, match=r"code has 8 bytes in .* and 4 bytes in .*"):
        pl.link(*texts, arch=ARCH)


def test_common_symbols_are_as_large_as_the_largest():
    """Common symbols of two sizes are one variable of the larger; a definition is no smaller than they."""
    larger = COMMON.replace(".u32 code", ".u32 code[2]")
    linked = pl.link(KERNEL + COMMON + user("g"), function() + larger, arch=ARCH)
    assert globals_of(linked) == {".nv.global": 8}
    with pytest.raises(LinkError, match=r"code has 8 bytes in .* and 4 bytes in "):
        pl.link(KERNEL + larger, function() + DEFINITION, arch=ARCH)


def test_two_definitions_in_ltoir_are_refused():
    """Two variables of one name in LTO-IR, neither of them common, are refused."""
    first, second = (link_inputs.Input("ltoir", f"{name}.ltoir", nvvm(name, "ltoir", "")) for name in "fg")
    with pytest.raises(LinkError, match=r"code is defined 2 times, .*: f\.ltoir, g\.ltoir"):
        pl.link(kernel(), first, second, arch=ARCH)


def test_what_a_relocatable_link_made_of_a_common_symbol_is_named():
    """Where a relocatable link has made definitions of common symbols, the message says what to give."""
    merged = []
    for name in "fg":
        code = nvjitlink.link([("ptx", name, nvvm(name, "ptx"))], ("-arch=sm_80", "-r")).code
        merged.append(link_inputs.Input("cubin", f"{name}.cubin", code))
    with pytest.raises(LinkError, match=r"code is defined 2 times.* a relocatable link has made"):
        pl.link(kernel(), *merged, arch=ARCH)


def test_a_fat_binary_with_ltoir_has_common_symbols():
    """A fat binary that has nothing but LTO-IR merges its common symbols like the LTO-IR itself."""
    from numba_ptxlink._tools import nvfatbin

    fat = [
        link_inputs.Input(
            "fatbin", f"{name}.fatbin", nvfatbin.pack([("ltoir", ARCH, name, nvvm(name, "ltoir"))])
        )
        for name in "fg"
    ]
    linked = pl.link(kernel(), *fat, arch=ARCH, lto=True)
    assert globals_of(linked) == {".nv.global": 4}
