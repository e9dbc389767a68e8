"""What the lowering of a function depends on: an edit of any of it changes the key, and nothing else does."""

from __future__ import annotations

import importlib
import importlib.metadata
import math
import os
import sys

import front_ends
import numpy as np
import pytest

import numba_ptxlink as pl
from numba_ptxlink._export import choice, described, extended, function_keys, signatures
from numba_ptxlink._export.signatures import typed
from numba_ptxlink._imports import python_imports

SOURCE = """\
import enum
import math
from typing import NamedTuple

import numpy as np
from numba import cuda
from numba_ptxlink import kernel, udf

import constants

SCALE = 2.0
TABLE = np.arange(4, dtype=np.float32)
SHIFTS = (1, 2)
Pair = np.dtype([("a", np.float32), ("b", np.float32)])


class Colour(enum.IntEnum):
    RED = 1


class Point(NamedTuple):
    x: float
    y: float


def made(offset):
    @cuda.jit(device=True)
    def inner(x):
        return x + offset

    return inner


added = made(3)


@cuda.jit(device=True)
def deep(x):
    return x * constants.factor()


@cuda.jit(device=True)
def helper(x, y=1.5):
    return deep(x) * SCALE + y


@udf("float32(float32, Pair)")
def f(x, p):
    if x > Colour.RED:
        return helper(x) + TABLE[1] + SHIFTS[0] + p.a
    return added(x) + math.sqrt(x) * constants.LIMIT


@udf("float32(float32)")
def other(x):
    return x + 7
"""
CONSTANTS = """\
from numba import cuda

LIMIT = 4
UNUSED = 5


@cuda.jit(device=True)
def factor():
    return 2
"""
EXTENDING = SOURCE + (
    "\nfrom numba.cuda.extending import overload\n\n\ndef taught(x): ...\n\n\n"
    "@overload(taught)\ndef _taught(x):\n    return lambda x: x\n"
)
EDITS = {
    "its code": ("x > Colour.RED", "x >= Colour.RED"),
    "a constant": ("SHIFTS[0] + p.a", "SHIFTS[1] + p.a"),
    "a helper": ("deep(x) * SCALE + y", "deep(x) * SCALE - y"),
    "a helper's helper": ("x * constants.factor()", "x / constants.factor()"),
    "a helper's default": ("y=1.5", "y=1.25"),
    "a global": ("SCALE = 2.0", "SCALE = 2.5"),
    "the sign of zero": ("SCALE = 2.0", "SCALE = -0.0"),
    "an array": ("np.arange(4, ", "np.arange(1, 5, "),
    "the type of an array": (
        "TABLE = np.arange(4, dtype=np.float32)",
        "TABLE = np.arange(4, dtype=np.int32)",
    ),
    "a tuple": ("SHIFTS = (1, 2)", "SHIFTS = (1, 3)"),
    "the type of a number": ("SHIFTS = (1, 2)", "SHIFTS = (True, 2)"),
    "an enumeration": ("RED = 1", "RED = 2"),
    "a closure": ("added = made(3)", "added = made(4)"),
    "the code of a closure": ("return x + offset", "return x - offset"),
    "a dtype": ('("b", np.float32)', '("b", np.float64)'),
    "a member's name": ('("b", np.float32)', '("c", np.float32)'),
    "the name of a record": ("Pair", "Twins"),
    "a type that hides one of Numba": ("SCALE = 2.0", "SCALE = 2.0\nfloat32 = np.float64"),
    "the signature": ('"float32(float32, Pair)"', '"float64(float32, Pair)"'),
    "an option of the mark": ('Pair)")\ndef f', 'Pair)", on_error="trap")\ndef f'),
    "checks": ('Pair)")\ndef f', 'Pair)", checked=True)\ndef f'),
    "the symbol": ('Pair)")\ndef f', 'Pair)", name="f")\ndef renamed'),
    "a namespace": ('Pair)")\ndef f', 'Pair)", namespace="physics")\ndef f'),
    "a struct of C++": ('Pair)")\ndef f', 'Pair)", structs={Pair: "ns::Pair"}, include="pair.h")\ndef f'),
    "the decorator of a helper": (
        "@cuda.jit(device=True)\ndef helper",
        "@cuda.jit(device=True, inline=True)\ndef helper",
    ),
    "the fast arithmetic of a helper": (
        "@cuda.jit(device=True)\ndef deep",
        "@cuda.jit(device=True, fastmath=True)\ndef deep",
    ),
    "the name of a parameter": (
        "def f(x, p):\n    if x > Colour.RED:\n        return helper(x)",
        "def f(y, p):\n    x = y\n    if x > Colour.RED:\n        return helper(x)",
    ),
}


