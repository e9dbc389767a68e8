"""The cache: what it keeps, what it refuses, and that no fault of a disk or a process reaches the caller."""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from cache_worker import code, key, run, start
from caches import files_of, fill, open_cache

from numba_ptxlink._config import Config
from numba_ptxlink.cache import Cache, Entry
from numba_ptxlink.cache import directory as cache_directory
from numba_ptxlink.cache.key import Damaged, WrongSeal, seal, unseal
from numba_ptxlink.errors import ConfigError

KILLS = int(os.environ.get("NUMBA_PTXLINK_TEST_KILLS", "300"))


@pytest.fixture
def directory(tmp_path):
    """Return the path of a cache directory that is not there yet."""
    return tmp_path / "cache"


def test_what_was_put_is_found(directory):
    """An entry comes back with its code and its log, in another cache on the directory too."""
    fill(open_cache(directory), "a")
    found = open_cache(directory).get(key("a"))
    assert found is not None
    assert (code("a"), "a") == (found.code, found.log)
    assert open_cache(directory).get(key("b")) is None


def test_a_result_is_made_once(directory):
    """`through` makes a result the first time, and finds it the second; the counters say so."""
    cache, made = open_cache(directory), []
    for _ in range(2):
        cache.through(key("a"), lambda: made.append(1) or Entry({}, code("a")))
    now = cache.counters
    size = len(code("a"))
    assert [1] == made
    assert (1, 1, size, size) == (now.hits, now.misses, now.bytes_read, now.bytes_written)


def test_a_failure_is_not_kept(directory):
    """What making raises is raised, and the next time it is made again."""
    cache = open_cache(directory)
    with pytest.raises(ZeroDivisionError):
        cache.through(key("a"), lambda: 1 // 0)
    assert code("a") == cache.through(key("a"), lambda: Entry({}, code("a"))).code


def test_parts_of_a_result_are_not_kept(directory):
    """Within the making of a result nothing else is looked up or kept."""
    cache = open_cache(directory)
    cache.through(key("a"), lambda: cache.through(key("b"), lambda: Entry({}, code("b"))))
    assert 1 == len(files_of(directory))


def test_a_cache_that_is_off_keeps_nothing(directory):
    """NUMBA_PTXLINK_CACHE=0 makes every result, and touches no directory."""
    cache = Cache(Config(cache=False, cache_dirs=(str(directory),)))
    assert b"1" == cache.through(key("a"), lambda: Entry({}, b"1")).code
    assert not directory.exists()


@pytest.mark.parametrize(
    ("value", "dirs", "url"),
    [
        ("1", (), None),
        ("/a:/b", ("/a", "/b"), None),
        ("/a:/b:rediss://:pass@host", ("/a", "/b"), "rediss://:pass@host"),
    ],
)
def test_the_variable_lists_directories_and_a_server(value, dirs, url):
    """NUMBA_PTXLINK_CACHE is a path list that may end in a URL."""
    config = Config.from_environ({"NUMBA_PTXLINK_CACHE": value})
    assert (True, dirs, url) == (config.cache, config.cache_dirs, config.cache_url)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("2GiB", 2 << 30),
        ("1kB", 1000),
    ],
)
def test_sizes_have_units(value, size):
    """NUMBA_PTXLINK_CACHE_SIZE is a number with a unit of 1000 or 1024."""
    assert size == Config.from_environ({"NUMBA_PTXLINK_CACHE_SIZE": value}).cache_size


@pytest.mark.parametrize(
    "environ",
    [
        {"NUMBA_PTXLINK_CACHE": "perhaps"},
        {"NUMBA_PTXLINK_CACHE": "memcached://host"},
        {"NUMBA_PTXLINK_CACHE_SIZE": "lots"},
    ],
)
def test_unknown_values_are_errors(environ):
    """An unknown value is named with the variable and the choices."""
    (variable,) = environ
    with pytest.raises(ConfigError, match=variable):
        Config.from_environ(environ)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda d: d[:100],
        lambda _: b"#!/bin/sh\n" * 99,
    ],
)
def test_a_damaged_entry_is_deleted_and_missed(directory, spoil, caplog):
    """A truncated, empty or foreign file is dropped with a word, and the result is made again."""
    cache = open_cache(directory)
    fill(cache, "a")
    (file,) = files_of(directory)
    file.write_bytes(spoil(file.read_bytes()))
    with caplog.at_level(logging.INFO, "numba_ptxlink"):
        assert cache.get(key("a")) is None
    assert "dropped entry" in caplog.text
    assert [] == files_of(directory)


