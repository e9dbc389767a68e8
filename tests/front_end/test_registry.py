"""The list of front ends, and which one a value belongs to."""

from __future__ import annotations

import importlib
import math
import sys
from types import SimpleNamespace

import _numba_ptxlink_hook as hook
import processes
import pytest
from numba import cuda, float32, njit, types

from numba_ptxlink._config import FRONT_ENDS, Config
from numba_ptxlink._front_end import registry
from numba_ptxlink._front_end.base import Releases
from numba_ptxlink._front_end.patch import Patch, applied, apply, undo

# A type of numba-cuda-mlir: its name is that of numba-cuda's type.
Theirs = type("Integer", (), {"__module__": "numba_cuda_mlir.numba_cuda.types.scalars"})


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (types.int32, "numba-cuda"),
        (float32(float32), "numba-cuda"),
        (njit(lambda x: x), "numba-cuda"),
        (cuda, "numba-cuda"),
        (Theirs, "numba-cuda-mlir"),
        (math.sin, None),
        (3, None),
    ],
)
def test_a_value_tells_whose_it_is(value, name):
    """Types, signatures, dispatchers, modules, classes and functions are known by their modules."""
    owner = registry.owner(value)
    assert name == (owner and owner.name)


def test_importing_a_front_end_imports_nothing_of_its_compiler():
    """All that the choice, the hook and status() read is there without a compiler."""
    program = (
        "import sys; from numba_ptxlink._front_end import registry\n"
        "for each in registry.front_ends():\n"
        "    each.name, each.module, each.root, each.package, each.extra, each.distributions\n"
        "    each.trigger_module, each.supported\n"
        "    each.unsupported_reason(), each.is_simulated(), each.table()\n"
        "there = {name.split('.')[0] for name in sys.modules}\n"
        "print(sorted(there & {'numba', 'numba_cuda_mlir', 'llvmlite', 'numpy', 'cuda'}))"
    )
    done = processes.run(sys.executable, "-c", program)
    assert done.stdout.strip() == "[]"


def test_the_hook_knows_each_front_end():
    """The hook, which imports nothing, has the packages that the front ends have."""
    assert hook.PACKAGES == {front_end.package: front_end.name for front_end in registry.front_ends()}
    assert tuple(hook.PACKAGES.values()) == FRONT_ENDS


def test_the_hook_and_the_package_are_switched_off_by_the_same_values():
    """NUMBA_PTXLINK=off is an error of neither, nor a word that one of them takes for on."""
    modes = [Config.from_environ({"NUMBA_PTXLINK": value}).mode for value in (*hook.OFF, "Off", "1")]
    assert [*["0"] * (len(hook.OFF) + 1), "1"] == modes
    assert registry.loaded_front_ends() == registry.front_ends()


@pytest.mark.parametrize(
    ("version", "is_supported"),
    [("0.5.3", False), ("0.5.4", True), ("0.7.0", False), ("0.5", False), ("0.6rc1", False)],
)
def test_releases_are_a_range(version, is_supported):
    """The range has final versions alone, and is printed as pip reads it."""
    releases = Releases((0, 5, 4), (0, 7))
    assert is_supported is (version in releases)
    assert str(releases) == ">=0.5.4,<0.7"


def test_what_two_want_stays_until_both_are_done(monkeypatch):
    """A patch is applied once, and undone with the last user."""
    module, originals = SimpleNamespace(value=1), []
    monkeypatch.setitem(sys.modules, "somewhere", module)
    row = Patch("somewhere", "value", lambda original: originals.append(original) or original + 1, "A test.")
    apply(row)
    with applied((row,)):
        assert (2, [1]) == (module.value, originals)
        undo(row)
        assert 2 == module.value
    assert 1 == module.value


def test_a_folder_with_its_name_is_no_front_end(tmp_path, monkeypatch):
    """A folder on sys.path is a package only with an __init__.py, as a checkout's folder may have none."""
    (tmp_path / "no_front_end").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    assert not registry.is_installed(SimpleNamespace(module="no_front_end"))
    (tmp_path / "no_front_end" / "__init__.py").touch()
    importlib.invalidate_caches()
    assert registry.is_installed(SimpleNamespace(module="no_front_end"))
