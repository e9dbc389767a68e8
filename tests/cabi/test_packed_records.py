"""Structs with members that are not aligned: which nvcc passes wrongly in PTX, and that those are refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import abi_bytes
import abi_rows as rows
import pytest
from numba.cuda import types

import numba_ptxlink as pl
from numba_ptxlink import abi

if TYPE_CHECKING:
    from collections.abc import Iterator

INT16_FIRST = ("record", False, (("a", "int16"), ("b", "int8")))
FLOAT64_FIRST = ("record", False, (("b", "float64"), ("a", "int8")))
FLOAT64_LAST = ("record", False, (("a", "int8"), ("b", "float64")))
INSIDE = ("record", True, (("a", "uint8"), ("inner", ("record", False, (("a", "int8"), ("b", "int32"))))))
WRONG = {
    "odd_offset": (("record", False, (("a", "int8"), ("b", "int16"))), "b"),
    "alignment_of_1": (FLOAT64_FIRST, "b"),
    "member_of_a_member": (("tuple", ("float64", FLOAT64_FIRST, FLOAT64_LAST)), "f2.b"),
    "record_in_a_record": (("record", True, (*INSIDE[2], ("z", "float64"))), "inner.b"),
    "optional": (("optional", FLOAT64_LAST), "value.b"),
    "tuple_of_alignment_1": (("tuple", ("int8", INT16_FIRST)), "f1.a"),
    "array_in_a_record": (("record", False, (("a", "int8"), ("b", ("nested", "float32", (3,))))), "b[0]"),
    "half": (("record", False, (("a", "int8"), ("h", "float16"))), "h"),
    "complex": (("record", False, (("a", "float32"), ("z", "complex64"))), "a"),
}
RIGHT = {
    "aligned": ("record", True, FLOAT64_LAST[2]),
    "natural_without_padding": ("record", False, (("a", "float32"), ("b", "float32"))),
    "bytes": ("record", False, (("a", "int8"), ("b", ("nested", "uint8", (6,))))),
    "pointer": ("pointer", FLOAT64_LAST),
    "array": ("array", FLOAT64_LAST, 1, "C"),
    "aligned_in_a_tuple": ("tuple", ("int8", ("record", True, FLOAT64_LAST[2]))),
}


def refused(signature: abi.Signature) -> bool:
    """Return whether *signature* is refused for PTX."""
    try:
        abi.check_ptx(signature)
    except pl.AbiError:
        return True
    return False


def specs() -> Iterator[rows.Echo]:
    """Yield functions of packed and of other structs: alone, in tuples, and behind other members."""
    for spec in (*(spec for spec, _ in WRONG.values()), *RIGHT.values(), *rows.ROWS.values()):
        yield rows.Echo((spec,))
        yield rows.Echo(("int8", spec))
    yield from rows.draw(60, seed=8)


@pytest.mark.slow
@pytest.mark.parametrize("arch", ["sm_80", pytest.param("sm_100", marks=pytest.mark.slow)])
def test_all_that_is_passed_wrongly_is_refused(tmp_path, arch):
    """A record is refused if nvcc's callers, nvcc's functions or the export move it by too large accesses."""
    echoes = list(specs())
    compiled = rows.lower(echoes, arch)
    (tmp_path / "echo.h").write_text(rows.header(compiled.signatures))
    layouts = [
        abi_bytes.Layout.of(echo, signature)
        for echo, signature in zip(echoes, compiled.signatures, strict=True)
    ]
    wrong = abi_bytes.moved_wrongly(rows.build(compiled, arch, "ptx").artifacts["ptx"].decode())
    for source in (
        "".join(layout.kernel() for layout in layouts),
        "".join(map(abi_bytes.Layout.in_cxx, layouts)),
    ):
        wrong |= abi_bytes.moved_wrongly(rows.nvrtc(f'#include "echo.h"\n{source}', arch, tmp_path).decode())
    refused_numbers = {number for number, signature in enumerate(compiled.signatures) if refused(signature)}
    # NVVM's newer LLVM, which begins with sm_100, moves all of it rightly; a caller may be for an older one.
    assert (arch == "sm_80") == (len(wrong) > 10)
    assert set() == wrong - refused_numbers


def export(tmp_path, spec, emit, *, result: bool):
    """Export a function whose parameter, or result, is of *spec*."""
    ty = rows.numba_type(spec)
    pointer = types.CPointer(types.int8)
    if result:
        udf = pl.udf(ty(ty), name="f")(lambda value: value)
    else:
        udf = pl.udf(types.void(pointer, ty), name="f")(lambda p, value: None)  # noqa: ARG005 - not run
    return pl.export([udf], tmp_path, arch="sm_90", emit=emit, name="lib")


@pytest.mark.parametrize("name", WRONG)
def test_members_that_are_not_aligned_are_refused_for_ptx(tmp_path, name):
    """A parameter is refused for PTX, cubins and fat binaries, with the member and the cures."""
    spec, member = WRONG[name]
    match = rf"Function f: parameter 'value', of C type \S+, has the unaligned member '{re.escape(member)}'"
    with pytest.raises(pl.AbiError, match=match) as error:
        export(tmp_path, spec, ["ptx"], result=False)
    for cure in ("align=True", "a pointer to it", "emit=['ltoir']"):
        assert cure in str(error.value)
    assert [] == list(tmp_path.iterdir())


def test_results_are_refused_too(tmp_path):
    """A result is refused in every kind of artifact that is PTX or made of it, and exported as LTO-IR."""
    spec, _ = WRONG["odd_offset"]
    for kind in ("ptx", "cubin", "fatbin"):
        with pytest.raises(pl.AbiError, match="Function f: the return value, of C type"):
            export(tmp_path, spec, ["ltoir", kind], result=True)
    assert export(tmp_path, spec, ["ltoir"], result=True).artifacts["ltoir", "sm_90"].exists()


def double(value):
    """Return a record with twice the number."""
    value.b *= 2
    return value


def test_numba_compile_refuses_and_allows_the_same():
    """numba.cuda.compile refuses PTX of such a function with the C ABI, and accepts LTO-IR."""
    from numba import cuda

    ty = rows.numba_type(FLOAT64_FIRST)
    info = {"abi_name": "double_it", "aggregates": "value"}
    options = {"device": True, "abi": "c", "abi_info": info, "cc": (9, 0)}
    with pytest.raises(pl.AbiError, match="Function double_it: the return value"):
        cuda.compile(double, ty(ty), output="ptx", **options)
    assert cuda.compile(double, ty(ty), output="ltoir", **options)[0]
