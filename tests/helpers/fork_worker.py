"""What the tests of locks run in processes of their own: `python fork_worker.py WHAT ARGUMENT...`."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from importlib.abc import MetaPathFinder
from importlib.machinery import PathFinder
from pathlib import Path

from cache_worker import code, key
from ptx_kernels import make_kernel

from numba_ptxlink import _locks, assembler, cache, linker
from numba_ptxlink._config import Config
from numba_ptxlink.cache import Cache, Entry, single_flight
from numba_ptxlink.errors import AssembleError

BOUND_SECONDS = 120
SOURCE = 'extern "C" __global__ void k(int* out) { *out = 1; }\n'


def fork(what: str, *arguments: object) -> str:
    """Run one function of this module in a process of its own, for a bounded time; return what it prints."""
    command = [sys.executable, __file__, what, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)
    assert 0 == done.returncode, done.stderr
    return done.stdout


def child(work) -> int:
    """Fork, let the child do *work*, and return how it ended."""
    pid = os.fork()
    if not pid:
        try:
            work()
        except BaseException as error:  # noqa: BLE001 - the parent's code must not go on here
            sys.stderr.write(f"{error!r}\n")
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def while_another_thread_is_in_a_tool() -> None:
    """Print what came first: the end of another thread's call into a library, or the fork."""
    told: list[str] = []
    inside, go = threading.Event(), threading.Event()

    def call() -> None:
        with _locks.in_tool(), _locks.in_tool():
            inside.set()
            go.wait()
            told.append("call")

    thread = threading.Thread(target=call)
    thread.start()
    inside.wait()
    timer = threading.Timer(0.2, go.set)
    timer.start()
    ended = child(lambda: assembler.assemble(make_kernel(), "sm_80"))
    told.append("fork")
    thread.join()
    with _locks.in_tool():
        again = child(lambda: assembler.assemble(make_kernel(), "sm_80"))
    sys.stdout.write(f"{' '.join(told)} {ended} {again}\n")


def use(found: Cache) -> None:
    """Do everything that takes a lock."""
    name = f"of {os.getpid()}"
    assert found.through(key(name), lambda: Entry({}, code(name))).code == code(name)
    assert found.get(key(name)) is not None
    assert found.counters.misses
    assembler.assemble(make_kernel(), "sm_90")
    linker.link(SOURCE, arch="sm_90")


def every_lock_held(directory: str) -> None:
    """Fork while another thread holds every lock that the package has made so far."""
    settings = {"cache_url": "redis://127.0.0.1:1/0", "cache_secret": b"secret"}
    found = Cache(Config(cache_dirs=(directory,), **settings))
    cache.default = lambda: found
    use(found)
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with contextlib.ExitStack() as stack:
            for lock in list(_locks._locks):
                stack.enter_context(lock.held)
            holding.set()
            done.wait()

    threading.Thread(target=hold, daemon=True).start()
    holding.wait()
    held = all(not _takes(lock) for lock in list(_locks._locks))
    sys.stdout.write(f"{'all held' if held else 'not held'}, child ended with {child(lambda: use(found))}\n")
    done.set()


def _takes(lock: _locks.Lock) -> bool:
    taken = lock.held.acquire(blocking=False)
    if taken:
        lock.held.release()
    return taken


def while_another_thread_works(directory: str) -> None:
    """Fork while another thread makes a result, which the child asks for."""
    found = Cache(Config(cache_dirs=(directory,)))
    working, done = threading.Event(), threading.Event()

    def make() -> Entry:
        working.set()
        done.wait()
        return Entry({}, code("a"))

    thread = threading.Thread(target=lambda: found.through(key("a"), make))
    thread.start()
    working.wait()
    single_flight.WAIT_SECONDS = 0.1

    def ask() -> None:
        # The parent's process has the lock of the file still, and keeps it.
        flights = found._threads.join(key("a").digest, lambda: Entry({}, b"its own"))
        assert (b"its own", False) == (flights[0].code, flights[1])

    sys.stdout.write(f"child ended with {child(ask)}\n")
    done.set()
    thread.join()


