"""Run a command of the cache tests in another process: `python cache_worker.py COMMAND ARGUMENT...`."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

from numba_ptxlink import cache

KIND = "link"


def key(name: str) -> cache.Key:
    """Return the key of the entry *name*."""
    return cache.Key.of(KIND, {"name": name})


def code(name: str, size: int = 50_000) -> bytes:
    """Return the code in the entry *name*."""
    return hashlib.sha256(name.encode()).digest() * (size // 32)


def run(command: str, *arguments: object, **environ: str) -> subprocess.CompletedProcess[str]:
    """Run the worker to its end."""
    return subprocess.run(
        worker(command, *arguments),
        env={**os.environ, **environ},
        capture_output=True,
        text=True,
        check=False,
    )


def worker(command: str, *arguments: object) -> list[str]:
    """Return the command line of the worker."""
    return [sys.executable, __file__, command, *map(str, arguments)]


def start(command: str, *arguments: object, **environ: str) -> subprocess.Popen[str]:
    """Start the worker, and wait until it prints "ready"."""
    process = subprocess.Popen(
        worker(command, *arguments), env={**os.environ, **environ}, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill_writers(number: str) -> None:
    """Start processes that write the same few entries again and again, and kill each after a while."""
    worker_cache = cache.default()
    worker_cache.tiers()
    for turn in range(int(number)):
        writer = os.fork()
        if not writer:
            for entry in range(turn, 1_000_000):
                name = f"entry {entry % 4}"
                worker_cache.put(key(name), cache.Entry({}, code(name)))
        time.sleep(0.0005 * (turn % 20))
        os.kill(writer, signal.SIGKILL)
        os.waitpid(writer, 0)


def make_slowly(name: str, log: str, seconds: str) -> None:
    """Get *name* from the cache. Its computation takes some seconds, and writes a line to the file *log*."""

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
    """Get *name* twice, and print how often it was computed."""
    computed = []

    def make() -> cache.Entry:
        computed.append(name)
        return cache.Entry({}, code(name))

    is_right = all(cache.cached(key(name), make).code == code(name) for _ in range(2))
    sys.stdout.write(f"{len(computed) if is_right else 'wrong'}\n")


def go_on_limited(name: str, limit: str) -> None:
    """Call `go_on` with a limit of *limit* bytes for files, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(limit), int(limit)))
    go_on(name)


def read_while_evicting(number: str) -> None:
    """Write and read more than the cache can keep, and print how many reads returned wrong bytes."""
    wrong = 0
    for turn in range(int(number)):
        name = f"entry {turn % 40}"
        entry = cache.cached(key(name), lambda name=name: cache.Entry({}, code(name)))
        wrong += entry.code != code(name)
    sys.stdout.write(f"{wrong}\n")


if __name__ == "__main__":
    {
        function.__name__: function
        for function in (kill_writers, make_slowly, go_on, go_on_limited, read_while_evicting)
    }[sys.argv[1]](*sys.argv[2:])
