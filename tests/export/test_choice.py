"""Which front end compiles a function: what it names, what it uses, what is asked for, what is installed."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import front_ends
import pytest

import numba_ptxlink as pl
from numba_ptxlink import cli
from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink._export import choice, reached
from numba_ptxlink._front_end import registry

NUMBA_CUDA, MLIR = FRONT_ENDS


class Dispatcher:
    """What a decorator of numba-cuda-mlir makes, as far as the choice looks."""

    def __init__(self, function):
        self.py_func = function


Dispatcher.__module__ = "numba_cuda_mlir.numba_cuda.dispatcher"


@Dispatcher
def theirs(x):
    """Help, for numba-cuda-mlir."""
    return x + 1


module_of_mlir = ModuleType("numba_cuda_mlir.cuda")


def plain(x):
    """Use nothing of a front end."""
    return x * 2


def calls_theirs(x):
    """Call a helper of numba-cuda-mlir."""
    return theirs(x)


def reads_their_module(x):
    """Read a module of numba-cuda-mlir."""
    return module_of_mlir.f(x)


@pytest.fixture
def ours():
    """Return a function that calls a helper of numba-cuda's."""
    from numba import cuda

    @cuda.jit(device=True)
    def helper(x):
        return x + 1

    def calls_ours(x):
        return helper(x)

    return calls_ours


def front_end_of(function, asked=None, **options):
    """Return the name of the front end of *function*."""
    return choice.chosen(pl.udf("float32(float32)", **options)(function), asked).name


def without(monkeypatch, *names):
    """Let the front ends *names* not be installed."""
    for name in names:
        monkeypatch.setitem(sys.modules, registry.get(name).module, None)


def test_what_a_function_uses_decides(ours):
    """Dispatchers and modules that it or its callees read tell, and so do the types of its signature."""
    from numba import float32

    assert front_end_of(ours) == NUMBA_CUDA
    assert front_end_of(calls_theirs) == MLIR
    assert front_end_of(reads_their_module) == MLIR
    assert choice.chosen(pl.udf((float32,))(plain)).name == NUMBA_CUDA
    assert choice.chosen(pl.udf(float32(float32))(plain)).name == NUMBA_CUDA


HAS_TYPES = """
import numpy as np
from typing import NamedTuple
from {root} import types
from {root}.types import CPointer, float32

def plain(x):
    return x

class P(NamedTuple):
    a: types.float32

class Quoted(NamedTuple):
    inner: "CPointer(double)"

class Around(NamedTuple):
    x: float
    around: P

pointer = CPointer(float32)
double = types.float32
"""


@pytest.mark.parametrize(("root", "expected"), [("numba.cuda", NUMBA_CUDA), ("numba_cuda_mlir", MLIR)])
@pytest.mark.parametrize(
    "signature",
    [
        "float32(P)",
        "void(UniTuple(Quoted, 2))",
        "int8(pointer)",
        "int8(types.int8)",
        "(double,)",
        "float32(float32)",
    ],
)
def test_what_a_signature_names_decides(monkeypatch, root, expected, signature):
    """The types that names in a signature stand for tell, and so do those of named tuples' fields."""
    pytest.importorskip(root)
    module = ModuleType("has_types")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(HAS_TYPES.format(root=root), "has_types.py", "exec", dont_inherit=True), vars(module))  # noqa: S102
    assert choice.chosen(pl.udf(signature)(module.plain)).name == expected
    assert choice.chosen(pl.udf((module.Around,))(module.plain)).name == expected
    other = pl.udf((module.P,), front_end=MLIR if expected == NUMBA_CUDA else NUMBA_CUDA)(module.plain)
    with pytest.raises(pl.ExportError, match=r"is to be compiled by .* and uses .*float32.* in P\.a, which"):
        choice.chosen(other)


def test_types_that_any_front_end_has_leave_the_choice():
    """A type that is imported, and written by the name that all have for it, gives way to what is used."""
    text = "from numba import boolean, float32\ndouble = float32\ndef reads(x):\n    return used.f(x)\n"
    scope = {"used": module_of_mlir, "__name__": "has_types"}
    exec(text, scope)  # noqa: S102 - a module of its own
    assert choice.chosen(pl.udf("boolean(float32)")(scope["reads"])).name == MLIR
    with pytest.raises(pl.ExportError, match="uses double, which belongs to numba-cuda and used in reads"):
        choice.chosen(pl.udf("boolean(double)")(scope["reads"]))


def test_a_marked_helper_tells_by_what_it_names():
    """A helper that is marked for a front end counts like one that is compiled by it."""
    helper = pl.udf("float32(float32)", front_end=MLIR, name="helper")(plain)

    def caller(x):
        return helper(x)

    assert front_end_of(caller) == MLIR


