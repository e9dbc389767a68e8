"""`@cuda.jit(cache=True)` with link files, in processes of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

MODULE = Path(__file__).parents[1] / "helpers" / "jit_cache_module.py"
SOURCE = (
    '#include "part.h"\nextern "C" __device__ int twice(int* out, int a) { *out = FACTOR * a; return 0; }\n'
)

CONVERTERS = '''"""Extensions of a kernel, with a state and without."""


class Plain:
    """Leaves arguments as they are."""

    def prepare_args(self, ty, val, stream, retr):
        """Return the argument."""
        return ty, val


class Registers(int):
    """A number, and perhaps more."""


class Scaling(Plain):
    """Does something that depends on its state."""

    def __init__(self, factor):
        self.factor = factor
'''


def fill_folder(path: Path) -> Path:
    """Write a kernel's module, its link file and a header to *path*, and return that."""
    pytest.importorskip("numba.cuda")
    shutil.copy(MODULE, path / "module.py")
    (path / "part.h").write_text("#define FACTOR 2\n")
    (path / "converters.py").write_text(CONVERTERS)
    (path / "twice.cu").write_text(SOURCE)
    return path


@pytest.fixture
def folder(tmp_path):
    """Return a folder with a kernel's module, its link file and a header."""
    return fill_folder(tmp_path)


def run(folder: Path) -> dict[str, object]:
    """Compile the kernel of *folder* in a process of its own; return what it counted."""
    (counted,) = run_all(folder, [{}])
    return counted


def run_all(
    folder: Path, options: object, *, within: Path | None = None, **environ: str
) -> list[dict[str, object]]:
    """
    Compile the kernel of *folder* with each of *options*, a list or its text, in a process of its own.

    Its link file is that of *folder*, or the one that a relative path names *within* another.
    """
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(folder), str(MODULE.parent))),
        **environ,
        "NUMBA_PTXLINK": "1",
        "NUMBA_PTXLINK_CACHE": str(folder / "cache"),
        "NUMBA_CACHE_DIR": str(folder / "index"),
    }
    link = "twice.cu" if within else str(folder / "twice.cu")
    command = [sys.executable, str(folder / "module.py"), link, str(options)]
    done = subprocess.run(
        command, cwd=within or folder, env=environ, capture_output=True, text=True, check=False
    )
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


MADE = {"hits": 0, "misses": 1, "named": True}
FOUND = {"hits": 1, "misses": 0, "made": 0, "named": True, "can compile": False}


@pytest.mark.slow
def test_a_kernel_with_link_files_is_found(folder):
    """The second process compiles and links nothing, and its kernel's name is in its cubin."""
    first = run(folder)
    assert MADE == {name: first[name] for name in MADE}
    assert FOUND == run(folder)


@pytest.mark.slow
def test_a_kernel_on_disk_is_loaded_without_what_compiles(folder):
    """Only a process that compiles imports the implementations; one that has loaded can still compile."""
    assert run(folder)["can compile"]
    found, made = run_all(folder, [{}, {"max_registers": 24}])
    assert (found, made) == (FOUND, MADE | {"made": made["made"], "can compile": True})


@pytest.mark.slow
def test_changed_files_are_linked_again(folder):
    """A changed link file, and a changed header of it, is another kernel."""
    run(folder)
    (folder / "part.h").write_text("#define FACTOR 3\n")
    assert 1 == run(folder)["misses"]
    (folder / "twice.cu").write_text(SOURCE.replace("FACTOR *", "FACTOR + 0 *"))
    assert 1 == run(folder)["misses"]
    assert FOUND == run(folder)


@pytest.mark.slow
def test_changed_files_of_declarations_are_linked_again(folder):
    """A file that the declaration of a function brings is part of a kernel whose decorator names none."""
    declared = [{"declared": True}]
    (first,) = run_all(folder, declared)
    assert MADE == {name: first[name] for name in MADE}
    assert [FOUND] == run_all(folder, declared)
    (folder / "part.h").write_text("#define FACTOR 3\n")
    assert [1] == [counted["misses"] for counted in run_all(folder, declared)]


KINDS = {
    "plain": (
        "{}",
        "{'lto': False}",
        "{'max_registers': 32}",
        "{'fastmath': True}",
        "{'debug': True, 'opt': False}",
        "{'lineinfo': True, 'lto': False}",
    ),
    "numbers of NumPy": ("{'launch_bounds': (np.int64(256), 2)}", "{'launch_bounds': (np.int64(128), 2)}"),
    "lists": ("{'launch_bounds': [256, 2]}", "{'launch_bounds': [128, 2]}"),
    "sets": ("{'fastmath': {'fast'}}", "{'fastmath': {'nnan'}}"),
}


@pytest.fixture(scope="module")
def counted(tmp_path_factory):
    """Compile the kernel with all options in two processes of other hash seeds; return what each counted."""
    folder = fill_folder(tmp_path_factory.mktemp("options"))
    options = f"[{', '.join(each for kind in KINDS.values() for each in kind)}]"
    pairs = zip(*(run_all(folder, options, PYTHONHASHSEED=seed) for seed in ("1", "2")), strict=True)
    return {kind: [next(pairs) for _ in KINDS[kind]] for kind in KINDS}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_options_of_every_kind_count(counted, kind):
    """Options that differ in a value within are different kernels, and each is found in another process."""
    assert [(1, FOUND)] * len(KINDS[kind]) == [(made["misses"], found) for made, found in counted[kind]]
