"""The front ends that tests run with, and what those that run with one of them lack."""

from __future__ import annotations

import contextlib
import importlib

import pytest

from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink._front_end import registry

NAMES = FRONT_ENDS


def get(name):
    """Return the front end *name* with its compiler imported; skip the test where it is not installed."""
    front_end = registry.get(name)
    if not registry.installed(front_end):
        pytest.skip(f"{name} is not installed")
    return registry.require(front_end)


def cuda(name):
    """Return the module `cuda` of the front end *name*."""
    return importlib.import_module(f"{get(name).package.removesuffix('.cuda')}.cuda")


TARGETS = {
    "numba-cuda": "numba.cuda.descriptor:cuda_target",
    "numba-cuda-mlir": "numba_cuda_mlir.descriptor:mlir_target",
}


@contextlib.contextmanager
def untaught(name):
    """
    Let the front end *name* forget afterwards what it was taught meanwhile.

    Each later export of the process would read and hash all source for it.
    """
    # What is registered is loaded.
    get(name).extensions()
    module, _, attribute = TARGETS[name].partition(":")
    target = getattr(importlib.import_module(module), attribute)
    typing, lowering = target.typing_context, target.target_context
    models = lowering.data_model_manager._handlers
    # Of a chain, the first is written to.
    models = getattr(models, "maps", [models])[0]
    tables = (typing._functions, typing._attributes, typing._globals, models)
    before = [
        {key: list(value) if isinstance(value, list) else value for key, value in table.items()}
        for table in tables
    ]
    lowered = [
        *(each for table in (lowering._defns, lowering._getattrs) for each in table.values()),
        lowering._casts,
    ]
    versions = [list(each.versions) for each in lowered]
    try:
        yield
    finally:
        # What is registered by now is loaded first, so that it is not loaded later.
        get(name).extensions()
        for table, known in zip(tables, before, strict=True):
            for key in [key for key in table if key not in known]:
                del table[key]
            for key, value in known.items():
                if isinstance(value, list):
                    table[key][:] = value
        for table in (lowering._defns, lowering._getattrs):
            for key in [key for key, each in table.items() if not any(each is kept for kept in lowered)]:
                del table[key]
        for each, known in zip(lowered, versions, strict=True):
            each.versions[:] = known
            each._cache.clear()