def server_in_use(directory: str, url: str) -> None:
    """Fork while another thread holds every lock of the client of a Redis server."""
    found = Cache(Config(cache_dirs=(directory,), cache_url=url, cache_secret=b"secret"))
    found.put(key("parent"), Entry({}, code("parent")))
    pool = found._server._client.connection_pool
    holding, done = threading.Event(), threading.Event()

    def hold() -> None:
        with pool._lock, pool._fork_lock:
            holding.set()
            done.wait()

    threading.Thread(target=hold, daemon=True).start()
    holding.wait()

    def ask() -> None:
        assert found._server.put(found._address(key("child")), b"x")
        assert found._server.get(found._address(key("parent"))) is not None

    status = child(ask)
    done.set()
    both = all(found._server.get(found._address(key(name))) is not None for name in ("parent", "child"))
    sys.stdout.write(f"child ended with {status}, parent has {'both' if both else 'not both'}\n")


def within_work(directory: str) -> None:
    """Fork in the middle of making a result, in the thread that makes it."""
    found = Cache(Config(cache_dirs=(directory,)))
    statuses = []

    def make() -> Entry:
        pid = os.fork()
        if pid:
            statuses.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
            statuses.append(locked(directory, key("a").digest))
        return Entry({}, code("a"))

    parent = os.getpid()
    right = found.through(key("a"), make).code == code("a")
    if os.getpid() != parent:
        os._exit(not right)
    sys.stdout.write(f"{statuses[1]}, child ended with {statuses[0]}\n")


def locked(directory: str, address: bytes) -> str:
    """Return whether another process finds the lock of *address* held."""
    program = (
        "import os, sys; from numba_ptxlink.cache.single_flight import Processes\n"
        "processes = Processes(lambda: os.open(sys.argv[1], os.O_RDWR))\n"
        "with processes.lead(bytes.fromhex(sys.argv[2]), lambda: False, 0.1) as waited:\n"
        "    print('locked' if waited else 'free')"
    )
    command = [sys.executable, "-c", program, str(Path(directory, "locks")), address.hex()]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


class Slow(MetaPathFinder):
    """Delay the execution of the module *name* in this process until `go` is set."""

    def __init__(self, name: str) -> None:
        self.name, self.process = name, os.getpid()
        self.begun, self.go = threading.Event(), threading.Event()

    def find_spec(self, name, path=None, target=None):
        """Find *name* where it is, and have it run when it may."""
        if name != self.name or os.getpid() != self.process:
            return None
        spec = PathFinder.find_spec(name, path, target)
        run = spec.loader.exec_module

        def exec_module(module) -> None:
            self.begun.set()
            self.go.wait()
            run(module)

        spec.loader.exec_module = exec_module
        return spec


def while_another_thread_imports(name: str) -> None:
    """Fork while a link that fails imports *name*, and let the same link fail in the child."""

    def fail() -> None:
        with contextlib.suppress(AssembleError):
            linker.link(make_kernel().replace("ret;", "no;"), arch="sm_80")

    def fail_soon() -> None:
        signal.alarm(BOUND_SECONDS // 4)
        fail()

    slow = Slow(name)
    sys.meta_path.insert(0, slow)
    assert name not in sys.modules
    thread = threading.Thread(target=fail)
    thread.start()
    slow.begun.wait()
    ended = child(fail_soon)
    slow.go.set()
    thread.join()
    sys.stdout.write(f"child ended with {ended}\n")


WORK = (
    while_another_thread_imports,
    every_lock_held,
    while_another_thread_is_in_a_tool,
    while_another_thread_works,
    within_work,
    server_in_use,
)

if __name__ == "__main__":
    {each.__name__: each for each in WORK}[sys.argv[1]](*sys.argv[2:])
