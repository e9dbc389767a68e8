"""
Measure this package beside what else does the same: `python -m benchmarks`.

Every sample is a process of its own. The results go to build/benchmarks as JSON after each turn; those of
other parts stay in the file if machine, versions and commit are the same. What needs a device is left out
without one.

parts:
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from . import page, protocol, results, rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .protocol import Measure

TURNS = 10
MINUTES = 9.0


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say; return 1 where a process failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=(__doc__ or "") + "\n".join(f"  {part:10} {rows.PARTS[part][0]}" for part in rows.PARTS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--only", nargs="+", choices=[*rows.PARTS], metavar="PART", help="these parts")
    add(
        "--rows",
        default="",
        metavar="PATTERN",
        help="of these parts what is named like it, such as cache=True",
    )
    add("--turns", type=int, default=TURNS, help="processes of each contender, %(default)s")
    add("--minutes", type=float, default=MINUTES, help="begin no turn that would end later, %(default)s")
    add("--quick", action="store_true", help="one turn of a few rows, which only shows that they work")
    add(
        "--beside",
        metavar="PYTHON",
        help="an interpreter with another version of this package, to compare with",
    )
    add("--toolkit", default="", metavar="RELEASE", help="the release of another toolkit, in CUDA_HOME")
    add("--commit", default="", help="what is measured, where this is no checkout")
    add("--out", type=Path, default=results.FOLDER, help="the folder of the results, %(default)s")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    written = commands.add_parser(
        "page", help="write what README and docs/ show, of the results of one machine"
    )
    written.add_argument(
        "files", nargs="*", type=Path, help="the files of its parts; none: a page without results"
    )
    written.add_argument("--root", type=Path, default=results.ROOT, help="the checkout, %(default)s")
    options = parser.parse_args(argv)
    if options.command == "page":
        contents = [json.loads(file.read_text(encoding="utf-8")) for file in options.files]
        page.write(results.merge(contents), options.root)
        return 0
    return run(options)


def run(options: argparse.Namespace) -> int:
    """Run the parts, write what they measured, and return the exit status."""
    begun = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    head = results.describe(options.commit)
    for title, cells in head.items():
        print(f"{title}: {cells if isinstance(cells, str) else results.in_words(cells)}")
    kind = "-quick" * options.quick + "-beside" * bool(options.beside)
    kept = results.Results(options.out / f"{results.name(head['machine'])}{kind}.json", head)
    place = rows.Place(head["machine"].get("arch", ""), options.quick, options.toolkit)
    missing: dict[str, str] = {}
    status = 0
    try:
        for part in options.only or rows.PARTS:
            print(f"\n=== {part}: {rows.PARTS[part][0]}", flush=True)
            measures = choose(part, place, options)
            missing |= {measure.key: measure.missing for measure in measures if measure.missing}
            here = [measure for measure in measures if not measure.missing]
            if not here:
                continue
            failed = protocol.run(
                here,
                1 if options.quick else options.turns,
                end=begun + 60 * options.minutes,
                warm=not options.quick,
                keep=kept.put,
            )
            missing |= failed
            status |= bool(failed)
            print(page.table(kept.content, part), flush=True)
    except SystemExit as stopped:
        status = stopped.code
        print("stopped; the turns that have ended are kept", flush=True)
    for key, reason in missing.items():
        print(f"not measured: {key}: {reason}")
    if not options.beside:
        print(f"\n{page.goal_table(kept.content)}")
    print(f"\n{time.monotonic() - begun:.0f} s; {kept.file}", flush=True)
    return status


def choose(part: str, place: rows.Place, options: argparse.Namespace) -> list[Measure]:
    """Return the measures of *part* that the options ask for."""
    measures = [each for each in rows.PARTS[part][1](place) if re.search(options.rows, each.name)]
    if options.quick:
        # The noise of one turn would say nothing.
        measures = [dataclasses.replace(measure, again="") for measure in measures]
    return protocol.beside(measures, options.beside) if options.beside else measures


def _stop(number: int, _: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
