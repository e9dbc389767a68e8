"""The C function around Numba's: what it does, executed on this machine's CPU, and its attributes."""

from __future__ import annotations

import random
import re
import struct

import abi_bytes
import abi_rows as rows
import host_jit
import pytest
from numba.cuda import types

from numba_ptxlink import abi
from numba_ptxlink._arch import Arch
from numba_ptxlink._numba_cuda.codegen import wrapper
from numba_ptxlink._numba_cuda.compile import compile_function

ARCH = Arch.of("sm_80")
SPECS = {
    **rows.ROWS,
    "array2_fortran": ("array", "float32", 2, "F"),
    "array3": ("array", ("record", False, (("a", "int8"), ("b", "int32"))), 3, "C"),
}


def wrapped(function, args, result=None, *, kernel=False, inline=True, on_error="zero", **options):
    """Return the C function `f` around *function* of the Numba types *args*."""
    compiled = compile_function(function, args, result, ARCH)
    params = [(f"p{number}", ty) for number, ty in enumerate(args)]
    signature = abi.c_signature("f", compiled.signature.return_type, params, kernel=kernel)
    return wrapper.emit(compiled, signature, abi.AbiOptions(on_error=on_error), inline=inline, **options)


def loaded(function):
    """Return what calls *function* on this machine, with bytes."""
    host_jit.add_caller(function)
    return host_jit.load(function.module)


def head_of(function) -> str:
    """Return the line that declares *function*, with all attributes."""
    (line,) = re.findall(rf"^define .*@\"{function.name}\"\(.*$", str(function.module), re.MULTILINE)
    return line


def same(value):
    """Return what it is given."""
    return value


def checked(value):
    """Refuse negative values."""
    if value < 0:
        raise ValueError
    return value


def positive(value):
    """Return a value, or None."""
    return value if value > 0 else None


@pytest.mark.parametrize("name", SPECS)
def test_a_function_returns_what_it_is_given(name):
    """Arguments of each row, beside others, reach the Python function and come back in a struct."""
    echo = rows.Echo(("int8", SPECS[name], SPECS[name]))
    function = wrapped(rows.ECHOES[3], tuple(map(rows.numba_type, echo.params)), rows.numba_type(echo.result))
    params = [(f"p{number}", rows.numba_type(spec)) for number, spec in enumerate(echo.params)]
    signature = abi.c_signature("f0", rows.numba_type(echo.result), params)
    layout = abi_bytes.Layout.of(echo, signature)
    arguments = abi_bytes.fill(layout, random.Random(name))  # noqa: S311 - a choice, not a secret
    pieces, at = [], 0
    for ctype in layout.params:
        pieces.append(arguments[at : at + ctype.size])
        at += ctype.size
    expected, relevant = abi_bytes.outcome(layout, arguments)
    got = loaded(function)("f", layout.result_size, *pieces)
    assert bytes(a & -b & 255 for a, b in zip(expected, relevant, strict=True)) == bytes(
        a & -b & 255 for a, b in zip(got, relevant, strict=True)
    )


def test_any_byte_but_zero_is_true():
    """A boolean that C filled with another number than 0 and 1 is true, and comes back as 1."""
    call = loaded(wrapped(same, (types.boolean,), types.boolean))
    assert [0, 1, 1, 1] == [call("f", 1, bytes([byte]))[0] for byte in (0, 1, 2, 255)]
    call = loaded(wrapped(same, (types.Optional(types.int32),)))
    assert [b"\0" * 5, b"\7\0\0\0\1"] == [
        call("f", 8, b"\7\0\0\0" + bytes([flag, 0, 0, 0]))[:5] for flag in (0, 128)
    ]


def test_where_python_raises_the_function_returns_zero():
    """A function that raises returns zero, and otherwise its value."""
    call = loaded(wrapped(checked, (types.int32,), types.int32))
    assert [5, 0] == [struct.unpack("<i", call("f", 4, struct.pack("<i", value)))[0] for value in (5, -5)]


def test_where_python_raises_the_function_may_trap():
    """With on_error="trap" the error's branch traps, and without it nothing does."""
    trap = 'call void @"llvm.trap"()'
    assert trap in str(wrapped(checked, (types.int32,), types.int32, on_error="trap").module)
    assert trap not in str(wrapped(checked, (types.int32,), types.int32).module)


def test_none_is_a_flag():
    """An optional result is a struct of the value and whether there is one; the value of None is zero."""
    call = loaded(wrapped(positive, (types.int32,)))
    assert [(7, 1), (0, 0)] == [
        struct.unpack("<iB3x", call("f", 8, struct.pack("<i", value))) for value in (7, -7)
    ]


@pytest.mark.parametrize(
    ("ty", "attribute"),
    [
        (types.int8, "signext"),
        (types.uint16, "zeroext"),
        (types.boolean, "zeroext"),
        (types.int32, ""),
    ],
    ids=str,
)
def test_narrow_integers_are_widened(ty, attribute):
    """What is narrower than 32 bits is widened as nvcc's callers and callees expect, and nothing else is."""
    head = head_of(wrapped(same, (ty,), ty))
    assert [attribute] * (2 if attribute else 0) == re.findall("signext|zeroext", head)


def test_records_lie_where_numba_may_read_any_field():
    """A record that came as a value is stored aligned for the widest access, packed or not."""
    ty = rows.numba_type(rows.ROWS["packed"])
    text = str(wrapped(lambda value: value.a, (ty,), types.int8).module)
    assert re.search(r'alloca %"struct\.[^"]*", align 16', text)


def test_what_must_not_be_passed_is_inlined():
    """The C function of a struct with members that are not aligned is inlined even without optimisation."""
    packed, aligned = (
        rows.numba_type(("record", align, (("a", "int8"), ("b", "float64")))) for align in (False, True)
    )
    for ty, inlined in ((packed, True), (aligned, False)):
        function = wrapped(lambda value: value.a, (ty,), types.int8, inline=False)
        assert inlined == ("alwaysinline" in head_of(function))


def test_nothing_but_the_function_is_visible():
    """Numba's own function and its environment are internal, so that two exports have no symbol in common."""
    module = wrapped(same, (types.int32,), types.int32).module
    visible = [name for name, each in module.globals.items() if each.linkage != "internal"]
    assert ["f"] == [name for name in visible if not name.startswith("llvm.")]
