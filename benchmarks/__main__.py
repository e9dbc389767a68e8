"""
Run the benchmarks that this machine can run, side by side with the peers: `python -m benchmarks`.

Each part is a process of its own and has its share of the time; what the time does not suffice for is left
out with the reason. The results go to build/benchmarks as JSON, whenever a row is measured. A run of other
parts with the same versions adds to the file, and a part that measures nothing leaves what is there. SIGINT
and SIGTERM end a run early, and what it has measured is kept.

parts:
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _page, _parts, _results

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MINUTES = {False: 9.0, True: 2.0}
# To end a part that is late.
RESERVE = 15
# A part begins nothing after this share of its time; the rest is for what has begun.
BEGIN = 0.85
# How much longer than its share a part may take before it is ended.
GRACE = 1.5
NAMED = "; by --only alone"


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the arguments say; return 1 where a part failed."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description=(__doc__ or "")
        + "\n".join(f"  {part.name:12} {part.title}{NAMED * part.alone}" for part in _parts.present()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    names = [part.name for part in _parts.present()]
    parser.add_argument("--quick", action="store_true", help="within two minutes: fewer and smaller samples")
    parser.add_argument("--minutes", type=float, help="the time of the run, 9, or 2 with --quick")
    parser.add_argument("--only", nargs="+", choices=names, metavar="PART", help=", ".join(names))
    parser.add_argument("--out", type=Path, default=_results.FOLDER, help="the folder, %(default)s")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    page = commands.add_parser("page", help="write what docs/ shows, from the results of some machines")
    page.add_argument("files", nargs="+", type=Path)
    options = parser.parse_args(argv)
    if options.command == "page":
        _page.write([json.loads(file.read_text(encoding="utf-8")) for file in options.files])
        return 0
    return run(options)


def run(options: argparse.Namespace) -> int:
    """Run the parts, write what they measured, and return the exit status."""
    begun = time.monotonic()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    described = _results.describe()
    for title, cells in described.items():
        print(f"{title}: {', '.join(f'{key} {cell}' for key, cell in cells.items())}")
    file = options.out / f"{_results.name(described['machine'], quick=options.quick)}.json"
    results = _results.Results(file, described, quick=options.quick)
    end = begun + 60 * (options.minutes or MINUTES[options.quick]) - RESERVE
    status = 0
    try:
        parts = _parts.chosen(options.only or ())
        for index, part in enumerate(parts):
            shares = [each.weight(quick=options.quick) for each in parts[index:]]
            left = end - time.monotonic()
            seconds = left * shares[0] / sum(shares)
            print(f"\n=== {part.name}: {part.title} (at most {max(seconds, 0):.0f} s)", flush=True)
            status |= measure(part, results, seconds, min(GRACE * seconds, left), quick=options.quick)
    except SystemExit as stopped:
        status = stopped.code
        print("stopped; what was measured is kept", flush=True)
    if results.content["parts"]:
        print(f"\n{_page.goals([results.content])}")
    print(f"\n{time.monotonic() - begun:.0f} s; {file}", flush=True)
    return status


def measure(part: _parts.Part, results: _results.Results, seconds: float, most: float, *, quick: bool) -> int:
    """Run *part* for *seconds*, end it after *most*, and keep what it measured; return 1 if it failed."""
    entry: dict[str, Any] = {"date": _results.now(), "load": os.getloadavg()[0], "rows": [], "left out": []}
    begun = time.monotonic()
    with tempfile.TemporaryDirectory() as scratch:
        file = Path(scratch, "rows.json")
        command = [str(_parts.HERE / f"{part.script}.py"), *part.arguments, "--json", str(file)]
        command += ["--seconds", f"{BEGIN * seconds:.0f}", *(["--quick"] if quick else part.full)]
        # Elsewhere, lest a checkout be imported in place of what is installed.
        process = subprocess.Popen([sys.executable, *command], cwd=scratch, start_new_session=True)
        reason = "it was stopped"
        try:
            with _ending(process):
                while process.poll() is None and time.monotonic() < begun + most:
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(1)
                    _keep(part, results, entry, file)
                reason = f"its time was over after {time.monotonic() - begun:.0f} s"
        finally:
            _keep(part, results, entry, file)
            complete = entry.pop("complete", False)
            # The status of one that is complete only says that something is slow.
            failed = not complete and process.returncode > 0 and process.returncode < 128
            if failed:
                reason = f"it failed with {process.returncode}"
            if not complete:
                entry["left out"].append({"section": "", "subject": "what follows", "reason": reason})
                print(f"  left out: what follows: {reason}", flush=True)
            if not results.put(part.name, **entry, seconds=round(time.monotonic() - begun, 1)):
                print("  what an earlier run has measured is kept", flush=True)
    return int(failed)


def _keep(part: _parts.Part, results: _results.Results, entry: dict[str, Any], file: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        report = json.loads(file.read_text(encoding="utf-8"))
        fresh = {"rows": report["rows"], "left out": report["left out"], "complete": report["complete"]}
        if fresh != {key: entry.get(key) for key in fresh}:
            entry.update(fresh)
            results.put(part.name, **entry)


@contextlib.contextmanager
def _ending(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """End *process* and what it has started: politely, then not."""
    try:
        yield
    finally:
        if process.poll() is None:
            process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
        # Its children may have outlived it; the group is its own.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _stop(number: int, _: object) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
