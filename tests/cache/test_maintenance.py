"""`numba-ptxlink cache`: its reports and its deletions."""

from __future__ import annotations

import json

import pytest
from cache_worker import key
from caches import files_of, fill, open_cache

from numba_ptxlink import cache, cli


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("stats", {"entries": 2, "size": 100_242, "writable": True, "cap": 2 << 30}),
        ("path", {}),
        ("clear", {"deleted": 2}),
    ],
)
def test_the_commands_tell_of_the_directory(tmp_path, monkeypatch, capsys, command, expected):
    """Each command prints the directory, as text and as JSON, and its entries, also deleted ones."""
    filled_cache = open_cache(tmp_path)
    monkeypatch.setattr(cache, "default", lambda: filled_cache)
    for options in ([], ["--json"]):
        fill(filled_cache, "a", "b")
        assert 0 == cli.main(["cache", command, *options])
        text = capsys.readouterr().out
        assert str(tmp_path) in text
        assert (0 if command == "clear" else 2) == len(files_of(tmp_path))
    report = json.loads(text)
    assert expected.items() <= (report["directories"][0] if command == "stats" else report).items()


def test_a_cache_that_is_off_says_so(monkeypatch, capsys):
    """The command names the variable that turns the cache off."""
    off = cache.Cache(open_cache().settings._replace(cache=False))
    assert b"1" == off.get_or_compute(key("a"), lambda: cache.Entry({}, b"1")).code
    monkeypatch.setattr(cache, "default", lambda: off)
    assert 1 == cli.main(["cache", "path"])
    assert "NUMBA_PTXLINK_CACHE=0; unset it" in capsys.readouterr().err
