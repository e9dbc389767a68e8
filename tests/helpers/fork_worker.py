"""Run a function of the tests of forks in another process: `python fork_worker.py FUNCTION ARGUMENT...`."""

from __future__ import annotations

import contextlib
import os
import sys
import threading

import processes
from cache_worker import code, key
from ptx_kernels import make_kernel

from numba_ptxlink import _locks, assembler, cache, linker
from numba_ptxlink._config import Config
from numba_ptxlink.cache import Cache, Entry

BOUND_SECONDS = 120
SOURCE = 'extern "C" __global__ void k(int* out) { *out = 1; }\n'


def fork(function: str, *arguments: object) -> str:
    """Run a function of this module in another process, for a bounded time; return its output."""
    command = [sys.executable, __file__, function, *map(str, arguments)]
    done = processes.run(*command, timeout=BOUND_SECONDS)
    return done.stdout


def child_while_held(locks, work) -> int:
    """Fork while another thread holds *locks*, let the child do *work*, and return how it ended."""
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for lock in locks:
                stack.enter_context(lock)
            holding.set()
            done.wait()

    threading.Thread(target=hold, daemon=True).start()
    holding.wait()
    assert not any(lock.acquire(blocking=False) for lock in locks)
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the parent's code must not go on here
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    exit_code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    done.set()
    return exit_code


def use_locks(open_cache: Cache) -> None:
    """Call functions that hold locks: of the cache, the assembler and the linker."""
    name = f"of {os.getpid()}"
    assert open_cache.get_or_compute(key(name), lambda: Entry({}, code(name))).code == code(name)
    assert open_cache.look_up(key(name)) is not None
    assert open_cache.counters.misses
    assembler.assemble(make_kernel(), "sm_90")
    linker.link(SOURCE, arch="sm_90")


def every_lock_held(directory: str) -> None:
    """Fork while another thread holds every lock that the package has made so far."""
    settings = {"cache_url": "redis://127.0.0.1:1/0", "cache_secret": b"secret"}
    open_cache = Cache(Config(cache_dirs=(directory,), **settings))
    cache.default = lambda: open_cache
    use_locks(open_cache)
    exit_code = child_while_held([lock.held for lock in _locks._locks], lambda: use_locks(open_cache))
    sys.stdout.write(f"child ended with {exit_code}\n")


def server_in_use(directory: str, url: str) -> None:
    """Fork while another thread holds every lock of the client of a Redis server."""
    open_cache = Cache(Config(cache_dirs=(directory,), cache_url=url, cache_secret=b"secret"))
    open_cache.put(key("parent"), Entry({}, code("parent")))
    pool = open_cache._server._client.connection_pool

    def ask() -> None:
        assert open_cache._server.put(open_cache._address(key("child")), b"x")
        assert open_cache._server.get(open_cache._address(key("parent"))) is not None

    status = child_while_held([pool._lock, pool._fork_lock], ask)
    both = all(
        open_cache._server.get(open_cache._address(key(name))) is not None for name in ("parent", "child")
    )
    sys.stdout.write(f"child ended with {status}, parent has {'both' if both else 'not both'}\n")


if __name__ == "__main__":
    {test_function.__name__: test_function for test_function in (every_lock_held, server_in_use)}[
        sys.argv[1]
    ](*sys.argv[2:])
