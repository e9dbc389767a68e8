"""`numba-ptxlink cache`: what it tells, checks, deletes and carries."""

from __future__ import annotations

import fcntl
import os
import tarfile
import tracemalloc

import pytest
from cache_worker import code, key
from caches import files_of, fill, open_cache

from numba_ptxlink import cache, cli
from numba_ptxlink.cache import Entry, maintenance
from numba_ptxlink.errors import CacheError


@pytest.fixture
def filled(tmp_path, monkeypatch):
    """Make a cache with two entries the default one."""
    made = open_cache(tmp_path / "cache")
    fill(made, "a", "b")
    monkeypatch.setattr(cache, "default", lambda: made)
    return made


def test_stats_count_entries(filled):
    """Each directory tells its entries, their bytes, its cap and what they are."""
    (found,) = maintenance.stats(filled)
    assert (2, {"link": 2}, True, 2 << 30) == (found.entries, found.kinds, found.writable, found.cap)
    assert found.size == sum(file.stat().st_size for file in files_of(found.path))


def test_verify_deletes_the_damaged(filled, tmp_path):
    """A damaged entry is named and deleted, one with another seal is named and kept."""
    one, other = files_of(tmp_path / "cache")
    one.write_bytes(one.read_bytes()[:-1])
    found = maintenance.verify(filled)
    assert (1, {one: "it is cut short"}, {}) == (found.sound, found.removed, found.foreign)
    assert [other] == files_of(tmp_path / "cache")
    fill(open_cache(tmp_path / "cache", cache_secret=b"s"), "c")
    assert ["it was sealed with another secret"] == list(maintenance.verify(filled).foreign.values())
    assert 2 == len(files_of(tmp_path / "cache"))


def test_clear_deletes_everything(filled, tmp_path):
    """After clearing nothing is left, and the number is told."""
    assert 2 == maintenance.clear(filled)
    assert [] == files_of(tmp_path / "cache")


def test_an_export_can_be_imported(filled, tmp_path):
    """Entries travel in one file, and damaged ones do not arrive."""
    archive = tmp_path / "entries.tar"
    assert 2 == maintenance.export(filled, archive)
    other = open_cache(tmp_path / "other")
    assert maintenance.Imported(taken=2) == maintenance.import_(other, archive)
    found = other.get(key("a"))
    assert found is not None
    assert code("a") == found.code
    content = bytearray(archive.read_bytes())
    content[2000] ^= 1
    archive.write_bytes(content)
    found = maintenance.import_(open_cache(tmp_path / "third"), archive)
    assert maintenance.Imported(taken=1, refused=1) == found


def test_a_wrong_archive_is_an_error(filled, tmp_path):
    """A file that is no archive is named, with the cure."""
    (tmp_path / "x.tar").write_text("no archive at all" * 100)
    with pytest.raises(CacheError, match="give a file of `cache export`"):
        maintenance.import_(filled, tmp_path / "x.tar")
    with pytest.raises(CacheError, match="check the folder"):
        maintenance.export(filled, tmp_path / "missing" / "x.tar")


def test_a_cache_that_is_off_says_so():
    """The tools say which variable turns the cache off."""
    from numba_ptxlink._config import Config

    with pytest.raises(CacheError, match="NUMBA_PTXLINK_CACHE=0"):
        maintenance.path(cache.Cache(Config(cache=False)))


def test_what_cannot_be_written_has_a_cure(monkeypatch):
    """A place that is no directory, or is not to be written, is told with the variable that names another."""
    from numba_ptxlink._config import Config

    none = cache.Cache(Config(cache_dirs=("/dev/null",)))
    with pytest.raises(
        CacheError, match=r"/dev/null cannot be made: File exists; let NUMBA_PTXLINK_CACHE name"
    ):
        maintenance.path(none)
    monkeypatch.setattr(none, "tiers", lambda: ((), None, ()))
    with pytest.raises(CacheError, match=r"all are read-only; let NUMBA_PTXLINK_CACHE name a directory"):
        maintenance.clear(none)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("stats", "2 entries"),
        ("list", "functions"),
        ("path", "cache"),
        ("verify", "2 sound, 0 damaged, 0 with another seal"),
        ("clear", "2 entries deleted from /"),
    ],
)
def test_the_commands_print(filled, capsys, command, expected):
    """Each command prints what the function behind it returns."""
    assert filled.get(key("a")) == Entry({"log": "a", "kind": "link", "parts": {"name": "a"}}, code("a"))
    assert 0 == cli.main(["cache", command])
    assert expected in capsys.readouterr().out


