"""The device has the results of the tests' PTX machine, and a linked program those of its modules."""

from __future__ import annotations

import sys
from pathlib import Path

import processes
import pytest

# The CPU is held against the same machine in tests/cpu.
pytestmark = pytest.mark.gpu
SCRIPT = Path(__file__).parents[1] / "ptx_machine" / "device.py"


def test_the_device_and_the_machine_agree():
    """Bit for bit: instructions with random operands, and random programs, as modules and as one."""
    command = [sys.executable, SCRIPT, "--programs", "60"]
    done = processes.run(*command)
    assert ": 0 differences" in done.stdout
