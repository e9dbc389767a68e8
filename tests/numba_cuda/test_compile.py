"""`numba.cuda.compile` with the plugin: one test for each thing that stock numba-cuda 0.30.4 does wrong."""

from __future__ import annotations

import pytest
from llvmlite import binding as llvm
from numba import cuda
from numba.cuda import types
from numba.cuda.codegen import nvvm

import numba_ptxlink as pl
from numba_ptxlink._formats.ptx import parse

CC = (9, 0)
PAIR = types.Tuple((types.int8, types.float32))
CALLER = """
extern "C" __device__ {declaration};
extern "C" __global__ void caller(float* p) {{ {body} }}
"""


@pytest.fixture(scope="module", autouse=True)
def _active():
    active = pl.status().active
    pl.enable()
    yield
    if not active:
        pl.disable()


def compiled(function, signature, **options):
    """Return the code of *function* by `numba.cuda.compile`."""
    code, _ = cuda.compile(function, signature, **{"cc": CC, **options})
    return code


def prototype(ptx: str) -> str:
    """Return the prototype of the one function in *ptx*."""
    (definition,) = (function for function in parse(ptx).functions if function.defined)
    return str(definition.prototype)


def links(code, declaration: str, body: str) -> bool:
    """Return whether C++ with *declaration* links with *code*."""
    linked = pl.link(CALLER.format(declaration=declaration, body=body), code, arch="sm_90", lto=False)
    return b"caller" in linked.cubin


def test_a_module_may_be_bitcode():
    """NVVM's interface in numba-cuda takes LLVM IR in either form."""
    text = (
        f'target triple = "nvptx64-nvidia-cuda"\ntarget datalayout = "{nvvm.NVVM().data_layout}"\n'
        "define void @f() { ret void }\n!nvvmir.version = !{!0}\n!0 = !{i32 2, i32 0}\n"
    )
    are_compiled = []
    for module in (text.encode(), llvm.parse_assembly(text).as_bitcode()):
        unit = nvvm.CompilationUnit({"arch": "compute_100"})
        unit.add_module(module)
        are_compiled.append(b"f()" in unit.compile())
    assert [True, True] == are_compiled


def double(value):
    """Double a value."""
    return value * 2


def test_code_does_not_depend_on_what_was_compiled_before():
    """Numba's own functions, such as complex division, are compiled for the options of their caller."""

    def divide(a, b):
        return a / b

    def approximate(**options):
        number = types.complex64
        return ".approx" in compiled(divide, number(number, number), abi_info={"on_error": "zero"}, **options)

    assert [False, True, False] == [approximate(), approximate(fastmath=True), approximate()]


def test_void_has_no_return_value():
    """A void function has no return parameter, and links."""

    def store(pointer):
        pointer[0] = 1.0

    ptx = compiled(store, types.void(types.CPointer(types.float32)))
    assert prototype(ptx) == ".func store(.b64)"
    assert links(ptx, "void store(float* p)", "store(p);")


@pytest.mark.parametrize("ty", [types.float16, types.bfloat16], ids=str)
@pytest.mark.parametrize("output", ["ptx", "ltoir"])
def test_half_arithmetic_is_complete(ty, output):
    """Half and bfloat16 arithmetic leaves nothing undefined."""
    code = compiled(double, ty(ty), output=output, abi_info={"abi_name": "doubled", "aggregates": "value"})
    if output == "ptx":
        assert [function for function in parse(code).functions if not function.defined] == []
    header, name = {"float16": ("cuda_fp16.h", "__half")}.get(str(ty), ("cuda_bf16.h", "__nv_bfloat16"))
    source = f"""
        #include <{header}>
        extern "C" __device__ {name} doubled({name});
        extern "C" __global__ void caller({name}* p) {{ *p = doubled(*p); }}
    """
    assert pl.link(source, code, arch="sm_90").cubin


@pytest.mark.parametrize(
    ("ty", "expected"),
    [
        (types.float16, ".align 2 .b8[2]"),
        (types.complex64, ".align 8 .b8[8]"),
        (PAIR, ".align 4 .b8[8]"),
        (types.Array(types.float32, 1, "C"), ".align 8 .b8[24]"),
    ],
    ids=str,
)
def test_a_value_has_the_prototype_of_cxx(ty, expected):
    """With aggregates="value", halves, complex numbers, tuples and arrays are one parameter, as in C++."""
    ptx = compiled(lambda value: value, ty(ty), abi_info={"abi_name": "f", "aggregates": "value"})
    assert prototype(ptx) == f".func ({expected}) f({expected})"


@pytest.mark.parametrize(
    ("abi_info", "message"),
    [
        ({"abi_name": "a::b"}, "'a::b', the name of the function, is not an identifier of PTX: letters"),
        ({"abi_name": "näme"}, "'näme', the name .* is not an identifier of PTX"),
        ({"abi_name": "9x"}, "'9x', the name .* no digit first"),
        ({"abi_name": ""}, "'', the name .* is not an identifier of PTX"),
        ({"abi_name": "_"}, "'_', the name .* is not an identifier of PTX: .* neither _ nor . alone"),
        ({"abi_name": "$"}, "is not an identifier of PTX"),
        ({"abi_name": 3}, "3, the name .* is not an identifier of PTX"),
        ({"abi_name": b"f"}, "b'f', the name .* is not an identifier of PTX"),
        (["abi_name"], "must be a dict such as .*, not list: "),
        ({"aggregates": "packed"}, "is 'packed'; the choices are value, flat"),
    ],
)
def test_a_wrong_abi_info_is_refused(abi_info, message):
    """A name that PTX does not allow, a wrong value and a wrong type are refused with the right form."""
    with pytest.raises(pl.AbiError, match=message) as caught:
        compiled(double, "int32(int32)", abi_info=abi_info)
    assert isinstance(caught.value, ValueError)


def fill(out, value):
    """Fill an array."""
    i = cuda.grid(1)
    if i < out.size:
        out[i] = value


def test_a_kernel_has_a_c_name():
    """With abi_info, a kernel is an entry of the name and types that C++ declares, with its launch bounds."""
    ptx = compiled(
        fill, "void(float32[::1], int8)", device=False, abi_info={"abi_name": "fill_it"}, launch_bounds=96
    )
    assert prototype(ptx) == ".entry fill_it(.align 8 .b8[24], .b8)"
    assert ".maxntid 96" in ptx
