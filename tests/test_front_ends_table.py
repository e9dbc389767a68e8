"""Types and programs that each front end compiles, against the table in the documentation."""

from __future__ import annotations

import re
from pathlib import Path

import front_ends
import outcome_tables
import pytest
from abi_features import NAMES as FEATURES
from abi_features import features

import numba_ptxlink as pl

pytestmark = pytest.mark.slow

OUTCOMES = Path(__file__).parents[1] / "docs" / "reference" / "front_ends.json"
ARCHS = ("sm_90", "sm_100")
_LONGEST = 300


def raising(x):
    """Raise with an argument that is computed."""
    if x < 0:
        raise ValueError("negative", x)
    return x


def trying(x):
    """Catch an error."""
    try:
        return 1 // x
    except Exception:  # noqa: BLE001 - the only kind that Numba knows
        return 0


def programs(name):
    """Return the programs for the front end *name*: a description of each, and the marked functions."""
    cuda, types = front_ends.cuda(name), front_ends.get(name).types

    @cuda.jit(device=True)
    def factorial(n):
        return 1 if n < 2 else n * factorial(n - 1)

    @cuda.jit(device=True)
    def even(n):
        return n == 0 or odd(n - 1)

    @cuda.jit(device=True)
    def odd(n):
        return n != 0 and even(n - 1)

    @cuda.jit(device=True)
    def tail(a):
        return a[1:]

    half = cuda.declare_device("of_half", "float16(float16)", abi="c")
    array = "float32(float32[:, ::1], int32)"

    one, two, halves = "int32(int32)", "int32(int32, int32)", "float16(float16, float16)"
    yield "a helper that calls itself", pl.udf("int64(int64)", name="f")(lambda n: factorial(n))  # noqa: PLW0108
    yield (
        "a circle of functions",
        pl.udf("boolean(int64)", name="f")(lambda n: even(n + 1)),
    )
    yield "a helper that returns an array", pl.udf("float32(float32[::1])", name="f")(lambda a: tail(a)[0])
    yield "`raise` with computed arguments", pl.udf(one, name="f")(raising)
    yield "`try`", pl.udf(one, name="f")(trying)
    yield "checked division", pl.udf(two, name="f", checked=True)(lambda a, b: a // b)
    yield "`divmod`", pl.udf(two, name="f")(lambda a, b: divmod(a, b)[0])
    yield "`a[..., i]`", pl.udf(array, name="f")(lambda a, i: a[..., i][0])
    yield (
        "half and bfloat16 arithmetic",
        pl.udf(halves, name="f")(lambda a, b: a * b + a),
    )
    yield "`Optional` of a number", pl.udf((types.Optional(types.int32),), name="f")(lambda x: x)
    yield "`declare_device` with halves", pl.udf("float16(float16)", name="f")(lambda x: half(x))  # noqa: PLW0108


def outcome(folder, udfs, name):
    """Return "works", or the first line of the error of an export."""
    try:
        for arch in ARCHS:
            exported = pl.export(udfs, folder, arch=[arch], emit=["ltoir"], name="table", front_end=name)
    except pl.PtxlinkError as error:
        named = r"^(\S+?:\d+: error: )?(.*? could not compile .*? for sm_\d+[^:]*: (\w+: )?)?"
        reason = re.sub(named, "", str(error))
        line = re.sub(r"\s*\(?<.*", "", reason.strip().splitlines()[0]).rstrip(" :.(")
        return line.replace("|", "/")[:_LONGEST].strip()
    called = set(re.findall(r'"name": "(of_\w+)"', exported.manifest.read_text()))
    declared = set(re.findall(r"\b(of_\w+)\(", exported.header.read_text()))
    return "works" if called <= declared else "compiles, and C++ has no such prototype"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", front_ends.NAMES)
def test_the_table_tells_what_each_front_end_does(name, request, tmp_path):
    """Each row works or is refused as the documentation says."""
    front_ends.get(name)
    outcomes = {f"types: {feature}": outcome(tmp_path, features(name)[feature], name) for feature in FEATURES}
    outcomes |= {row: outcome(tmp_path, [udf], name) for row, udf in programs(name)}
    update = request.config.getoption("--update-golden")
    assert outcomes == outcome_tables.stored_outcomes(OUTCOMES, name, outcomes, update=update)
