"""stumpy's GPU functions on the CPU, in an environment of pinned packages and this checkout."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import environments
import pytest

pytestmark = [pytest.mark.slow, pytest.mark.long]

SCRIPT = Path(__file__).with_name("stumpy_on_cpu.py")


def test_stumpy_finds_the_same_indices():
    """Matrix profiles by stumpy's kernels on the CPU are those of its own CPU functions, indices exactly."""
    try:
        with environments.environment("stumpy") as python:
            said = subprocess.check_output([str(python), "-W", "ignore", str(SCRIPT)], text=True)
    except environments.Unavailable as reason:
        pytest.skip(f"no environment for stumpy: {reason}")
    found, launches = json.loads(said)
    assert {"stump of 2": [True, True], "stump of 4": [True, True], "aamp of 2": [True, True]} == found
    assert launches > 1000
