"""Compile kernels of Numba's own tests without a device, in an order of its own, and print cache counters."""

from __future__ import annotations

import contextlib
import importlib
import io
import json
import pkgutil
import random
import sys
import unittest
import warnings
from types import SimpleNamespace
from unittest.mock import MagicMock

import numba.cuda
import numba.cuda.api
import numba.cuda.dispatcher
from numba import cuda
from numba.cuda.cudadrv import devices

import numba_ptxlink as pl

# They start processes and threads, need a device to get anywhere, or compile the same in every order.
LEFT_OUT = ("ipc", "multi", "caching", "cupy", "stream", "errors", "print", "extending", "libdevice", "enums")


def fake_a_device() -> list[object]:
    """Let kernels compile and link, and launches do nothing; return the list that compiled kernels go to."""
    device = SimpleNamespace(
        compute_capability=(8, 0), id=0, supports_bfloat16=True, supports_float16=True, supports_fp8=False
    )
    context = MagicMock(device=device)
    for module in (cuda, numba.cuda.api, numba.cuda.dispatcher):
        module.get_current_device = lambda: device
    for module in (devices, numba.cuda.dispatcher):
        module.get_context = lambda *_: context
    for module in (cuda, numba.cuda.api):
        module.current_context = lambda *_: context
    kernel_class = numba.cuda.dispatcher._Kernel
    kernels: list[object] = []
    compile_kernel = kernel_class.__init__

    def init(self, *args, **kwargs):
        compile_kernel(self, *args, **kwargs)
        kernels.append(self)

    kernel_class.__init__ = init
    kernel_class.launch = lambda *_, **__: None
    cuda.to_device = lambda array, *_, **__: array
    cuda.synchronize = lambda: None
    return kernels


def find_tests() -> list[unittest.TestCase]:
    """Return the tests, in the same order in every process."""
    package = importlib.import_module("numba.cuda.tests.cudapy")
    tests: list[unittest.TestCase] = []
    for found in sorted(pkgutil.iter_modules(package.__path__), key=lambda each: each.name):
        if not found.name.startswith("test_") or any(part in found.name for part in LEFT_OUT):
            continue
        with contextlib.suppress(unittest.SkipTest):
            module = importlib.import_module(f"{package.__name__}.{found.name}")
            tests += [
                test for suite in unittest.defaultTestLoader.loadTestsFromModule(module) for test in suite
            ]
    return tests


def main() -> None:
    """Take the number of tests and the seed of their order from the command line."""
    number, seed = int(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")
    kernels = fake_a_device()
    tests = find_tests()
    random.Random(0).shuffle(tests)  # noqa: S311 - a choice, not a secret
    tests = tests[:number]
    random.Random(seed).shuffle(tests)  # noqa: S311 - likewise
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        for test in tests:
            test.run(unittest.TestResult())
    status = pl.status()
    counts = {
        "kernels": len(kernels),
        "hits": status.cache_hits,
        "misses": status.cache_misses,
    }
    sys.stdout.write(json.dumps(counts) + "\n")


if __name__ == "__main__":
    main()
