"""A fork while other threads hold locks: the child has to come to its end."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fork_worker import fork

import numba_ptxlink as pl


def test_one_module_makes_locks():
    """No other module creates a lock: a forked child might inherit it locked."""
    lock_calls = re.compile(r"threading\.(R?Lock|Condition|Semaphore)\(|@\S*cached_property|register_at_fork")
    files = Path(pl.__file__).parent.rglob("*.py")
    assert ["_locks.py"] == [path.name for path in files if lock_calls.search(path.read_text())]


def test_a_child_works_whatever_locks_were_held(tmp_path):
    """With every lock of the package held by another thread, the child compiles, keeps and finds."""
    pytest.importorskip("cuda.bindings.nvrtc")
    assert "child ended with 0\n" == fork("every_lock_held", tmp_path / "cache")