def keys(folder, source=SOURCE, constants=CONSTANTS):
    """Return what the functions f and other of *source* depend on."""
    folder.mkdir(exist_ok=True)
    (folder / "constants.py").write_text(constants)
    (folder / "udfs.py").write_text(source)
    with python_imports.imported_file(folder / "udfs.py", lambda: None) as module:
        functions = typed(
            [value for value in vars(module).values() if isinstance(value, pl.Udf)], choice.default()
        )
        around = function_keys.environment(choice.default(), {str(module.__name__)}, "this export")
        found = function_keys.of_each(functions, around)
        return {function.udf.name: key for function, key in zip(functions, found, strict=True)}


EXTENDED = extended.of_program


@pytest.fixture(scope="module", autouse=True)
def _unextended():
    """Leave out what other tests of the process have added to the front end, which makes all source count."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(extended, "of_program", lambda *_: iter(()))
        yield


@pytest.fixture
def _extended(monkeypatch):
    """Take in what extends the front end, which forgets afterwards what it was taught."""
    with front_ends.untaught(choice.default().name):
        monkeypatch.setattr(extended, "of_program", EXTENDED)
        yield


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """Return what the functions depend on before any edit."""
    return keys(tmp_path_factory.mktemp("keys") / "known")


def test_the_same_program_has_the_same_keys(known, tmp_path):
    """A program that is imported again, from another folder, depends on the same."""
    again = keys(tmp_path / "other")
    assert known["f"].code is not None
    assert {name: key.code for name, key in known.items()} == {name: key.code for name, key in again.items()}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_changes_the_key_of_what_it_reaches(known, tmp_path, edit):
    """What a function reaches is a part of its key, and of no other function's."""
    old, new = EDITS[edit]
    assert old in SOURCE
    edited = keys(tmp_path, SOURCE.replace(old, new))
    assert edited["f"].code != known["f"].code
    if edit not in ("a dtype", "a member's name", "the name of a record", "a type that hides one of Numba"):
        assert edited["other"].code == known["other"].code


@pytest.mark.parametrize(("old", "new"), [("LIMIT = 4", "LIMIT = 6"), ("return 2", "return 3")])
def test_an_edit_of_an_imported_module_counts(known, tmp_path, old, new):
    """The values and functions that are read out of another module are a part of the key."""
    edited = keys(tmp_path, constants=CONSTANTS.replace(old, new))
    assert edited["f"].code != known["f"].code
    assert edited["other"].code == known["other"].code


def test_what_is_not_read_does_not_count(known, tmp_path):
    """A value that nobody reads, a comment and another line change lines at most."""
    source = SOURCE.replace("SCALE = 2.0", "# A comment.\n\nSCALE = 2.0")
    edited = keys(tmp_path, source, CONSTANTS.replace("UNUSED = 5", "UNUSED = 6"))
    assert edited["f"].code == known["f"].code
    assert edited["f"].lines != known["f"].lines


def test_versions_and_settings_count(known, tmp_path, monkeypatch):
    """Another release of Numba, or another setting of it, is another key."""
    version = importlib.metadata.version
    with monkeypatch.context() as patch:
        patch.setattr(
            importlib.metadata, "version", lambda name: version(name) + ("1" if name == "numba" else "")
        )
        assert keys(tmp_path)["f"].code != known["f"].code
    monkeypatch.setitem(os.environ, "NUMBA_OPT", "1")
    assert keys(tmp_path)["f"].code != known["f"].code


def test_what_all_functions_have_in_common_is_asked_for_once(tmp_path, monkeypatch):
    """Releases are looked up, and modules searched for records, once for an export, not for each function."""
    asked: list[object] = []
    version, named = importlib.metadata.version, signatures._named_records

    def searched(scope, front_end):
        asked.extend([scope["__name__"]] if "__name__" in scope else [])
        return named(scope, front_end)

    monkeypatch.setattr(importlib.metadata, "version", lambda name: asked.append(name) or version(name))
    monkeypatch.setattr(signatures, "_named_records", searched)
    keys(tmp_path)
    few = [*asked]
    asked.clear()
    more = "".join(f'\n\n@udf("float32(float32)")\ndef f{n}(x):\n    return x\n' for n in range(5))
    assert len(keys(tmp_path, SOURCE + more)) == 7
    assert few == asked
    assert few.count("udfs") == 1


