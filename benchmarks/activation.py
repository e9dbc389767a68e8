"""
What the import hook costs an interpreter that has the package installed.

Interleaves starts of this interpreter with and without the hook's .pth file and prints the difference of the
medians, for `-c pass` and for `-c "import numba"`. The two kinds of start differ in that one line of `site`:
without means `-S` plus the same path set by hand, so both run the same Python with the same packages.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

PROGRAMS = {"pass": "pass", "import numba": "import numba"}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--starts", type=int, default=60, help="starts of each kind for each program")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    purelib = Path(sysconfig.get_path("purelib"))
    hook = purelib / "_numba_ptxlink_hook.py"
    if not hook.exists():
        sys.exit(f"{hook} is missing; install numba-ptxlink into this environment first.")

    results = {}
    for name, program in PROGRAMS.items():
        # `site` would run the .pth file; what it runs is measured from inside and by whole starts.
        inside = [line_cost(program) for _ in range(arguments.starts)]
        with_hook, without = [], []
        with tempfile.TemporaryDirectory() as empty:
            for _ in range(arguments.starts):
                with_hook.append(start(program, install=True, cwd=empty))
                without.append(start(program, install=False, cwd=empty))
        results[name] = {
            "with_ms": statistics.median(with_hook) * 1e3,
            "without_ms": statistics.median(without) * 1e3,
            "difference_ms": (statistics.median(with_hook) - statistics.median(without)) * 1e3,
            "importtime_ms": statistics.median(inside),
        }
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    print(f"{'program':14} {'with':>9} {'without':>9} {'difference':>11} {'-X importtime':>14}")
    for name, row in results.items():
        print(
            f"{name:14} {row['with_ms']:6.2f} ms {row['without_ms']:6.2f} ms "
            f"{row['difference_ms']:8.3f} ms {row['importtime_ms']:11.3f} ms"
        )


def start(program: str, *, install: bool, cwd: str) -> float:
    """Return the wall time in seconds of one start of the interpreter."""
    code = f"import _numba_ptxlink_hook\n{program}" if install else program
    command = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path[:] = {sys.path[1:]!r}\n{code}"]
    begun = time.perf_counter()
    subprocess.run(command, check=True, cwd=cwd)
    return time.perf_counter() - begun


def line_cost(program: str) -> float:
    """Return what `-X importtime` charges to the hook's module, in milliseconds."""
    run = subprocess.run(
        [sys.executable, "-X", "importtime", "-c", program],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": ""},
    )
    for line in run.stderr.splitlines():
        if line.endswith("_numba_ptxlink_hook"):
            return int(line.split("|")[1]) / 1e3
    sys.exit("the interpreter did not import the hook; is numba-ptxlink installed?")


if __name__ == "__main__":
    main()
