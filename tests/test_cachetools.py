"""`numba-ptxlink cache`: what it tells, checks, deletes and carries."""

from __future__ import annotations

import pytest
from cache_worker import code, key
from test_cache import files_of, fill, open_cache

from numba_ptxlink import _cachetools, cache, cli
from numba_ptxlink.cache import Entry
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
    (found,) = _cachetools.stats(filled)
    assert (2, {"link": 2}, True, 2 << 30) == (found.entries, found.kinds, found.writable, found.cap)
    assert found.size == sum(file.stat().st_size for file in files_of(found.path))


def test_verify_deletes_the_damaged(filled, tmp_path):
    """A damaged entry is named and deleted, one with another seal is named and kept."""
    one, other = files_of(tmp_path / "cache")
    one.write_bytes(one.read_bytes()[:-1])
    found = _cachetools.verify(filled)
    assert (1, {one: "it is cut short"}, {}) == (found.sound, found.removed, found.foreign)
    assert [other] == files_of(tmp_path / "cache")
    fill(open_cache(tmp_path / "cache", cache_secret=b"s"), "c")
    assert ["it was sealed with another secret"] == list(_cachetools.verify(filled).foreign.values())
    assert 2 == len(files_of(tmp_path / "cache"))


def test_clear_deletes_everything(filled, tmp_path):
    """After clearing nothing is left, and the number is told."""
    assert 2 == _cachetools.clear(filled)
    assert [] == files_of(tmp_path / "cache")


def test_an_export_can_be_imported(filled, tmp_path):
    """Entries travel in one file, and damaged ones do not arrive."""
    archive = tmp_path / "entries.tar"
    assert 2 == _cachetools.export(filled, archive)
    other = open_cache(tmp_path / "other")
    assert _cachetools.Imported(taken=2) == _cachetools.import_(other, archive)
    found = other.get(key("a"))
    assert found is not None
    assert code("a") == found.code
    content = bytearray(archive.read_bytes())
    content[2000] ^= 1
    archive.write_bytes(content)
    found = _cachetools.import_(open_cache(tmp_path / "third"), archive)
    assert _cachetools.Imported(taken=1, refused=1) == found


def test_a_wrong_archive_is_an_error(filled, tmp_path):
    """A file that is no archive is named, with the cure."""
    (tmp_path / "x.tar").write_text("no archive at all" * 100)
    with pytest.raises(CacheError, match="give a file of `cache export`"):
        _cachetools.import_(filled, tmp_path / "x.tar")
    with pytest.raises(CacheError, match="check the folder"):
        _cachetools.export(filled, tmp_path / "missing" / "x.tar")


def test_a_cache_that_is_off_says_so():
    """The tools say which variable turns the cache off."""
    from numba_ptxlink._config import Config

    with pytest.raises(CacheError, match="NUMBA_PTXLINK_CACHE=0"):
        _cachetools.path(cache.Cache(Config(cache=False)))


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("stats", "2 entries"),
        ("list", "name: a"),
        ("path", "cache"),
        ("verify", "2 sound, 0 damaged, 0 with another seal"),
        ("clear", "2 entries deleted"),
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
