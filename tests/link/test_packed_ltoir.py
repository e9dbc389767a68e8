"""LTO-IR inside of fat binaries, objects and archives: inlined unasked, or replaced."""

from __future__ import annotations

import logging
import re

import pytest
from linkcases import CALLEE, CALLER, KERNEL, archive, cubin, function, ltoir, object_of

import numba_ptxlink as pl
from numba_ptxlink._formats import containers
from numba_ptxlink._formats.ltoir import read as read_ltoir
from numba_ptxlink._numba_cuda.ptx_linker import PtxLinker
from numba_ptxlink._tools import nvfatbin, nvjitlink

ARCH = pl.Arch(8, 0)
ALONE = CALLEE.format(value=1) + 'extern "C" __global__ void k(int* p) { *p = f(1); }\n'


@pytest.fixture(scope="module")
def code() -> bytes:
    """Return f as LTO-IR."""
    return ltoir(CALLEE.format(value="a * 3"))


def packed(*entries: tuple[str, bytes]) -> bytes:
    """Return a fat binary of *entries*, kinds and code."""
    return nvfatbin.pack([(kind, ARCH, "f", code) for kind, code in entries])


def newer(code: bytes) -> bytes:
    """Return LTO-IR whose header says that it is of a release to come."""
    return code[:5] + b"\xc8" + code[6:]


def calls(linked: pl.Linked) -> bool:
    """Return whether f is there to be called."""
    return b".text.f\0" in linked.cubin


def test_a_fat_binary_tells_the_version_of_compressed_ltoir(code):
    """It is the version in the header of the LTO-IR, which cannot be read."""
    (entry,) = containers.fatbin_entries(packed(("ltoir", code)))
    assert (entry.content(), entry.version) == (None, read_ltoir(code).container)


@pytest.mark.parametrize("beside", [("cubin", cubin(function())), ("ptx", function().encode()), None])
def test_cuda_cpp_and_a_fat_binary_are_optimised_unasked(code, beside):
    """What LTO-IR in a fat binary defines is inlined, whatever is in it beside that."""
    fatbin = packed(*filter(None, (beside, ("ltoir", code))))
    linked = pl.link(CALLER, fatbin, arch=ARCH)
    assert (True, False) == (linked.lto, calls(linked))
    assert linked.reason == "link-time optimisation, for the LTO-IR in <fatbin 2>"


def test_false_leaves_it_a_call(code):
    """lto=False takes the machine code."""
    linked = pl.link(CALLER, packed(("cubin", cubin(function())), ("ltoir", code)), arch=ARCH, lto=False)
    assert (False, True) == (linked.lto, calls(linked))


def test_ptx_calls_the_machine_code(code):
    """Nothing is gained where the caller is PTX, and nvJitLink may take for unused what only PTX calls."""
    fatbin = packed(("cubin", cubin(function())), ("ltoir", code))
    linked = pl.link(KERNEL, fatbin, arch=ARCH)
    assert (False, True) == (linked.lto, calls(linked))


def test_ltoir_that_is_all_there_is_is_linked_with_ptx(code):
    """Without LTO there would be nothing to link."""
    assert pl.link(KERNEL, packed(("ltoir", code)), arch=ARCH).lto


def test_machine_code_for_another_architecture_does_not_count(code):
    """What does not fit the device is no other choice."""
    entries = [("cubin", pl.Arch(9, 0), "f", cubin(function(), "sm_90")), ("ltoir", ARCH, "f", code)]
    assert pl.link(KERNEL, nvfatbin.pack(entries), arch=ARCH).lto


def test_two_fat_binaries_are_optimised_together(code):
    """A kernel in one and a function in the other become one program."""
    kernel = packed(("cubin", cubin(KERNEL)), ("ltoir", ltoir(CALLER)))
    linked = pl.link(kernel, packed(("cubin", cubin(function())), ("ltoir", code)), arch=ARCH)
    assert (True, False) == (linked.lto, calls(linked))


