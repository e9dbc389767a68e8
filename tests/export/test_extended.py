"""What a program adds to a front end, which may read anything while that compiles, in both front ends."""

from __future__ import annotations

import builtins
import importlib
import os
import sys
import threading

import front_ends
import pytest

import numba_ptxlink as pl
from numba_ptxlink._export import extended
from numba_ptxlink._front_end import extensions
from numba_ptxlink._imports import import_state, python_imports

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


def told(folder, front_end, sources, package=None):
    """Return what is told of modules with *sources*, by their names, that lie in *folder* or a *package*."""
    folder.mkdir(exist_ok=True)
    for name, source in sources.items():
        (package or folder).mkdir(exist_ok=True)
        # An installed one stays after an export.
        sys.modules.pop(f"teaching_{name}", None)
        text = HEAD.replace("PACKAGE", front_end.package) + source
        ((package or folder) / f"teaching_{name}.py").write_text(text)
    path = folder / "teaching.py"
    path.write_text("".join(f"import teaching_{name}\n" for name in sources))
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(os.environ, "EXTENDED_BY", "1.5")
        with front_ends.untaught(front_end.name), python_imports.imported_file(path, lambda: None):
            names = {name for name in front_end.extensions() if name.startswith("teaching_")}
            return names, [*extended.of_program(front_end, {"teaching"}, "this")]


@pytest.mark.parametrize("way", WAYS)
def test_whatever_a_program_adds_is_found(front_end, tmp_path, way):
    """Keys of a program that extends a front end, in whatever way, are those of one export."""
    names, lines = told(tmp_path, front_end, {way: WAYS[way]})
    assert names == {f"teaching_{way}"}
    assert "export this" in lines


def test_planners_of_functions_are_found(tmp_path, monkeypatch):
    """What numba-cuda-mlir asks about whole functions counts as what types and writes them does."""
    front_end = front_ends.get("numba-cuda-mlir")
    registry = importlib.import_module("numba_cuda_mlir._whole_function_planners")._planner_registry
    monkeypatch.setattr(registry, "_planners", [])
    monkeypatch.setattr(builtins, "PLANNERS", registry._planners, raising=False)
    source = "class Plan:\n    def run(self):\n        return VALUE\n\nPLANNERS.append(Plan)\n"
    assert told(tmp_path, front_end, {"plan": source})[0] == {"teaching_plan"}


def test_a_helper_adds_nothing_by_itself(front_end, tmp_path):
    """`register_jitable` alone leaves the front end as it is."""
    source = "@register_jitable\ndef helper(x):\n    return x * VALUE\n"
    names, lines = told(tmp_path, front_end, {"named": source})
    assert names == set()
    assert not any(line.startswith(extended.ONCE) for line in lines)


def test_an_installed_package_counts_by_its_source(front_end, tmp_path, monkeypatch):
    """What extends a front end from a folder of installed packages gives another export the same keys."""
    installed = tmp_path / "installed"
    monkeypatch.setattr(import_state, "_installed", lambda: {str(installed)})
    monkeypatch.syspath_prepend(installed)
    before, after = (
        told(tmp_path / "own", front_end, {"constant": source}, installed)[1]
        for source in (WAYS["constant"], WAYS["constant"].replace("x * VALUE", "x + VALUE"))
    )
    for lines in (before, after):
        assert any(line.startswith("teaching_constant.py ") for line in lines)
        assert not any(line.startswith(extended.ONCE) for line in lines)
    assert before != after


def test_what_is_read_while_numba_compiles_counts(tmp_path, monkeypatch):
    """An export after a change of what an overload reads, when it is asked, has the new value."""
    path = tmp_path / "udfs.py"
    path.write_text(
        "import os\nfrom numba.cuda.extending import overload\nfrom numba_ptxlink import udf\n\n"
        "def taught(x): ...\n\n@overload(taught)\ndef impl(x):\n"
        "    value = float(os.environ['EXTENDED_BY'])\n    return lambda x: x * value\n\n"
        "@udf('float64(float64)')\ndef f(x):\n    return taught(x)\n"
    )
    made = []
    for value in ("3", "4", "3"):
        monkeypatch.setenv("EXTENDED_BY", value)
        with front_ends.untaught("numba-cuda"):
            made.append(dict(pl.export(path, None, archs=["sm_80"], emit=["ptx"]).contents)["udfs.sm_80.ptx"])
    assert made[0] == made[2] != made[1]


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
        return set()

    monkeypatch.setattr(extensions, "of_contexts", of_contexts)
    assert set() == front_end.extensions()
    other.join(10)
    assert entered.is_set()
