"""Run programs that have to succeed."""

from __future__ import annotations

import os
import subprocess
from typing import Any


def run(*command: object, quiet: bool = False, **options: Any) -> subprocess.CompletedProcess[str]:
    """
    Run *command*, assert that it succeeds, and return the process with both outputs.

    Args:
        command: The program and its arguments.
        quiet: Whether standard error has to be empty.
        options: Options of `subprocess.run`.
    """
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, f"{done.stdout[-4000:]}{done.stderr[-4000:]}"
    assert not (quiet and done.stderr), f"{done.stdout}{done.stderr}"
    return done


def environ(**variables: str) -> dict[str, str]:
    """Return this process's variables but for Numba's and this package's, and *variables*."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA")}
    return {**inherited, **variables}
