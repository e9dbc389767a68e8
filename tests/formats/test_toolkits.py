"""What the tools of every CUDA release write is read and linked, whatever release that is."""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import toolkit_worker

import numba_ptxlink as pl
from numba_ptxlink._formats import elf
from numba_ptxlink._link.read import Input

ARCH = pl.Arch.of(f"sm_{toolkit_worker.ARCH}")
MINORS = ("12.4", "12.5", "12.6", "12.8", "12.9", "13.0", "13.1", "13.2", "13.3", "13.4", "13.5")
WHEELS = ("nvidia-nvjitlink", "nvidia-cuda-nvrtc", "nvidia-nvfatbin", "nvidia-cuda-nvcc")
# What nvcc of the wheels needs besides; older wheels have no nvcc.
COMPILER = ("nvidia-cuda-crt", "nvidia-nvvm", "nvidia-cuda-runtime")
# What came later: modes of compression with 12.6, and the linker's -r with 13.0.
OLD = ("*-compress-mode=*", "relocatable_*", "linked_*-compress-mode=*")
KINDS = {"ptx", "cubin", "ltoir", "fatbin", "object", "archive"}


def make(folder: Path, out: Path) -> dict[str, str]:
    """Return what the toolkit in *folder* could not make of what it is asked for; the rest is in *out*."""
    libraries = sorted({str(path.parent) for path in folder.rglob("lib*.so.*")})
    run = subprocess.run(
        [sys.executable, toolkit_worker.__file__, folder, out],
        env={**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(libraries)},
        capture_output=True,
        text=True,
        check=True,
    )
    missing: dict[str, str] = json.loads(run.stdout)
    return missing


def unread(out: Path) -> dict[str, str]:
    """Return the files in *out* that are refused or do not link, and why."""
    wrong = {}
    caller = {kind: (out / f"k.{kind}").read_bytes() for kind in ("cubin", "ltoir")}
    for path in sorted(out.iterdir()):
        kind = path.suffix[1:]
        if kind not in KINDS or path.name.startswith("k."):
            continue
        source = Input(kind, path.name, path.read_bytes())
        try:
            if kind == "cubin":
                elf.read(source.code, path.name)
            if path.name.startswith("f"):
                by_lto = "ltoir" in path.name
                pl.link(caller["ltoir" if by_lto else "cubin"], source, arch=ARCH)
        except pl.PtxlinkError as error:
            wrong[path.name] = str(error)
    return wrong


def installed() -> Path:
    """Return the folder of the toolkit in this environment."""
    folders = [
        path.parents[1] for each in sys.path for path in Path(each).glob("nvidia/*/lib/libnvJitLink.so.*")
    ]
    if not folders:
        pytest.skip("there is no nvJitLink in this environment's wheels")
    return folders[0]


@pytest.mark.slow
def test_the_installed_toolkit(tmp_path):
    """Code with shared, zeroed, constant, managed and texture data is read and linked in every kind."""
    make(installed(), tmp_path)
    assert {"f.ptx", "f.cubin", "f.ltoir", "f_ptxas.cubin", "f_cubin_ptx_ltoir.fatbin"} <= {
        path.name for path in tmp_path.iterdir()
    }
    assert {} == unread(tmp_path)


@pytest.fixture(scope="module")
def scratch(request) -> Path:
    """Return a folder that is kept from run to run."""
    return Path(request.config.cache.mkdir("toolkits"))


def unpack(minor: str, scratch: Path) -> Path:
    """Return a folder with the tools of a CUDA release, out of the package index."""
    folder = scratch / minor
    done = folder / "done"
    if done.exists():
        return folder
    old = minor.startswith("12.")
    for package in (*WHEELS, *(() if old else COMPILER)):
        wheels = folder / "wheels" / package
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir"]
        run = subprocess.run(
            [*command, "--dest", wheels, f"{package}{'-cu12' if old else ''}=={minor}.*"],
            capture_output=True,
            text=True,
            check=False,
        )
        if run.returncode:
            pytest.skip(f"the package index has no {package} {minor}: {run.stderr.strip()[-200:]}")
        for wheel in wheels.glob("*.whl"):
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
            wheel.unlink()
    done.touch()
    return folder


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.parametrize("minor", MINORS)
def test_every_release(minor, scratch, tmp_path):
    """What the tools of a release write is read and linked, and they make all that they are known to make."""
    missing = make(unpack(minor, scratch), tmp_path)
    allowed = OLD if minor.startswith("12.") else ()
    assert {} == {
        name: why for name, why in missing.items() if not any(fnmatch.fnmatch(name, each) for each in allowed)
    }
    assert {} == unread(tmp_path)
