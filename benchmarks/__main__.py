"""
Compare the speed of this package with that of other tools for the same work: `python -m benchmarks`.

Every sample is a separate process. The results are written to build/benchmarks as JSON after each turn.
Results of other parts stay in the file if machine, versions and commit are the same. Without a device, the
measures that need one are skipped.

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
    """Run the command line; return 1 if a process failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=(__doc__ or "") + "\n".join(f"  {part:10} {rows.PARTS[part][0]}" for part in rows.PARTS),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_argument = parser.add_argument
    add_argument("--only", nargs="+", choices=[*rows.PARTS], metavar="PART", help="measure these parts only")
    add_argument(
        "--rows",
        default="",
        metavar="PATTERN",
        help="measure only rows whose name matches, such as cache=True",
    )
    add_argument("--turns", type=int, default=TURNS, help="processes of each contender, %(default)s")
    add_argument(
        "--minutes", type=float, default=MINUTES, help="begin no turn that may end after MINUTES, %(default)s"
    )
    add_argument("--quick", action="store_true", help="run one turn of a few rows, to test that they work")
    add_argument(
        "--beside",
        metavar="PYTHON",
        help="compare with the version of this package that another interpreter has",
    )
    add_argument(
        "--toolkit", default="", metavar="RELEASE", help="another toolkit's release; CUDA_HOME is its path"
    )
    add_argument("--commit", default="", help="the commit in the results, if this is no checkout")
    add_argument("--out", type=Path, default=results.FOLDER, help="the folder of the results, %(default)s")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    page_parser = commands.add_parser("page", help="write the results of one machine to README and docs/")
    page_parser.add_argument(
        "files", nargs="*", type=Path, help="the files of results; without any, the page has no results"
    )
    page_parser.add_argument("--root", type=Path, default=results.ROOT, help="the checkout, %(default)s")
    options = parser.parse_args(argv)
    if options.command == "page":
        contents = [json.loads(file.read_text(encoding="utf-8")) for file in options.files]
        page.write(results.merge(contents), options.root)
        return 0
    return run(options)


def run(options: argparse.Namespace) -> int:
    """Run the parts, write what they measured, and return the exit status."""
    start_time = time.monotonic()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(signal_number, _stop)
    description = results.describe(options.commit)
    for title, cells in description.items():
        print(f"{title}: {cells if isinstance(cells, str) else results.in_words(cells)}")
    suffix = ("-quick" if options.quick else "") + ("-beside" if options.beside else "")
    file = options.out / f"{results.file_stem(description['machine'])}{suffix}.json"
    stored = results.Results(file, description)
    setup = rows.Setup(description["machine"].get("arch", ""), options.quick, options.toolkit)
    skip_reasons: dict[str, str] = {}
    status = 0
    try:
        for part in options.only or rows.PARTS:
            print(f"\n=== {part}: {rows.PARTS[part][0]}", flush=True)
            measures = choose(part, setup, options)
            skip_reasons |= {measure.key: measure.skip_reason for measure in measures if measure.skip_reason}
            available = [measure for measure in measures if not measure.skip_reason]
            if not available:
                continue
            failure_reasons = protocol.run(
                available,
                1 if options.quick else options.turns,
                end=start_time + 60 * options.minutes,
                warm=not options.quick,
                keep=stored.put,
            )
            skip_reasons |= failure_reasons
            status |= bool(failure_reasons)
            print(page.table(stored.content, part), flush=True)
    except SystemExit as exit_request:
        status = exit_request.code
        print("stopped; the turns that have ended are kept", flush=True)
    for key, reason in skip_reasons.items():
        print(f"not measured: {key}: {reason}")
    if not options.beside:
        print(f"\n{page.goal_table(stored.content)}")
    print(f"\n{time.monotonic() - start_time:.0f} s; {stored.file}", flush=True)
    return status


def choose(part: str, setup: rows.Setup, options: argparse.Namespace) -> list[Measure]:
    """Return the measures of *part* that the options choose."""
    measures = [measure for measure in rows.PARTS[part][1](setup) if re.search(options.rows, measure.name)]
    if options.quick:
        # A single turn is too few to measure the noise.
        measures = [dataclasses.replace(measure, again="") for measure in measures]
    return protocol.compare_with(measures, options.beside) if options.beside else measures


def _stop(signal_number: int, _: object) -> None:
    # The exit status that shells give a process which a signal has ended.
    sys.exit(128 + signal_number)


if __name__ == "__main__":
    sys.exit(main())
