"""A compiler that is called from the root directory, while the process stays where it is."""

from __future__ import annotations

import os

import pytest

from numba_ptxlink._arch import Arch
from numba_ptxlink._tools import nvrtc, working_directory

SOURCE = '#include "mine.h"\nextern "C" __device__ float f(float x) { return x + MINE; }\n'


def test_only_the_thread_is_elsewhere():
    """The work sees the root directory, and the process its own one."""
    if not working_directory.available():
        pytest.skip("this system gives a thread no working directory of its own")
    here = os.getcwd()  # noqa: PTH109 - what is tested
    assert ("/", here) == (working_directory.in_root(os.getcwd), os.getcwd())  # noqa: PTH109


def test_an_error_of_the_work_is_raised():
    """What the work raises reaches the caller."""
    with pytest.raises(ZeroDivisionError):
        working_directory.in_root(lambda: 1 // 0)


def test_relative_include_directories_are_those_of_the_process(tmp_path, monkeypatch):
    """Directories of headers keep their meaning, and LTO-IR has equal bytes from two working directories."""
    monkeypatch.setenv("NUMBA_PTXLINK_CACHE", "0")
    codes = []
    for name in ("a", "longer"):
        (tmp_path / name / "headers").mkdir(parents=True)
        (tmp_path / name / "headers" / "mine.h").write_text("#define MINE 1\n")
        monkeypatch.chdir(tmp_path / name)
        compiled = nvrtc.compile_source(
            SOURCE, "f.cu", Arch.of("sm_90"), output="ltoir", include_dirs=["headers"], in_root=True
        )
        codes.append(compiled.code)
    if working_directory.available():
        assert codes[0] == codes[1]
