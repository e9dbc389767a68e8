"""The tests themselves: what the default run does not look at."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent


@pytest.mark.slow
def test_the_tests_of_a_device_are_collected_without_one():
    """Files that are skipped whole where there is no device can be imported there all the same."""
    environ = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", FOLDER / "gpu"]
    done = subprocess.run(
        command, cwd=FOLDER.parent, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    files = {line.partition("::")[0].rpartition("/")[2] for line in done.stdout.splitlines() if "::" in line}
    assert files == {path.name for path in (FOLDER / "gpu").glob("test_*.py")}
