"""The example of launchers, on a device: a C++ program that finds no Python."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import numba_ptxlink as pl

EXAMPLE = Path(__file__).parents[2] / "examples" / "launcher"


@pytest.mark.parametrize("arch", ["device", "sm_75"])
def test_the_example_launches_without_python(tmp_path, arch):
    """Four threads launch, from machine code and from PTX of an older architecture, with an empty PATH."""
    from cuda.core import Device

    home = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda"))
    if not (home / "include" / "cuda_runtime_api.h").exists() or not shutil.which("make"):
        pytest.skip(f"no make, or no CUDA toolkit in {home}")
    sm = pl.Arch.of(tuple(Device(0).compute_capability)).sm if arch == "device" else arch
    ptx = pl.export(EXAMPLE / "udfs.py", archs=[sm], emit=["ptx"]).read("ptx")
    if arch != "device" and not pl.driver_can_load_ptx(ptx):
        pytest.skip("the driver is older than the toolkit, and reads none of its PTX")
    command = [shutil.which("make"), "-s", "-C", str(EXAMPLE), f"OUT={tmp_path}", f"ARCHS=--arch {sm}"]
    subprocess.run(
        [*command, f"CUDA_HOME={home}", f"PTXLINK={sys.executable} -m numba_ptxlink.cli"], check=True
    )
    # The driver is where the loader's cache or this variable says.
    libraries = os.pathsep.join(filter(None, (str(home / "lib64"), os.environ.get("LD_LIBRARY_PATH"))))
    done = subprocess.run(
        [tmp_path / "saxpy"],
        env={"PATH": "", "LD_LIBRARY_PATH": libraries},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "4 threads, 100001 elements each: right\n") == (done.returncode, done.stdout), done.stderr
