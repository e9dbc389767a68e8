"""What a program adds to a front end: the values that its functions read count, in both front ends."""

from __future__ import annotations

import builtins
import importlib
import os
import threading

import front_ends
import pytest

from numba_ptxlink._export import extended
from numba_ptxlink._front_end import extensions
from numba_ptxlink._imports import python_imports

NAMES = ("numba-cuda", "numba-cuda-mlir")
HEAD = """\
import functools
import os
import re
import threading

from PACKAGE import extending, types
from PACKAGE.extending import intrinsic, lower_builtin, type_callable

# numba-cuda-mlir wants to be told where to.
places = {f"{kind}_registry": getattr(extending, f"{kind}_registry", None) for kind in ("typing", "lowering")}
typing = {"typing_registry": places["typing_registry"]} if places["typing_registry"] else {}
overload, overload_method, register_jitable = (
    functools.partial(getattr(extending, name), **typing)
    for name in ("overload", "overload_method", "register_jitable")
)
overload_attribute = functools.partial(extending.overload_attribute, **(typing and places))

VALUE = float(os.environ["EXTENDED_BY"])


class Settings:
    pattern = re.compile("x")

    def __init__(self, scale):
        self.scale = scale
        self.itself = self

    @property
    def twice(self):
        return 2 * self.scale


SETTINGS = Settings(VALUE)


def taught(x): ...


"""
WAYS = {
    "constant": """
@overload(taught)
def impl(x):
    return lambda x: x * VALUE
""",
    "choice": """
@overload(taught)
def impl(x):
    return (lambda x: x) if VALUE > 1 else (lambda x: -x)
""",
    "helper": """
@register_jitable
def helper(x):
    return x * VALUE

@overload(taught)
def impl(x):
    return lambda x: helper(x)
""",
    "enclosed": """
def made(by):
    return lambda x: lambda x: x * by

overload(taught)(made(VALUE))
""",
    "option": """
@overload(taught, jit_options={"fastmath": VALUE > 1})
def impl(x):
    return lambda x: x
""",
    "attribute": """
@overload_attribute(types.Array, "taught")
def impl(x):
    return lambda x: VALUE
""",
    "method": """
@overload_method(types.Array, "taught")
def impl(x):
    return lambda x: VALUE
""",
    "intrinsic": """
@intrinsic
def impl(context, x):
    return types.float32(x), lambda *_: SETTINGS.scale
""",
    "property_": """
@intrinsic
def impl(context, x):
    return types.float32(x), lambda *_: SETTINGS.twice
""",
    "typing_": """
@type_callable(taught)
def impl(context):
    return lambda x: types.float32 if VALUE > 1 else types.float64
""",
    "lowering": """
@lower_builtin(taught, types.Float)
def impl(context, builder, sig, args):
    return VALUE
""",
    "model": """
class Own(types.Type):
    pass

@extending.register_model(Own)
class Model:
    def __init__(self, manager, ty):
        self.width = VALUE
""",
    "partial": """
@intrinsic
def impl(context, x, by=functools.partial(max, VALUE)):
    return by(x)
""",
    "memoised": """
@functools.lru_cache
def by(x):
    return VALUE * x

@intrinsic
def impl(context, x):
    return by(x)
""",
}


@pytest.fixture(params=NAMES)
def front_end(request):
    """Return a front end, which forgets afterwards what it was taught."""
    with front_ends.untaught(request.param):
        yield front_ends.get(request.param)


def added(folder, front_end, sources, value):
    """Return what modules with *sources* add to *front_end*, by their names, where they read *value*."""
    for name, source in sources.items():
        (folder / f"teaching_{name}.py").write_text(HEAD.replace("PACKAGE", front_end.package) + source)
    path = folder / "teaching.py"
    path.write_text("".join(f"import teaching_{name}\n" for name in sources))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "EXTENDED_BY", value)
        with front_ends.untaught(front_end.name), python_imports.imported_file(path, lambda: None):
            words = [line.split(" ", 1) for line in extended.of_program(front_end, {"teaching"})]
    return {name.removeprefix("teaching_"): said for name, said in words if name.partition("_")[2] in sources}


def test_values_that_extensions_read_count(front_end, tmp_path):
    """A value from the environment that any function added reads, in whatever way, changes what is told."""
    one, same, other = (added(tmp_path, front_end, WAYS, value) for value in ("1.5", "1.5", "0.5"))
    assert one.keys() == WAYS.keys()
    assert one == same
    assert [name for name in WAYS if one[name] == other[name]] == []


def test_planners_of_functions_count(tmp_path, monkeypatch):
    """What numba-cuda-mlir asks about whole functions counts as what types and writes them does."""
    front_end = front_ends.get("numba-cuda-mlir")
    registry = importlib.import_module("numba_cuda_mlir._whole_function_planners")._planner_registry
    sources = {"plan": "class Plan:\n    def run(self):\n        return VALUE\n\nPLANNERS.append(Plan)\n"}
    found = []
    for value in ("1", "2"):
        monkeypatch.setattr(registry, "_planners", [])
        monkeypatch.setattr(builtins, "PLANNERS", registry._planners, raising=False)
        found.append(added(tmp_path, front_end, sources, value))
    one, other = found
    assert one.keys() == {"plan"}
    assert one != other


def test_what_no_extension_reads_does_not_count(front_end, tmp_path):
    """What lies beside the functions added changes nothing, and `register_jitable` adds none by itself."""
    sources = {
        "other": "@overload(taught)\ndef impl(x):\n    return lambda x: x\n",
        "named": "@register_jitable\ndef helper(x):\n    return x * VALUE\n",
    }
    one, other = (added(tmp_path, front_end, sources, value) for value in ("1", "2"))
    assert one == other
    assert one.keys() == {"other"}


def test_the_same_program_again_adds_the_same(front_end, tmp_path):
    """A module that is run again in this process, after which both are known, is told of as once."""
    sources = {name: WAYS[name] for name in ("constant", "typing_")}
    once = added(tmp_path, front_end, sources, "1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "EXTENDED_BY", "1")
        with python_imports.imported_file(tmp_path / "teaching.py", lambda: None):
            front_end.extensions()
    assert once == added(tmp_path, front_end, sources, "1")
    assert len(front_end.extensions()["teaching_constant"]) == 1


def test_what_cannot_be_described_is_another_each_time(front_end, tmp_path):
    """An extension that reads a lock, of which no other process has this one, gives no key twice."""
    sources = {"locked": "LOCK = threading.Lock()\n\n@intrinsic\ndef impl(context, x):\n    return LOCK\n"}
    one, other = (added(tmp_path, front_end, sources, "1")["locked"] for _ in range(2))
    assert "reads a _thread.lock" in one
    assert one != other


@pytest.mark.parametrize("name", NAMES)
def test_extensions_are_counted_while_no_thread_compiles(monkeypatch, name):
    """The registries of a front end fail where another thread's compilation loads them, too."""
    front_end = front_ends.get(name)
    release = importlib.import_module(f"numba_ptxlink._{name.replace('-', '_')}.release")
    lock = importlib.import_module(release.LOCK).global_compiler_lock
    entered = threading.Event()

    def compiling():
        with lock:
            entered.set()

    other = threading.Thread(target=compiling)

    def of_contexts(*_):
        other.start()
        assert not entered.wait(0.2)
        return {}

    monkeypatch.setattr(extensions, "of_contexts", of_contexts)
    assert {} == front_end.extensions()
    other.join(10)
    assert entered.is_set()
