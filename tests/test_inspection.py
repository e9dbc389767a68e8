"""What `inspect` tells about files of every kind."""

from __future__ import annotations

import json

import pytest
from linkcases import CALLEE, CALLER, KERNEL, function, ltoir
from ptx_kernels import make_large_kernel

import numba_ptxlink as pl
from numba_ptxlink import inspection
from numba_ptxlink._tools import nvdisasm, nvfatbin, nvrtc
from numba_ptxlink.cli import main

ARCH = pl.Arch.of("sm_80")
SHARED = """\
struct Pair { double a, b; };
extern "C" __device__ float scale(Pair p, short s) { return p.a * s; }
extern "C" __global__ void k(float* p) {
  __shared__ float tile[256];
  tile[threadIdx.x] = p[threadIdx.x];
  __syncthreads();
  p[threadIdx.x] = tile[255 - threadIdx.x];
}
"""


def content(kind: str) -> bytes:
    """Return the same functions as *kind*."""
    if kind == "fatbin":
        return nvfatbin.pack([("cubin", ARCH, "k", content("cubin")), ("ptx", ARCH, "k", content("ptx"))])
    return nvrtc.compile_source(SHARED, "source.cu", ARCH, output=kind).code


@pytest.mark.parametrize("kind", ["ptx", "cubin", "fatbin", "ltoir"])
def test_every_kind(kind):
    """Prototypes, registers, shared and constant memory are told for every kind of file."""
    found = pl.inspect(content(kind), sass=False)
    assert (kind, "sm_80") == (found.kind, found.arch)
    symbols = {each.name: each for each in found.symbols}
    assert {"k", "scale"} == set(symbols)
    kernel, scale = symbols["k"], symbols["scale"]
    assert ("entry", "func") == (kernel.kind, scale.kind)
    assert 1024 <= kernel.shared
    assert 0 < kernel.constant
    assert 0 < kernel.registers
    assert 0 < kernel.size
    aligned = ".align 8 " if kind == "ptx" else ""
    assert f".func (.b32) scale({aligned}.b8[16], .b32)" == scale.prototype
    assert scale.c_prototype.startswith('extern "C" __device__ uint32_t scale(struct ')
    assert "uint8_t bytes[16]" in scale.c_prototype


def test_a_fat_binary_lists_its_entries():
    """The kinds and architectures in a fat binary are listed."""
    found = pl.inspect(content("fatbin"), sass=False)
    assert [("cubin", "sm_80"), ("ptx", "sm_80")] == [(each.kind, each.arch) for each in found.entries]


def test_spills_are_told_for_ptx():
    """What the compiler spills under a register cap of its own is told for PTX."""
    ptx = make_large_kernel(operations=100).replace(
        ".visible .entry large(.param .u64 out)", ".visible .entry large(.param .u64 out)\n.maxnreg 24"
    )
    (kernel,) = pl.inspect(ptx, arch="sm_80", sass=False).symbols
    stored, loaded = kernel.spills
    assert (True, True, True) == (stored > 0, loaded > 0, kernel.stack > 0)
    (plain,) = pl.inspect(make_large_kernel(operations=100), arch="sm_80", sass=False).symbols
    assert (0, 0) == plain.spills


def test_machine_code_is_shown_where_nvdisasm_is():
    """With nvdisasm the machine code is there; without it a note says what installs it."""
    if inspection.find_tool("nvdisasm") is None:
        pytest.skip("there is no nvdisasm")
    assert ".text.k" in pl.inspect(content("cubin")).sass


def test_a_missing_nvdisasm_is_a_note(monkeypatch):
    """Without nvdisasm everything else is told."""
    monkeypatch.setattr(nvdisasm, "find_tool", lambda _: None)
    found = pl.inspect(content("cubin"))
    assert "" == found.sass
    assert "pip install nvidia-cuda-nvdisasm" in found.notes[0]


def test_what_is_asked_for_is_told_apart():
    """A function that the file calls and lacks is not defined."""
    symbols = {each.name: each.defined for each in pl.inspect(KERNEL, sass=False).symbols}
    assert {"f": False, "k": True} == symbols
    symbols = {each.name: each.defined for each in pl.inspect(ltoir(CALLER), sass=False).symbols}
    assert {"f": False, "k": True} == symbols


def test_ptx_that_does_not_compile_is_read_nonetheless():
    """Symbols of PTX that the compiler refuses are told, with the reason for what is missing."""
    found = pl.inspect(function().replace("mov.u32", "nonsense"), sass=False)
    assert ["f"] == [each.name for each in found.symbols]
    assert "Resources are not told" in found.notes[0]


def test_code_for_another_architecture_is_a_note():
    """A fat binary asked about an architecture that it has no code for says so."""
    packed = nvfatbin.pack([("cubin", ARCH, "k", content("cubin"))])
    found = pl.inspect(packed, arch="sm_90", sass=False)
    assert ((), True) == (found.symbols, "no code for sm_90" in found.notes[0])


def test_cuda_source_is_refused():
    """CUDA C++ has nothing to inspect, and the error says what to do."""
    with pytest.raises(pl.LinkError, match="compile it first"):
        pl.inspect(CALLEE.format(value=1))


def test_the_command_prints_text_and_json(tmp_path, capsys):
    """`numba-ptxlink inspect` prints a line a symbol, and everything as JSON."""
    path = tmp_path / "source.cubin"
    path.write_bytes(content("cubin"))
    assert 0 == main(["inspect", str(path), "--no-sass"])
    text = capsys.readouterr().out
    assert "k  (entry)" in text
    assert "bytes of shared memory" in text
    assert 0 == main(["inspect", str(path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert {"k", "scale"} == {each["name"] for each in found["symbols"]}


def test_the_command_explains_what_it_cannot_read(tmp_path, capsys):
    """A damaged file is one line on stderr and status 1."""
    path = tmp_path / "source.cubin"
    path.write_bytes(content("cubin")[:300])
    assert 1 == main(["inspect", str(path)])
    assert "source.cubin is not a whole ELF image" in capsys.readouterr().err
