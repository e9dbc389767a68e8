"""The cache: entries that it keeps or refuses; and no fault of a disk or a process reaches the caller."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import shutil
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from cache_worker import code, key, run, start
from caches import files_of, fill, open_cache

from numba_ptxlink._config import Config
from numba_ptxlink.cache import Entry
from numba_ptxlink.cache.key import unseal
from numba_ptxlink.errors import ConfigError

KILLS = int(os.environ.get("PTXLINK_TEST_KILLS", "300"))


@pytest.fixture
def directory(tmp_path):
    """Return the path of a cache directory that is not there yet."""
    return tmp_path / "cache"


def test_a_result_is_made_once(directory):
    """`get_or_compute` makes a result the first time, and finds it with its log, also in another cache."""
    entry, computations = Entry({"log": "x"}, code("a")), []
    for _ in range(2):
        cache = open_cache(directory)
        for _ in range(2):
            result = cache.get_or_compute(key("a"), lambda: computations.append(1) or entry)
            assert (entry.code, "x") == (result.code, result.log)
    assert [1] == computations
    assert (2, 0, 2 * len(entry.code), 0) == cache.counters
    assert cache.look_up(key("b")) is None


def test_parts_of_a_result_are_not_kept(directory):
    """Within the making of a result nothing else is looked up or kept, and no key is made for it."""
    cache = open_cache(directory)
    keys = []
    part = functools.partial(
        cache.get_or_compute, lambda: keys.append(1) or key("b"), lambda: Entry({}, code("b"))
    )
    cache.get_or_compute(key("a"), part)
    assert [1, 0] == [len(files_of(directory)), len(keys)]
    part()
    assert [2, 1] == [len(files_of(directory)), len(keys)]


@pytest.mark.parametrize(
    ("variable", "value", "expected"),
    [
        ("CACHE", "0", {"cache": False}),
        ("CACHE", "/a:/b", {"cache_dirs": ("/a", "/b"), "cache_url": None}),
        ("CACHE", "/a:rediss://:pass@host", {"cache_dirs": ("/a",), "cache_url": "rediss://:pass@host"}),
        ("CACHE", "perhaps", None),
        ("CACHE_SIZE", "2GiB", {"cache_size": 2 << 30}),
        ("CACHE_SIZE", "lots", None),
        ("", "auto", {"mode": "auto"}),
        ("", "perhaps", None),
    ],
)
def test_variables_are_read(variable, value, expected):
    """Directories that may end in a URL, and sizes with units; the error of another names the variable."""
    environ = {f"NUMBA_PTXLINK_{variable}".rstrip("_"): value}
    if expected is None:
        with pytest.raises(ConfigError, match=f"NUMBA_PTXLINK_{variable}".rstrip("_")):
            Config.from_environ(environ)
    else:
        assert expected.items() <= Config.from_environ(environ)._asdict().items()


@pytest.mark.parametrize(
    "spoil", [lambda code: code[:100], lambda code: code[:-1] + b"\0", lambda _: b"#!/bin/sh"]
)
def test_a_damaged_entry_is_deleted_and_missed(directory, spoil, caplog):
    """A truncated, altered or foreign file is dropped with a word, and the result is made again."""
    cache = open_cache(directory)
    fill(cache, "a")
    (file,) = files_of(directory)
    file.write_bytes(spoil(file.read_bytes()))
    with caplog.at_level(logging.INFO, "numba_ptxlink"):
        assert cache.look_up(key("a")) is None
    assert "dropped entry" in caplog.text
    assert [] == files_of(directory)


def test_an_entry_under_another_key_is_damaged(directory):
    """An entry that was moved to another key's place is not taken for that key's."""
    cache = open_cache(directory)
    fill(cache, "a", "b")
    shutil.copy(*files_of(directory))
    assert 1 == [cache.look_up(key(name)) for name in ("a", "b")].count(None)


def test_a_secret_seals_entries(directory, caplog):
    """Entries are found with the secret they were sealed with, and otherwise missed with a warning."""
    fill(open_cache(directory, cache_secret=b"one"), "a")
    assert open_cache(directory, cache_secret=b"one").look_up(key("a")) is not None
    assert open_cache(directory, cache_secret=b"two").look_up(key("a")) is None
    assert "HMAC of another secret" in caplog.text
    assert open_cache(directory).look_up(key("a")) is None


def test_directories_are_searched_in_order(tmp_path, caplog):
    """The first directory that can be written is written; those after it are read, if they are there."""
    warmed, writable = tmp_path / "warmed", tmp_path / "own"
    fill(open_cache(warmed), "a")
    later = open_cache(writable, tmp_path / "missing", warmed)
    assert later.look_up(key("a")) is not None
    fill(later, "b")
    assert (1, 1) == (len(files_of(warmed)), len(files_of(writable)))
    assert (writable, "") == (later.writable_directory().path, caplog.text)


@pytest.mark.parametrize("inner", ["", "v2"])
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_can_write_is_refused(directory, inner, mode, caplog):
    """A directory that group or world can write, or with such doors inside, is refused with the reason."""
    fill(open_cache(directory), "a")
    directory.chmod(0o755)
    (directory / inner).chmod(mode)
    cache = open_cache(directory)
    assert cache.look_up(key("a")) is None
    assert "can be written by other users" in caplog.text
    assert "chmod go-w" in cache.unused_reasons()[0]


@pytest.mark.parametrize("path", ["/proc/nothing/cache", "/dev/null/cache", "~nobody-of-that-name/cache"])
def test_a_directory_that_cannot_be_made_costs_a_warning(path, caplog):
    """Without a directory there is one warning, and every result is made."""
    cache = open_cache(path)
    for _ in range(2):
        assert b"1" == cache.get_or_compute(key("a"), lambda: Entry({}, b"1")).code
    assert 1 == caplog.text.count("results are not stored")


def test_the_default_directory_follows_the_platform(monkeypatch, tmp_path):
    """The directory is in $XDG_CACHE_HOME, or in ~/.cache."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable, folder in (("", ".cache"), ("relative", ".cache"), (str(tmp_path / "xdg"), "xdg")):
        monkeypatch.setenv("XDG_CACHE_HOME", variable)
        assert tmp_path / folder / "numba-ptxlink" == open_cache().writable_directory().path


