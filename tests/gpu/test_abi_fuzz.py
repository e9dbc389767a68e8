"""
Signatures drawn at random, called from C++ with random bytes, and what comes back compared byte for byte.

`NUMBA_PTXLINK_FUZZ=10000` sets how many signatures are drawn, `NUMBA_PTXLINK_FUZZ_SEED` where to begin, and
`NUMBA_PTXLINK_FRONT_END` what compiles them.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from numba_ptxlink._tools import nvjitlink

sys.path.insert(0, str(Path(__file__).parents[1] / "differential"))
import signatures

COUNT = int(os.environ.get("NUMBA_PTXLINK_FUZZ", "1000"))
FRONT_END = os.environ.get("NUMBA_PTXLINK_FRONT_END", "numba-cuda")
SEED = int(os.environ.get("NUMBA_PTXLINK_FUZZ_SEED", "1"))


def test_random_signatures(capsys):
    """What C++ passes to a Python function comes back unchanged, for every signature that is drawn."""
    if nvjitlink.version() < (13, 2):
        pytest.skip(
            f"nvJitLink {nvjitlink.version()} mixes up structs: 13.0 passes some wrongly, 13.1 refuses LTO"
        )
    way = signatures.Way(signatures.target(), front_end=FRONT_END)
    counts = signatures.run(COUNT, SEED, way, max(1, (os.cpu_count() or 2) - 1))
    with capsys.disabled():
        print(f"\n{way.arch}, {', '.join(way.kinds)}: {counts}")
    assert [] == counts.failures, signatures.smallest(counts, way)
