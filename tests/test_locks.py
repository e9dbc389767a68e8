"""A fork while other threads hold locks: the child has to come to its end."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from fork_worker import fork
from ptx_kernels import make_kernel

import numba_ptxlink as pl

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
EXECUTORS = {"children.py", "exporter.py", "export.py", "jobs.py"}


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


FIRST = """
import os, signal, sys, threading
import numba_ptxlink as pl
def work():
    while True:
        pl.assemble(sys.argv[1], "sm_90")
for _ in range(4):
    threading.Thread(target=work, daemon=True).start()
for _ in range(5):
    if not (pid := os.fork()):
        signal.alarm(60)
        pl.assemble(sys.argv[1], "sm_90")
        os._exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
os._exit(0)
"""


def test_a_child_may_be_forked_during_the_first_call():
    """Once the package alone is imported, a child works that is forked while threads import the rest."""
    command = [sys.executable, "-W", "ignore", "-c", FIRST, make_kernel()]
    env = {**os.environ, "NUMBA_PTXLINK_CACHE": "0"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    assert "0\n" * 5 == done.stdout


@pytest.mark.parametrize("module", ["numba_ptxlink._link.explain", "difflib"])
def test_a_child_imports_what_another_thread_was_importing(module):
    """A module that a thread of the parent had begun to import, ours or another's, is imported anew."""
    assert "child ended with 0\n" == fork("while_another_thread_imports", module)
