"""Random programs executed on the device, by stock numba-cuda and with the plugin."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

# Machine code is linked by numba-cuda alone, which the CPU cannot run.
pytestmark = pytest.mark.gpu
SCRIPT = Path(__file__).parents[1] / "differential" / "execute.py"


@pytest.mark.parametrize("number", [100, pytest.param(1000, marks=pytest.mark.slow)])
def test_programs_leave_the_same_memory(number):
    """All memory, all that is printed and all errors are stock's."""
    run = subprocess.run(
        [sys.executable, str(SCRIPT), "--programs", str(number)], capture_output=True, text=True, check=False
    )
    counts = re.search(r"(\d+) programs, (\d+) differences", run.stdout)
    assert counts, run.stdout + run.stderr
    assert int(counts[1]) >= number
    assert int(counts[2]) == 0, run.stdout
