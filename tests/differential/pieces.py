"""Pieces of source that random programs consist of, with definitions and a few statements."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import random

THREADS = 32
BLOCKS = 2

DEVICE = (
    "@cuda.jit(device=True)",
    "@cuda.jit(device=True)",
    "@njit",
    '@cuda.jit(device=True, inline="always")',
    "@cuda.jit(device=True, forceinline=True)",
    "@cuda.jit(device=True, fastmath=True)",
    "@cuda.jit(device=True, lineinfo=True)",
    "@cuda.jit(device=True, opt=False)",
)
WRAP = ("cuda.jit(device=True)", "cuda.jit(device=True)", "njit", 'cuda.jit(device=True, inline="always")')


@dataclass
class Piece:
    """
    A part of a program.

    Args:
        definitions: Source at the top of the module.
        body: Statements of a kernel with `i`, `t`, `x` (an int64), `y` (a float64), which add to `acc` and
            `val`. All threads run them, so they may wait for each other.
        params: Further parameters of the kernel, each with the expression that makes its argument.
        shared: Bytes of dynamic shared memory.
        last: Whether threads may end here, so that nothing may come after it.
    """

    definitions: str
    body: str
    params: dict[str, str] = field(default_factory=dict)
    shared: int = 0
    last: bool = False

    def __post_init__(self) -> None:
        self.definitions = textwrap.dedent(self.definitions).strip("\n")
        self.body = textwrap.dedent(self.body).strip("\n")


def whole(rng: random.Random, name: str = "v") -> str:
    """Return an expression of whole numbers in *name*."""
    k = rng.randrange(1, 1000)
    form = rng.choice(
        ("({v} * {k} + 3) & 65535", "({v} ^ {k}) - ({v} >> 2)", "abs({v} - {k}) % 1013", "max({v}, {k}) + 1")
    )
    return form.format(v=name, k=k)


def real(rng: random.Random, name: str = "v") -> str:
    """Return an expression of real numbers in *name*."""
    k = rng.randrange(1, 100) / 8
    form = rng.choice(
        (
            "{v} * 0.5 + {k}",
            "math.sqrt({v} * {v} + {k})",
            "math.sin({v} + {k})",
            "({v} - {k}) / 3.0",
            "math.floor({v} * {k})",
        )
    )
    return form.format(v=name, k=k)


def helpers(rng: random.Random, n: str) -> Piece:
    """Return a chain of helpers, each calling the one before, once or twice."""
    lines = [rng.choice(DEVICE), f"def h{n}_0(v):", f"    return {whole(rng)}", ""]
    depth = rng.randrange(1, 4)
    for i in range(1, depth + 1):
        lines += [rng.choice(DEVICE), f"def h{n}_{i}(v):"]
        calls = " + ".join(f"h{n}_{i - 1}(v + {k})" for k in range(rng.choice((1, 1, 2))))
        lines += [f"    return ({calls}) ^ {rng.randrange(99)}", ""]
    return Piece("\n".join(lines), f"acc += h{n}_{depth}(x)")


def equal_wrapped(rng: random.Random, n: str) -> Piece:
    """Return one function that is wrapped several times."""
    count = rng.randrange(2, 4)
    wraps = [f"w{n}_{i} = {rng.choice(WRAP)}(plain{n})" for i in range(count)]
    body = "\n".join(f"acc += w{n}_{i}(x + {i})" for i in range(count))
    if rng.random() < 0.5:
        body = "\n".join(
            [f"if x > 3:\n    acc += w{n}_0(x)\nelse:\n    acc -= w{n}_1(x)"]
            + [f"acc += w{n}_{i}(x)" for i in range(2, count)]
        )
    return Piece(f"def plain{n}(v):\n    return {whole(rng)}\n\n\n" + "\n".join(wraps), body)


def factory(rng: random.Random, n: str) -> Piece:
    """Return closures out of a factory, some with equal constants."""
    constants = [rng.randrange(4) for _ in range(3)]
    wrap = rng.choice(DEVICE)
    closures = "\n".join(f"c{n}_{i} = make{n}({k})" for i, k in enumerate(constants))
    return Piece(
        f"def make{n}(k):\n    {wrap}\n    def closure(v):\n"
        f"        return ({whole(rng)}) + k\n    return closure\n\n\n" + closures,
        "\n".join(f"acc += c{n}_{i}(x)" for i in range(len(constants))),
    )


def arguments(rng: random.Random, n: str) -> Piece:
    """Return a helper that gets functions as arguments."""
    return Piece(
        f"""
def p{n}(v):
    return {whole(rng)}


pa{n} = cuda.jit(device=True)(p{n})
pb{n} = cuda.jit(device=True)({rng.choice((f"p{n}", f"lambda v: {whole(rng)}"))})


@cuda.jit(device=True)
def apply{n}(function, v):
    return function(v) + 1
