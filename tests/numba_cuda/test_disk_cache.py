"""`@cuda.jit(cache=True)` with link files, in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import processes
import pytest

MODULE = Path(__file__).parents[1] / "helpers" / "jit_cache_module.py"
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


def run(folder: Path, *options: object, seed: str = "0") -> list[dict[str, object]]:
    """Compile the kernel of *folder* with each of *options* in one process; return what each counted."""
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder), os.environ["PYTHONPATH"])),
        "PYTHONHASHSEED": seed,
        "NUMBA_PTXLINK": "1",
        "NUMBA_PTXLINK_CACHE": str(folder / "cache"),
        "NUMBA_CACHE_DIR": str(folder / "index"),
    }
    command = [sys.executable, str(folder / "module.py"), str(folder / "twice.cu"), str(list(options))]
    done = processes.run(*command, env=environ)
    return json.loads(done.stdout)


MADE = {"hits": 0, "misses": 1, "named": True}
FOUND = {"hits": 1, "misses": 0, "made": 0, "named": True, "can compile": False}


# Options that differ in a value within, a NumPy number and a set among them, are kernels of their own.
OPTIONS = (
    {},
    {"declared": True},
    {"max_registers": 32},
    {"debug": True, "opt": False},
    {"launch_bounds": [256, 2]},
    {"launch_bounds": [128, 2]},
    {"fastmath": {"fast", "nnan"}},
    {"fastmath": {"nnan"}},
)


@pytest.mark.slow
def test_a_kernel_with_link_files_is_found(folder):
    """The second process compiles and links nothing, and its kernel's name is in its cubin."""
    made, found = run(folder, *OPTIONS, seed="1"), run(folder, *OPTIONS, seed="2")
    assert [MADE] * len(OPTIONS) == [{name: each[name] for name in MADE} for each in made]
    assert [FOUND] * len(OPTIONS) == found


def test_a_kernel_whose_link_files_were_not_noted_is_made_again(folder):
    """Nothing tells what a decorator linked that ran before the plugin was enabled."""
    assert [1, 1] == [run(folder, {"late": True})[0]["misses"] for _ in range(2)]


@pytest.mark.parametrize(
    "options",
    [pytest.param({}, marks=pytest.mark.slow), {"declared": True}],
    ids=["link", "declared"],
)
def test_changed_files_are_linked_again(folder, options):
    """A changed link file, or header of it, is another kernel, whether decorator or declaration names it."""
    run(folder, options)
    (folder / "part.h").write_text("#define FACTOR 3\n")
    assert [1] == [counted["misses"] for counted in run(folder, options)]
    (folder / "twice.cu").write_text(SOURCE.replace("FACTOR *", "FACTOR + 0 *"))
    assert [1] == [counted["misses"] for counted in run(folder, options)]
    assert [FOUND] == run(folder, options)