def test_a_package_without_a_release_counts_as_another_each_time(tmp_path, monkeypatch):
    """A folder of that name is no package; one without metadata, such as a checkout, is of any release."""
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(described, "DISTRIBUTIONS", ("not-installed",))
    (tmp_path / "not_installed").mkdir()
    assert list(function_keys._installed()) == []
    (tmp_path / "not_installed" / "__init__.py").touch()
    importlib.invalidate_caches()
    assert list(function_keys._installed()) != list(function_keys._installed())


@pytest.mark.usefixtures("_extended")
def test_source_that_extends_the_front_end_counts_whole(tmp_path):
    """Where a module teaches Numba something, an edit anywhere in the program changes all keys."""
    before = keys(tmp_path, EXTENDING)
    after = keys(tmp_path, EXTENDING.replace("lambda x: x", "lambda x: -x"))
    assert before["other"].code != after["other"].code
    by_value = EXTENDING.replace("import constants", "import constants\nfrom more import MORE")
    (tmp_path / "more.py").write_text("MORE = 1\n")
    one = keys(tmp_path, by_value)
    (tmp_path / "more.py").write_text("MORE = 2\n")
    assert one["other"].code != keys(tmp_path, by_value)["other"].code


@pytest.mark.usefixtures("_extended")
def test_what_others_import_does_not_count(tmp_path, monkeypatch):
    """Where a module teaches Numba something, a package that a tool imports later leaves the keys alone."""
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "ptxlink_unrelated.py").write_text("import json\n")
    monkeypatch.syspath_prepend(tmp_path / "lib")
    before = keys(tmp_path / "own", EXTENDING)
    importlib.import_module("ptxlink_unrelated")
    assert before["other"].code == keys(tmp_path / "own", EXTENDING)["other"].code


@pytest.mark.parametrize(
    ("value", "reason"),
    [("object()", "builtins.object"), ("type('Own', (), {})", "Own"), ("lambda: SCALE", None)],
)
def test_what_cannot_be_described_has_no_key(tmp_path, value, reason):
    """A function that reads a value which no text determines is lowered each time."""
    source = SOURCE.replace("SCALE = 2.0", f"SCALE = {value}")
    key = keys(tmp_path, source)["f"]
    # A function that reads itself is described by its number.
    assert (key.code is None) == (reason is not None)
    assert reason is None or reason in key.reason


def test_what_is_put_into_a_module_of_python_or_numpy_counts(tmp_path, monkeypatch):
    """A number that a program keeps in a module whose version is known has no version."""
    found = []
    for module, value in (("math", 2.0), ("math", 2.5), ("np", 2.0)):
        monkeypatch.setattr(math, "rate", value, raising=False)
        monkeypatch.setattr(np, "rate", value, raising=False)
        source = SOURCE.replace("return helper(x)", f"return helper(x) * {module}.rate")
        found.append(keys(tmp_path, source)["f"].code)
    assert None not in found
    assert len({*found}) == 3


def test_a_module_that_stands_for_another_is_the_same(tmp_path):
    """Whether something has imported Numba's older name of a module by now is no matter."""
    source = SOURCE.replace(
        "import constants", "import constants\nfrom sys import modules\nTYPES = modules[NAME]"
    )
    source = source.replace("return x + 7", "return TYPES.float32(x)")
    importlib.import_module("numba.types")
    one, other = (
        keys(tmp_path, source.replace("NAME", f"{name!r}")) for name in ("numba.types", "numba.core.types")
    )
    assert one["other"].code == other["other"].code
    assert keys(tmp_path, source.replace("NAME", "'math'"))["other"].code != one["other"].code


def test_a_module_that_computes_attributes_has_no_key(tmp_path):
    """What `__getattr__` of a module returns is not known before it is asked."""
    computed = CONSTANTS + "\n\ndef __getattr__(name):\n    return 1\n"
    assert "computes" in keys(tmp_path, constants=computed)["f"].reason


@pytest.mark.usefixtures("_extended")
def test_a_package_below_cuda_is_not_trusted(monkeypatch, tmp_path):
    """What extends the front end and lies where no version is known of gives keys of one export."""
    front_end = choice.default()
    monkeypatch.setattr(type(front_end), "extensions", lambda _: {"cuda.elsewhere"})
    assert keys(tmp_path)["other"].once
    assert "cuda.elsewhere" not in sys.modules
