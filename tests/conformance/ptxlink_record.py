"""
A pytest plugin for the test suite of a front end: the outcome of each test, and the links of each process.

A failed test has the first lines of its error. If the CPU device runs with checks, a test has the reports of
its kernels. `run.py` and the tests of `tests/thirdparty` load the plugin, and read the file of each process.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator

_FOLDER = Path(os.environ["PTXLINK_CONFORMANCE_DIR"])
# The phase that decides comes first: a test that failed may still be torn down without an error.
_RANK = ("failed", "error", "xpassed", "xfailed", "skipped", "passed")
_MAX_ERROR_LINES = 8
_outcomes: dict[str, str] = {}
_errors: dict[str, str] = {}
_reports: dict[str, list[str]] = {}


class _ReportHandler(logging.Handler):
    """Keeps the reports of checks until a phase of a test has ended."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a report."""
        self.texts.append(record.getMessage())


_handler = _ReportHandler()


def pytest_configure() -> None:
    """Set an architecture for numba-cuda-mlir if there is no device; numba-cuda reads one itself."""
    logging.getLogger("numba_ptxlink._cpu.checks").addHandler(_handler)
    cc = os.environ.get("PTXLINK_CONFORMANCE_CC")
    if cc:
        with contextlib.suppress(ImportError):
            from numba_cuda_mlir import tools

            tools._cached_cc = tuple(map(int, cc.split(".")))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the reports of checks to the report of a phase, which xdist sends to its controller."""
    report = yield
    report.user_properties.append(("checks", _handler.texts[:]))
    _handler.texts.clear()
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Note the outcome of one phase of one test."""
    outcome: str = report.outcome
    test = _identify(report)
    texts = [text for name, value in report.user_properties if name == "checks" for text in value]
    if texts:
        _reports[test] = list(dict.fromkeys([*_reports.get(test, []), *texts]))
    if hasattr(report, "wasxfail"):
        outcome = "xfailed" if report.outcome == "skipped" else "xpassed"
    elif report.failed and report.when != "call":
        outcome = "error"
    elif report.passed and report.when != "call":
        return
    _outcomes[test] = min(_outcomes.get(test, outcome), outcome, key=_RANK.index)
    if report.failed:
        _errors.setdefault(test, _first_lines(report.longreprtext))


def _first_lines(text: str) -> str:
    """Return the lines of a traceback that pytest marks as those of the error."""
    lines = text.splitlines()
    marked = [line for line in lines if line.startswith("E ")] or lines[-_MAX_ERROR_LINES:]
    return "\n".join(marked[:_MAX_ERROR_LINES])


def _identify(report: pytest.TestReport) -> str:
    # The tests lie outside of pytest's root, where an identifier may lack its file.
    file = report.location[0].rpartition("numba/cuda/tests/")[2].removeprefix("tests/")
    return f"{file}::{report.nodeid.partition('::')[2]}"


def pytest_collectreport(report: pytest.CollectReport) -> None:
    """Note a module that could not be collected."""
    if report.failed:
        _outcomes[report.nodeid] = "error"
        _errors[report.nodeid] = _first_lines(report.longreprtext)


def _write() -> None:
    plugin = sys.modules.get("numba_ptxlink._plugin")
    status = plugin.status() if plugin is not None else None
    entry = {
        "pid": os.getpid(),
        "outcomes": _outcomes,
        "errors": _errors,
        "reports": _reports,
        "active": bool(status and status.active),
        "reason": status.reason if status else "numba_ptxlink was never imported",
        "trigger": status.trigger if status else None,
        "assembled": status.assembled if status else 0,
        "linked": status.linked if status else 0,
    }
    _FOLDER.joinpath(f"{os.getpid()}.json").write_text(json.dumps(entry))


def pytest_unconfigure() -> None:
    """Write the records of this process; an xdist worker may be ended before its exit handlers run."""
    _write()


atexit.register(_write)
