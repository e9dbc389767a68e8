"""The example, on a device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[2] / "examples" / "transform" / "transform.py"


def test_the_example_verifies_both_links(tmp_path):
    """The example runs the kernel linked as PTX and as LTO-IR and finds both to match NumPy."""
    run = subprocess.run(
        [sys.executable, str(EXAMPLE), "--elements", "100001"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "Device: " in run.stdout
    assert "compute capability" in run.stdout
    assert "PTX link: 100001 elements match NumPy" in run.stdout
    assert "LTO link: 100001 elements match NumPy" in run.stdout
