"""The directory of entries: who may read it, whom it believes, and what leaves it."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cache_worker import key
from caches import files_of, fill, open_cache

from numba_ptxlink.cache import directory as cache_directory
from numba_ptxlink.errors import CacheError

HOUR = 3600.0


@pytest.fixture
def directory(tmp_path):
    """Return the path of a cache directory that is not there yet."""
    return tmp_path / "cache"


@pytest.fixture
def umask():
    """Return what sets the process's umask, which is the old one again afterwards."""
    before = os.umask(0o022)
    yield os.umask
    os.umask(before)


def modes(*paths: Path) -> list[int]:
    """Return the permissions of *paths*."""
    return [path.stat().st_mode & 0o777 for path in paths]


@pytest.mark.parametrize("mask", [0o000, 0o022, 0o077])
def test_what_is_made_is_private_whatever_the_umask(tmp_path, umask, mask):
    """The directory, what is missing above it and the entries are for this user alone."""
    umask(mask)
    directory = tmp_path / "a" / "b" / "cache"
    fill(open_cache(directory), "a")
    parents = (directory.parent.parent, directory.parent, directory, directory / "v2")
    assert [0o700] * 4 == modes(*parents)
    assert [0o600] == modes(*files_of(directory))


def test_an_entry_that_others_can_write_is_not_believed(directory, caplog):
    """An entry that others could have written is a miss with a warning, and is replaced."""
    cache = open_cache(directory)
    fill(cache, "a")
    (file,) = files_of(directory)
    file.chmod(0o666)
    assert cache.get(key("a")) is None
    assert "can be written by other users" in caplog.text
    fill(cache, "a")
    assert cache.get(key("a")) is not None


def test_an_entry_of_another_user_is_not_believed(directory, caplog):
    """An entry that belongs to somebody else is a miss with a warning."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    cache = open_cache(directory)
    fill(cache, "a")
    (file,) = files_of(directory)
    os.chown(file, 23456, -1)
    assert cache.get(key("a")) is None
    assert "belongs to user 23456" in caplog.text


def test_a_link_is_no_entry(directory):
    """A symbolic link in an entry's place is not followed."""
    cache = open_cache(directory)
    fill(cache, "a")
    (file,) = files_of(directory)
    file.rename(directory / "elsewhere")
    file.symlink_to(directory / "elsewhere")
    assert cache.get(key("a")) is None


def age(file: Path, seconds: float) -> None:
    """Say that *file* was used *seconds* ago."""
    then = time.time() - seconds
    os.utime(file, (then, then))


def file_of(cache, name: str) -> Path:
    """Return the file of the entry *name*."""
    return cache.tiers()[1].path_of(key(name).digest)


def test_what_a_killed_writer_left_is_swept(directory, monkeypatch):
    """A file that was being written an hour ago goes with the next look at the cap; a younger one stays."""
    cache = open_cache(directory)
    fill(cache, "a")
    abandoned, growing = (directory / "v2" / f"new-{name}" for name in ("abandoned", "growing"))
    for file in (abandoned, growing):
        file.write_bytes(b"half")
    age(abandoned, 2 * HOUR)
    monkeypatch.setattr(cache_directory.secrets, "randbelow", lambda _: 0)
    fill(open_cache(directory), "b")
    assert [False, True] == [file.exists() for file in (abandoned, growing)]
    assert 2 == len(files_of(directory))


def test_what_is_no_entry_is_left_alone(directory):
    """Neither eviction nor clearing touches files that the cache did not write."""
    cache = open_cache(directory, cache_size=1)
    fill(cache, "a")
    (directory / "v2" / "README").write_text("mine")
    fill(cache, "b")
    cache.tiers()[1].clear()
    assert ["README"] == [file.name for file in (directory / "v2").iterdir()]


def test_reading_is_use(directory):
    """What was read last is evicted last."""
    cache = open_cache(directory)
    fill(cache, "a")
    age(file_of(cache, "a"), 9 * HOUR)
    assert cache.get(key("a")) is not None
    assert time.time() - file_of(cache, "a").stat().st_mtime < HOUR


class SlowError(Exception):
    """What a program raises in a handler of SIGALRM."""


@pytest.mark.parametrize("error", [SlowError(), TimeoutError("too slow"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["write", "read"])
def test_a_time_out_of_the_program_ends_what_it_interrupts(directory, monkeypatch, error, call):
    """What a signal handler raises while an entry is written or read is no fault of the disk."""
    cache = open_cache(directory)
    fill(cache, "a")

    def interrupted(*_):
        raise error

    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(type(error)):
        fill(cache, "b") if call == "write" else cache.get(key("a"))


def test_files_of_the_cache_are_closed(directory):
    """Whatever is opened for an entry is closed, and the directory's descriptor goes with the cache."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    cache = open_cache(directory)
    fill(cache, "a", "b")
    assert cache.get(key("a")) is not None
    with pytest.raises(CacheError):
        cache_directory.Directory(directory / "v2" / file_of(cache, "a").name, 1, create=False)
    del cache
    assert before == len(list(Path("/proc/self/fd").iterdir()))
