"""The directory of entries: its permissions, the owners that it trusts, and the entries that it drops."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest
from cache_worker import key
from caches import files_of, fill, open_cache

from numba_ptxlink.cache import directory as cache_directory

HOUR = 3600.0


@pytest.fixture
def directory(tmp_path):
    """Return the path of a cache directory that is not there yet."""
    return tmp_path / "cache"


@pytest.fixture
def filled(directory):
    """Return a cache in it with the entry "a", and the file of that."""
    cache = open_cache(directory)
    fill(cache, "a")
    return cache, *files_of(directory)


@pytest.mark.parametrize("mask", [0o000, 0o077])
def test_what_is_made_is_private_whatever_the_umask(tmp_path, mask):
    """The directory, its new parents and the entries are readable by this user alone."""
    before = os.umask(mask)
    try:
        directory = tmp_path / "a" / "b" / "cache"
        fill(open_cache(directory), "a")
    finally:
        os.umask(before)
    created = (directory.parent.parent, directory.parent, directory, directory / "v2", *files_of(directory))
    assert [0o700] * 4 + [0o600] == [path.stat().st_mode & 0o777 for path in created]


def given_away(file: Path) -> None:
    """Make another user the owner of *file*; root of some containers cannot."""
    try:
        os.chown(file, 23456, -1)
    except OSError as error:
        pytest.skip(f"no file can be given away: {error.strerror}")


def with_a_link(file: Path) -> None:
    """Put a symbolic link in the place of *file*."""
    file.rename(file.with_name("elsewhere"))
    file.symlink_to("elsewhere")


def with_a_pipe(file: Path) -> None:
    """Put a named pipe in the place of *file*."""
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda file: file.chmod(0o666), "can be written by other users"),
        (given_away, "belongs to user 23456"),
        (with_a_link, ""),
        (with_a_pipe, ""),
    ],
)
def test_what_another_could_have_put_there_is_not_believed(filled, caplog, spoil, message):
    """An entry that others could have written, a link and a pipe are a miss, and are replaced."""
    cache, file = filled
    spoil(file)
    assert cache.look_up(key("a")) is None
    assert message in caplog.text
    fill(cache, "a")
    assert cache.look_up(key("a")) is not None


def test_what_a_killed_writer_left_is_swept(directory, filled, monkeypatch):
    """A file that was being written an hour ago goes with the next look at the cap; a younger one stays."""
    abandoned, growing = (directory / "v2" / f"new-{name}" for name in ("abandoned", "growing"))
    for file in (abandoned, growing):
        file.write_bytes(b"half")
    os.utime(abandoned, (time.time() - 2 * HOUR,) * 2)
    monkeypatch.setattr(cache_directory.secrets, "randbelow", lambda _: 0)
    fill(filled[0], "b")
    assert [False, True] == [file.exists() for file in (abandoned, growing)]
    assert 2 == len(files_of(directory))


def test_what_is_no_entry_is_left_alone(directory):
    """Neither eviction nor clearing touches files that the cache did not write."""
    cache = open_cache(directory, cache_size=1)
    fill(cache, "a")
    (directory / "v2" / "README").write_text("mine")
    fill(cache, "b")
    cache.writable_directory().clear()
    assert ["README"] == [file.name for file in (directory / "v2").iterdir()]


@pytest.mark.parametrize("error", [TimeoutError("too slow"), KeyboardInterrupt()])
@pytest.mark.parametrize("call", ["write", "read"])
def test_a_time_out_of_the_program_ends_what_it_interrupts(filled, monkeypatch, error, call):
    """An exception of a signal handler while an entry is written or read is no fault of the disk."""

    def interrupted(*_):
        raise error

    monkeypatch.setattr(os, call, interrupted)
    with pytest.raises(type(error)):
        fill(filled[0], "b") if call == "write" else filled[0].look_up(key("a"))


def test_files_of_the_cache_are_closed(directory):
    """Files of an entry are closed after use, and the directory's descriptor goes with the cache."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    cache = open_cache(directory)
    fill(cache, "a", "b")
    assert cache.look_up(key("a")) is not None
    assert cache.writable_directory().sizes()
    del cache
    assert before == len(list(Path("/proc/self/fd").iterdir()))