def test_what_is_installed_decides_last(monkeypatch):
    """A function that does not tell is numba-cuda's while both are installed, else the other's."""
    assert front_end_of(plain) == NUMBA_CUDA
    monkeypatch.setattr(registry, "installed", lambda front_end: front_end.name == MLIR)
    assert front_end_of(plain) == MLIR


def test_the_argument_chooses(ours):
    """The argument counts for functions that name no front end."""
    assert front_end_of(plain, asked=MLIR) == MLIR
    assert front_end_of(ours) == NUMBA_CUDA
    assert front_end_of(plain, asked=NUMBA_CUDA, front_end=MLIR) == MLIR


def test_an_unknown_front_end_is_refused(tmp_path):
    """The decorator and the export name those that there are."""
    with pytest.raises(pl.ConfigError, match=r"'clang' is unknown; choose numba-cuda or numba-cuda-mlir\."):
        pl.udf("float32(float32)", front_end="clang")(plain)
    marked = pl.udf("float32(float32)")(plain)
    with pytest.raises(pl.ConfigError, match="'clang' is unknown"):
        pl.export([marked], tmp_path, front_end="clang")
    with pytest.raises(SystemExit):
        cli.main(["export", "x.py", "-o", str(tmp_path), "--front-end", "clang"])


def test_a_choice_that_cannot_be_is_refused():
    """A function that uses one front end is not compiled by the other; the message names what it uses."""
    with pytest.raises(pl.ExportError) as caught:
        front_end_of(calls_theirs, front_end=NUMBA_CUDA)
    assert str(caught.value) == (
        f"calls_theirs (test_choice.py:{calls_theirs.__code__.co_firstlineno}) is to be compiled by "
        "numba-cuda, and uses theirs in calls_theirs, which belongs to numba-cuda-mlir; use what numba-cuda "
        "has in its place, or choose numba-cuda-mlir."
    )


def test_a_function_that_mixes_front_ends_is_refused(ours):
    """One function with helpers of both is told which one belongs where; neither is tried."""
    (helper,) = (cell.cell_contents for cell in ours.__closure__)

    def mixed(x):
        return theirs(x) + helper(x)

    with pytest.raises(pl.ExportError) as caught:
        front_end_of(mixed)
    assert "theirs in " in str(caught.value)
    assert "which belongs to numba-cuda-mlir" in str(caught.value)
    assert "helper in " in str(caught.value)
    assert "which belongs to numba-cuda; one front end compiles" in str(caught.value)


def test_a_mixed_export_is_refused(tmp_path, ours):
    """The functions of one export have one front end; the message names both, with lines and cures."""
    marked = [pl.udf("float32(float32)")(function) for function in (ours, calls_theirs)]
    with pytest.raises(pl.ExportError) as caught:
        pl.export(marked, tmp_path, archs=["sm_90"], emit=["ptx"])
    message = str(caught.value)
    assert "calls_ours (test_choice.py:" in message.partition(" by numba-cuda and ")[0]
    assert "calls_theirs (test_choice.py:" in message.partition(" and ")[2]
    # Both read what belongs to one.
    assert message.endswith("Export them apart, under two names.")
    with pytest.raises(pl.ExportError, match="compiled by one front end"):
        pl.link(*marked, arch="sm_90")
    assert list(tmp_path.iterdir()) == []


def test_where_none_is_installed_all_are_named(tmp_path, monkeypatch):
    """Functions that name no front end cannot be compiled, and each cure is told."""
    without(monkeypatch, *FRONT_ENDS)
    with pytest.raises(pl.ExportError) as caught:
        pl.export([pl.udf("float32(float32)", name="f")(lambda x: x)], tmp_path / "out")
    assert str(caught.value) == (
        "No compiler for Python functions is installed; run `pip install 'numba-ptxlink[cu13]'` (numba-cuda) "
        "or `pip install 'numba-ptxlink[mlir,toolkit13]'` (numba-cuda-mlir)."
    )


def test_the_manifest_names_the_front_end(tmp_path, capsys):
    """It has the name and the versions, and the command takes the name."""
    file = tmp_path / "udfs.py"
    file.write_text("from numba_ptxlink import udf\n@udf('float32(float32)')\ndef f(x):\n    return x\n")
    command = ["export", str(file), "-o", str(tmp_path), "--emit", "ptx", "--front-end", NUMBA_CUDA]
    assert cli.main(command) == 0, capsys.readouterr().err
    manifest = json.loads((tmp_path / "udfs.json").read_text())
    assert manifest["front_end"] == NUMBA_CUDA
    assert {"numba-cuda", "numba", "llvmlite"} < set(manifest["tools"])


def asked_by(module, marked):
    """Return what *marked* is typed as by a function of *module*."""
    scope = {"__name__": module}
    exec("def ask(value):\n    return value._numba_type_", scope)  # noqa: S102 - a function of that module
    return scope["ask"](marked)


