"""A pytest plugin that `run.py` loads into a front end's test-suite: outcomes per test, links per process."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest

_FOLDER = Path(os.environ["PTXLINK_CONFORMANCE_DIR"])
# The phase that decides comes first: a test that failed may still be torn down without an error.
_RANK = ("failed", "error", "xpassed", "xfailed", "skipped", "passed")
_outcomes: dict[str, str] = {}


def pytest_configure() -> None:
    """Give numba-cuda-mlir an architecture where there is no device; numba-cuda reads one itself."""
    cc = os.environ.get("PTXLINK_CONFORMANCE_CC")
    if cc:
        with contextlib.suppress(ImportError):
            from numba_cuda_mlir import tools

            tools._cached_cc = tuple(map(int, cc.split(".")))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of one phase of one test."""
    outcome: str = report.outcome
    if hasattr(report, "wasxfail"):
        outcome = "xfailed" if report.outcome == "skipped" else "xpassed"
    elif report.failed and report.when != "call":
        outcome = "error"
    elif report.passed and report.when != "call":
        return
    test = _identify(report)
    _outcomes[test] = min(_outcomes.get(test, outcome), outcome, key=_RANK.index)


def _identify(report: pytest.TestReport) -> str:
    # The tests lie outside of pytest's root, where an identifier may lack its file.
    file = report.location[0].rpartition("numba/cuda/tests/")[2].removeprefix("tests/")
    return f"{file}::{report.nodeid.partition('::')[2]}"


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a module that could not be collected."""
    if report.failed:
        _outcomes[report.nodeid] = "error"


def _write() -> None:
    plugin = sys.modules.get("numba_ptxlink._plugin")
    status = plugin.status() if plugin is not None else None
    entry = {
        "pid": os.getpid(),
        "outcomes": _outcomes,
        "active": bool(status and status.active),
        "reason": status.reason if status else "numba_ptxlink was never imported",
        "trigger": status.trigger if status else None,
        "assembled": status.assembled if status else 0,
        "linked": status.linked if status else 0,
    }
    _FOLDER.joinpath(f"{os.getpid()}.json").write_text(json.dumps(entry))


def pytest_unconfigure() -> None:
    """Write what this process knows; an xdist worker may be ended before its exit handlers run."""
    _write()


atexit.register(_write)
