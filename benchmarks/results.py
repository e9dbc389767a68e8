"""Read and write the file of a machine's results: all samples, and a description of the machine."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .protocol import Measure

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
FOLDER = ROOT / "build" / "benchmarks"


def describe(commit: str) -> dict[str, Any]:
    """Return the machine and the versions that a process of this interpreter finds, and the commit."""
    command = [sys.executable, str(HERE / "machine.py")]
    process = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return {**json.loads(process.stdout.splitlines()[-1]), "commit": commit or find_commit()}


def find_commit() -> str:
    """Return the commit of the checkout, with "-dirty" if files have changed since; "" without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.SubprocessError):
        return ""
    return process.stdout.strip()


def file_stem(machine: Mapping[str, Any]) -> str:
    """Return the name of a machine's file: its GPU's, else its processor's with the number of cores."""
    words = machine.get("GPU") or f"no-GPU {machine['CPU']} {machine['cores']} cores"
    # Without "(R)" and "@ 2.40GHz".
    words = re.sub(r"\([^)]*\)|@.*?Hz", " ", words)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def in_words(cells: Mapping[str, Any]) -> str:
    """Return names and values in a line: "Python 3.11.7, numba 0.62.1"."""
    return ", ".join(f"{key} {cell}" for key, cell in cells.items())


class Results:
    """
    The results of one machine; each call of `put` writes all of them to the file.

    Args:
        file: The file; if it has results of the same machine, versions and commit, these are kept.
        description: The machine, the versions and the commit, as `describe` returns them.
    """

    def __init__(self, file: Path, description: Mapping[str, Any]) -> None:
        self.file = file
        self.content: dict[str, Any] = {**description, "measures": {}}
        if file.exists():
            earlier = json.loads(file.read_text(encoding="utf-8"))
            if comparable_part(earlier) == comparable_part(description):
                self.content = earlier
            else:
                print(f"{file.name} is of another machine, commit or versions; it is written anew.")

    def put(self, measure: Measure, samples: Any) -> None:
        """Replace the results of *measure*."""
        self.content["measures"][measure.key] = {
            "part": measure.part,
            "name": measure.name,
            "pairs": [*map(list, measure.compared_pairs)],
            "again": measure.again,
            "noise": measure.noise,
            "date": time.strftime("%Y-%m-%d %H:%M", time.gmtime()),
            "load": round(os.getloadavg()[0], 2),
            "samples": samples,
        }
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        partial.write_text(as_text(self.content), encoding="utf-8")
        partial.replace(self.file)


def as_text(content: Mapping[str, Any]) -> str:
    """Return *content* as JSON with a line for each measure."""
    description = {key: cell for key, cell in content.items() if key != "measures"}
    measures = ",\n".join(
        f"{json.dumps(key)}: {json.dumps(entry)}" for key, entry in content["measures"].items()
    )
    return f'{json.dumps(description, indent=1)[:-2]},\n "measures": {{\n{measures}\n}}}}\n'


def comparable_part(content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the part of a description that has to be equal for all results in one file."""
    machine = {key: value for key, value in content["machine"].items() if key != "system"}
    return {"machine": machine, "versions": content["versions"], "commit": content["commit"]}


def merge(contents: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the results of one machine, merged from files with some parts each; None without files."""
    if not contents:
        return None
    merged = {**contents[0], "measures": {}}
    for content in contents:
        if comparable_part(content) != comparable_part(merged):
            raise SystemExit(
                "The files are of several machines, commits or versions; pass files of one of each."
            )
        merged["measures"] |= content["measures"]
    return merged
