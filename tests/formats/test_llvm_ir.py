"""Symbols read out of LLVM IR, compared with the PTX that NVVM makes of it."""

from __future__ import annotations

import warnings

import pytest

import numba_ptxlink as pl
from numba_ptxlink._formats import llvm_ir
from numba_ptxlink._formats.ptx import parse

TYPES = (
    "i1",
    "i8",
    "i16",
    "i32",
    "i64",
    "i128",
    "half",
    "float",
    "double",
    "POINTER",
    "{i8}",
    "{i32, i8}",
    "{i8, i64}",
    "{float, float}",
    "{half, half}",
    "{}",
    "[3 x i8]",
    "[2 x float]",
    "[0 x i8]",
    "{i1, [2 x {i16, double}]}",
    "{POINTER, [2 x POINTER], i32}",
)
OLD = """\
target triple = "nvptx64-nvidia-cuda"
target datalayout = "e-p:64:64:64-i1:8:8-i8:8:8-i16:16:16-i32:32:32-i64:64:64-i128:128:128-f32:32:32-\
f64:64:64-v16:16:16-v32:32:32-v64:64:64-v128:128:128-n16:32:64"
{declarations}
define void @kernel() {{
{calls}
  ret void
}}
!nvvmir.version = !{{!0}}
!nvvm.annotations = !{{!1}}
!0 = !{{i32 2, i32 0, i32 3, i32 1}}
!1 = !{{void ()* @kernel, !"kernel", i32 1}}
"""
NEW = OLD.replace("void ()* @kernel", "ptr @kernel")


@pytest.mark.parametrize("arch", ["sm_75", "sm_90", "sm_100", "sm_120"])
def test_prototypes_are_those_of_nvvm(arch):
    """Results and parameters of every type that Numba passes are what NVVM declares in PTX."""
    from numba.cuda.cudadrv import nvvm

    target = pl.Arch.of(arch)
    template, pointer = (NEW, "ptr") if llvm_ir.is_modern(target) else (OLD, "{i8*, i32}*")
    types = [each.replace("POINTER", pointer) for each in TYPES]
    declarations = [f'declare {ty} @"f{i}"({ty} %".1", i8 signext %".2")' for i, ty in enumerate(types)]
    calls = [f"  %r{i} = call {ty} @f{i}({ty} undef, i8 signext undef)" for i, ty in enumerate(types)]
    text = template.format(declarations="\n".join(declarations), calls="\n".join(calls))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ptx = nvvm.compile_ir(text, arch=target.compute).decode()
    declared = {each.prototype.name: each.prototype for each in parse(ptx).functions if not each.defined}
    assert len(declared) == len(TYPES)
    read = {each.name: each for each in llvm_ir.symbols(text, target)}
    assert {name: read[name].prototype for name in declared} == declared
    assert (read["kernel"].kind, read["kernel"].defined) == ("entry", True)


def test_linkage():
    """What other inputs can see, and which of it gives way."""
    text = """\
define linkonce_odr i32 @"_ZN6helperEi"(i32 %".1")
define internal void @"hidden"()
define void @strong(i64* nocapture %a) {
declare void @"asked"()
@"_ZN08NumbaEnv" = common global i8* null
@".const" = internal constant [3 x i8] c"ab\\00"
@"shared" = external addrspace(3) global [0 x i8], align 16
@"table" = addrspace(1) global [4 x i32] zeroinitializer
@"llvm.used" = appending global [1 x i8*] [i8* null], section "llvm.metadata"
"""
    found = {each.name: (each.kind, each.defined, each.weak) for each in llvm_ir.symbols(text, pl.Arch(9, 0))}
    assert found == {
        "_ZN6helperEi": ("func", True, True),
        "strong": ("func", True, False),
        "asked": ("func", False, False),
        "_ZN08NumbaEnv": ("variable", True, True),
        "shared": ("variable", False, False),
        "table": ("variable", True, False),
    }


@pytest.mark.parametrize(
    "declaration",
    [
        "declare void @f(<4 x float> %a)",
        'declare void @f(%"struct.pair" %a)',
        'declare void @f({i64, i64}* byval({i64, i64}) align 8 %"a")',
    ],
)
def test_what_numba_never_passes_has_no_prototype(declaration):
    """A type outside Numba's is not guessed at: the check of prototypes leaves such a function alone."""
    (symbol,) = llvm_ir.symbols(declaration, pl.Arch(9, 0))
    assert symbol.prototype is None


@pytest.mark.parametrize(
    ("text", "floats"),
    [
        ("declare float @f(float, i32 signext, double)", (True, True, False, True)),
        ("declare dso_local void @f(float*, float addrspace(1)* noundef, ptr)", (None, False, False, False)),
        ("declare { i32, float } @f([2 x float], half, bfloat)", (None, None, None, None)),
        ('declare i1 @"f"(%"S"* byval(%"S") align 4)', (False, None)),
        ("declare double @f()", (True,)),
        ("define float @f(float) {", None),
        ("declare float @f(...)", None),
        ("declare float @f(<2 x float>)", None),
    ],
)
def test_what_llvm_ir_declares(text, floats):
    """The declarations of LLVM IR tell floating point from integers and addresses."""
    assert llvm_ir.declared_floats(text).get("f") == floats
