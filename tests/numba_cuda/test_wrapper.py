"""The C function around Numba's: what it does, executed on this machine's CPU, and its attributes."""

from __future__ import annotations

import re
import struct

import abi_rows as rows
import host_jit
import pytest
from numba.cuda import types

from numba_ptxlink import abi
from numba_ptxlink._arch import Arch
from numba_ptxlink._numba_cuda.codegen import wrapper
from numba_ptxlink._numba_cuda.compile import compile_function

ARCH = Arch.of("sm_80")


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


def positive(value):
    """Return a value, or None."""
    return value if value > 0 else None


def test_any_byte_but_zero_is_true():
    """A boolean that C filled with another number than 0 and 1 is true, and comes back as 1."""
    call = loaded(wrapped(same, (types.boolean,), types.boolean))
    assert [0, 1, 1, 1] == [call("f", 1, bytes([byte]))[0] for byte in (0, 1, 2, 255)]
    call = loaded(wrapped(same, (types.Optional(types.int32),)))
    assert [b"\0" * 5, b"\7\0\0\0\1"] == [
        call("f", 8, b"\7\0\0\0" + bytes([flag, 0, 0, 0]))[:5] for flag in (0, 128)
    ]


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
