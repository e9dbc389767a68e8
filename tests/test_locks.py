"""A fork while other threads hold locks: the child has to come to its end."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from fork_worker import fork

import numba_ptxlink as pl
from numba_ptxlink import _locks

PACKAGE = Path(pl.__file__).parent
# What is a lock, or has one inside that a forked child would inherit.
LOCKS = {
    "threading": {"Lock", "RLock", "Condition", "Event", "Semaphore", "BoundedSemaphore", "Barrier", "Timer"},
    "functools": {"cached_property"},
    "os": {"register_at_fork"},
    "_thread": None,
    "queue": None,
    "concurrent": None,
    "multiprocessing": None,
}

# The executors of one export, which the process that asked for it waits for.
EXECUTORS = {"exporter.py", "processes.py", "schedule.py", "workers.py"}


def forbidden(source: str) -> list[str]:
    """Return what *source* takes from elsewhere that is a lock."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [each.name for each in node.names if LOCKS.get(each.name.partition(".")[0], ()) is None]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = LOCKS.get(str(node.module).partition(".")[0], ())
            found += [each.name for each in node.names if names is None or each.name in names]
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found += [node.attr] if node.attr in (LOCKS.get(node.value.id) or ()) else []
    return found


@pytest.mark.parametrize(
    "source",
    [
        "import threading\nx = threading.Lock()",
        "from threading import RLock",
        "def f():\n    from concurrent.futures import Future",
        "import queue",
        "import os\nos.register_at_fork(after_in_child=print)",
    ],
)
def test_a_lock_is_seen(source):
    """The walk below sees each way to come by a lock."""
    assert [] != forbidden(source)


def test_one_module_makes_locks():
    """No other module has a lock of its own, which a forked child would find held."""
    modules = [path for path in PACKAGE.rglob("*.py") if path.name not in {"_locks.py", *EXECUTORS}]
    assert {} == {path.name: found for path in modules if (found := forbidden(path.read_text()))}


def test_a_child_works_whatever_locks_were_held(tmp_path):
    """With every lock of the package held by another thread, the child compiles, keeps and finds."""
    pytest.importorskip("cuda.bindings.nvrtc")
    assert "all held, child ended with 0\n" == fork("every_lock_held", tmp_path / "cache")


def test_a_fork_waits_for_calls_into_libraries():
    """A fork happens after other threads' calls into NVIDIA's libraries, and within one of its own thread."""
    assert "call fork 0 0\n" == fork("while_another_thread_is_in_a_tool")


def test_a_child_makes_what_another_thread_was_making(tmp_path):
    """What a thread of the parent works on when it forks, the child makes itself."""
    assert "child ended with 0\n" == fork("while_another_thread_works", tmp_path / "cache")


def test_a_thread_may_fork_while_it_makes_a_result(tmp_path):
    """Both processes come to the end of the work in which they parted, and the parent keeps its file lock."""
    assert "locked, child ended with 0\n" == fork("within_work", tmp_path / "cache")


@pytest.mark.parametrize("module", ["numba_ptxlink._formats.ptx.module", "email.feedparser"])
def test_a_child_imports_what_another_thread_was_importing(module):
    """A module that a thread of the parent had begun to import, ours or another's, is imported anew."""
    assert "child ended with 0\n" == fork("while_another_thread_imports", module)


def test_what_a_lock_guards_can_be_forgotten():
    """In a child a lock is new, and what only the parent's threads could end is dropped."""
    guarded = ["theirs"]
    lock = _locks.Lock(forget=guarded.clear)
    before = lock.held
    lock.renew()
    assert ([], True) == (guarded, lock.held is not before)
