"""The front end of a function: by its names, its callees, the caller's choice, and the installed packages."""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType

import pytest

import numba_ptxlink as pl
from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink._export import choice
from numba_ptxlink._front_end import registry

NUMBA_CUDA, MLIR = FRONT_ENDS


class Dispatcher:
    """The result of a decorator of numba-cuda-mlir, as far as the choice looks."""

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


plain = FunctionType(plain.__code__, {}, "plain")


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


def front_end_of(function, requested_front_end=None, **options):
    """Return the name of the front end of *function*."""
    return choice.choose_front_end(pl.udf("float32(float32)", **options)(function), requested_front_end).name


def without(monkeypatch, *names):
    """Let the front ends *names* not be installed."""
    for name in names:
        monkeypatch.setitem(sys.modules, registry.get(name).module, None)


def test_what_a_function_uses_decides(ours):
    """Dispatchers and modules that it or its callees read decide, and so do the types of its signature."""
    from numba import float32

    assert front_end_of(ours) == NUMBA_CUDA
    assert front_end_of(calls_theirs) == MLIR
    assert front_end_of(reads_their_module) == MLIR
    assert choice.choose_front_end(pl.udf((float32,))(plain)).name == NUMBA_CUDA
    assert choice.choose_front_end(pl.udf(float32(float32))(plain)).name == NUMBA_CUDA


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
    """If the body reads no names of a front end, the module's scope and the signature's types decide."""
    pytest.importorskip(root)
    module = ModuleType("has_types")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(HAS_TYPES.format(root=root), "has_types.py", "exec", dont_inherit=True), vars(module))  # noqa: S102
    assert choice.choose_front_end(pl.udf(signature)(module.plain)).name == expected
    other = pl.udf((module.double,), front_end=MLIR if expected == NUMBA_CUDA else NUMBA_CUDA)(module.plain)
    with pytest.raises(pl.ExportError, match=r"uses the type float32, which .* and front_end="):
        choice.choose_front_end(other)


@pytest.mark.numba_cuda
def test_what_is_installed_decides_last(monkeypatch):
    """A function without any sign is numba-cuda's if both are installed, else of the installed one."""
    assert front_end_of(plain) == NUMBA_CUDA
    monkeypatch.setattr(registry, "is_installed", lambda front_end: front_end.name == MLIR)
    assert front_end_of(plain) == MLIR


def test_the_argument_chooses(ours):
    """The argument counts for functions that name no front end."""
    assert front_end_of(plain, requested_front_end=MLIR) == MLIR
    assert front_end_of(ours) == NUMBA_CUDA
    assert front_end_of(plain, requested_front_end=NUMBA_CUDA, front_end=MLIR) == MLIR


def test_a_function_that_mixes_front_ends_is_refused(ours):
    """The error names what belongs to which front end; the function is compiled by neither."""
    (helper,) = (cell.cell_contents for cell in ours.__closure__)

    def mixed(x):
        return theirs(x) + helper(x)

    for function, options in ((mixed, {}), (calls_theirs, {"front_end": NUMBA_CUDA})):
        with pytest.raises(pl.ExportError, match="a function and its callees need one front end") as caught:
            front_end_of(function, **options)
        other = "helper in " if function is mixed else "front_end='numba-cuda'"
        for mention, whose in (("theirs in ", MLIR), (other, NUMBA_CUDA)):
            message = str(caught.value)
            assert f", which belongs to {whose}" in message[message.index(mention) :]


def test_a_mixed_export_is_refused(tmp_path, ours):
    """The functions of one export have one front end; the message names both, with lines and cures."""
    marked = [pl.udf("float32(float32)")(function) for function in (ours, calls_theirs)]
    with pytest.raises(pl.ExportError) as caught:
        pl.export(marked, tmp_path, arch="sm_90", emit=["ptx"])
    message = str(caught.value)
    assert message.startswith(f"{marked[1].location}: error: calls_ours (test_choice.py:")
    assert "calls_theirs (test_choice.py:" in message.partition(" and ")[2]
    assert message.endswith("export them separately, under two names, or choose one with front_end=.")
    with pytest.raises(pl.ExportError, match="need one front end"):
        pl.link(*marked, arch="sm_90")
    assert list(tmp_path.iterdir()) == []


def asked_by(module, marked):
    """Return the type of *marked* in a function of *module*."""
    scope = {"__name__": module}
    exec("def ask(value):\n    return value._numba_type_", scope)  # noqa: S102 - a function of that module
    return scope["ask"](marked)


def test_a_helper_is_compiled_by_its_callers_front_end(monkeypatch):
    """A marked function without a choice is compiled by the front end of its caller."""
    from types import SimpleNamespace

    compilations = []

    def dispatcher(_, function, *, launch_bounds, device):  # noqa: ARG001 - one of a device function is None
        compilations.append((function, device))
        return SimpleNamespace(_numba_type_="theirs")

    monkeypatch.setattr(type(registry.get(MLIR)), "dispatcher", dispatcher, raising=False)
    helper = pl.udf("float32(float32)")(plain)
    assert asked_by("numba_cuda_mlir.numba_cuda.typing.typeof", helper) == "theirs"
    assert asked_by("numba_cuda_mlir.numba_cuda.typing.typeof", helper) == "theirs"
    assert compilations == [(plain, True)]
    assert registry.of_type(asked_by("numba.cuda.typing.typeof", helper)).name == NUMBA_CUDA
    assert registry.of_type(asked_by("somewhere", helper)).name == NUMBA_CUDA
    assert isinstance(helper, choice.Marked)
