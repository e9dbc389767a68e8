"""
Run `cuda.compute` with and without the plugin: equal results, and the times of both side by side.

    python tests/conformance/compute.py [--rounds 5] [--items 1000000] [--build-only]

Wants cuda-cccl 1.2, numba-cuda-mlir and a device. With --build-only, a library named libcuda.so.1 is
enough: the algorithms are built for sm_90, and nothing runs. Each round is a process for either side, the
cache off. The two make their first calls, which build the algorithms, at the same time, one core each; the
calls after these are timed while the other process waits. Each case is printed when it is done, with the
seconds it took. The exit status is 1 where results differ from each other or from NumPy's.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

PAIR = np.dtype([("low", np.int32), ("high", np.int32)])
STEP = np.dtype([("factor", np.uint32), ("offset", np.uint32)])
POINT = np.dtype([("x", np.float32), ("y", np.float32)])
RECORD = np.dtype([("key", np.int64), ("place", np.int64)])
REPEATS = 20


def cases(items: int) -> dict[str, tuple[str, dict[str, Any], Any]]:
    """Return, for each case, the algorithm, its arguments with NumPy's arrays in place, and the result."""
    from cuda import compute

    random = np.random.default_rng(7)
    pair, step = compute.gpu_struct(PAIR, "Pair"), compute.gpu_struct(STEP, "Step")
    ints = random.integers(-(10**6), 10**6, items)
    doubles = random.uniform(-10, 10, items)
    pairs = np.empty(items, PAIR)
    pairs["low"] = pairs["high"] = random.integers(-(10**9), 10**9, items)
    steps = np.empty(items, STEP)
    steps["factor"], steps["offset"] = random.integers(0, 1 << 32, (2, items), np.uint64)
    points = np.empty(items, POINT)
    points["x"], points["y"] = random.integers(-1000, 1000, (2, items))
    records = np.empty(items, RECORD)
    records["key"], records["place"] = random.permutation(items), np.arange(items)

    def larger(a, b):
        return max(a, b)

    def spanned(a, b):
        return pair(min(a.low, b.low), max(a.high, b.high))

    def added(a, b):
        return (a + b) & 0xFFFFF

    def composed(a, b):
        return step(a.factor * b.factor, b.factor * a.offset + b.offset)

    def clamped(a):
        return min(max(a * 3 + 1, -20.0), 20.0)

    def mixed(a, b):
        return (a ^ (b >> 3)) % 1009

    def length(p):
        return p.x * p.x + p.y * p.y

    def before(a, b):
        return a.key < b.key

    span = np.array([(pairs["low"].min(), pairs["high"].max())], PAIR)
    whole = pair(np.int32(2**31 - 1), np.int32(-(2**31)))
    return {
        "reduce": (
            "reduce_into",
            {"d_in": ints, "d_out": np.zeros(1, np.int64), "op": larger, "h_init": np.array([-(2**62)])},
            np.array([ints.max()]),
        ),
        "reduce, struct": (
            "reduce_into",
            {"d_in": pairs, "d_out": np.zeros(1, PAIR), "op": spanned, "h_init": whole},
            span,
        ),
        "scan": (
            "inclusive_scan",
            {"d_in": ints, "d_out": np.zeros(items, np.int64), "op": added, "init_value": np.array([0])},
            np.cumsum(ints) & 0xFFFFF,
        ),
        "scan, struct": (
            "inclusive_scan",
            {
                "d_in": steps,
                "d_out": np.zeros(items, STEP),
                "op": composed,
                "init_value": step(np.uint32(1), np.uint32(0)),
            },
            _composed(steps),
        ),
        "transform": (
            "unary_transform",
            {"d_in": doubles, "d_out": np.zeros(items), "op": clamped},
            None,
        ),
        "transform, two": (
            "binary_transform",
            {"d_in1": ints, "d_in2": ints[::-1].copy(), "d_out": np.zeros(items, np.int64), "op": mixed},
            (ints ^ (ints[::-1] >> 3)) % 1009,
        ),
        "transform, struct": (
            "unary_transform",
            {"d_in": points, "d_out": np.zeros(items, np.float32), "op": length},
            points["x"] ** 2 + points["y"] ** 2,
        ),
        "sort, struct": (
            "merge_sort",
            {"d_in_keys": records, "d_out_keys": np.zeros(items, RECORD), "op": before},
            np.sort(records, order="key"),
        ),
    }


def _composed(steps: np.ndarray) -> np.ndarray:
    result = np.empty_like(steps)
    factor, offset = 1, 0
    for place, (by, plus) in enumerate(steps.tolist()):
        factor, offset = factor * by % (1 << 32), (by * offset + plus) % (1 << 32)
        result[place] = factor, offset
    return result