def test_every_flipped_bit_is_seen():
    """No single flipped bit of an entry goes unnoticed."""
    address = key("a").digest
    sealed = seal(address, Entry({"log": "x"}, b"code"), None)
    for position in range(8 * len(sealed)):
        spoiled = bytearray(sealed)
        spoiled[position // 8] ^= 1 << position % 8
        with pytest.raises((Damaged, WrongSeal)):
            unseal(bytes(spoiled), address, None)


def test_an_entry_under_another_key_is_damaged(directory):
    """An entry that was moved to another key's place is not taken for that key's."""
    cache = open_cache(directory)
    fill(cache, "a", "b")
    one, other = files_of(directory)
    shutil.copy(one, other)
    found = [cache.get(key(name)) for name in ("a", "b")]
    assert 1 == found.count(None)


def test_a_secret_seals_entries(directory, caplog):
    """Entries are found with the secret they were sealed with, and otherwise missed with a warning."""
    fill(open_cache(directory, cache_secret=b"one"), "a")
    assert open_cache(directory, cache_secret=b"one").get(key("a")) is not None
    assert open_cache(directory, cache_secret=b"two").get(key("a")) is None
    assert "sealed with another secret" in caplog.text
    assert open_cache(directory).get(key("a")) is None


def test_directories_are_searched_in_order(tmp_path):
    """The first directory that can be written is written, and those after it are read."""
    warmed, own = tmp_path / "warmed", tmp_path / "own"
    fill(open_cache(warmed), "a")
    later = open_cache(own, warmed)
    assert later.get(key("a")) is not None
    fill(later, "b")
    assert (1, 1) == (len(files_of(warmed)), len(files_of(own)))
    assert own == later.tiers()[1].path


@pytest.mark.parametrize("inner", ["", "v2"])
@pytest.mark.parametrize("mode", [0o777, 0o775])
def test_a_directory_that_others_can_write_is_refused(directory, inner, mode, caplog):
    """A directory that group or world can write, or with such doors inside, is refused with the reason."""
    fill(open_cache(directory), "a")
    directory.chmod(0o755)
    (directory / inner).chmod(mode)
    cache = open_cache(directory)
    assert cache.get(key("a")) is None
    assert "can be written by other users" in caplog.text
    assert "chmod go-w" in cache.tiers()[2][0]


@pytest.mark.parametrize("path", ["/proc/nothing/cache", "/dev/null/cache"])
def test_a_directory_that_cannot_be_made_costs_a_warning(path, caplog):
    """Without a directory there is one warning, and every result is made."""
    cache = open_cache(path)
    for _ in range(2):
        assert b"1" == cache.through(key("a"), lambda: Entry({}, b"1")).code
    assert "nothing is kept" in caplog.text
    assert 1 == caplog.text.count("nothing is kept")


def test_the_default_directory_follows_the_platform(monkeypatch, tmp_path):
    """The directory is in $XDG_CACHE_HOME, or in ~/.cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert tmp_path / "xdg" / "numba-ptxlink" == cache_directory.default_directory()
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert tmp_path / ".cache" / "numba-ptxlink" == cache_directory.default_directory()


def test_a_full_disk_costs_a_warning(directory):
    """Where no space is left every result is made, with one warning, and no half of an entry stays."""
    done = run("go_on_limited", "a", 20_000, NUMBA_PTXLINK_CACHE=str(directory))
    assert "2\n" == done.stdout
    assert 1 == done.stderr.count("cannot be written")
    assert [] == files_of(directory)


def test_a_kill_during_a_write_leaves_no_half(directory):
    """However often a writer is killed, everything that is found is whole."""
    assert 0 == run("kill_writers", KILLS, NUMBA_PTXLINK_CACHE=str(directory)).returncode
    cache = open_cache(directory)
    found = {name: cache.get(key(name)) for name in (f"entry {number}" for number in range(4))}
    assert all(entry.code == code(name) for name, entry in found.items() if entry)
    assert any(found.values())
    for file in files_of(directory):
        unseal(file.read_bytes(), bytes.fromhex(file.name), None)


def test_the_oldest_entries_go_first(directory):
    """Above the cap what was not read for longest is dropped, and what is read stays."""
    cache = open_cache(directory, cache_size=300_000)
    fill(cache, "read")
    for number in range(20):
        fill(cache, f"entry {number}")
        assert cache.get(key("read")) is not None
        time.sleep(0.002)
    assert sum(file.stat().st_size for file in files_of(directory)) <= 400_000
    assert cache.get(key("entry 0")) is None
    assert cache.get(key("entry 19")) is not None


def test_processes_make_one_result_once(directory, tmp_path):
    """Of processes that want one key at one time, one works and the others get its result."""
    log = tmp_path / "log"
    environ = {"NUMBA_PTXLINK_CACHE": str(directory)}
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(start("make_slowly", "a", log, 0.5, **environ)) for _ in range(4)]
        assert [0] * 4 == [process.wait() for process in processes]
    assert 1 == len(log.read_text().splitlines())


def test_a_survivor_takes_over(directory, tmp_path):
    """Where the process that works is killed, another does the work."""
    log = tmp_path / "log"
    environ = {"NUMBA_PTXLINK_CACHE": str(directory)}
    with start("make_slowly", "a", log, 60, **environ) as first:
        while not log.exists():
            time.sleep(0.01)
        with start("make_slowly", "a", log, 0, **environ) as second:
            first.kill()
            assert 0 == second.wait()
    assert [str(first.pid), str(second.pid)] == log.read_text().splitlines()


def test_threads_make_one_result_once(directory):
    """Of threads that want one key at one time one works, also where nothing can be kept."""
    for cache in (open_cache(directory), open_cache("/dev/null/cache")):
        made: list[int] = []
        ready = threading.Barrier(8)

        def make(made=made) -> Entry:
            made.append(1)
            time.sleep(0.2)
            return Entry({}, code("a"))

        def ask(_, cache=cache, ready=ready, make=make) -> bytes:
            ready.wait()
            return cache.through(key("a"), make).code

        with ThreadPoolExecutor(8) as pool:
            assert [code("a")] * 8 == list(pool.map(ask, range(8)))
        assert [1] == made
        assert (7, 1) == (cache.counters.hits, cache.counters.misses)
