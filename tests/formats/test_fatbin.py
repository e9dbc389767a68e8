"""PTX in fat binaries, as nvFatbin compresses it, and names out of mangled symbols."""

from __future__ import annotations

import pytest
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink._formats import fatbin, mangling
from numba_ptxlink._tools import nvfatbin


def lines(text: bytes) -> list[bytes]:
    """Return the lines of a text without indentation."""
    return [line.strip() for line in text.splitlines()]


@pytest.mark.parametrize("zstd", [True, False])
def test_ptx_of_each_architecture_is_read(zstd):
    """Each member is the text that was packed, whatever its compression."""
    texts = {sm: make_kernel(sm).encode() for sm in ("sm_80", "sm_90")}
    entries = [("ptx", pl.Arch.of(sm), f"{sm}.ptx", text) for sm, text in texts.items()]
    code = nvfatbin.pack(entries, relocatable=False, zstd=zstd)
    # nvFatbin removes indentation.
    expected = {pl.Arch.of(sm).number: lines(text) for sm, text in texts.items()}
    assert expected == {arch: lines(text) for arch, text in fatbin.ptx_members(code)}


def test_a_damaged_fat_binary_is_an_error():
    """A file that ends early is named as damaged."""
    code = nvfatbin.pack([("ptx", pl.Arch(9, 0), "a.ptx", make_kernel().encode())])
    with pytest.raises(pl.LinkError, match="fat binary is damaged"):
        fatbin.ptx_members(code[:40])


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN8__main__5saxpyB2v1B38cE5ArrayIfLi1E1C7mutable7alignedE", "saxpy"),
        ("_Z5saxpyfPf", "saxpy"),
        ("_ZN8__main__12_3clambda_3eB2v1Ef", "<lambda>"),
        ("saxpy", "saxpy"),
    ],
)
def test_written_names(symbol, name):
    """Namespaces, types and tags are left out."""
    assert mangling.written_name(symbol) == name