def test_a_full_disk_costs_a_warning(directory):
    """On a full disk every result is computed, with one warning, and no half of an entry stays."""
    done = run("go_on_limited", "a", 20_000, NUMBA_PTXLINK_CACHE=str(directory))
    assert "2\n" == done.stdout
    assert 1 == done.stderr.count("cannot be written")
    assert [] == list((directory / "v2").iterdir())


def test_a_kill_during_a_write_leaves_no_half(directory):
    """However often a writer is killed, each entry that a reader finds is whole."""
    assert 0 == run("kill_writers", KILLS, NUMBA_PTXLINK_CACHE=str(directory)).returncode
    cache = open_cache(directory)
    entries = {name: cache.look_up(key(name)) for name in (f"entry {number}" for number in range(4))}
    assert all(entry.code == code(name) for name, entry in entries.items() if entry)
    assert any(entries.values())
    for file in files_of(directory):
        unseal(file.read_bytes(), bytes.fromhex(file.name), None)


def test_the_oldest_entries_go_first(directory):
    """Above the cap the entries that were not read for longest are dropped, and those in use stay."""
    cache = open_cache(directory, cache_size=300_000)
    fill(cache, "read")
    for number in range(20):
        fill(cache, f"entry {number}")
        assert cache.look_up(key("read")) is not None
        time.sleep(0.002)
    assert sum(file.stat().st_size for file in files_of(directory)) <= 400_000
    assert cache.look_up(key("entry 0")) is None
    assert cache.look_up(key("entry 19")) is not None


def test_processes_make_one_result_once(directory, tmp_path):
    """Processes that look up one key at once compute it once, and all get the result."""
    log = tmp_path / "log"
    environ = {"NUMBA_PTXLINK_CACHE": str(directory)}
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(start("make_slowly", "a", log, 0.5, **environ)) for _ in range(4)]
        assert [0] * 4 == [process.wait() for process in processes]
    assert 1 == len(log.read_text().splitlines())


def test_a_survivor_takes_over(directory, tmp_path):
    """If the process that computes a result is killed, another computes it."""
    log = tmp_path / "log"
    environ = {"NUMBA_PTXLINK_CACHE": str(directory)}
    with start("make_slowly", "a", log, 60, **environ) as first:
        while not log.exists():
            time.sleep(0.01)
        with start("make_slowly", "a", log, 0, **environ) as second:
            first.kill()
            assert 0 == second.wait()
    assert [str(first.pid), str(second.pid)] == log.read_text().splitlines()


@pytest.mark.parametrize("is_writable", [True, False])
def test_threads_make_one_result_once(directory, is_writable):
    """Threads that look up one key at once compute it once, also if nothing can be kept."""
    cache = open_cache(directory if is_writable else "/dev/null/cache")
    with ThreadPoolExecutor(8) as pool:
        ready, computations = threading.Barrier(8), []

        def make() -> Entry:
            time.sleep(0.2)
            computations.append(1)
            return Entry({}, code("a"))

        def ask(_) -> bytes:
            ready.wait()
            return cache.get_or_compute(key("a"), make).code

        assert [code("a")] * 8 == list(pool.map(ask, range(8)))
    assert [1] == computations
    assert (7, 1) == cache.counters[:2]


def test_a_thread_goes_on_where_another_fails(directory):
    """The exception of the computing thread is its own: the thread that waits for it computes the result."""
    cache = open_cache(directory)
    with ThreadPoolExecutor(1) as pool:
        waiting: list[Future[Entry]] = []

        def fail() -> Entry:
            waiting.append(pool.submit(cache.get_or_compute, key("a"), lambda: Entry({}, code("a"))))
            time.sleep(0.2)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            cache.get_or_compute(key("a"), fail)
        assert code("a") == waiting[0].result().code
