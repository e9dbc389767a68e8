"""A fork while other threads hold locks: the child has to come to its end."""

from __future__ import annotations

import ast
import importlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from fork_worker import SOURCE, fork
from ptx_kernels import make_kernel

import numba_ptxlink as pl
from numba_ptxlink import _locks

PACKAGE = Path(pl.__file__).parent
ARCH = pl.Arch.of("sm_90")
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


class Recorder:
    """A library that notes its calls during which a fork would not wait."""

    def __init__(self, library) -> None:
        self.library = library
        self.calls: set[str] = set()
        self.exposed: set[str] = set()

    def __getattr__(self, name):
        value = getattr(self.library, name)
        if isinstance(value, type) or not callable(value):
            return value

        def call(*arguments):
            self.calls.add(name)
            if threading.get_ident() not in _locks._in_tools:
                self.exposed.add(name)
            return value(*arguments)

        return call


def test_a_fork_waits_for_every_function_of_a_library(monkeypatch):
    """Versions and lists have locks inside of NVIDIA's code, too."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from numba_ptxlink._native import _nvptxcompiler
    from numba_ptxlink._tools import nvfatbin, nvjitlink, nvptxcompiler, nvrtc, nvvm

    libraries = []

    def record(library):
        libraries.append(Recorder(library))
        return libraries[-1]

    monkeypatch.setattr(_nvptxcompiler, "lib", record(_nvptxcompiler.lib))
    for name in ("nvrtc", "nvjitlink", "nvvm"):
        module = importlib.import_module(f"cuda.bindings.{name}")
        monkeypatch.setitem(sys.modules, module.__name__, record(module))
    nvfatbin._library.cache_clear()
    monkeypatch.setattr(nvfatbin, "Guarded", lambda library: _locks.Guarded(record(library)))
    monkeypatch.setenv("NUMBA_PTXLINK_CACHE", "0")
    ptx = nvrtc.compile_source(SOURCE, "k.cu", ARCH).code
    cubin, _ = nvptxcompiler.compile_ptx(ptx, ["--gpu-name=sm_90"])
    nvjitlink.link([("cubin", "k", cubin)], ["-arch=sm_90"])
    nvfatbin.pack([("cubin", ARCH, "k", cubin)])
    nvvm.emitted_isa(ARCH)
    nvrtc.supported_archs.cache_clear()
    for tool in (nvrtc, nvptxcompiler):
        assert tool.supported_archs()
    assert nvptxcompiler.supported_ptx_versions()
    for tool in (nvrtc, nvptxcompiler, nvjitlink, nvfatbin):
        assert tool.version()
    assert [] == [library for library in libraries if not library.calls]
    assert [set()] * len(libraries) == [library.exposed for library in libraries]
    nvfatbin._library.cache_clear()


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


@pytest.mark.parametrize("module", ["numba_ptxlink._formats.texts", "email.feedparser"])
def test_a_child_imports_what_another_thread_was_importing(module):
    """A module that a thread of the parent had begun to import, ours or another's, is imported anew."""
    assert "child ended with 0\n" == fork("while_another_thread_imports", module)
