"""The tests themselves: modules that the default run skips, and the quotes and tests of mutants."""

from __future__ import annotations

import ast
import os
import re
import runpy
import sys
from pathlib import Path

import processes
import pytest

FOLDER = Path(__file__).parent


def test_every_mutant_changes_one_text():
    """The text that a mutant replaces occurs once in its file, and the tests that should catch it exist."""
    rows = [row for rows in runpy.run_path(FOLDER / "mutants.py")["MUTANTS"].values() for row in rows]
    texts = {file: (FOLDER.parent / "numba_ptxlink" / file).read_text() for file, *_ in rows}
    assert [(file, old) for file, old, *_ in rows if texts[file].count(old) != 1] == []
    words = {word for *_, tests in rows for word in tests.split()}
    assert {word for word in words if not (word.startswith("-") or (FOLDER / word).exists())} == set()


# Packages that tests may import beside the public modules: they are independent of the rest.
PURE = tuple(f"numba_ptxlink.{name}" for name in ("_formats.ptx", "_fusion", "_cabi"))


def private(path: Path) -> list[str]:
    """Return the private modules that a file imports, but for those of pure packages."""
    imported = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and not node.level:
            imported += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            imported += [alias.name for alias in node.names]
    return [
        name for name in imported if re.match(r"numba_ptxlink(\.\w+)*\._", name) and not name.startswith(PURE)
    ]


def test_most_tests_speak_to_the_public_interface():
    """At most 40 % of the files import private modules, so that these may change."""
    files = list(FOLDER.rglob("*.py"))
    importers = {str(path.relative_to(FOLDER)) for path in files if private(path)}
    assert len(importers) <= 0.4 * len(files), sorted(importers)


@pytest.mark.slow
def test_the_tests_of_a_device_are_collected_without_one():
    """Test modules that are skipped without a device can be imported without one."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", FOLDER / "gpu"]
    done = processes.run(*command, cwd=FOLDER.parent, env=environ)
    files = {line.partition("::")[0].rpartition("/")[2] for line in done.stdout.splitlines() if "::" in line}
    assert files == {path.name for path in (FOLDER / "gpu").glob("test_*.py")}
