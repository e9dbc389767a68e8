"""Programs of two units on a device, linked as one PTX, beside the same program compiled as one unit."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).parents[1] / "differential" / "inlined.py"
COUNT = 4


@pytest.mark.parametrize("first", range(3000, 3040, COUNT))
def test_programs_of_two_units_compute_the_same(first):
    """What a call passes and returns arrives, inlined or not; a trap ends only a process of few programs."""
    command = [sys.executable, PROGRAM, "--first", str(first), "--programs", str(COUNT), "--workers", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert f"{COUNT} of {COUNT} programs" in done.stdout
    assert f": {COUNT} equal\n0 differences\n" in done.stdout
