"""`@cuda.jit(cache=True)` with link files, in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = Path(__file__).with_name("jit_cache_module.py")
SOURCE = (
    '#include "part.h"\nextern "C" __device__ int twice(int* out, int a) { *out = FACTOR * a; return 0; }\n'
)


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a kernel's module, its link file and a header."""
    pytest.importorskip("numba.cuda")
    shutil.copy(MODULE, tmp_path / "module.py")
    (tmp_path / "part.h").write_text("#define FACTOR 2\n")
    (tmp_path / "twice.cu").write_text(SOURCE)
    return tmp_path


def run(folder: Path) -> dict[str, object]:
    """Compile the kernel of *folder* in a process of its own; return what it counted."""
    (counted,) = run_all(folder, [{}])
    return counted


def run_all(folder: Path, options: list[dict[str, object]]) -> list[dict[str, object]]:
    """Compile the kernel of *folder* with each of *options*, in a process of its own."""
    environ = {
        **os.environ,
        "NUMBA_PTXLINK": "1",
        "NUMBA_PTXLINK_CACHE": str(folder / "cache"),
        "NUMBA_CACHE_DIR": str(folder / "index"),
    }
    command = [sys.executable, "module.py", str(folder / "twice.cu"), json.dumps(options)]
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False)
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


MADE = {"hits": 0, "misses": 1, "named": True}
FOUND = {"hits": 1, "misses": 0, "made": 0, "named": True}


def test_a_kernel_with_link_files_is_found(folder):
    """The second process compiles and links nothing, and its kernel's name is in its cubin."""
    first = run(folder)
    assert MADE == {name: first[name] for name in MADE}
    assert FOUND == run(folder)


def test_every_option_has_its_entry(folder):
    """Another option is another kernel, and each of them is found again."""
    options = [{}, {"lto": False}, {"max_registers": 32}, {"fastmath": True}, {"debug": True, "opt": False}]
    options.append({"lineinfo": True, "lto": False})
    assert [1] * len(options) == [each["misses"] for each in run_all(folder, options)]
    assert [FOUND] * len(options) == run_all(folder, options)


def test_changed_files_are_linked_again(folder):
    """A changed link file, and a changed header of it, is another kernel."""
    run(folder)
    (folder / "part.h").write_text("#define FACTOR 3\n")
    assert 1 == run(folder)["misses"]
    (folder / "twice.cu").write_text(SOURCE.replace("FACTOR *", "FACTOR + 0 *"))
    assert 1 == run(folder)["misses"]
    assert FOUND == run(folder)


def test_a_touched_source_file_costs_no_compile(folder):
    """Where an edit of the Python file makes numba-cuda forget, everything is still found by content."""
    run(folder)
    module = folder / "module.py"
    module.write_text(module.read_text() + "\n# edited\n")
    again = run(folder)
    assert (1, 0) == (again["misses"], again["made"])
