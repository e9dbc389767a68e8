"""
Run `cuda.compute` with and without the plugin: equal results, and the times of both side by side.

    python tests/conformance/compute.py [--rounds 5] [--items 1000000] [--build-only]

Wants cuda-cccl 1.2, numba-cuda-mlir and a device. With --build-only, a library named libcuda.so.1 is
enough: the algorithms are built for sm_90, and nothing runs. Each round is a process for either side, the
cache off; the exit status is 1 where results differ from each other or from NumPy's.
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
from typing import Any

import numpy as np

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


def build(items: int) -> dict[str, dict[str, Any]]:
    """Build each algorithm for sm_90, without a device."""
    from cuda import compute
    from cuda.compute import ProxyArray, ProxyValue

    outcome = {}
    for name, (algorithm, arguments, _) in cases(items).items():
        if algorithm == "merge_sort":
            continue  # cuda-cccl 1.2.1 does not build it for arrays that are not there
        given = {
            key: (ProxyValue if key in ("h_init", "init_value") else ProxyArray)(value.dtype)
            if hasattr(value, "dtype")
            else value
            for key, value in arguments.items()
        }
        start = time.perf_counter()
        made = getattr(compute, f"make_{algorithm}")(**given, compute_capability=90)
        seconds = time.perf_counter() - start
        outcome[name] = {"first": seconds, "bytes": len(compute.serialize(made))}
    return outcome


def run(items: int) -> dict[str, dict[str, Any]]:
    """Run each algorithm: the time of its first call, of the others, and what it computes."""
    from cuda import compute
    from numba_cuda_mlir import cuda

    outcome = {}
    for name, (algorithm, arguments, expected) in cases(items).items():
        given = {
            key: cuda.to_device(value) if key.startswith("d_") else value for key, value in arguments.items()
        }
        (out,) = [given[key] for key in given if key.startswith("d_out")]
        call = getattr(compute, algorithm)
        cuda.synchronize()
        times = []
        for _ in range(1 + REPEATS):
            start = time.perf_counter()
            call(**given, num_items=items)
            cuda.synchronize()
            times.append(time.perf_counter() - start)
        result = out.copy_to_host()
        outcome[name] = {
            "first": times[0],
            "next": statistics.median(times[1:]),
            "result": hashlib.sha256(result.tobytes()).hexdigest(),
            "right": expected is None or result.tolist() == expected.astype(result.dtype).tolist(),
        }
    return outcome


def child(arguments: argparse.Namespace) -> None:
    """Do one round in this process, and print what came of it."""
    import numba_ptxlink

    outcome = (build if arguments.build_only else run)(arguments.items)
    print(json.dumps({"active": numba_ptxlink.status().active, "cases": outcome}))


def rounds(arguments: argparse.Namespace) -> dict[str, list[dict[str, Any]]]:
    """Return the outcomes of all rounds, by the value of NUMBA_PTXLINK; the two sides take turns."""
    outcomes: dict[str, list[dict[str, Any]]] = {"0": [], "1": []}
    for number in range(arguments.rounds):
        for side in ("01", "10")[number % 2]:
            done = subprocess.run(
                [sys.executable, __file__, "--child", *sys.argv[1:]],
                env={**os.environ, "NUMBA_PTXLINK": side, "NUMBA_PTXLINK_CACHE": "0"},
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode:
                sys.exit(f"NUMBA_PTXLINK={side} failed:\n{done.stdout}{done.stderr}")
            said = json.loads(done.stdout.splitlines()[-1])
            assert said["active"] is (side == "1")
            outcomes[side].append(said["cases"])
    return outcomes


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
    outcomes = rounds(arguments)
    failed = 0
    totals = {"first": [0.0, 0.0], "next": [0.0, 0.0]}
    print(f"{'':18}  first call, ms: stock  plugin  ratio   next, ms: stock  plugin  ratio   results")
    for name in outcomes["0"][0]:
        stock, plugin = ([each[name] for each in outcomes[side]] for side in "01")
        cells = [f"{name:18}"]
        for time_of, width in (("first", 22), ("next", 16)):
            if time_of not in stock[0]:
                continue
            pair = [1e3 * statistics.median(each[time_of] for each in side) for side in (stock, plugin)]
            totals[time_of] = [total + part for total, part in zip(totals[time_of], pair, strict=True)]
            cells.append(f"{pair[0]:{width}.3f}  {pair[1]:6.3f}  {pair[1] / pair[0]:5.2f}")
        results = {each.get("result") for each in (*stock, *plugin)}
        right = len(results) == 1 and all(each.get("right", True) for each in (*stock, *plugin))
        failed += not right
        print("  ".join(cells), " equal" if right else " DIFFER", sep="")
    for time_of, (stock, plugin) in totals.items():
        if stock:
            print(f"all, {time_of}: stock {stock:.1f} ms, plugin {plugin:.1f} ms, ratio {plugin / stock:.3f}")
    print(f"{len(outcomes['0'][0]) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
