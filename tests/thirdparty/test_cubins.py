"""What `cubins` takes for the same machine code, and what not."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import cubins
import pytest

import numba_ptxlink as pl

if TYPE_CHECKING:
    from pathlib import Path

PTX = """\
.version 8.0
.target sm_80
.address_size 64
{variables}
.visible .entry {name}(.param .u64 out)
{{
    .reg .b64 %rd<3>;
    .reg .b32 %r<3>;
    ld.param.u64 %rd1, [out];
    ld.global.u32 %r1, [first];
    ld.global.u32 %r2, [second];
    add.u32 %r1, %r1, {addend};
    st.global.u32 [%rd1], %r1;
    st.global.u32 [%rd1+4], %r2;
    ret;
}}
"""
VARIABLES = (".visible .global .u32 first = 3;", ".visible .global .u32 second = 5;")


def _cubin(path: Path, name: str = "kernel", addend: int = 7, variables: tuple[str, ...] = VARIABLES) -> Path:
    text = PTX.format(name=name, addend=addend, variables="\n".join(variables))
    path.write_bytes(pl.assemble(text, "sm_80").code)
    return path


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        ("equal", {}),
        ("equal", {"name": "another_name"}),
        ("", {"addend": 8}),
        ("", {"variables": (VARIABLES[0], VARIABLES[1].replace("5", "6"))}),
    ],
)
def test_names_may_differ_and_code_and_values_may_not(tmp_path, rule, changes):
    """Two cubins are equal whatever their kernels are called, unless an instruction or a value differs."""
    assert rule == cubins.explain(_cubin(tmp_path / "one"), _cubin(tmp_path / "other", **changes))


def _swap(cubin: Path, path: Path, *, symbols: bool) -> Path:
    """Write *cubin* with its two variables in each other's place, with their symbols or without."""
    image = cubin.read_bytes()
    values = (3).to_bytes(4, "little") + (5).to_bytes(4, "little")
    swapped = image.replace(values, values[4:] + values[:4])
    if symbols:
        (table,) = [section for section in cubins.sections(image) if section.name == ".symtab"]
        moved = b"".join(
            struct.pack("<IBBHQQ", name, info, other, home, 4 - at if size == 4 else at, size)
            for name, info, other, home, at, size in struct.iter_unpack("<IBBHQQ", table.content)
        )
        swapped = swapped.replace(table.content, moved)
    path.write_bytes(swapped)
    return path


@pytest.mark.parametrize(("rule", "symbols"), [("order of variables", True), ("", False)])
def test_variables_may_lie_elsewhere_but_not_hold_another_value(tmp_path, rule, symbols):
    """Variables in another order are told as such; with each other's values they are a difference."""
    cubin = _cubin(tmp_path / "one")
    assert rule == cubins.explain(cubin, _swap(cubin, tmp_path / "other", symbols=symbols))