""",
        f"acc += apply{n}(pa{n}, x) + apply{n}(pb{n}, x)",
    )


def shared_helpers(rng: random.Random, n: str) -> Piece:
    """Return exchanges through static shared arrays, each helper with its own."""
    equal = rng.random() < 0.7
    ty = rng.choice(("int64", "int32", "float64"))
    lines = [
        f"def make_exchange{n}(k):",
        f"    {rng.choice(DEVICE[:2])}",
        "    def exchange(t, v):",
        f"        buffer = cuda.shared.array({THREADS}, types.{ty})",
        "        buffer[t] = v + k",
        "        cuda.syncthreads()",
        f"        return types.int64(buffer[{THREADS} - 1 - t])",
        "    return exchange",
        "",
        "",
        f"ex{n}_0 = make_exchange{n}(2)",
        f"ex{n}_1 = make_exchange{n}({2 if equal else 5})",
    ]
    # There is no barrier between them: the results are right only if they have separate arrays.
    first, second = f"ex{n}_0", f"ex{n}_1"
    if rng.random() < 0.5:
        for name in (first, second):
            lines += [
                "",
                "",
                "@cuda.jit(device=True)",
                f"def by_{name}(t, v):",
                f"    return {name}(t, v) + 1",
            ]
        first, second = f"by_{first}", f"by_{second}"
    body = f"acc += {first}(t, x) * 3 - {second}(t, x ^ 7)\ncuda.syncthreads()"
    return Piece("\n".join(lines), body)


def reductions(rng: random.Random, n: str) -> Piece:
    """Return block reductions of one factory, called one after the other and twice."""
    operation = rng.choice(("a + b", "max(a, b)", "a ^ b"))
    return Piece(
        f"""
def make_reduce{n}(combine):
    @cuda.jit(device=True)
    def reduce(t, v):
        work = cuda.shared.array({THREADS}, types.int64)
        work[t] = v
        cuda.syncthreads()
        half = {THREADS // 2}
        while half > 0:
            if t < half:
                work[t] = combine(work[t], work[t + half])
            cuda.syncthreads()
            half //= 2
        total = work[0]
        cuda.syncthreads()
        return total
    return reduce


combine{n} = cuda.jit(device=True)(lambda a, b: {operation})
ra{n} = make_reduce{n}(combine{n})
rb{n} = make_reduce{n}({rng.choice((f"combine{n}", f"cuda.jit(device=True)(lambda a, b: {operation})"))})
""",
        f"acc += ra{n}(t, x) + rb{n}(t, x + {rng.randrange(9)})",
    )


def dynamic_shared(rng: random.Random, n: str) -> Piece:
    """Return dynamic shared memory, in the kernel or in a helper."""
    del rng
    return Piece(
        f"""
@cuda.jit(device=True)
def turn{n}(t, v):
    box = cuda.shared.array(0, types.int64)
    box[t] = v
    cuda.syncthreads()
    r = box[(t + 5) % {THREADS}]
    cuda.syncthreads()
    return r
""",
        f"acc += turn{n}(t, x)",
        shared=8 * THREADS,
    )


def constant_records(rng: random.Random, n: str) -> Piece:
    """Return a constant array of records, with padding or without."""
    align = rng.random() < 0.85
    rows = [(rng.randrange(100), rng.randrange(100) / 4) for _ in range(4)]
    constant = rng.choice(
        (f"np.array({rows}, ROW{n})", f"np.zeros(4, ROW{n})", f"np.array([tuple(r) for r in {rows}], ROW{n})")
    )
    return Piece(
        f"""
ROW{n} = np.dtype([("key", "i1"), ("weight", "f8")], align={align})
ROWS{n} = {constant}


@cuda.jit(device=True)
def row{n}(v):
    rows = cuda.const.array_like(ROWS{n})
    return rows[v & 3].key
""",
        f"acc += row{n}(x)\nval += cuda.const.array_like(ROWS{n})[i & 3].weight",
    )


def records(rng: random.Random, n: str) -> Piece:
    """Return two record types of one layout that go through one helper."""
    fields = rng.choice(
        (
            '[("a", "i4"), ("b", "f8")]',
            '[("a", "i2"), ("b", "f4"), ("c", "i8")]',
            '[("a", "f8"), ("b", "i8")]',
        )
    )
    second = rng.choice((fields, fields.replace('"c"', '"d"')))
    align = "" if rng.random() < 0.15 else ", align=True"
    wrap = rng.choice(DEVICE[:3])
    return Piece(
        f"""
ONE{n} = np.dtype({fields}{align})
TWO{n} = np.dtype({second}{align})


{wrap}
def weigh{n}(r):
    return r.a * 2 + r.b
""",
        f"val += weigh{n}(one{n}[i]) - weigh{n}(two{n}[i])\none{n}[i].a = x",
        params={
            f"one{n}": f"filled(ONE{n})",
            f"two{n}": f"filled({rng.choice(('TWO', 'TWO', 'ONE'))}{n})",
        },
    )


def atomics(rng: random.Random, n: str) -> Piece:
    """Return atomic operations on global and shared memory, whose order does not matter."""
    operation = rng.choice(("add", "max", "min", "xor", "or_"))
    return Piece(
        f"""
@cuda.jit(device=True)
def count{n}(bins, v):
    cuda.atomic.{operation}(bins, v & 7, v)
    return v & 7
""",
        f"""
votes{n} = cuda.shared.array(8, types.int32)
if t < 8:
    votes{n}[t] = 0
cuda.syncthreads()
cuda.atomic.add(votes{n}, count{n}(bins{n}, x), 1)
cuda.syncthreads()
acc += votes{n}[t & 7]
cuda.syncthreads()
""",
        params={f"bins{n}": "np.zeros(8, np.int64)"},
    )
