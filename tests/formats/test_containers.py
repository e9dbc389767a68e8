"""What a newer or an older toolkit may write is let through, and what is surely damaged is not."""

from __future__ import annotations

import struct

import pytest
from linkcases import archive, cubin, function

import numba_ptxlink as pl
from numba_ptxlink._formats import compression, containers, elf
from numba_ptxlink._tools import nvfatbin, nvrtc

ARCH = pl.Arch.of("sm_80")


def packed(*entries: bytes, version: int = 1) -> bytes:
    """Return a fat binary of *entries*."""
    whole = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, version, 16, len(whole)) + whole


def entry(kind: int, payload: bytes, *, version: int = 0x101, extra: bytes = b"", **fields: int) -> bytes:
    """Return one entry of a fat binary."""
    header = struct.pack(
        "<HHIQIIIIQQQQ",
        *(kind, version, 64 + len(extra), len(payload), fields.get("packed", 0), 64, 8, fields.get("sm", 80)),
        *(0, fields.get("flags", 0x11), 0, fields.get("unpacked", 0)),
    )
    return header + extra + payload


@pytest.mark.parametrize("version", [{"version": 2}, {"entry": 0x201}], ids=["fat binary", "entry"])
def test_a_fat_binary_of_an_unknown_form_is_left_to_the_linker(version):
    """A fat binary of another version is no damaged one."""
    code = packed(entry(2, b"code", version=version.get("entry", 0x101)), version=version.get("version", 1))
    with pytest.raises(elf.UnfamiliarError, match="not known here"):
        containers.fatbin_entries(code)
    containers.check_whole("fatbin", code, "f.fatbin")


def test_unknown_entries_and_longer_headers_are_read():
    """A fat binary may have entries of a kind that is not known here, and headers that tell more."""
    code = packed(entry(77, b"new kind"), entry(1, b".version 8.0\n.target sm_80\n", extra=bytes(48)))
    assert ["77", "ptx"] == [each.kind for each in containers.fatbin_entries(code)]


@pytest.mark.parametrize("size", [10, 40, 75])
def test_a_truncated_fat_binary_is_refused(size):
    """A fat binary that ends early is refused by name."""
    with pytest.raises(pl.LinkError, match=r"f\.fatbin is not a whole fat binary"):
        containers.check_whole("fatbin", packed(entry(2, b"code"))[:size], "f.fatbin")


def compressed(code: bytes, flag: int) -> bytes:
    """Return *code* compressed as an entry's flag says."""
    if flag == compression.LZ4:
        import lz4.block

        return lz4.block.compress(code, store_size=False)
    try:
        from compression import zstd
    except ImportError:
        from backports import zstd
    return zstd.compress(code)


@pytest.mark.parametrize("flag", [compression.LZ4, compression.ZSTD], ids=["LZ4", "zstd"])
def test_compressed_entries_are_read(flag):
    """An entry is read whichever way its toolkit compressed it, and one that lies about its size is not."""
    ptx = function().encode()
    payload = compressed(ptx, flag)
    padded = payload + bytes(-len(payload) % 8)
    fields = {"flags": 0x11 | flag, "packed": len(payload)}
    (found,) = containers.fatbin_entries(packed(entry(1, padded, unpacked=len(ptx), **fields)))
    assert ptx == found.content()
    for size in (len(ptx) - 1, len(ptx) + 1, 1 << 29, 1 << 40):
        (found,) = containers.fatbin_entries(packed(entry(1, padded, unpacked=size, **fields)))
        assert found.content() is None


