"""What CUDA 12's nvJitLink does silently, or stops the process for, is refused before it is asked."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import environments
import pytest

pytestmark = pytest.mark.slow

WORKER = Path(__file__).with_name("older.py")


@pytest.mark.parametrize("release", ["12.9", pytest.param("12.4", marks=pytest.mark.long)])
def test_wrong_links_are_refused(release):
    """Wrong prototypes and unknown architectures are errors, and the process goes on."""
    env = {**os.environ, "NUMBA_PTXLINK_CACHE": "0"}
    try:
        with environments.environment(f"cuda-{release}") as python:
            run = subprocess.run([python, WORKER], env=env, capture_output=True, text=True, check=False)
    except environments.Unavailable as error:
        pytest.skip(str(error))
    assert not run.returncode, run.stderr[-4000:]
    outcomes = json.loads(run.stdout.splitlines()[-1])
    assert ("done", "done") == (outcomes["right"], outcomes["doctor"])
    assert f"{release} does not know sm_119" in outcomes["unknown"]
