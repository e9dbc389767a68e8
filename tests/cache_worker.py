"""What the tests of the cache run in processes of their own: `python cache_worker.py COMMAND ARGUMENT...`."""

from __future__ import annotations

import atexit
import hashlib
import os
import resource
import signal
import sys
import time
import warnings
from pathlib import Path

from numba_ptxlink import cache

KIND = "link"


def key(name: str) -> cache.Key:
    """Return the key of the entry *name*."""
    return cache.Key.of(KIND, {"name": name})


def code(name: str, size: int = 50_000) -> bytes:
    """Return what belongs under the key of *name*."""
    return hashlib.sha256(name.encode()).digest() * (size // 32)


def kill_writers(number: str) -> None:
    """Start processes that write the same few entries again and again, and kill each after a while."""
    found = cache.default()
    found.tiers()
    for turn in range(int(number)):
        writer = os.fork()
        if not writer:
            for entry in range(turn, 1_000_000):
                name = f"entry {entry % 4}"
                found.put(key(name), cache.Entry({}, code(name)))
        time.sleep(0.0005 * (turn % 20))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)


def make_slowly(name: str, log: str, seconds: str) -> None:
    """Ask for *name*; making it takes a while and leaves a line in the file *log*."""

    def make() -> cache.Entry:
        with Path(log).open("a") as file:
            file.write(f"{os.getpid()}\n")
        time.sleep(float(seconds))
        return cache.Entry({}, code(name))

    sys.stdout.write("ready\n")
    sys.stdout.flush()
    entry = cache.cached(key(name), make)
    sys.exit(entry.code != code(name))


def go_on(name: str) -> None:
    """Ask for *name* twice, and print how often it was made."""
    made = []

    def make() -> cache.Entry:
        made.append(name)
        return cache.Entry({}, code(name))

    right = True
    for _ in range(2):
        right &= cache.cached(key(name), make).code == code(name)
        cache.default().flush()
    sys.stdout.write(f"{len(made) if right else 'wrong'}\n")


def go_on_limited(name: str, limit: str) -> None:
    """Do the same where no file may be larger than *limit* bytes, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    go_on(name)


def read_while_evicting(number: str) -> None:
    """Write and read more than fits, and print how many reads gave the wrong bytes."""
    wrong = 0
    for turn in range(int(number)):
        name = f"entry {turn % 40}"
        entry = cache.cached(key(name), lambda name=name: cache.Entry({}, code(name)))
        wrong += entry.code != code(name)
        cache.default().flush()
    sys.stdout.write(f"{wrong}\n")


def delay_writes() -> None:
    """Have everything that is kept behind take a while."""
    put = cache.Cache.put

    def late(*args) -> None:
        time.sleep(0.3)
        put(*args)

    cache.Cache.put = late


def fork(first: str, second: str) -> None:
    """Make *first*, fork, and in the child print the names found and make *second*."""
    delay_writes()
    cache.cached(key(first), lambda: cache.Entry({}, code(first)))
    warnings.simplefilter("error")
    child = os.fork()
    if not child:
        fresh = cache.Cache(cache.default().settings)
        sys.stdout.write("".join(f"{name}\n" for name in (first, second) if fresh.get(key(name))))
        cache.cached(key(second), lambda: cache.Entry({}, code(second)))
        return
    sys.exit(os.waitpid(child, 0)[1])


def end(name: str, way: str) -> None:
    """Make *name* and end the process in one *way*."""
    delay_writes()

    def work() -> None:
        cache.cached(key(name), lambda: cache.Entry({}, code(name)))

    if way == "atexit":
        atexit.register(work)
        return
    work()
    if way == "exit":
        sys.exit(3)
    if way == "raise":
        raise SystemError(name)


COMMANDS = (kill_writers, make_slowly, go_on, go_on_limited, read_while_evicting, fork, end)

if __name__ == "__main__":
    {each.__name__: each for each in COMMANDS}[sys.argv[1]](*sys.argv[2:])