def test_the_commands_carry_entries(filled, tmp_path, capsys):
    """Export and import name what they carried."""
    archive = str(tmp_path / "x.tar")
    assert filled is cache.default()
    assert 0 == cli.main(["cache", "export", archive])
    assert 0 == cli.main(["cache", "clear"])
    assert 0 == cli.main(["cache", "import", archive])
    assert "2 entries taken, 0 already there, 0 refused" in capsys.readouterr().out
    assert 1 == cli.main(["cache", "import", "/nowhere.tar"])


def test_the_command_replaces_no_stream(filled, tmp_path, capsys):
    """An archive goes through a link and into a pipe; neither becomes a file."""
    assert filled is cache.default()
    plain, alias, pipe = tmp_path / "plain.tar", tmp_path / "alias", tmp_path / "pipe"
    assert 0 == cli.main(["cache", "export", str(plain)])
    alias.symlink_to(tmp_path / "real.tar")
    for _ in ("new", "old"):
        assert 0 == cli.main(["cache", "export", str(alias)])
        assert alias.is_symlink()
        assert maintenance.Imported(present=2) == maintenance.import_(filled, tmp_path / "real.tar")
    assert capsys.readouterr().out.count("2 entries written to") == 3
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDWR | os.O_NONBLOCK)
    fcntl.fcntl(reader, fcntl.F_SETPIPE_SZ, 1 << 20)
    assert plain.stat().st_size < 1 << 20
    assert 0 == cli.main(["cache", "export", str(pipe)])
    assert pipe.is_fifo()
    (tmp_path / "received.tar").write_bytes(os.read(reader, 1 << 20))
    os.close(reader)
    shown = capsys.readouterr()
    assert ("", f"2 entries written to {pipe}\n") == (shown.out, shown.err)
    assert maintenance.Imported(present=2) == maintenance.import_(filled, tmp_path / "received.tar")


def test_an_import_overwrites_nothing(filled, tmp_path):
    """An entry that is there stays as it is, and one that is damaged is replaced."""
    archive = tmp_path / "x.tar"
    maintenance.export(filled, archive)
    other = open_cache(tmp_path / "other")
    other.put(key("a"), Entry({"log": "mine"}, b"mine"))
    other.put(key("b"), Entry({}, b"damaged soon"))
    damaged = other.tiers()[1].path_of(key("b").digest)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    assert maintenance.Imported(taken=1, present=1) == maintenance.import_(other, archive)
    assert (b"mine", code("b")) == (other.get(key("a")).code, other.get(key("b")).code)


def member(kind: bytes, announced: int, content: bytes = b"") -> bytes:
    """Return a member of an archive with *content*, that announces another size."""
    header = tarfile.TarInfo("0" * 64)
    header.type, header.size = kind, announced
    return header.tobuf(tarfile.GNU_FORMAT) + content + bytes(-len(content) % 512)


def sparse() -> bytes:
    """Return a member that GNU tar makes of a file of 256 GiB with nothing in it."""
    block = bytearray(member(tarfile.GNUTYPE_SPARSE, 0))
    block[483:495] = b"%011o " % (1 << 33 - 1)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


