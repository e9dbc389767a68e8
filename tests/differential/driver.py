"""Run programs in worker processes, stock or with the plugin, and compare what became of them."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LEFT_CONTEXT = 75
"""What a worker returns that has done a program, and cannot go on in a context that is broken."""

HERE = Path(__file__).resolve().parent


@dataclass(frozen=True)
class Way:
    """
    A way to compile or execute programs.

    Args:
        name: The name of its folder.
        plugin: Whether the plugin is active.
        cache: The cache's directory, "0" for none.
        hash_seed: PYTHONHASHSEED.
        order: The seed of the programs' order, None for theirs.
        execute: Whether programs are launched on the device.
        without_lto: Whether stock gives up LTO where nothing is linked, as the plugin does.
    """

    name: str
    plugin: bool
    cache: str = "0"
    hash_seed: int = 0
    order: int | None = None
    execute: bool = False
    without_lto: bool = False

    def environ(self) -> dict[str, str]:
        """Return the worker's environment."""
        return {
            **os.environ,
            "NUMBA_PTXLINK": str(int(self.plugin)),
            "NUMBA_PTXLINK_CACHE": self.cache,
            # Stock inlines nothing out of PTX, so machine code is compared without; what it does, with it.
            "NUMBA_PTXLINK_INLINE": "all" if self.execute else "none",
            "PYTHONHASHSEED": str(self.hash_seed),
            "DIFFERENTIAL_EXECUTE": str(int(self.execute)),
            "DIFFERENTIAL_WITHOUT_LTO": str(int(self.without_lto)),
            "NUMBA_CUDA_LOG_LEVEL": "CRITICAL",
        }


def run(way: Way, programs: list[Path], folder: Path) -> dict[str, Any]:
    """
    Return what became of each program, by its name.

    Each batch has a process of its own; where that dies, the program it was at is said to have crashed, and
    another process goes on with the next.
    """
    place = folder / way.name
    place.mkdir(parents=True, exist_ok=True)
    pending = list(programs)
    if way.order is not None:
        random.Random(way.order).shuffle(pending)  # noqa: S311 - an order, not a secret
    results = place / "results.jsonl"
    done: dict[str, Any] = {}
    # A program takes a fifth of this on an idle machine.
    seconds = 60 + 2 * len(programs)
    while pending:
        manifest = place / "manifest.json"
        manifest.write_text(json.dumps([str(path) for path in pending]))
        command = [sys.executable, str(HERE / "worker.py"), str(manifest), str(results)]
        with (place / "stderr.txt").open("a") as log:
            try:
                code = subprocess.run(
                    command, env=way.environ(), stderr=log, stdout=log, timeout=seconds, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                code = -1
        if not results.exists():
            raise RuntimeError(f"the worker did not start: {(place / 'stderr.txt').read_text()[-2000:]}")
        lines = [line for line in results.read_text().splitlines() if line]
        done = {each["program"]: each for each in map(json.loads, lines)}
        left = [path for path in pending if path.stem not in done]
        if not left:
            break
        if code == LEFT_CONTEXT:
            pending = left
            continue
        outcome = {"error": ["Crash"], "message": f"the process ended with {code}", "text": ""}
        line = {"program": left[0].stem, "launches": [outcome], "active": way.plugin, "hits": 0, "misses": 0}
        with results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        done[left[0].stem] = line
        pending = left[1:]
    return done


def hits(results: dict[str, Any]) -> tuple[int, int]:
    """Return hits and misses of the programs that compile."""
    compiled = [
        each for each in results.values() if not any("error" in launch for launch in each["launches"])
    ]
    return sum(each["hits"] for each in compiled), sum(each["misses"] for each in compiled)


def run_all(ways: list[Way], programs: list[Path], folder: Path, workers: int = 2) -> list[dict[str, Any]]:
    """Run *programs* in each of *ways*, some at a time, and return what became of them in each."""
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda way: run(way, programs, folder), ways))
