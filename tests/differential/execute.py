"""
Execute programs on the GPU, stock and with the plugin: `python execute.py --programs 1000`.

Compares all memory, all that is printed and all errors; prints "N programs, M differences" and ends with 1
where there is one. Programs run in many processes, each with a context of its own, left after a fault.
"""

from __future__ import annotations

import argparse
import itertools
import os
import re
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import cases
import driver
import generator
from driver import Way

# Differences by chance: the thread whose error is reported, and the driver's name for a stack overflow.
CHANCE = re.compile(
    r"tid=\[.*?\] ctaid=\[.*?\]|CUDA_ERROR_(?:ILLEGAL_ADDRESS|LAUNCH_FAILED): \d+>?\]? Call to .*"
)

BATCH = 40
"""Programs of one process; starting one takes about as long as compiling five."""

STOCK = Way("stock", plugin=False, execute=True)
PLUGIN = Way("plugin", plugin=True, execute=True)
# If stock links with LTO and the plugin does not, arithmetic may be rounded differently.
WITHOUT_LTO = replace(STOCK, name="stock_without_lto", without_lto=True)


def execute(way: Way, programs: list[Path], folder: Path, workers: int) -> dict[str, Any]:
    """Return the results of each program in *way*, run by several processes at a time."""
    batches = [programs[start : start + BATCH] for start in range(0, len(programs), BATCH)]

    def run(number: int) -> dict[str, Any]:
        return driver.run(replace(way, name=f"{way.name}_{number}"), batches[number], folder)

    results: dict[str, Any] = {}
    with ThreadPoolExecutor(workers) as pool:
        for done in pool.map(run, range(len(batches))):
            results.update(done)
    return results


def comparable_parts(program: dict[str, Any]) -> list[tuple[Any, ...]]:
    """Return the parts of an execution that have to be equal: memory, lines printed and errors."""
    return [
        (
            launch.get("memory"),
            # Threads print in no order.
            sorted(launch.get("printed", "").splitlines()),
            launch.get("error", [""])[0],
            CHANCE.sub("", launch.get("message", "")),
        )
        for launch in program["launches"]
    ]


# Stock does not compile functions that call themselves in a module that sys.modules does not have.
_RECURSION = "no attribute 'insert_unresolved_ref'"


def differing(stock: dict[str, Any], plugin: dict[str, Any]) -> list[str]:
    """Return the programs whose executions differ, but for launches that stock fails at and this does."""
    return sorted(
        name
        for name in stock
        if any(
            one != other and one[2] != "nvJitLinkError" and _RECURSION not in one[3]
            for one, other in itertools.zip_longest(
                comparable_parts(stock[name]), comparable_parts(plugin[name]), fillvalue=(None, None, "", "")
            )
        )
    )


def main() -> int:
    """Compare as many programs as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=1000, help="how many random programs")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2, help="processes at a time")
    parser.add_argument("--folder", type=Path, help="keep programs and results here")
    arguments = parser.parse_args()
    from cuda.core import Device

    Device(0).set_current()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.folder or Path(scratch)
        (folder / "programs").mkdir(parents=True, exist_ok=True)
        programs = [
            *cases.write(folder / "programs"),
            *generator.write(
                folder / "programs", range(arguments.first, arguments.first + arguments.programs)
            ),
        ]
        start = time.monotonic()
        half = max(1, arguments.workers // 2)
        with ThreadPoolExecutor(2) as both:
            stock, plugin = both.map(lambda way: execute(way, programs, folder, half), (STOCK, PLUGIN))
        differences = differing(stock, plugin)
        again = [path for path in programs if path.stem in differences]
        without = execute(WITHOUT_LTO, again, folder, arguments.workers)
        unexplained = differing(without, {name: plugin[name] for name in without})
        for name in unexplained:
            print(f"{name}: stock {comparable_parts(stock[name])}, plugin {comparable_parts(plugin[name])}")
        print("as stock without LTO:", *sorted(set(differences) - set(unexplained)))
        launches = [launch for done in stock.values() for launch in done["launches"]]
        errors = Counter(launch["error"][0] for launch in launches if "error" in launch)
        print(
            f"{len(programs)} programs, {len(unexplained)} differences; "
            f"{len(differences) - len(unexplained)} are as stock without LTO; {len(launches)} launches, "
            f"of which stock fails {dict(errors)}; {time.monotonic() - start:.0f} s"
        )
        are_active = {result["active"] for result in plugin.values()}
        if sum(errors.values()) > len(launches) / 4 or {True} != are_active:
            print("most of this did not run, or the plugin was not active: nothing was shown")
            return 1
    return int(bool(unexplained))


if __name__ == "__main__":
    sys.exit(main())
