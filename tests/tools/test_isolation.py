"""A compiler that is called from the root directory, while the process stays where it is."""

from __future__ import annotations

import os
import select
import threading
from types import SimpleNamespace

import directories
import pytest

from numba_ptxlink._arch import Arch
from numba_ptxlink._tools import nvrtc
from numba_ptxlink.errors import LinkError

nvrtc_binding = pytest.importorskip("cuda.bindings.nvrtc")

SOURCE = '#include "mine.h"\nextern "C" __device__ float f(float x) { return x + MINE; }\n'


@pytest.fixture
def uncached(monkeypatch):
    """Let every compilation run."""
    monkeypatch.setattr(nvrtc.cache, "cached", lambda _, make: make())


@pytest.mark.usefixtures("uncached")
def test_a_pipe_that_is_closed_meanwhile_ends(monkeypatch, tmp_path):
    """A compilation keeps no file of the process open: who reads a pipe sees its end before that of NVRTC."""
    compiling, done = threading.Event(), threading.Event()
    original = nvrtc_binding.nvrtcCompileProgram

    def slow(*arguments):
        compiling.set()
        assert done.wait(60)
        return original(*arguments)

    monkeypatch.setattr(nvrtc_binding, "nvrtcCompileProgram", slow)
    reader, writer = os.pipe()
    thread = threading.Thread(target=compile_in, args=(tmp_path,), kwargs={"name": "pipe.cu"})
    thread.start()
    assert compiling.wait(60)
    os.close(writer)
    try:
        assert ([reader], [], []) == select.select([reader], [], [], 10)
        assert b"" == os.read(reader, 1)
    finally:
        done.set()
        thread.join()
        os.close(reader)


@pytest.mark.usefixtures("uncached")
def test_the_process_stays_where_it_is(tmp_path):
    """Neither its directory nor its files change."""
    before = os.getcwd(), os.listdir("/proc/self/fd")  # noqa: PTH109, PTH208 - what is tested
    compile_in(tmp_path)
    assert before == (os.getcwd(), os.listdir("/proc/self/fd"))  # noqa: PTH109, PTH208


def compile_in(
    folder, header="__device__ inline float twice(float x) { return 2 * x; }", name="f.cu", **options
):
    """Compile a source in *folder*, with a header of a folder in it that is on the include path."""
    (folder / "headers").mkdir(parents=True, exist_ok=True)
    (folder / "headers" / "mine.h").write_text(f"#define MINE twice(1)\n{header}\n")
    options = {"output": "ltoir", "include_dirs": [folder / "headers"], "isolated": True, **options}
    return nvrtc.compile_source(SOURCE, name, Arch.of("sm_90"), **options)


@pytest.mark.usefixtures("uncached")
def test_no_path_is_in_the_code(tmp_path, monkeypatch):
    """Relative directories of headers keep their meaning, and LTO-IR has equal bytes from two places."""
    codes = []
    for name in ("a", "much/longer"):
        (tmp_path / name).mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        codes.append(compile_in(tmp_path / name, include_dirs=["headers"]).code)
    if directories.of_threads():
        assert codes[0] == codes[1]


@pytest.mark.usefixtures("uncached")
def test_messages_have_the_paths(tmp_path):
    """Errors and warnings name headers and options by their real paths."""
    with pytest.raises(LinkError) as error:
        compile_in(tmp_path, "syntax error")
    assert f"{tmp_path}/headers/mine.h(2)" in str(error.value)
    assert f"--include-path={tmp_path}/headers" in error.value.flags
    assert "/proc/" not in str(error.value)
    log = compile_in(tmp_path, "__device__ inline float twice(float x) { int y; return 2 * x; }").log
    assert f"{tmp_path}/headers/mine.h(2)" in log


@pytest.mark.usefixtures("uncached")
@pytest.mark.parametrize("allowed", [True, False])
def test_quotes_do_not_search_the_working_directory(tmp_path, monkeypatch, allowed):
    """Neither where a thread can leave it nor where containers forbid that; the code does the same."""
    if not allowed:
        monkeypatch.setattr(nvrtc.ctypes, "CDLL", lambda _: SimpleNamespace(unshare=lambda _: -1))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.h").write_text("#error of the working directory\n")
    assert b"0f40000000" in compile_in(tmp_path, output="ptx").code
