"""GPU ELF images: what is read out of them, what a newer tool may write, and what is surely damaged."""

from __future__ import annotations

import logging
import re
import shutil
import struct
import subprocess

import pytest
from linkcases import KERNEL, cubin, function

import numba_ptxlink as pl
from numba_ptxlink._formats import containers, elf
from numba_ptxlink._link import inputs
from numba_ptxlink._native import _nvptxcompiler
from numba_ptxlink._tools import nvrtc

ARCH = pl.Arch.of("sm_80")
EVERY_KIND = """\
extern "C" __device__ int outside(float, long long);
__device__ int table[5] = {1};
extern __device__ int elsewhere;
extern "C" __device__ __attribute__((weak)) int second(int a) { return a + table[a]; }
static __device__ __noinline__ int own(int a) { return a * 7; }
extern "C" __global__ void k(int* p) { *p = outside(2, 3) + second(*p) + own(*p) + elsewhere; }
"""
SHARED = """\
__device__ int zeroed[4096];
extern "C" __device__ int f(int i) {
  __shared__ int s[2048];
  s[threadIdx.x] = i;
  __syncthreads();
  return s[2047 - i] + zeroed[i];
}
"""
SECTION_HEADERS_AT, SECTIONS_AT, NAMES_AT = 0x28, 0x3C, 0x3E
TYPE, OFFSET, SIZE, LINK, ENTRY_SIZE = 4, 0x18, 0x20, 0x28, 0x38
PROGBITS, SYMBOLS, RELOCATIONS = 1, 2, 9


def changed(code: bytes, at: int, form: str, value: int) -> bytes:
    """Return *code* with a number in it exchanged."""
    found = bytearray(code)
    struct.pack_into(f"<{form}", found, at, value)
    return bytes(found)


def number(code: bytes, at: int, form: str) -> int:
    """Return a number in *code*."""
    (found,) = struct.unpack_from(f"<{form}", code, at)
    return found


def header_of(code: bytes, kind: int) -> int:
    """Return where the header of the first section of a type is."""
    table, count = number(code, SECTION_HEADERS_AT, "Q"), number(code, SECTIONS_AT, "H")
    headers = (table + 64 * index for index in range(1, count))
    return next(at for at in headers if number(code, at + TYPE, "I") == kind)


def test_shared_and_zeroed_memory_links():
    """A function with more static shared memory and zeroed data than the file has bytes is linked."""
    code = nvrtc.compile_source(SHARED, "source.cu", ARCH, output="cubin").code
    assert len(code) < 4 * (2048 + 4096)
    assert pl.link(KERNEL, code, arch="sm_80").cubin
    assert ["f"] == [each.name for each in elf.read(code).symbols if each.kind == "func"]


def test_a_section_of_an_unknown_type_may_pass_the_end(caplog):
    """A section that this package does not know is let through with a line in the log."""
    code = cubin(function())
    at = header_of(code, PROGBITS)
    longer = changed(code, at + SIZE, "Q", 1 << 20)
    with pytest.raises(pl.LinkError, match="bytes past its end"):
        elf.read(longer)
    with caplog.at_level(logging.DEBUG, "numba_ptxlink"):
        assert ["f"] == [each.name for each in elf.read(changed(longer, at + TYPE, "I", 0x70000099)).symbols]
    assert "of type 0x70000099, is not read" in caplog.text


@pytest.mark.parametrize(
    ("at", "form", "value"),
    [(4, "B", 1), (7, "B", 0x42), (8, "B", 9), (18, "H", 191), (0x3A, "H", 72)],
    ids=["32 bits", "ABI", "version of the ABI", "machine", "section headers"],
)
def test_an_image_of_an_unknown_form_is_left_to_the_linker(at, form, value, caplog):
    """An image of another class, ABI or machine is no damaged one, and nothing is said of it."""
    code = changed(cubin(function()), at, form, value)
    with pytest.raises(elf.UnfamiliarError, match="not known here"):
        elf.read(code)
    with caplog.at_level(logging.INFO, "numba_ptxlink"):
        containers.check_whole("cubin", code, "f.cubin")
    assert "f.cubin is left to the linker" in caplog.text


def test_symbols_of_an_unknown_size_are_left_to_the_linker():
    """A symbol table whose entries have another size is not read as if they had not."""
    code = cubin(function())
    with pytest.raises(elf.UnfamiliarError, match="symbols of 32 bytes"):
        elf.read(changed(code, header_of(code, SYMBOLS) + ENTRY_SIZE, "Q", 32))


def test_more_sections_than_the_header_counts():
    """An image that has its number of sections in the first section's header is read."""
    code = cubin(function())
    table, count = number(code, SECTION_HEADERS_AT, "Q"), number(code, SECTIONS_AT, "H")
    names = number(code, NAMES_AT, "H")
    code = changed(changed(code, SECTIONS_AT, "H", 0), NAMES_AT, "H", 0xFFFF)
    code = changed(changed(code, table + SIZE, "Q", count), table + LINK, "I", names)
    image = elf.read(code)
    assert (count, ["f"]) == (len(image.sections), [each.name for each in image.symbols])
    with pytest.raises(pl.LinkError, match="section headers end past its end"):
        elf.read(changed(code, table + SIZE, "Q", 1 << 40))


