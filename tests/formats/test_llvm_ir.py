"""Types of functions that LLVM IR declares."""

from __future__ import annotations

import pytest

from numba_ptxlink._formats import llvm_ir


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("declare float @f(float, i32 signext, double)", ("float", "float", "i32", "double")),
        ("declare dso_local void @f(float*, float addrspace(1)* noundef, ptr)", ("void", *["ptr"] * 3)),
        ("declare { i32, float } @f([2 x float], half)", ("{ i32 , float }", "[ 2 x float ]", "half")),
        ('declare i1 @"f"(%"S"* byval(%"S") align 4)', ("i1", "byval")),
        ("declare double @f()", ("double",)),
        ("define float @f(float) {", None),
        ("declare void @f({ i8*, i32 }* %0, void (i8*)* nocapture)", ("void", "ptr", "ptr")),
    ],
)
def test_what_llvm_ir_declares(text, types):
    """Declarations in LLVM IR have their types, and pointers of each spelling are pointers."""
    assert llvm_ir.declared_types(text).get("f") == types
