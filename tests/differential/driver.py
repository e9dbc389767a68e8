"""Run programs in worker processes, stock or with the plugin, and compare their results."""

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
            # Stock inlines no PTX, so machine code is compared without inlining; results of execution, with
            # it.
            "NUMBA_PTXLINK_INLINE": "all" if self.execute else "none",
            "PYTHONHASHSEED": str(self.hash_seed),
            "DIFFERENTIAL_EXECUTE": str(int(self.execute)),
            "DIFFERENTIAL_WITHOUT_LTO": str(int(self.without_lto)),
            "NUMBA_CUDA_LOG_LEVEL": "CRITICAL",
        }


def run(way: Way, programs: list[Path], folder: Path) -> dict[str, Any]:
    """
    Return the results of each program, by its name.

    A process runs the programs in turn. If it dies, the program that it was at is recorded as crashed, and
    another process goes on with the next.
    """
    results_folder = folder / way.name
    results_folder.mkdir(parents=True, exist_ok=True)
    pending = list(programs)
    if way.order is not None:
        random.Random(way.order).shuffle(pending)  # noqa: S311 - an order, not a secret
    results = results_folder / "results.jsonl"
    done: dict[str, Any] = {}
    # A program takes a fifth of this on an idle machine.
    seconds = 60 + 2 * len(programs)
    while pending:
        manifest = results_folder / "manifest.json"
        manifest.write_text(json.dumps([str(path) for path in pending]))
        command = [sys.executable, str(HERE / "worker.py"), str(manifest), str(results)]
        with (results_folder / "stderr.txt").open("a") as log:
            try:
                code = subprocess.run(
                    command, env=way.environ(), stderr=log, stdout=log, timeout=seconds, check=False
                ).returncode
            except subprocess.TimeoutExpired:
                code = -1
        if not results.exists():
            raise RuntimeError(
                f"the worker did not start: {(results_folder / 'stderr.txt').read_text()[-2000:]}"
            )
        lines = [line for line in results.read_text().splitlines() if line]
        done = {line["program"]: line for line in map(json.loads, lines)}
        remaining = [path for path in pending if path.stem not in done]
        if not remaining:
            break
        if code == LEFT_CONTEXT:
            pending = remaining
            continue
        outcome = {"error": ["Crash"], "message": f"the process ended with {code}", "text": ""}
        name = remaining[0].stem
        line = {"program": name, "launches": [outcome], "active": way.plugin, "hits": 0, "misses": 0}
        with results.open("a") as file:
            file.write(json.dumps(line) + "\n")
        done[name] = line
        pending = remaining[1:]
    return done


def hits(results: dict[str, Any]) -> tuple[int, int]:
    """Return hits and misses of the programs that compile."""
    compiled = [
        result for result in results.values() if not any("error" in launch for launch in result["launches"])
    ]
    return sum(result["hits"] for result in compiled), sum(result["misses"] for result in compiled)


def run_all(ways: list[Way], programs: list[Path], folder: Path, workers: int = 2) -> list[dict[str, Any]]:
    """Run *programs* in each of *ways*, some at a time, and return the results of each way."""
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(lambda way: run(way, programs, folder), ways))