def build(algorithm: str, arguments: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Build an algorithm for sm_90, without a device."""
    from cuda import compute
    from cuda.compute import ProxyArray, ProxyValue

    given = {
        key: (ProxyValue if key in ("h_init", "init_value") else ProxyArray)(value.dtype)
        if hasattr(value, "dtype")
        else value
        for key, value in arguments.items()
    }
    start = time.perf_counter()
    made = getattr(compute, f"make_{algorithm}")(**given, compute_capability=90)
    yield {"first": time.perf_counter() - start}
    yield {"bytes": len(compute.serialize(made))}


def run(algorithm: str, arguments: dict[str, Any], expected: Any, items: int) -> Iterator[dict[str, Any]]:
    """Run an algorithm: the time of its first call, then that of the others and what it computes."""
    from cuda import compute
    from numba_cuda_mlir import cuda

    given = {
        key: cuda.to_device(value) if key.startswith("d_") else value for key, value in arguments.items()
    }
    (out,) = [given[key] for key in given if key.startswith("d_out")]

    def call() -> float:
        start = time.perf_counter()
        getattr(compute, algorithm)(**given, num_items=items)
        cuda.synchronize()
        return time.perf_counter() - start

    cuda.synchronize()
    yield {"first": call()}
    seconds = statistics.median(call() for _ in range(REPEATS))
    result = out.copy_to_host()
    yield {
        "next": seconds,
        "result": hashlib.sha256(result.tobytes()).hexdigest(),
        "right": expected is None or np.array_equal(result, expected.astype(result.dtype)),
    }


def steps(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Do a round, two steps for each case, and say what came of each."""
    import numba_ptxlink

    chosen = cases(arguments.items)
    if arguments.build_only:
        # cuda-cccl 1.2.1 does not build it for arrays that are not there.
        chosen = {name: case for name, case in chosen.items() if case[0] != "merge_sort"}
    yield {"names": list(chosen)}
    for algorithm, given, expected in chosen.values():
        if arguments.build_only:
            done = build(algorithm, given)
        else:
            done = run(algorithm, given, expected, arguments.items)
        for outcome in done:
            yield {**outcome, "active": numba_ptxlink.status().active}


def child(arguments: argparse.Namespace) -> None:
    """Do a step of the round for each line that comes in, and answer with a line."""
    answers = os.fdopen(os.dup(1), "w")
    # What libraries print is no answer.
    os.dup2(2, 1)
    for _, outcome in zip(sys.stdin, steps(arguments), strict=False):
        print(json.dumps(outcome), file=answers, flush=True)


class Side:
    """A process that does one round, with NUMBA_PTXLINK set to *value*, step by step."""

    def __init__(self, value: str) -> None:
        self.value = value
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", *sys.argv[1:]],
            env={**os.environ, "NUMBA_PTXLINK": self.value, "NUMBA_PTXLINK_CACHE": "0"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def close(self) -> None:
        """End the process."""
        self.process.terminate()
        self.process.communicate()

    def begin(self) -> None:
        """Let it do the next step."""
        print(file=self.process.stdin, flush=True)

    def end(self) -> dict[str, Any]:
        """Wait for the step, and return what came of it."""
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"NUMBA_PTXLINK={self.value} failed, with status {self.process.wait()}")
        return json.loads(answer)


def one_round(number: int, outcomes: dict[str, list[list[dict[str, Any]]]]) -> None:
    """Do a round, print each case when it is done, and add the outcomes of both sides for it."""
    with ExitStack() as stack:
        sides = [stack.enter_context(closing(Side(value))) for value in "01"]

        def together() -> list[dict[str, Any]]:
            for side in sides:
                side.begin()
            return [side.end() for side in sides]

        def in_turn() -> list[dict[str, Any]]:
            answers = {}
            for side in sides if number % 2 else sides[::-1]:
                side.begin()
                answers[side.value] = side.end()
            return [answers[side.value] for side in sides]

        names = together()[0]["names"]
        for name in names:
            start = time.perf_counter()
            pair = [first | then for first, then in zip(together(), in_turn(), strict=True)]
            assert [each["active"] for each in pair] == [False, True]
            outcomes.setdefault(name, []).append(pair)
            show(name, [pair], f"{time.perf_counter() - start:6.1f} s")


def show(name: str, pairs: list[list[dict[str, Any]]], end: str) -> None:
    """Print the medians of *pairs*, which are the outcomes of both sides, and whether all are equal."""
    cells = [f"{name:18}"]
    for time_of, width in (("first", 22), ("next", 16)):
        if time_of in pairs[0][0]:
            stock, plugin = medians(pairs, time_of)
            cells.append(f"{stock:{width}.3f}  {plugin:6.3f}  {plugin / stock:5.2f}")
    print("  ".join(cells), f"{'equal' if equal(pairs) else 'DIFFER':7}", end, flush=True)


def medians(pairs: list[list[dict[str, Any]]], time_of: str) -> list[float]:
    """Return the median times of both sides, in milliseconds."""
    return [1e3 * statistics.median(pair[side][time_of] for pair in pairs) for side in (0, 1)]


def equal(pairs: list[list[dict[str, Any]]]) -> bool:
    """Return whether all outcomes have the same result, and it is NumPy's."""
    outcomes = [outcome for pair in pairs for outcome in pair]
    return len({each.get("result") for each in outcomes}) == 1 and all(
        each.get("right", True) for each in outcomes
    )


def main() -> int:
    """Compare both sides, print a table, and return the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--items", type=int, default=1_000_000)
    parser.add_argument("--build-only", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments)
        return 0
    outcomes: dict[str, list[list[dict[str, Any]]]] = {}
    print(
        f"{'':18}  first call, ms: stock  plugin  ratio   next, ms: stock  plugin  ratio  results  took",
        flush=True,
    )
    for number in range(arguments.rounds):
        print(f"Round {number + 1} of {arguments.rounds}:", flush=True)
        one_round(number, outcomes)
    if arguments.rounds > 1:
        print(f"Medians of {arguments.rounds} rounds:")
        for name, pairs in outcomes.items():
            show(name, pairs, "")
    for time_of in ("first", "next"):
        if all(time_of in pairs[0][0] for pairs in outcomes.values()):
            each = [medians(pairs, time_of) for pairs in outcomes.values()]
            stock, plugin = map(sum, zip(*each, strict=True))
            print(f"all, {time_of}: stock {stock:.1f} ms, plugin {plugin:.1f} ms, ratio {plugin / stock:.3f}")
    failed = sum(not equal(pairs) for pairs in outcomes.values())
    print(f"{len(outcomes) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
