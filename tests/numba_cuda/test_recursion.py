"""Device functions that call themselves, exported."""

from __future__ import annotations

from numba import cuda, types

import numba_ptxlink as pl
from numba_ptxlink._formats.ptx import parse


@cuda.jit(device=True)
def factorial(n):
    """Call itself as a device function."""
    shared = cuda.shared.array(1, types.int64)
    if n <= 0:
        return shared[0]
    return n * factorial(n - 1)


def test_recursion_is_exported(tmp_path):
    """A device function that calls itself is in the artifact, for every architecture."""
    udf = pl.udf("int64(int64)", name="calls")(lambda n: factorial(n))  # noqa: PLW0108
    exported = pl.export([udf], tmp_path, arch=["sm_80", "sm_100"], emit=["ptx"], name="calls")
    for artifact in exported.artifacts.values():
        module = parse(artifact.read_text())
        functions = module.functions
        assert [] == [variable.name for variable in module.variables if variable.linkage == "visible"]
        defined = {function.name for function in functions if function.defined}
        assert "calls" in defined
        assert defined == {function.name for function in functions}
