"""
Exports, links and kernels in environments with other releases of CUDA, against the table in the docs.

The environments take 0.6 to 1.2 GB each and are kept where those of tests/thirdparty are.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from pathlib import Path

import environments
import outcome_tables
import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
OUTCOMES = environments.ROOT / "docs" / "reference" / "toolkits.json"
# A release of the older major version, with a linker older than nvPTXCompiler; more releases take minutes.
SHORT = ("12.9",)


def cell(text: str) -> str:
    """Return *text* as it stands in a cell."""
    return text.replace("|", "/").replace("<", "&lt;")


@pytest.fixture(
    params=[
        pytest.param(release, marks=[] if release in SHORT else pytest.mark.long)
        for release in environments.TOOLKITS
    ]
)
def release_outcomes(request, tmp_path):
    """Return a release, and the result of each step in an environment with it."""
    with contextlib.ExitStack() as stack:
        try:
            python = stack.enter_context(environments.environment(f"cuda-{request.param}"))
        except environments.Unavailable as error:
            pytest.skip(str(error))
        run = subprocess.run(
            [python, HERE / "worker.py", tmp_path],
            env={**os.environ, "NUMBA_PTXLINK_CACHE": "0"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert not run.returncode, run.stderr[-4000:]
    return request.param, {step: cell(text) for step, text in json.loads(run.stdout.splitlines()[-1]).items()}


def test_the_table_tells_what_happens(release_outcomes, request):
    """Each artifact is built and linked in each toolkit, or refused, as the documentation says."""
    release, outcomes = release_outcomes
    update = request.config.getoption("--update-golden")
    assert outcomes == outcome_tables.stored_outcomes(OUTCOMES, release, outcomes, update=update)
