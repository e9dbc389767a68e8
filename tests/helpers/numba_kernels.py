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

import fakedevice
from numba.cuda.dispatcher import _Kernel

import numba_ptxlink as pl

# They start processes and threads, need a device to get anywhere, or compile the same in every order.
LEFT_OUT = ("ipc", "multi", "caching", "cupy", "stream", "errors", "print", "extending", "libdevice", "enums")


def record_kernels() -> list[object]:
    """Return the list that kernels go to when they are compiled."""
    kernels: list[object] = []
    compile_kernel = _Kernel.__init__

    def init(self, *args, **kwargs):
        compile_kernel(self, *args, **kwargs)
        kernels.append(self)

    _Kernel.__init__ = init
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
    fakedevice.install()
    fakedevice.ignore_launches()
    kernels = record_kernels()
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
