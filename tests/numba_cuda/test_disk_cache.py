"""`@cuda.jit(cache=True)` with link files, in new processes."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import processes
import pytest

HELPERS = Path(__file__).parents[1] / "helpers"
MODULE, LINKING = HELPERS / "jit_cache_module.py", HELPERS / "linking_kernels.py"
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
    """Compile the kernel of *folder* with each of *options* in one process; return the counts of each."""
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


COMPILED = {"hits": 0, "misses": 1, "named": True}
LOADED = {"hits": 1, "misses": 0, "made": 0, "named": True, "can compile": False}


# Options that differ in an inner value, a NumPy number or a set among them, are different kernels.
OPTIONS = (
    {},
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
    compiled, loaded = run(folder, *OPTIONS, seed="1"), run(folder, *OPTIONS, seed="2")
    assert [COMPILED] * len(OPTIONS) == [{name: report[name] for name in COMPILED} for report in compiled]
    assert [LOADED] * len(OPTIONS) == loaded


def test_a_kernel_whose_link_files_were_not_noted_is_made_again(folder):
    """Link files of a decorator that ran before enable() are unknown, so its kernel is compiled."""
    assert [1, 1] == [run(folder, {"late": True})[0]["misses"] for _ in range(2)]


BY_DECORATOR = ("decorator", "header", "symlink", "during compilation", "same name")
BY_FUNCTION = ("global", "closure", "default argument", "environment", "helper")


def compile_linking(
    front_end: str, folder: Path, state: str, ways: tuple[str, ...]
) -> dict[str, list[object]]:
    """Return the value in the code of each kernel of a process, and whether it was found on disk."""
    environ = {
        **os.environ,
        "NUMBA_PTXLINK": "1",
        "NUMBA_PTXLINK_CACHE": str(folder / "cache"),
        "NUMBA_CACHE_DIR": str(folder / "index"),
        "LINK_FILE": str(folder / "environment" / f"{state}.cu"),
    }
    done = processes.run(sys.executable, LINKING, front_end, folder, state, *ways, env=environ)
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("front_end", "ways"),
    [
        ("numba-cuda", ("during compilation", "global")),
        pytest.param("numba-cuda", BY_DECORATOR + BY_FUNCTION, marks=pytest.mark.slow),
        pytest.param("numba-cuda-mlir", BY_DECORATOR + BY_FUNCTION, marks=pytest.mark.slow),
    ],
    ids=["few", "all", "mlir"],
)
def test_a_kernel_has_the_code_of_the_files_that_it_links_now(tmp_path, front_end, ways):
    """A cached kernel is used only if its decorator names all files, and none of them has changed."""
    pytest.importorskip(front_end.replace("-", "_"))
    first = compile_linking(front_end, tmp_path, "first", ways)
    assert {way: [["2222" if way == "during compilation" else "1111"], 0] for way in ways} == first
    second = {way: ["1111" if way == "during compilation" else "2222"] for way in ways}
    assert {way: [value, 0] for way, value in second.items()} == compile_linking(
        front_end, tmp_path, "second", ways
    )
    again = {way: [value, int(way in BY_DECORATOR)] for way, value in second.items()}
    assert again == compile_linking(front_end, tmp_path, "second", ways)
