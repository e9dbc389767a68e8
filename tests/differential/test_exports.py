"""
Modules of random UDFs with equal helpers and shared arrays: exported, and two of them linked with C++.

Before anything was mended 73 of 100 pairs failed: 58 with ERROR_INVALID_IR, since equal helpers were merged,
and 15 because a shared array of a helper that both exports call was defined twice.
"""

from __future__ import annotations

import random
import textwrap
from typing import TYPE_CHECKING

import machine
import pytest
from pieces import THREADS, whole

import numba_ptxlink as pl

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("numba.cuda")

HEAD = """\
from numba import cuda
from numba.cuda import types
from numba_ptxlink import udf
"""

CALLS = ("exchange_a(v)", "exchange_b(v + 1)", "plain_a(v)", "plain_b(v * 2)")


def helpers(rng: random.Random) -> str:
    """Return the source of helpers, two of which exchange values through shared arrays of their own."""
    return HEAD + textwrap.dedent(f"""
        def make(k):
            @cuda.jit(device=True)
            def exchange(v):
                t = cuda.threadIdx.x
                box = cuda.shared.array({THREADS}, types.int64)
                box[t] = v + k
                cuda.syncthreads()
                return box[{THREADS - 1} - t]
            return exchange

        def plain(v):
            return {whole(rng)}

        exchange_a, exchange_b = make(2), make({rng.choice((2, 3))})
        plain_a, plain_b = cuda.jit(device=True)(plain), cuda.jit(device=True)(plain)
    """)


def udfs(rng: random.Random, stem: str) -> tuple[str, list[str]]:
    """Return the source of functions that call some of the helpers, and their C symbols."""
    source, names = "", [f"{stem}_{i}" for i in range(rng.choice((1, 2, 3)))]
    for name in names:
        calls = rng.sample(CALLS, rng.choice((1, 1, 2, 3)))
        source += f'\n\n@udf("int64(int64)")\ndef {name}(v):\n    return {" + ".join(calls)}\n'
    return source, names


def modules(seed: int, folder: Path) -> dict[str, list[str]]:
    """Write two modules, whose helpers are shared or of their own, and return their C symbols by stem."""
    rng = random.Random(seed)  # noqa: S311 - a choice, not a secret
    text = helpers(rng)
    shared = rng.random() < 0.6
    symbols = {}
    (folder / f"helpers_{seed}.py").write_text(text)
    for stem in ("left", "right"):
        source, symbols[stem] = udfs(rng, stem)
        head = (
            f"{HEAD}from helpers_{seed} import exchange_a, exchange_b, plain_a, plain_b\n" if shared else text
        )
        (folder / f"{stem}.py").write_text(head + source)
    return symbols


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(i, marks=pytest.mark.slow) for i in range(3, 100))]
)
def test_two_exports_link_together(tmp_path, monkeypatch, seed):
    """Equal helpers and shared arrays of two exports do not meet, and every symbol is there."""
    monkeypatch.syspath_prepend(tmp_path)
    symbols = modules(seed, tmp_path)
    made = [
        pl.export(tmp_path / f"{stem}.py", tmp_path / stem, archs=["sm_80"], emit=["ptx", "ltoir", "cubin"])
        for stem in symbols
    ]
    names = [name for own in symbols.values() for name in own]
    calls = " + ".join(f"{name}(x[i])" for name in names)
    kernel = (
        '#include "left/left.h"\n#include "right/right.h"\n'
        f'extern "C" __global__ void all(long long* x) {{ int i = threadIdx.x; x[i] = {calls}; }}'
    )
    for kind in ("ptx", "ltoir"):
        inputs = [each.artifacts[kind, "sm_80"] for each in made]
        linked = pl.link(kernel, *inputs, arch="sm_80", lto=kind == "ltoir", include_dirs=[tmp_path])
        assert ["all"] == machine.kernels(linked.cubin)
    defined = [
        name for each in made for name in machine.functions(each.artifacts["cubin", "sm_80"].read_bytes())
    ]
    assert set(names) <= set(defined)
