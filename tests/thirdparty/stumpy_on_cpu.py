"""
Run stumpy's GPU functions on the CPU, and print what each found beside stumpy's own CPU function.

Its kernels, which have their signatures beside them, are exported; its arrays on the device are NumPy's.
"""

from __future__ import annotations

import contextlib
import json
import sys
from typing import Any

import numpy as np
from numba import cuda

import numba_ptxlink as pl

stock_jit, launches = cuda.jit, 0


class HostArray(np.ndarray):
    """What stumpy takes for an array on the device."""

    def copy_to_host(self) -> np.ndarray:
        """Return a copy."""
        return np.array(self)


class FakeCUDAContext:
    """What stumpy takes for a context that keeps nothing."""


class Kernel:
    """A kernel of stumpy, exported when it is first launched."""

    def __init__(self, function: Any, signature: str) -> None:
        name = function.__name__.strip("_")
        self.marked, self.loaded = pl.kernel(f"void{signature}", name=name)(function), None

    def __getitem__(self, config: tuple[Any, Any]) -> Any:
        """Return what launches it."""
        if self.loaded is None:
            library = pl.load(pl.export([self.marked], emit=["ptx"]), device="cpu")
            self.loaded = library[self.marked.name]

        def launch(*args: Any) -> None:
            global launches  # noqa: PLW0603 - a script's count
            launches += 1
            self.loaded.launch(*args, grid=int(np.prod(config[0])), block=int(np.prod(config[1])))

        return launch


def jit(signature: Any = None, **options: Any) -> Any:
    """Do as `cuda.jit` for device functions."""
    if isinstance(signature, str):
        return lambda function: Kernel(function, signature)
    return stock_jit(signature, **options)


cuda.jit, cuda.is_available, cuda.current_context = jit, lambda: True, FakeCUDAContext
cuda.to_device = lambda array: np.array(array).view(HostArray)
cuda.gpus = {0: contextlib.nullcontext()}

if __name__ == "__main__":
    import stumpy

    rng = np.random.default_rng(0)
    walk, other = rng.standard_normal(600).cumsum(), rng.standard_normal(200)
    walk[300], walk[500] = np.nan, np.inf
    found = {}
    for name, args in (("stump", (walk, 20)), ("stump", (walk, 20, other, False)), ("aamp", (walk, 20))):
        ours, theirs = getattr(stumpy, f"gpu_{name}")(*args), getattr(stumpy, name)(*args)
        profiles = [each[:, 0].astype(float) for each in (ours, theirs)]
        found[f"{name} of {len(args)}"] = [
            np.array_equal(ours[:, 1:].astype(int), theirs[:, 1:].astype(int)),
            np.allclose(*profiles, atol=1e-6, equal_nan=True),
        ]
    sys.stdout.write(json.dumps([found, launches]))
