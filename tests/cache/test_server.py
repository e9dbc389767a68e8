"""The shared tier, against a real redis-server."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from cache_worker import code, key, worker
from fork_worker import fork
from redis_server import RedisServer

from numba_ptxlink._config import Config
from numba_ptxlink.cache import Cache, Entry
from numba_ptxlink.cache.key import seal

pytest.importorskip("redis", reason="redis-py is not installed")

SECRET = b"swordfish"
SEALED = {"NUMBA_PTXLINK_CACHE_SECRET": SECRET.decode()}


@pytest.fixture
def server(tmp_path):
    """Run a server for one test."""
    made = RedisServer(tmp_path)
    made.start()
    yield made
    made.kill()


def open_cache(directory, url: str, **settings) -> Cache:
    """Return a cache in *directory* with a shared tier behind it."""
    settings = {"cache_secret": SECRET, **settings}
    return Cache(Config(cache_dirs=(str(directory),), cache_url=url, **settings))


def address_of(cache: Cache, name: str) -> bytes:
    """Return where *cache* has the entry *name* on its server."""
    return b"numba-ptxlink:" + cache._address(key(name)).hex().encode()


@pytest.mark.redis
def test_a_server_without_a_secret_is_not_used(server, tmp_path, caplog):
    """Without a secret, what anybody could have written to a server is left alone, with one word."""
    forged = seal(key("a").digest, Entry({}, b"evil"), None)
    server.client.set(b"numba-ptxlink:" + key("a").digest.hex().encode(), forged)
    cache = open_cache(tmp_path / "a", server.url, cache_secret=None)
    for name in ("a", "b"):
        assert code(name) == cache.through(key(name), lambda name=name: Entry({}, code(name))).code
    assert 1 == server.client.dbsize()
    (record,) = caplog.records
    assert "is not used" in record.message
    assert "set NUMBA_PTXLINK_CACHE_SECRET" in record.message


@pytest.mark.redis
def test_machines_share_entries(server, tmp_path):
    """What one machine made another finds, and keeps in its own directory."""
    open_cache(tmp_path / "one", server.url).put(key("a"), Entry({"log": "x"}, code("a")))
    other = open_cache(tmp_path / "other", server.url)
    found = other.through(key("a"), lambda: pytest.fail("it was made again"))
    assert (code("a"), "x") == (found.code, found.log)
    server.kill()
    alone = open_cache(tmp_path / "other", server.url)
    assert code("a") == alone.through(key("a"), lambda: pytest.fail("it was not kept")).code


@pytest.mark.redis
def test_a_lying_server_is_not_believed(server, tmp_path, caplog):
    """An entry with a wrong digest, of another key or no entry at all is a miss and a warning."""
    sealed = open_cache(tmp_path / "own", server.url)
    address = sealed._address(key("a"))
    good = seal(address, Entry({}, code("a")), SECRET)
    lies = (
        good[:-1] + b"\0",
        good[:50],
        b"",
        b"#!/bin/sh",
        seal(address, Entry({}, b"evil"), None),
        seal(sealed._address(key("b")), Entry({}, code("b")), SECRET),
    )
    for number, lie in enumerate(lies):
        server.client.set(address_of(sealed, "a"), lie)
        cache = open_cache(tmp_path / str(number), server.url)
        assert code("a") == cache.through(key("a"), lambda: Entry({}, code("a"))).code
        assert 1 == cache.counters.misses
    assert len(lies) == caplog.text.count("ignored entry")


@pytest.mark.redis
def test_a_password_is_redis_pys_business(tmp_path, caplog):
    """A password in the URL is used, a wrong one costs a warning, and neither is shown."""
    server = RedisServer(tmp_path)
    server.url = server.url.replace("redis://", "redis://:swordfish@")
    server.start("--requirepass", "swordfish")
    try:
        open_cache(tmp_path / "a", server.url).put(key("a"), Entry({}, code("a")))
        assert 1 == server.client.dbsize()
        wrong = open_cache(tmp_path / "b", server.url.replace("swordfish", "marlin"))
        assert b"1" == wrong.through(key("a"), lambda: Entry({}, b"1")).code
        assert "failed to read" in caplog.text
        assert "marlin" not in caplog.text
    finally:
        server.kill()


def test_an_unreachable_server_is_left_alone(tmp_path, caplog):
    """A server that is not there costs one warning; after it nothing is asked for a while."""
    cache = open_cache(tmp_path / "a", "redis://127.0.0.1:1/0")
    for name in ("a", "b", "c"):
        assert code(name) == cache.through(key(name), lambda name=name: Entry({}, code(name))).code
    assert 1 == caplog.text.count("doing without it")


@pytest.mark.redis
def test_a_server_killed_in_the_middle_harms_nobody(server, tmp_path):
    """Processes whose server dies, comes back and lies get every result right."""
    url = server.url
    processes = []
    for number in range(4):
        environ = {
            **os.environ,
            "NUMBA_PTXLINK_CACHE": f"{tmp_path / str(number)}:{url}",
            "NUMBA_PTXLINK_CACHE_SIZE": "200KiB",
            **SEALED,
        }
        command = worker("read_while_evicting", 600)
        processes.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
    time.sleep(1.0)
    server.kill()
    time.sleep(0.3)
    server.start()
    for number in range(40):
        address = address_of(open_cache(tmp_path / "own", url), f"entry {number}")
        server.client.set(address, b"PTXLINK\x01" + os.urandom(300))
    assert ["0\n"] * 4 == [process.communicate()[0] for process in processes]


WRONG = (
    "redis://:qxzvwk@host:port/0",
    "redis://:12?qxzvwk@127.0.0.1:1/0",
    "REDIS://:qxzvwk@127.0.0.1:1/0",
)


@pytest.mark.parametrize("url", WRONG)
def test_a_wrong_url_costs_one_warning(tmp_path, caplog, url):
    """A URL that is wrong fails no build, is told once, and never with the password or a part of it."""
    cache = Cache(Config.from_environ({"NUMBA_PTXLINK_CACHE": f"{tmp_path / 'a'}:{url}", **SEALED}))
    for name in ("a", "b"):
        assert code(name) == cache.through(key(name), lambda name=name: Entry({}, code(name))).code
    assert 1 == len(caplog.records)
    assert "its URL is wrong" in caplog.text
    shown = f"{caplog.text} {cache!r} {cache._server!r}"
    assert [] == [part for part in ("qxz", "vwk", ":12") if part in shown]


@pytest.mark.redis
def test_a_child_has_a_connection_of_its_own(server, tmp_path):
    """A forked child asks the server whatever its parent's threads were doing with it."""
    assert "child ended with 0, parent has both\n" == fork("server_in_use", tmp_path / "cache", server.url)
