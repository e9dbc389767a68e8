"""C values to Numba's and back: the layout of their IR types, and their bytes, on this machine's CPU."""

from __future__ import annotations

import random

import abi_bytes
import abi_rows as rows
import host_jit
import pytest
from llvmlite import binding, ir

from numba_ptxlink import abi
from numba_ptxlink._cabi import types as c
from numba_ptxlink._numba_cuda.codegen import convert

# Pointers and integers of 64 bits at their natural alignment, as on the GPU.
LAYOUT = binding.create_target_data("e-i64:64-i128:128-n16:32:64")
SPECS = {
    **rows.ROWS,
    "array2_fortran": ("array", "float32", 2, "F"),
    "array3": ("array", ("record", False, (("a", "int8"), ("b", "int32"))), 3, "C"),
}


@pytest.fixture(scope="module")
def context():
    """Return numba-cuda's target context, with all that it can lower."""
    from numba.cuda.descriptor import cuda_target

    cuda_target.target_context.refresh()
    return cuda_target.target_context


def fresh_module() -> ir.Module:
    """Return a module whose named types are its own."""
    module = ir.Module()
    module.context = convert.Structs()
    return module


def moving(context, spec):
    """Return the C type of *spec*, and what takes its bytes through Numba's value of it."""
    ty, module = rows.numba_type(spec), fresh_module()
    ctype = abi.c_signature("f0", ty, [("p0", ty)]).result
    kind = convert.ir_type(module, ctype)
    function = ir.Function(module, ir.FunctionType(kind, [kind]), "f0")
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    value = convert.from_c(context, builder, ctype, ty, function.args[0])
    builder.ret(convert.to_c(context, builder, ctype, ty, value))
    host_jit.add_caller(function)
    return ctype, host_jit.load(module)


@pytest.mark.parametrize("name", SPECS)
def test_values_come_back(context, name):
    """A value of each row is, byte by byte but for its padding, the same after the way to Numba and back."""
    echo = rows.Echo((SPECS[name],))
    ctype, call = moving(context, SPECS[name])
    layout = abi_bytes.Layout(0, echo, (ctype,), ctype)
    generator = random.Random(name)  # noqa: S311 - a choice, not a secret
    for _ in range(8):
        given = abi_bytes.fill(layout, generator)
        expected, relevant = abi_bytes.outcome(layout, given)
        got = call("f0", ctype.size, given)
        assert [byte for byte, matters in zip(expected, relevant, strict=True) if matters] == [
            byte for byte, matters in zip(got, relevant, strict=True) if matters
        ]


@pytest.mark.parametrize("name", SPECS)
def test_ir_types_have_the_layout_of_c(name):
    """The IR type of each row is as large as the C type, and has its members where C has them."""
    ty, module = rows.numba_type(SPECS[name]), fresh_module()
    for ctype in c.parts([abi.c_signature("f", ty, [("p", ty)]).result]):
        if isinstance(ctype, c.Void):
            continue
        kind = convert.ir_type(module, ctype)
        assert ctype.size == kind.get_abi_size(LAYOUT, context=module.context), ctype
        if isinstance(ctype, c.Struct):
            offsets = [
                kind.get_element_offset(LAYOUT, number, context=module.context)
                for number, (_, member) in enumerate(ctype.slots)
                if member is not None
            ]
            assert [member.offset for member in ctype.members] == offsets


def test_any_byte_but_zero_is_true(context):
    """A boolean that C filled with another number than 0 and 1 is true, and comes back as 1."""
    _, call = moving(context, "boolean")
    assert [0, 1, 1, 1] == [call("f0", 1, bytes([byte]))[0] for byte in (0, 1, 2, 255)]
    _, call = moving(context, ("optional", "int32"))
    assert [b"\0" * 5, b"\7\0\0\0\1"] == [
        call("f0", 8, b"\7\0\0\0" + bytes([flag, 0, 0, 0]))[:5] for flag in (0, 128)
    ]


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ("int32", False),
        (("record", True, (("a", "int8"),)), True),
        (("tuple", ("int8", ("record", True, (("a", "int8"),)))), True),
        (("optional", ("record", True, (("a", "int8"),))), True),
        (("optional", "int32"), False),
        (("pointer", ("record", True, (("a", "int8"),))), False),
    ],
    ids=str,
)
def test_what_holds_a_record(spec, expected):
    """A record is found in tuples and optionals, and what only points to one holds none."""
    assert expected is convert.holds_record(rows.numba_type(spec))
