"""What helps against an input that is newer than the linker reads."""

from __future__ import annotations

import struct

import pytest

import numba_ptxlink as pl
from numba_ptxlink._arch import PtxVersion
from numba_ptxlink._link import checks, explain
from numba_ptxlink._link.inputs import Input
from numba_ptxlink._tools import nvfatbin, nvvm, packages

ARCH = pl.Arch.of("sm_80")
NEWER = "may need newer version of nvJitLink"


def container(minor):
    """Return a container of LTO-IR of version 1.*minor*, for sm_80."""
    return b"\xedCN\x7f" + bytes((1, minor, 2, 0, 0, 0, 0, 0)) + bytes(14) + struct.pack("<H", 800)


def test_ltoir_of_an_nvvm_that_is_too_new(monkeypatch):
    """Where the environment is of CUDA 12, and its NVVM of CUDA 13, the cure is the right NVVM."""
    monkeypatch.setattr(nvvm, "emitted_isa", lambda _: PtxVersion(9, 0))
    monkeypatch.setattr(packages, "major", lambda: 12)
    said = explain.cure(NEWER, [Input("ltoir", "a", container(65))], ARCH, (12, 9), "nvidia-nvjitlink-cu12")
    assert "no release of CUDA 12 does. NVVM is of CUDA 13.0 (/" in said
    assert "in this environment: install nvidia-cuda-nvcc-cu12, as with `pip install" in said


@pytest.mark.parametrize(
    ("linker", "minor", "cure"),
    [
        ((12, 9), 67, r"no release of CUDA 12 does\..*numba-ptxlink\[cu13\]"),
        ((12, 4), 64, "--upgrade nvidia-nvjitlink-cu12"),
        ((13, 0), 67, "--upgrade nvidia-nvjitlink"),
    ],
)
def test_ltoir_that_is_too_new(linker, minor, cure):
    """No upgrade within CUDA 12 is the cure for LTO-IR of CUDA 13, and one is where a release reads it."""
    package = "nvidia-nvjitlink" + "-cu12" * (linker[0] == 12)
    source = Input("ltoir", "a.ltoir", container(minor))
    said = explain.cure(NEWER, [source], ARCH, linker, package)
    with pytest.raises(pl.LinkError, match=cure):
        raise pl.LinkError(said)
    assert ("--upgrade" in said) is ("--upgrade" in cure)


@pytest.mark.parametrize("kind", ["cubin", "fatbin"])
def test_machine_code_that_is_too_new(kind):
    """What nvJitLink tells as bad input alone is told with the releases of both, and with a cure."""
    ptx = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .func f { ret; }\n"
    code = pl.assemble(ptx, ARCH, relocatable=True).code
    if kind == "fatbin":
        code = nvfatbin.pack([("cubin", ARCH, "a.cubin", code)])
    made = ".".join(map(str, pl.assembler.compiler_version()))
    source = Input(kind, f"a.{kind}", code)
    said = explain.cure("ERROR 4: bad input:a", [source], ARCH, (13, 0), "nvidia-nvjitlink")
    assert (
        f"a.{kind} {'is' if kind == 'cubin' else 'holds'} machine code of CUDA {made}, which nvJitLink 13.0"
        in said
    )
    assert "PTX or CUDA C++ in its place" in said
    assert "pip install --upgrade nvidia-nvjitlink" in said
    assert "" == explain.cure("ERROR 4: bad input:a", [source], ARCH, (99, 0), "nvidia-nvjitlink")
    assert "" == explain.cure("ERROR 1: something else", [source], ARCH, (13, 0), "nvidia-nvjitlink")


@pytest.mark.parametrize(("isa", "upgrades"), [("9.5", False), ("8.7", True)])
def test_ptx_that_is_too_new(isa, upgrades):
    """PTX 9 is CUDA 13's, which no release of CUDA 12 reads; PTX 8 is read by a later one."""
    source = Input("ptx", "a.ptx", f".version {isa}\n.target sm_80\n.address_size 64\n".encode())
    with pytest.raises(pl.LinkError) as caught:
        checks.check([source], ARCH, (12, 4), "nvidia-nvjitlink-cu12")
    assert upgrades is ("--upgrade nvidia-nvjitlink-cu12" in str(caught.value))
    assert upgrades is not ("numba-ptxlink[cu13]" in str(caught.value))