@pytest.mark.parametrize("flag", [compression.LZ4, compression.ZSTD], ids=["LZ4", "zstd"])
def test_without_its_library_an_entry_is_not_read(flag, monkeypatch):
    """Where a library for the compression is missing, the content is not known, and nothing fails."""
    import sys

    payload = compressed(b"code" * 8, flag)
    for name in ("lz4.block", "backports.zstd", "compression.zstd", "compression"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setattr("backports.zstd", None, raising=False)
    assert compression.unpack(payload, flag, 32) is None


def test_entries_that_are_compressed_together_are_read():
    """Entries of one kind that fatbinary put together are listed one by one."""
    codes = [cubin(function()), cubin(function(name="g"))]
    whole = b"".join(codes)
    payload = compressed(whole, compression.ZSTD)
    heads, at = struct.pack("<II", 2, 8 + 2 * 64), 0
    for code, sm in zip(codes, (80, 86), strict=True):
        heads += struct.pack("<HHIQIIIIQQQQ", 2, 0x101, at, len(code), 0, 0, 8, sm, 0, 0x11, 0, 0)
        at += len(code)
    together = entry(
        0x100, payload, extra=heads, sm=0, flags=0x8011, packed=len(payload), unpacked=len(whole)
    )
    found = containers.fatbin_entries(packed(together))
    assert [("cubin", "sm_80"), ("cubin", "sm_86")] == [(each.kind, each.arch) for each in found]
    assert codes == [each.content() for each in found]


@pytest.mark.parametrize(
    ("entries", "arch", "lto", "expected"),
    [
        ("cubin80 ptx80 ltoir80", "sm_80", False, "cubin80"),
        ("cubin80 ptx80 ltoir80", "sm_86", False, "cubin80"),
        ("cubin80 ptx80 ltoir80", "sm_90", False, "ptx80"),
        ("cubin80 ptx80 ltoir80", "sm_90", True, "ltoir80"),
        ("cubin80 cubin86 ptx80 ptx90", "sm_86", False, "cubin86"),
        ("cubin80 cubin89 ptx75 ptx80", "sm_86", False, "cubin80"),
        ("ltoir80 ltoir90 cubin90", "sm_86", True, "ltoir80"),
        ("cubin90a cubin90 ptx90", "sm_90", False, "cubin90"),
        ("cubin90a cubin90 ptx90", "sm_90a", False, "cubin90a"),
        ("cubin90 ptx90", "sm_80", False, None),
    ],
)
def test_the_entry_that_nvjitlink_links(entries, arch, lto, expected):
    """The entry that is read is the one that nvJitLink takes, as it shows in what it links."""
    from numba_ptxlink._tools import nvjitlink

    target = pl.Arch.of(arch)
    sources, parts = [], entries.split()
    for part in parts:
        kind = part.rstrip("0123456789a")
        made = pl.Arch.of(f"sm_{part.removeprefix(kind)}")
        source = f'extern "C" __device__ int {part}(int a) {{ return a; }}\n'
        sources.append((kind, made, part, nvrtc.compile_source(source, "s.cu", made, output=kind).code))
    code = nvfatbin.pack(sources)
    listed = containers.fatbin_entries(code)
    entry = containers.chosen(listed, target, lto=lto)
    assert expected == (None if entry is None else parts[listed.index(entry)])
    if expected is not None:
        flags = (f"-arch={arch}", *(("-lto",) if lto else ()), "-r")
        image = elf.read(nvjitlink.link([("fatbin", "f", code)], flags).code)
        assert [expected] == [each.name for each in image.symbols if each.defined]


@pytest.mark.parametrize("pad", [b"\n", b"\0", b""], ids=["a line break", "zero", "nothing"])
@pytest.mark.parametrize("end", [b"", b"\n", bytes(7)])
def test_members_of_odd_sizes(pad, end):
    """A library is whole however its members of an odd size are filled up, and whatever fills its end."""
    code = archive(b"odd", b"even", b"other", pad=pad) + end
    assert [b"odd", b"even", b"other"] == [content for _, content in containers.members(code, "f.a")]


@pytest.mark.parametrize("size", [30, 69, 130])
def test_a_truncated_library_is_refused(size):
    """A library whose last member ends early is refused by name."""
    with pytest.raises(pl.LinkError, match=r"f\.a is not a whole archive"):
        containers.check_whole("archive", archive(b"even", b"member")[:size], "f.a")


def test_libraries_of_other_things_are_left_to_the_linker():
    """A library whose members are no host objects has no symbols that are told here."""
    with pytest.raises(elf.UnfamiliarError, match="content that begins with"):
        containers.fatbins(archive(b"something else"), "archive", "f.a")
    assert [] == containers.fatbins(archive(), "archive", "f.a")


def test_a_kind_without_a_reader_tells_nothing():
    """What is no container, as far as is known here, holds no fat binary, and is left to the linker."""
    assert [] == containers.fatbins(b"anything", "index", "f.index")