def test_one_fat_binary_alone_is_linked_as_it_is():
    """Its own compiler has optimised its machine code."""
    fatbin = packed(("ptx", pl.link(ALONE, arch=ARCH).ptx.encode()), ("ltoir", ltoir(ALONE)))
    assert not pl.link(fatbin, arch=ARCH).lto


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["object", "archive"])
def test_objects_and_archives_of_nvcc_are_optimised(tmp_path, kind):
    """They hold fat binaries."""
    flags = ["-gencode=arch=compute_80,code=[lto_80,sm_80]"]
    code = object_of(CALLEE.format(value=1), tmp_path, *flags)
    linked = pl.link(CALLER, archive(code) if kind == "archive" else code, arch=ARCH)
    assert (True, False) == (linked.lto, calls(linked))
    assert f"<{kind} 2>" in linked.reason


@pytest.mark.parametrize("kind", ["cubin", "ptx"])
def test_other_code_stands_in_for_ltoir_that_is_too_new(code, kind, caplog):
    """The link succeeds with a call, and its reason says why."""
    other = function() if kind == "ptx" else cubin(function())
    fatbin = packed((kind, other.encode() if isinstance(other, str) else other), ("ltoir", newer(code)))
    with caplog.at_level(logging.INFO, "numba_ptxlink"):
        linked = pl.link(CALLER, fatbin, arch=ARCH)
    expected = rf"{kind} of <fatbin 2>, whose LTO-IR 1\.200 nvJitLink does not read"
    assert re.search(expected, linked.reason)
    assert re.search(expected, caplog.text)
    assert calls(linked)
    assert ("<cu 1>", "<fatbin 2>") == linked.inputs


def test_ltoir_that_is_too_new_and_alone_is_an_error(code):
    """Nothing can stand in for it."""
    with pytest.raises(pl.LinkError, match=r"fatbin 2> holds LTO-IR of container version 1\.200"):
        pl.link(CALLER, packed(("ltoir", newer(code))), arch=ARCH)


def test_only_what_is_too_new_is_replaced(code):
    """Other LTO-IR is inlined all the same."""
    other = 'extern "C" __device__ int g(int a) { return a + 2; }\n'
    both = CALLER.replace("*p = f(1)", "*p = f(g(1))").replace(
        "int f(int);", 'int f(int); extern "C" __device__ int g(int);'
    )
    new = packed(("cubin", cubin(function())), ("ltoir", newer(code)))
    old = packed(("cubin", cubin(function(name="g"))), ("ltoir", ltoir(other)))
    linked = pl.link(both, new, old, arch=ARCH)
    assert (True, True) == (linked.lto, calls(linked))
    assert b".text.g\0" not in linked.cubin


def test_ltoir_of_another_major_release_is_left_alone(code, monkeypatch, caplog):
    """Nobody promises that it is read, so it is no reason to optimise."""
    fatbin = packed(("cubin", cubin(function())), ("ltoir", code))
    version = nvjitlink.version()
    monkeypatch.setattr(
        "numba_ptxlink._link.backends.installed", lambda: ("nvjitlink", (12 + 13 - version[0], 0))
    )
    with caplog.at_level(logging.INFO, "numba_ptxlink"):
        linked = pl.link(CALLER, fatbin, arch=ARCH)
    assert not linked.lto
    assert "of another major release" in caplog.text


def test_the_linker_of_numba_kernels_takes_it_unasked(code):
    """With lto=None, two fat binaries are optimised; with lto=False they are not."""
    kernel = packed(("cubin", cubin(KERNEL)), ("ltoir", ltoir(CALLER)))
    callee = packed(("cubin", cubin(function())), ("ltoir", code))
    optimised = {}
    for lto in (None, False):
        linker = PtxLinker(cc=(8, 0), lto=lto)
        linker.add_fatbin(kernel, "kernel.fatbin")
        linker.add_fatbin(callee, "f.fatbin")
        linker.complete()
        optimised[lto] = linker.linker.lto
    assert optimised == {None: True, False: False}


def test_numba_kernels_link_other_code_for_ltoir_that_is_too_new(code):
    """The kernel is LTO-IR, and the function stays a call."""
    linker = PtxLinker(cc=(8, 0), lto=True)
    linker.add_ltoir(ltoir(CALLER))
    linker.add_fatbin(packed(("cubin", cubin(function())), ("ltoir", newer(code))), "f.fatbin")
    linker.complete()
    assert "cubin of f.fatbin" in linker.linker.reason
    assert calls(linker.linker)
