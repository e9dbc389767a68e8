"""
What the import hook costs an interpreter that has the package installed.

Starts this interpreter without and with the hook in turns, for `-c pass` and for `-c "import numba"`. Both
kinds of start process a directory of links to the same installed packages and their .pth files; one of the
two directories lacks the hook's. Since the difference of two starts drowns in noise where a start takes long,
the time spent in the hook is measured from inside as well: its import, and every question that the import
system asks its finder.
"""

from __future__ import annotations

import functools
import statistics
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import _harness

if TYPE_CHECKING:
    from collections.abc import Sequence

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
print("in finder", spent[0], file=sys.stderr)
"""


def main(argv: Sequence[str] | None = None) -> None:
    """Run the benchmark."""
    programs = {"pass": "pass", "import": "import numba"}
    sections = {name: functools.partial(measure, program) for name, program in programs.items()}
    parser = _harness.make_parser(__doc__, sections, repeats=(200, 8))
    _harness.run(parser, sections, argv)


def measure(program: str, bench: _harness.Bench) -> None:
    """Measure starts on *program* without and with the hook."""
    with tempfile.TemporaryDirectory() as scratch:
        without, hooked = link_packages(Path(scratch))
        contenders = {
            "without": lambda: _harness.timed(lambda: start(program, without, scratch)),
            "with": lambda: {
                **_harness.timed(lambda: start(program, hooked, scratch)),
                "import": [read_importtime(start(program, hooked, scratch, "-X", "importtime"))],
                "finder": [read_finder(start(INSIDE.format(program=program), hooked, scratch))],
            },
        }
        samples: dict[str, dict[str, list[float]]] = {}
        starts = 0
        # More and more starts to a row: hundreds take minutes.
        while starts < bench.options.repeats and not (starts and bench.out_of_time()):
            turns = min(max(starts, 10), bench.options.repeats - starts)
            for figure, by_kind in bench.in_turns(contenders, turns).items():
                for kind, values in by_kind.items():
                    samples.setdefault(figure, {}).setdefault(kind, []).extend(values)
            starts = len(samples["time"]["with"])
            show(program, samples, bench)


def show(program: str, samples: dict[str, dict[str, list[float]]], bench: _harness.Bench) -> None:
    """Print what was measured of *program* so far."""
    starts = samples["time"]
    differences = [1e3 * (a - b) for a, b in zip(starts["with"], starts["without"], strict=True)]
    bench.row(
        {
            "program": program,
            **_harness.compare(starts),
            "difference ms": _harness.spread(differences),
            "hook's import ms": 1e3 * statistics.median(samples["import"]["with"]),
            "in its finder ms": 1e3 * statistics.median(samples["finder"]["with"]),
        }
    )


def link_packages(scratch: Path) -> tuple[Path, Path]:
    """Return two directories with links to the installed packages, the first one without this package."""
    purelib = Path(sysconfig.get_path("purelib"))
    hook = purelib / "_numba_ptxlink_hook.py"
    if not hook.exists():
        sys.exit(f"{hook} is missing; install numba-ptxlink into this environment first.")
    without, hooked = scratch / "without", scratch / "with"
    for site in (without, hooked):
        site.mkdir()
        for entry in purelib.iterdir():
            if site is hooked or "numba_ptxlink" not in entry.name:
                (site / entry.name).symlink_to(entry)
    return without, hooked


def start(program: str, site: Path, cwd: str, *options: str) -> str:
    """Start the interpreter on *program* with the packages of *site*; return its stderr."""
    code = f"import site; site.addsitedir({str(site)!r})\n{program}"
    command = [sys.executable, "-I", "-S", *options, "-c", code]
    return subprocess.run(command, check=True, cwd=cwd, capture_output=True, text=True).stderr


def read_finder(stderr: str) -> float:
    """Return the seconds that the hook's finder took."""
    return float(stderr.rpartition("in finder")[2])


def read_importtime(stderr: str) -> float:
    """Return the seconds that `-X importtime` charges to the hook's module."""
    for line in stderr.splitlines():
        if line.endswith("_numba_ptxlink_hook"):
            return int(line.split("|")[1]) / 1e6
    sys.exit("the interpreter did not import the hook; is numba-ptxlink installed?")


if __name__ == "__main__":
    main()