BOMBS = {
    "a header of pax that is 8 GiB": (member(tarfile.XHDTYPE, 8 << 30), "cut short"),
    "a long name that is 8 GiB": (member(tarfile.GNUTYPE_LONGNAME, 8 << 30), "cut short"),
    "a file that is 8 GiB": (member(tarfile.REGTYPE, 8 << 30), "cut short"),
    "a file of negative size": (member(tarfile.REGTYPE, -512), "cut short"),
    "a half of a header": (bytes([1]) * 100, "truncated"),
    "nothing": (b"", "empty"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_what_an_archive_announces_is_not_believed(filled, tmp_path, bomb):
    """Nothing is allocated or read for a size that is only announced; such a file is an error."""
    content, reason = BOMBS[bomb]
    (tmp_path / "x.tar").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(CacheError, match=reason):
            maintenance.import_(filled, tmp_path / "x.tar")
        assert tracemalloc.get_traced_memory()[1] < 10 << 20
    finally:
        tracemalloc.stop()


def test_an_archive_that_is_cut_is_an_error(filled, tmp_path):
    """Wherever an archive is cut, the import is an error, and the entries before the cut are whole."""
    archive = tmp_path / "x.tar"
    maintenance.export(filled, archive)
    content = archive.read_bytes()
    with tarfile.open(archive) as tar:
        ends = [member.offset_data + member.size for member in tar]
    blocks = [-(-end // 512) * 512 for end in ends]
    for number, size in enumerate((*ends, *blocks, blocks[-1] + 512, blocks[-1] + 1023, 3000, 600)):
        archive.write_bytes(content[:size])
        other = open_cache(tmp_path / f"other {number}")
        with pytest.raises(CacheError, match=r"cut short|truncated") as caught:
            maintenance.import_(other, archive)
        whole = sum(end <= size for end in ends)
        assert (f"which stay: {whole}." in str(caught.value)) == (whole > 0)
        assert whole == maintenance.verify(other).sound
    archive.write_bytes(content[: blocks[-1] + 1024])
    assert 2 == maintenance.import_(open_cache(tmp_path / "whole"), archive).taken


def test_members_that_are_no_plain_files_are_refused(filled, tmp_path):
    """Sparse files, links, folders and headers of pax are passed over, and what follows is taken."""
    kinds = (tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.FIFOTYPE)
    strange = [*(member(kind, 0) for kind in kinds), member(tarfile.XHDTYPE, 5, b"9 a=b"), sparse()]
    archive = tmp_path / "x.tar"
    maintenance.export(filled, archive)
    archive.write_bytes(b"".join(strange) + archive.read_bytes())
    found = maintenance.import_(open_cache(tmp_path / "other"), archive)
    assert maintenance.Imported(taken=2, refused=len(strange)) == found


def test_an_import_has_a_bound(filled, tmp_path, monkeypatch):
    """More than the directory may hold, or more members than any cache has, is an error with the cure."""
    archive = tmp_path / "x.tar"
    maintenance.export(filled, archive)
    with pytest.raises(CacheError, match="NUMBA_PTXLINK_CACHE_SIZE"):
        maintenance.import_(open_cache(tmp_path / "small", cache_size=60_000), archive)
    monkeypatch.setattr(maintenance, "_MOST_MEMBERS", 1)
    with pytest.raises(CacheError, match="holds more than"):
        maintenance.import_(open_cache(tmp_path / "many"), archive)


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_an_export_that_fails_leaves_nothing(filled, tmp_path, monkeypatch, error):
    """Neither a half of an archive nor a temporary file is left, and an older archive stays."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "x.tar").write_text("older")

    def fail(*_, **__):
        raise error

    monkeypatch.setattr(tarfile.TarFile, "addfile", fail)
    with pytest.raises((CacheError, KeyboardInterrupt)):
        maintenance.export(filled, folder / "x.tar")
    assert ["older"] == [file.read_text() for file in folder.iterdir()]


def test_verify_names_what_others_could_have_written(filled, tmp_path):
    """An entry that is not believed is named with the reason, and kept."""
    file = files_of(tmp_path / "cache")[0]
    file.chmod(0o666)
    assert "can be written by other users" in maintenance.verify(filled).foreign[file]
    assert file.exists()
