"""The oldest packages that pyproject.toml allows work together, without a driver."""

from __future__ import annotations

import os
import re

import environments
import processes
import pytest

PROJECT = (environments.ROOT / "pyproject.toml").read_text()
UDFS = """
from numba_ptxlink import udf

@udf("float32(float32, float32)")
def damp(value, time):
    return value * time
"""
KERNEL = """
#include "udfs.h"
extern "C" __global__ void k(float* p) { p[0] = damp(p[1], p[2]); }
"""


def bounds(*tables: str) -> dict[str, str]:
    """Return the lower bounds that the lists named *tables* of pyproject.toml state."""
    lists = "".join(re.findall(rf"(?ms)^(?:{'|'.join(tables)}) = \[\n(.*?)^\]", PROJECT))
    return dict(re.findall(r'^  "([\w.-]+)>=([\d.]+)', lists, re.MULTILINE))


def parts(version: str) -> list[int]:
    """Return the numbers of *version*."""
    return [int(part) for part in version.split(".")]


@pytest.mark.parametrize("major", environments.LOWEST)
def test_the_environments_hold_the_lower_bounds(major):
    """The tested environments hold the lower bounds that pyproject.toml states."""
    installed = dict(re.findall(r"([\w.-]+)==([\d.]+)", "\n".join(reversed(environments.LOWEST[major]))))
    lower_bounds = bounds("dependencies", "numba-cuda", f"toolkit{major}")
    assert {"cffi", "cuda-bindings", "cuda-core", "cuda-pathfinder"} <= lower_bounds.keys()
    for name, version in lower_bounds.items():
        width = len(parts(version))
        assert parts(version) == parts(installed[name])[:width], name


@pytest.mark.slow
@pytest.mark.parametrize("major", environments.LOWEST)
def test_the_lower_bounds_work(major, tmp_path):
    """An export with all artifacts, a link of its LTO-IR into CUDA C++, and a doctor that misses nothing."""
    (tmp_path / "udfs.py").write_text(UDFS)
    (tmp_path / "kernel.cu").write_text(KERNEL)
    env = {**os.environ, "NUMBA_PTXLINK_CACHE": "0"}
    try:
        with environments.environment(f"lowest-{major}") as python:

            def run(*arguments: str) -> str:
                command = [python, "-m", "numba_ptxlink", *arguments]
                done = processes.run(*command, cwd=tmp_path, env=env)
                return done.stdout

            run("export", "udfs.py", "-o", "out", "--arch", "sm_80")
            run("link", "kernel.cu", "out/udfs.sm_80.ltoir", "-I", "out", "-o", "k.cubin", "--arch", "sm_80")
            report = run("doctor")
    except environments.Unavailable as error:
        pytest.skip(str(error))
    assert (tmp_path / "out" / "udfs.fatbin").read_bytes().startswith(b"\x50\xed\x55\xba")
    assert b"damp" not in (tmp_path / "k.cubin").read_bytes()
    # A machine may have another nvcc, for which the doctor reports missing parts.
    assert [] == [line for line in report.splitlines() if "is missing" in line and "nvcc -dlto" not in line]
