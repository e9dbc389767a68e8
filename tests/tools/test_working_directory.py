"""A compiler that is called from the root directory, while the process stays where it is."""

from __future__ import annotations

import os

import pytest

from numba_ptxlink._arch import Arch
from numba_ptxlink._tools import nvrtc, working_directory
from numba_ptxlink.errors import LinkError

SOURCE = '#include "mine.h"\nextern "C" __device__ float f(float x) { return x + MINE; }\n'


@pytest.fixture
def uncached(monkeypatch):
    """Let every compilation run."""
    monkeypatch.setenv("NUMBA_PTXLINK_CACHE", "0")


def test_only_the_thread_is_elsewhere(tmp_path):
    """The work sees the root directory and numbered ones; the process keeps its directory and its files."""
    if not working_directory.available():
        pytest.skip("this system gives a thread no working directory of its own")
    here, files = os.getcwd(), os.listdir("/proc/self/fd")  # noqa: PTH109, PTH208 - what is tested
    (tmp_path / "file").touch()
    missing = tmp_path / "missing"

    def look(paths):
        return os.getcwd(), [*map(os.listdir, paths[:1])], paths  # noqa: PTH109

    folder, contents, paths = working_directory.isolated(look, [tmp_path, missing])
    assert ("/", [["file"]]) == (folder, contents)
    assert str(tmp_path) not in paths[0]
    assert str(missing) == paths[1]
    assert (here, files) == (os.getcwd(), os.listdir("/proc/self/fd"))  # noqa: PTH109, PTH208


def test_an_error_of_the_work_is_raised():
    """What the work raises reaches the caller."""
    with pytest.raises(ZeroDivisionError):
        working_directory.isolated(lambda _: 1 // 0, [])


def compile_in(folder, header="__device__ inline float twice(float x) { return 2 * x; }", **options):
    """Compile a source in *folder*, with a header of a folder in it that is on the include path."""
    (folder / "headers").mkdir(parents=True, exist_ok=True)
    (folder / "headers" / "mine.h").write_text(f"#define MINE twice(1)\n{header}\n")
    options = {"output": "ltoir", "include_dirs": ["headers"], "isolated": True, **options}
    return nvrtc.compile_source(SOURCE, "f.cu", Arch.of("sm_90"), **options)


@pytest.mark.usefixtures("uncached")
def test_no_path_is_in_the_code(tmp_path, monkeypatch):
    """Relative directories of headers keep their meaning, and LTO-IR has equal bytes from two places."""
    codes = []
    for name in ("a", "much/longer"):
        (tmp_path / name).mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        codes.append(compile_in(tmp_path / name).code)
    if working_directory.available():
        assert codes[0] == codes[1]


@pytest.mark.usefixtures("uncached")
def test_messages_have_the_paths(tmp_path, monkeypatch):
    """Errors and warnings name headers and options by their real paths."""
    monkeypatch.chdir(tmp_path)
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
        monkeypatch.setattr(working_directory, "_leave", lambda: False)
        working_directory.available.cache_clear()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.h").write_text("#error of the working directory\n")
    try:
        assert b"0f40000000" in compile_in(tmp_path, output="ptx").code
    finally:
        working_directory.available.cache_clear()
