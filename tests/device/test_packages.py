"""The setuptools projects of the page about packages: edited, built again, and run on the CPU device."""

from __future__ import annotations

import hashlib
import os
import sys
import zipfile
from typing import TYPE_CHECKING

import cuda_toolkit
import doc_blocks
import processes
import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

pytestmark = pytest.mark.slow
BUILD_SDIST = "import setuptools.build_meta as backend; print(backend.build_sdist('dist'))"
# Results of y += 3 * x, or of its edits, for x = 0, 1, 2, 3 and y = 1.
LAUNCH = """
import ctypes
import launching

cuda, context, memory = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_uint64()
cuda.cuInit(0)
cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
cuda.cuCtxSetCurrent(context)
cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(32))
numbers = (ctypes.c_float * 8)(0, 1, 2, 3, 1, 1, 1, 1)
cuda.cuMemcpyHtoD_v2(memory, numbers, ctypes.c_size_t(32))
launching.saxpy(3.0, memory.value, memory.value + 16, 4, 0)
cuda.cuMemcpyDtoH_v2(numbers, memory, ctypes.c_size_t(32))
print(list(numbers)[4:])
"""


@pytest.fixture
def project(tmp_path):
    """Return a function that writes a project of the page: its own files, and shared ones by name."""
    pytest.importorskip("pybind11")

    def write(name: str, *shared: str) -> Path:
        for block in doc_blocks.blocks(doc_blocks.DOCS / "how-to" / "package.md"):
            if block.file.startswith(f"{name}/") or block.file in shared:
                path = tmp_path / name / block.file.removeprefix(f"{name}/")
                path.parent.mkdir(exist_ok=True)
                path.write_text(block.text)
        return tmp_path / name

    return write


def built(source: Path, environ: Mapping[str, str]) -> dict[str, bytes]:
    """Return the files of the wheel of a folder or a source distribution, but for its metadata."""
    wheels = source.parent / "wheels"
    options = ("-q", "--no-build-isolation", "--no-deps", "-w", wheels)
    processes.run(sys.executable, "-m", "pip", "wheel", *options, source, cwd=source.parent, env=environ)
    (wheel,) = wheels.iterdir()
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
    wheel.unlink()
    return files


def edit(file: Path, old: str, new: str) -> None:
    """Replace text of a file."""
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))


def test_an_edited_kernel_is_in_the_next_wheel(project, tmp_path):
    """The wheel has only the module, with the edited kernel, also if built from a source distribution."""
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    folder = project("launching")
    environ = processes.environ(NUMBA_PTXLINK_DEVICE="cpu", NUMBA_PTXLINK_CPU_ARCH="9.0", PYTHONPATH=path)
    printed = []
    for new in ("+= a * x[i]", "-= a * x[i]", "= a * x[i]"):
        edit(folder / "vectors.py", {"-=": "+= a * x[i]", "= ": "-= a * x[i]"}.get(new[:2], new), new)
        source = folder
        if new.startswith("= "):
            name = processes.run(sys.executable, "-c", BUILD_SDIST, cwd=folder, env=environ).stdout
            source = folder / "dist" / name.split()[-1]
        ((module, code),) = built(source, environ).items()
        (tmp_path / module).write_bytes(code)
        printed.append(processes.run(sys.executable, "-c", LAUNCH, cwd=tmp_path, env=environ).stdout)
    assert printed == ["[1.0, 4.0, 7.0, 10.0]\n", "[1.0, -2.0, -5.0, -8.0]\n", "[0.0, 3.0, 6.0, 9.0]\n"]


def test_an_edited_function_is_in_the_next_wheel(project, tmp_path):
    """With nvcc, an edit of the Python function and one of the CUDA C++ each make another module."""
    toolkit = cuda_toolkit.lay_out(tmp_path)
    folder = project("by_setuptools", "udfs.py", "apply.cu", "module.cpp")
    environ = doc_blocks.environment(toolkit, tmp_path / "cache")
    digests = []
    for file, old, new in (("udfs.py", "1 + step", "2 + step"), ("apply.cu", "255", "127"), ("", "", "")):
        source = folder
        if not file:
            name = processes.run(sys.executable, "-c", BUILD_SDIST, cwd=folder, env=environ).stdout
            source = folder / "dist" / name.split()[-1]
        ((_, code),) = built(source, environ).items()
        digests.append(hashlib.sha256(code).hexdigest())
        if file:
            edit(folder / file, old, new)
    assert len({*digests}) == 3
