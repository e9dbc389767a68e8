"""
Run Numba's own tests without a device: `python numba_outcomes.py NUMBER SEED`.

Prints a line of JSON for each test: its id, how it ended, and what became of each kernel that it compiled. A
launch does nothing, so most tests fail that look at results, in the same way with the plugin and without.
"""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import sys
import unittest
import warnings
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "helpers")]

import fakedevice  # noqa: E402 - found by the line above
import machine  # noqa: E402
import numba_kernels  # noqa: E402
from numba.cuda.dispatcher import _Kernel  # noqa: E402
from worker import failure  # noqa: E402

outcomes: list[Any] = []


def watch() -> None:
    """Note for each kernel from now on what came of compiling and linking it."""
    compile_kernel = _Kernel.__init__

    def init(self, *args, **kwargs):
        try:
            compile_kernel(self, *args, **kwargs)
            cubin = self._codelibrary.get_cubin().code
        except Exception as error:
            made = failure(error)
            outcomes.append({"error": made["error"], "message": plain(made["message"])})
            raise
        found = machine.kernels(cubin)
        outcomes.append(
            {
                "entry": machine.plain_name(self.entry_name),
                "kernels": sorted(map(machine.plain_name, found)),
                "entry_in_cubin": self.entry_name in found,
            }
        )

    _Kernel.__init__ = init


def plain(message: str) -> str:
    """Return a message without addresses and what Numba counts up."""
    return re.sub(r"0x[0-9a-f]+|\d{4,}|v\d+", "N", message)


def ending(result: unittest.TestResult) -> str:
    """Return how a test ended, and the last line of its error; a failure is about memory that nothing set."""
    if result.failures:
        return "failed"
    for kind in ("errors", "skipped"):
        for _, text in getattr(result, kind):
            lines = [line for line in text.splitlines() if re.match(r"[\w.]+(:|$)", line)]
            return f"{kind}: {plain(lines[-1] if lines else '')}"
    return "passed"


def main() -> None:
    """Run as many tests as the command line says, in one order in every process."""
    number, seed = int(sys.argv[1]), int(sys.argv[2])
    warnings.simplefilter("ignore")
    fakedevice.install()
    fakedevice.ignore_launches()
    watch()
    tests = numba_kernels.find_tests()
    random.Random(seed).shuffle(tests)  # noqa: S311 - a choice, not a secret
    for test in tests[:number]:
        outcomes.clear()
        result = unittest.TestResult()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            test.run(result)
        line = {"test": test.id(), "end": ending(result), "kernels": outcomes}
        sys.stdout.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
