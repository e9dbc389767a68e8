"""`numba-ptxlink cache`: what it tells and deletes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from cache_worker import code, key
from caches import files_of, fill, open_cache

from numba_ptxlink import cache, cli
from numba_ptxlink._config import Config
from numba_ptxlink.cache import Entry
from numba_ptxlink.errors import CacheError


@pytest.fixture
def filled(tmp_path, monkeypatch):
    """Make a cache with two entries the default one."""
    made = open_cache(tmp_path / "cache")
    fill(made, "a", "b")
    monkeypatch.setattr(cache, "default", lambda: made)
    return made


@pytest.mark.usefixtures("filled")
def test_stats_count_entries(capsys):
    """Each directory tells its entries, their bytes and its cap."""
    assert 0 == cli.main(["cache", "stats", "--json"])
    (found,) = json.loads(capsys.readouterr().out)["directories"]
    assert (2, True, 2 << 30) == (found["entries"], found["writable"], found["cap"])
    assert found["size"] == sum(file.stat().st_size for file in files_of(Path(found["path"])))


def test_a_cache_that_is_off_says_so():
    """The tools say which variable turns the cache off."""
    with pytest.raises(CacheError, match="NUMBA_PTXLINK_CACHE=0"):
        cache.Cache(Config(cache=False)).writer()


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("stats", "2 entries"),
        ("path", "cache"),
        ("clear", "2 entries deleted from /"),
    ],
)
def test_the_commands_print(filled, capsys, command, expected):
    """Each command prints what the function behind it returns."""
    assert filled.get(key("a")) == Entry({"log": "a", "kind": "link"}, code("a"))
    assert 0 == cli.main(["cache", command])
    assert expected in capsys.readouterr().out
