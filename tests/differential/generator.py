"""
Random programs: `python generator.py SEED` prints the program of a seed.

A program is a Python module with a generator function `launches()`, which yields a kernel, its grid, block
and bytes of dynamic shared memory, and fresh arguments. All it computes depends on the seed alone.
"""

from __future__ import annotations

import inspect
import random
import sys
import textwrap
from typing import TYPE_CHECKING

import pieces
import pieces_more
from pieces import BLOCKS, THREADS, Piece

if TYPE_CHECKING:
    from pathlib import Path

HEAD = '''\
"""Program {seed}: {names}."""
import math
from collections import namedtuple

import numpy as np
from numba import cuda, njit
from numba.cuda import types
from numba.cuda.extending import intrinsic, lower_builtin, overload, type_callable
from numba.cuda.misc.special import literal_unroll


def filled(dtype):
    array = np.zeros({n}, dtype)
    array.view(np.uint8)[...] = np.arange(array.nbytes) % 7
    return array


'''

OPTIONS = (
    "",
    "",
    "",
    "lto=False",
    "debug=True, opt=False",
    "lineinfo=True",
    "fastmath=True",
    "opt=False",
    "max_registers=32",
    "launch_bounds=(64, 2)",
    "launch_bounds=128, max_registers=64",
    "fastmath=True, lineinfo=True",
    '**{"lto": False, "fastmath": True}',
)

# How often each kind of piece is drawn, where not once; compiling CUDA C++ takes long.
WEIGHTS = {
    "equal_wrapped": 2,
    "factory": 2,
    "shared_helpers": 2,
    "records": 2,
    "nested_inline": 2,
    "prints": 2,
    "linked_source": 0.5,
    "linked_ptx": 0.7,
    "recursion": 0.5,
    "refused": 0.4,
    "dynamic_shared": 0.6,
}


def kinds() -> dict[str, object]:
    """Return the functions that make pieces, by name."""
    return {
        name: function
        for module in (pieces, pieces_more)
        for name, function in inspect.getmembers(module, inspect.isfunction)
        if function.__module__ == module.__name__ and name not in ("whole", "real")
    }


def kernel(name: str, options: str, parts: list[Piece]) -> tuple[str, str]:
    """Return the source of a kernel with *parts* in it, and of its launch."""
    params = {key: value for part in parts for key, value in part.params.items()}
    body = "\n".join(part.body for part in sorted(parts, key=lambda part: part.last))
    source = f"@cuda.jit({options})\ndef {name}(out, real, src{''.join(f', {key}' for key in params)}):\n"
    source += textwrap.indent(
        "i = cuda.grid(1)\nt = cuda.threadIdx.x\nx = src[i]\ny = x * 0.25\nacc = x\nval = y\n"
        f"{body}\nout[i] = acc\nreal[i] = val\n",
        "    ",
    )
    n = THREADS * BLOCKS
    arguments = [f"np.zeros({n}, np.int64)", f"np.zeros({n})", f"np.arange({n}) % 13", *params.values()]
    shared = max((part.shared for part in parts), default=0)
    return source, f"    yield {name}, ({BLOCKS}, {THREADS}, {shared}), ({', '.join(arguments)})\n"


def program(seed: int) -> str:
    """Return the source of the program *seed*."""
    rng = random.Random(seed)  # noqa: S311 - a choice, not a secret
    known = kinds()
    names = rng.choices(
        list(known), [WEIGHTS.get(name, 1) for name in known], k=rng.choice((1, 1, 2, 2, 3, 4))
    )
    # The thread whose error is reported is chance, so one piece at most may raise.
    ends = [name for name in names if name in ("raises", "asserts")]
    names = [name for name in names if name not in ends[1:]] or names[:1]
    parts = [known[name](rng, f"{seed}_{i}") for i, name in enumerate(names)]
    source = HEAD.format(seed=seed, names=", ".join(names), n=THREADS * BLOCKS)
    source += "\n\n".join(part.definitions for part in parts if part.definitions) + "\n\n\n"
    launches = "def launches():\n"
    count = rng.choice((1, 1, 1, 2))
    for i in range(count):
        # The second kernel shares helpers with the first, in another order and under other options.
        chosen = parts if i == 0 else rng.sample(parts, rng.randrange(1, len(parts) + 1))
        text, launch = kernel(f"kernel{i}", rng.choice(OPTIONS), chosen)
        source += text + "\n\n"
        launches += launch
    return source + launches


def write(folder: Path, seeds: range) -> list[Path]:
    """Write the programs of *seeds* to *folder* and return their paths."""
    paths = []
    for seed in seeds:
        path = folder / f"program_{seed}.py"
        path.write_text(program(seed))
        paths.append(path)
    return paths


if __name__ == "__main__":
    sys.stdout.write(program(int(sys.argv[1])))
