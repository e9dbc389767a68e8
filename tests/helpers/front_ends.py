"""Return the front ends that tests run with, and mark tests that need newer ones."""

from __future__ import annotations

import importlib
import sys
import types

import pytest

import numba_ptxlink as pl
from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink._front_end import registry

NAMES = FRONT_ENDS
IS_MLIR_06 = sys.version_info >= (3, 11)
MLIR_06 = pytest.mark.skipif(
    not IS_MLIR_06,
    reason="numba-cuda-mlir 0.5, the last for Python 3.10, returns no tuple in a tuple, and always inlines",
)
"""Marks tests of what numba-cuda-mlir 0.6 compiles and 0.5 does not."""


def get(name):
    """Return the front end *name* with its compiler imported; skip the test if it is not installed."""
    front_end = registry.get(name)
    if not registry.is_installed(front_end):
        pytest.skip(f"{name} is not installed", allow_module_level=True)
    return registry.require(front_end)


def cuda(name):
    """Return the module `cuda` of the front end *name*."""
    return importlib.import_module(f"{get(name).package.removesuffix('.cuda')}.cuda")


def with_names(function, **names):
    """Return the Python function *function* with more global names."""
    scope = {**function.__globals__, **names}
    copy = types.FunctionType(function.__code__, scope, function.__name__, None, function.__closure__)
    copy.__doc__ = function.__doc__
    return copy


def on_cpu(udf, name, **options):
    """Return the function of *udf*, compiled by the front end *name* for the newest dialect, on this CPU."""
    exported = pl.export([udf], arch="sm_100", emit=["ptx"], front_end=name)
    return pl.load(exported, device="cpu", **options)[udf.name]