def test_a_helper_is_compiled_by_its_callers_front_end(monkeypatch):
    """A marked function without a choice of its own is a device function of whoever compiles its caller."""
    from types import SimpleNamespace

    seen = []

    def dispatcher(_, function, *, device):
        seen.append((function, device))
        return SimpleNamespace(_numba_type_="theirs")

    monkeypatch.setattr(type(registry.get(MLIR)), "dispatcher", dispatcher, raising=False)
    helper = pl.udf("float32(float32)")(plain)
    assert asked_by("numba_cuda_mlir.numba_cuda.typing.typeof", helper) == "theirs"
    assert asked_by("numba_cuda_mlir.numba_cuda.typing.typeof", helper) == "theirs"
    assert seen == [(plain, True)]
    assert registry.of_type(asked_by("numba.cuda.typing.typeof", helper)).name == NUMBA_CUDA
    assert registry.of_type(asked_by("somewhere", helper)).name == NUMBA_CUDA
    assert isinstance(helper, reached.Marked)


def test_a_helper_for_the_other_front_end_is_refused():
    """A function that names its front end is not compiled by another for a caller."""
    helper = pl.udf("float32(float32)", front_end=NUMBA_CUDA)(plain)
    with pytest.raises(pl.ExportError, match="numba-cuda-mlir compiles a function that calls it; choose one"):
        asked_by("numba_cuda_mlir.numba_cuda.typing.typeof", helper)


def test_marks_that_disagree_are_not_cured_by_the_exports_choice(tmp_path):
    """Where each decorator names a front end, the message offers what the decorators could say."""
    marked = [
        pl.udf("float32(float32)", name=name, front_end=name_of)(plain)
        for name, name_of in (("f", NUMBA_CUDA), ("g", MLIR))
    ]
    with pytest.raises(pl.ExportError) as caught:
        pl.export(marked, tmp_path, archs=["sm_90"])
    assert str(caught.value).endswith("under two names, or give their decorators one front_end=.")
    marked[1] = pl.udf("float32(float32)", name="g")(plain)
    marked[0] = pl.udf("float32(float32)", name="f", front_end=MLIR)(plain)
    with pytest.raises(pl.ExportError, match=r"or choose one with front_end=\.$"):
        pl.export(marked, tmp_path, archs=["sm_90"])


@pytest.mark.parametrize("name", [NUMBA_CUDA, MLIR])
def test_what_no_front_end_compiles_names_none_as_a_cure(name, tmp_path):
    """The message names the front end that failed, and no other where that fails as well."""
    front_ends.get(name)

    def unknown(x):
        return open(x)  # noqa: PTH123 - not compiled

    marked = pl.udf("int32(int32)", name="f")(unknown)
    with pytest.raises(
        pl.ExportError, match=rf"choice.py:\d+: error: {name} could not compile f for sm_90: "
    ):
        pl.export([marked], tmp_path, archs=["sm_90"], front_end=name)


def test_what_another_front_end_compiles_names_it(tmp_path, monkeypatch):
    """The other front end is told as the cure where it is installed and compiles the function."""
    front_ends.get(NUMBA_CUDA)
    front_ends.get(MLIR)

    def equal(x, y):
        return x == y

    marked = pl.udf("boolean(complex64, complex64)", name="f")(equal)
    cure = 'numba-cuda compiles it, by front_end="numba-cuda"'
    said = rf": error: {MLIR} could not compile f for sm_90; {cure}: "
    with pytest.raises(pl.ExportError, match=said):
        pl.export([marked], tmp_path, archs=["sm_90"], front_end=MLIR)
    monkeypatch.setattr(registry, "installed", lambda front_end: front_end.name == MLIR)
    with pytest.raises(pl.ExportError, match=rf": error: {MLIR} could not compile f for sm_90: "):
        pl.export([marked], tmp_path, archs=["sm_90"], front_end=MLIR)


def test_the_import_of_another_front_end_is_explained(monkeypatch):
    """A file that imports a front end that is not installed is told what the installed one is called."""
    missing = ModuleNotFoundError("No module named 'numba'", name="numba")
    monkeypatch.setattr(registry, "installed", lambda front_end: front_end.name == MLIR)
    assert choice.advice(missing) == (
        "numba-cuda is not installed, and numba-cuda-mlir is: write `from numba_cuda_mlir import cuda, types`"
        f", or run `pip install 'numba-ptxlink[{registry.get(NUMBA_CUDA).extra}]'`."
    )
    assert choice.advice(ModuleNotFoundError("No module named 'x'", name="x")) == ""
    monkeypatch.setattr(registry, "installed", lambda _front_end: True)
    assert choice.advice(missing) == ""
