"""
What the import hook costs an interpreter that has the package installed.

Starts this interpreter with and without the hook in turns and prints the median of the differences, for
`-c pass` and for `-c "import numba"`. Both kinds of start process a directory of links to the same installed
packages and their .pth files; one of the two directories lacks the hook's. Since the difference of two starts
drowns in noise where a start takes long, the time spent in the hook is measured from inside as well: its
import, and every question that the import system asks its finder.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from pathlib import Path

INSIDE = """
import time, _numba_ptxlink_hook as hook
spent, ask = [0.0], hook.Finder.find_spec
def find_spec(self, name, path=None, target=None):
    begun = time.perf_counter()
    try:
        return ask(self, name, path, target)
    finally:
        spent[0] += time.perf_counter() - begun
hook.Finder.find_spec = find_spec
{program}
import sys
print("in finder", spent[0] * 1e3, file=sys.stderr)
"""
PROGRAMS = {"pass": "pass", "import numba": "import numba"}


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--starts", type=int, default=200, help="starts of each kind for each program")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    purelib = Path(sysconfig.get_path("purelib"))
    hook = purelib / "_numba_ptxlink_hook.py"
    if not hook.exists():
        sys.exit(f"{hook} is missing; install numba-ptxlink into this environment first.")

    with tempfile.TemporaryDirectory() as scratch:
        sites = {kind: Path(scratch, kind) for kind in ("with", "without")}
        for kind, site in sites.items():
            site.mkdir()
            for entry in purelib.iterdir():
                if kind == "with" or "numba_ptxlink" not in entry.name:
                    (site / entry.name).symlink_to(entry)
        results = {
            name: measure(program, sites, arguments.starts, scratch) for name, program in PROGRAMS.items()
        }
    if arguments.json:
        print(json.dumps(results, indent=2))
        return
    print(
        f"{'program':14} {'with':>9} {'without':>9} {'difference':>11} {'hook import':>12} {'in finder':>10}"
    )
    for name, row in results.items():
        print(
            f"{name:14} {row['with_ms']:6.2f} ms {row['without_ms']:6.2f} ms "
            f"{row['difference_ms']:8.3f} ms {row['importtime_ms']:9.3f} ms {row['finder_ms']:7.3f} ms"
        )


def measure(program: str, sites: dict[str, Path], starts: int, cwd: str) -> dict[str, float]:
    """Return the medians, in milliseconds, of starts with and without the hook."""
    times: dict[str, list[float]] = {kind: [] for kind in sites}
    charged, asked = [], []
    for _ in range(starts):
        for kind, site in sites.items():
            begun = time.perf_counter()
            start(program, site, cwd)
            times[kind].append((time.perf_counter() - begun) * 1e3)
        charged.append(importtime(start(program, sites["with"], cwd, "-X", "importtime")))
        asked.append(infinder(start(INSIDE.format(program=program), sites["with"], cwd)))
    differences = [a - b for a, b in zip(times["with"], times["without"], strict=True)]
    return {
        **{f"{kind}_ms": statistics.median(values) for kind, values in times.items()},
        "difference_ms": statistics.median(differences),
        "importtime_ms": statistics.median(charged),
        "finder_ms": statistics.median(asked),
    }


def start(program: str, site: Path, cwd: str, *options: str) -> str:
    """Start the interpreter on *program* with the packages of *site*; return its stderr."""
    code = f"import site; site.addsitedir({str(site)!r})\n{program}"
    command = [sys.executable, "-I", "-S", *options, "-c", code]
    return subprocess.run(command, check=True, cwd=cwd, capture_output=True, text=True).stderr


def infinder(stderr: str) -> float:
    """Return the milliseconds that the hook's finder took."""
    return float(stderr.rpartition("in finder")[2])


def importtime(stderr: str) -> float:
    """Return the milliseconds that `-X importtime` charges to the hook's module."""
    for line in stderr.splitlines():
        if line.endswith("_numba_ptxlink_hook"):
            return int(line.split("|")[1]) / 1e3
    sys.exit("the interpreter did not import the hook; is numba-ptxlink installed?")


if __name__ == "__main__":
    main()
