"""The shared tier, against a real redis-server."""

from __future__ import annotations

import os
import subprocess
import time

import pytest
from cache_worker import code, key, worker
from caches import fill, open_cache
from fork_worker import fork
from redis_server import RedisServer

from numba_ptxlink.cache import Entry

pytest.importorskip("redis", reason="redis-py is not installed")

SECRET = b"swordfish"
SEALED = {"NUMBA_PTXLINK_CACHE_SECRET": SECRET.decode()}


@pytest.fixture
def server(tmp_path):
    """Run a server for one test."""
    redis_server = RedisServer(tmp_path)
    redis_server.start()
    yield redis_server
    redis_server.kill()


def get(cache, name: str, default_code: bytes = b"") -> bytes:
    """Return the code that *cache* has for *name*, or *default_code* if it has none."""
    return cache.get_or_compute(key(name), lambda: Entry({}, default_code)).code


@pytest.mark.redis
def test_a_server_without_a_secret_is_not_used(server, tmp_path, caplog):
    """Without a secret, a server that anybody could have written to is not used, with one warning."""
    cache = open_cache(tmp_path, cache_url=server.url)
    assert [b"a", b"b"] == [get(cache, "a", b"a"), get(cache, "b", b"b")]
    assert 0 == server.client.dbsize()
    (record,) = caplog.records
    assert "is not used" in record.message
    assert "set NUMBA_PTXLINK_CACHE_SECRET" in record.message


@pytest.mark.redis
def test_machines_share_entries(server, tmp_path):
    """A machine finds the entry of another machine, and keeps it in its own directory."""
    shared = {"cache_url": server.url, "cache_secret": SECRET}
    fill(open_cache(tmp_path / "one", **shared), "a")
    assert code("a") == get(open_cache(tmp_path / "other", **shared), "a")
    server.kill()
    assert code("a") == get(open_cache(tmp_path / "other", **shared), "a")


@pytest.mark.redis
def test_a_lying_server_is_not_believed(server, tmp_path, caplog):
    """An entry that is altered, cut off, of another key or of another secret is a miss and a warning."""
    shared = {"cache_url": server.url, "cache_secret": SECRET}
    fill(open_cache(tmp_path / "own", **shared), "a", "b")
    names = server.client.keys()
    one, two = map(server.client.get, names)
    lies = [(one[:-1] + b"\0", two[:-1] + b"\0"), (one[:50], two[:50]), (two, one)]
    fill(open_cache(tmp_path / "evil", cache_url=server.url, cache_secret=b"another"), "a", "b")
    lies.append(tuple(map(server.client.get, names)))
    for number, values in enumerate(lies):
        server.client.mset(dict(zip(names, values, strict=True)))
        assert b"made" == get(open_cache(tmp_path / str(number), **shared), "a", b"made")
    assert len(lies) == caplog.text.count("ignored entry")


@pytest.mark.parametrize(
    "url",
    [
        "redis://:qxzvwk@127.0.0.1:1/0",
        "redis://:qxzvwk@host:port/0",
        "redis://:12?qxzvwk@127.0.0.1:1/0",
        "redis://:qxzvwk@127.0.0.1:1/0?nothing=like",
        "REDIS://:qxzvwk@127.0.0.1:1/0",
    ],
)
def test_an_unreachable_server_is_left_alone(tmp_path, caplog, url):
    """A server that is not there, or a wrong URL, costs one warning, which does not show the password."""
    cache = open_cache(tmp_path, cache_url=url, cache_secret=SECRET)
    assert [b"a", b"b"] == [get(cache, "a", b"a"), get(cache, "b", b"b")]
    (record,) = caplog.records
    assert "is not used for 30 s; check it and its URL" in record.message
    assert [] == [
        part for part in ("qxz", "vwk", ":12") if part in f"{caplog.text} {cache!r} {cache.settings!r}"
    ]


@pytest.mark.redis
def test_a_server_killed_in_the_middle_harms_nobody(server, tmp_path):
    """Processes whose server dies and comes back get every result right."""
    environ = {**os.environ, **SEALED, "NUMBA_PTXLINK_CACHE_SIZE": "200KiB"}
    processes = []
    for number in range(4):
        environ["NUMBA_PTXLINK_CACHE"] = f"{tmp_path / str(number)}:{server.url}"
        command = worker("read_while_evicting", 600)
        processes.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
    time.sleep(1.0)
    server.kill()
    time.sleep(0.3)
    server.start()
    assert ["0\n"] * 4 == [process.communicate()[0] for process in processes]


@pytest.mark.redis
def test_a_child_has_a_connection_of_its_own(server, tmp_path):
    """A forked child can query the server while threads of its parent are in the middle of a query."""
    assert "child ended with 0, parent has both\n" == fork("server_in_use", tmp_path / "cache", server.url)
