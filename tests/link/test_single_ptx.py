"""Which tool compiles a single PTX, so that the environment's own linker and drivers read the cubin."""

from __future__ import annotations

import sys

import pytest
from linkcases import function

import numba_ptxlink as pl
from numba_ptxlink import cache
from numba_ptxlink._link import single_ptx
from numba_ptxlink._tools import find, nvjitlink, programs
from numba_ptxlink._tools.options import AssembleOptions

PTX = function().encode()
ARCH = pl.Arch(8, 0)


@pytest.fixture(autouse=True)
def _no_other_binding(monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvjitlink", None)
    programs.version_text.cache_clear()


def in_a_toolkit(monkeypatch, version):
    """Let nvJitLink say that it is of another release, and nvPTXCompiler that it is of 13.5."""
    monkeypatch.setattr(nvjitlink, "version", lambda: version)
    monkeypatch.setattr(single_ptx.find, "major", lambda: version[0])
    monkeypatch.setattr(single_ptx.assembler, "compiler_version", lambda: (13, 5))


def own_ptxas(monkeypatch, folder, release):
    """Put a ptxas that says it is of *release* among the wheels, in place of all others."""
    real = find.program("ptxas")
    if real is None:
        pytest.skip("there is no ptxas")
    script = folder / "nvidia" / "cuda_nvcc" / "bin" / "ptxas"
    script.parent.mkdir(parents=True)
    script.write_text(
        f'#!/bin/sh\nif [ "$1" = --version ]; then echo "release {release}, V{release}.1"; exit; fi\n'
        f'exec {real} "$@"\n'
    )
    script.chmod(0o755)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    monkeypatch.setattr(find, "programs", lambda *_, **__: iter(["/nowhere/ptxas", str(script)]))


def compile_relocatable(ptx, **options):
    """Return cubin and tool."""
    return single_ptx.compile_ptx(ptx, ARCH, AssembleOptions(relocatable=True, **options))


@pytest.mark.parametrize("version", [(13, 5), (13, 6), (14, 0)])
def test_a_linker_as_new_reads_nvptxcompilers(monkeypatch, version):
    """Where the linker is as new as nvPTXCompiler, that one compiles, without a word."""
    in_a_toolkit(monkeypatch, version)
    code, tool = compile_relocatable(PTX)
    assert ("nvPTXCompiler 13.5", pl.assemble(PTX, ARCH, relocatable=True).code) == (tool, code)


def no_ptxas(monkeypatch):
    """Let no ptxas be installed."""
    monkeypatch.setattr(programs, "newest_ptxas", lambda _: None)


def test_ptxas_compiles_for_an_nvjitlink_that_cannot(monkeypatch, tmp_path):
    """Under CUDA 12, the toolkit's ptxas compiles, and its options are those of the export."""
    in_a_toolkit(monkeypatch, (12, 9))
    own_ptxas(monkeypatch, tmp_path, "12.9")
    code, tool = compile_relocatable(PTX)
    assert tool == "ptxas 12.9"
    assert code.startswith(b"\x7fELF")


def test_an_older_linker_is_not_given_newer_ptx(monkeypatch, caplog):
    """PTX that is too new, which spoils nvJitLink for the process, stays with nvPTXCompiler."""
    in_a_toolkit(monkeypatch, (13, 0))
    monkeypatch.setattr(nvjitlink, "link", pytest.fail)
    with caplog.at_level("WARNING", logger="numba_ptxlink"):
        _, tool = compile_relocatable(PTX.replace(b".version 8.0", b".version 9.1"))
    assert "nvPTXCompiler 13.5" == tool
    assert "nvJitLink 13.0 may refuse" in caplog.text


@pytest.mark.parametrize(
    ("options", "flags"),
    [({}, ()), ({"opt_level": 0}, ("-O0",)), ({"debug": True, "opt_level": 0}, ("-O0", "-g"))],
)
def test_a_loadable_cubin_is_the_toolkits_under_an_older_major_version(monkeypatch, options, flags):
    """Kernels that are compiled to cubins are loaded by the drivers that the toolkit's own code is."""
    in_a_toolkit(monkeypatch, (13, 5))
    assert "nvPTXCompiler 13.5" == single_ptx.compile_ptx(PTX, ARCH, AssembleOptions(**options))[1]
    in_a_toolkit(monkeypatch, (12, 9))
    vectors = []
    link = nvjitlink.link
    monkeypatch.setattr(nvjitlink, "link", lambda inputs, flags: vectors.append(flags) or link(inputs, flags))
    monkeypatch.setattr(cache, "cached", lambda _, make: make())
    code, tool = single_ptx.compile_ptx(PTX, ARCH, AssembleOptions(**options))
    assert ("nvJitLink 12.9", [("-arch=sm_80", *flags)]) == (tool, vectors)
    assert code.startswith(b"\x7fELF")