@pytest.mark.parametrize("kind", [RELOCATIONS, SYMBOLS])
def test_references_to_nothing_are_refused(kind):
    """A table that refers to a section that does not exist is refused: the linker follows it."""
    source = KERNEL if kind == RELOCATIONS else function()
    code = cubin(source)
    with pytest.raises(pl.LinkError, match="which does not exist"):
        elf.read(changed(code, header_of(code, kind) + LINK, "I", 999))


def test_a_common_symbol_is_weak():
    """A common symbol of a cubin gives way to a definition in another input."""
    code = cubin(function())
    at = header_of(code, SYMBOLS)
    table, size = number(code, at + OFFSET, "Q"), number(code, at + SIZE, "Q")
    places = [each for each in range(table, table + size, 24) if number(code, each + 4, "B") == 0x12]
    for place in places:
        code = changed(code, place + 6, "H", 0xFFF2)
    (symbol,) = elf.read(code).symbols
    assert ("f", True, True) == (symbol.name, symbol.defined, symbol.weak)


def test_kinds_of_unknown_images():
    """An image for a machine that is not known here is an object, and one for a GPU is a cubin."""
    code = cubin(function())
    assert ("cubin", "object") == (inputs.recognise(code), inputs.recognise(changed(code, 18, "H", 191)))


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90", "sm_90a", "sm_100", "sm_120"])
def test_the_architecture_of_an_image(arch):
    """A cubin says which architecture it is for, and whether it can be linked further."""
    ptx = function(target=arch).replace("8.0", "8.8" if arch >= "sm_90" or len(arch) > 5 else "8.0")
    target = pl.Arch.of(arch)
    relocatable = elf.read(pl.assemble(ptx, arch, relocatable=True).code)
    assert (target.number, True) == (relocatable.sm, relocatable.relocatable)


@pytest.mark.parametrize("size", [4, 60, 200, 600])
def test_a_truncated_image_is_refused(size):
    """A cubin that ends early is refused by name before a linker sees it."""
    code = cubin(function())
    with pytest.raises(pl.LinkError, match=r"a\.cubin is not a whole ELF image"):
        elf.read(code[:size], "a.cubin")


def test_symbols_are_those_that_others_see():
    """Kernels, functions and variables are told by kind, definition and weakness; static ones are not."""
    code = nvrtc.compile_source(EVERY_KIND, "source.cu", ARCH, output="cubin").code
    image = elf.read(code)
    found = {each.name: (each.kind, each.defined, each.weak) for each in image.symbols}
    assert {
        "k": ("entry", True, False),
        "second": ("func", True, True),
        "outside": ("func", False, False),
        "table": ("variable", True, False),
        "elsewhere": ("variable", False, False),
    } == {name: found[name] for name in ("k", "second", "outside", "table", "elsewhere")}
    assert [] == [name for name in found if "own" in name]
    assert 20 == next(each.size for each in image.symbols if each.name == "table")
    assert (
        "#iil" == next(each.signature for each in image.symbols if each.name == "outside").partition("|")[0]
    )
    assert set(found) <= set(elf.symbol_names(image))
    assert any("own" in name for name in elf.symbol_names(image))


def test_sections_are_those_of_readelf(tmp_path):
    """Names and sizes of all sections are what binutils read."""
    readelf = shutil.which("readelf")
    if readelf is None:
        pytest.skip("readelf of binutils is not installed")
    code = nvrtc.compile_source(EVERY_KIND, "source.cu", ARCH, output="cubin").code
    (tmp_path / "source.cubin").write_bytes(code)
    command = [readelf, "--sections", "--wide", tmp_path / "source.cubin"]
    listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = re.findall(
        r"^ +\[ *\d+\] (\S*) +\S.*? [0-9a-f]{16} [0-9a-f]{6} ([0-9a-f]{6}) ", listing, re.MULTILINE
    )
    image = elf.read(code)
    assert [(name, int(size, 16)) for name, size in rows] == [
        (each.name, each.size) for each in image.sections
    ]
    assert {".text.k", ".symtab", ".strtab"} <= {name for name, _ in rows}
    text = image.section(".text.k")
    assert text.size == len(text.content) > 0
    assert image.section(".nothing") is None


def test_sections_of_any_machine_are_listed():
    """Sections of host code are read too, and what is no ELF image is of an unfamiliar form."""
    with open(_nvptxcompiler.__file__, "rb") as file:  # noqa: PTH123 - the path is a str
        names = [name for name, _ in elf.raw_sections(file.read(), "module")]
    assert {".text", ".dynsym"} <= set(names)
    with pytest.raises(elf.UnfamiliarError):
        list(elf.raw_sections(b"no image at all", "text"))
