"""The example, where there is no device."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLE = Path(__file__).parents[1] / "examples" / "transform" / "transform.py"


def test_without_a_device_the_example_links_and_says_what_it_did_not_run(tmp_path):
    """Without a GPU the example links both ways, shows symbols and sizes, says what was not run, exits 0."""
    run = subprocess.run(
        [sys.executable, str(EXAMPLE), "--arch", "sm_80", "--out-dir", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**__import__("os").environ, "CUDA_VISIBLE_DEVICES": ""},
    )
    assert run.returncode == 0, run.stderr
    assert "compiling for sm_80" in run.stdout
    assert "float user_transform(float value, int32_t index)" in run.stdout
    assert "2 PTX as one, 1 call inlined), with apply_transform" in run.stdout
    assert "Not run: the kernels and their comparison with NumPy need a GPU." in run.stdout
    assert (tmp_path / "user_transform.sm_80.ltoir").exists()
