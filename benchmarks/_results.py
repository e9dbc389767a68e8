"""The file of a machine's results: what was measured by which part, on what, and whether all of it was."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
FOLDER = HERE.parent / "build" / "benchmarks"


def describe() -> dict[str, Any]:
    """Return the machine and the versions that a process of this interpreter finds."""
    command = [sys.executable, str(HERE / "_machine.py")]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    described: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return described


def name(machine: dict[str, Any], *, quick: bool) -> str:
    """Return the name of a machine's files: its GPU's, else its processor's with the number of cores."""
    words = machine.get("GPU") or f"no-GPU {machine['CPU']} {machine['cores']} cores"
    words = re.sub(r"\([^)]*\)|@.*?Hz", " ", words)
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") + "-quick" * quick


class Results:
    """The results of one machine; all of them are in the file whenever a method has returned."""

    def __init__(self, file: Path, described: dict[str, Any], *, quick: bool) -> None:
        self.file = file
        head = {**described, "quick": quick}
        self.content: dict[str, Any] = {**head, "parts": {}}
        if file.exists():
            earlier = json.loads(file.read_text(encoding="utf-8"))
            # Other parts of the same run, which --only has split.
            if _comparable(head) == _comparable(earlier):
                self.content = earlier
            else:
                print(f"{file.name} is of another machine or of other versions; it is written anew.")

    def put(self, part: str, **entry: Any) -> bool:
        """Replace the entry of *part*, unless that would lose rows and bring none; return whether it did."""
        if not entry["rows"] and self.content["parts"].get(part, entry)["rows"]:
            return False
        self.content["parts"][part] = entry
        self.file.parent.mkdir(parents=True, exist_ok=True)
        partial = self.file.with_name(f".{self.file.name}.{os.getpid()}")
        partial.write_text(json.dumps(self.content, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.file)
        return True


def _comparable(content: dict[str, Any]) -> dict[str, Any]:
    """Return what has to be equal of two runs whose figures stand in one file."""
    machine = {key: value for key, value in content["machine"].items() if key != "system"}
    return {"machine": machine, "versions": content["versions"], "quick": content["quick"]}


def now() -> str:
    """Return the date and the time of day, UTC."""
    return time.strftime("%Y-%m-%d %H:%M", time.gmtime())
