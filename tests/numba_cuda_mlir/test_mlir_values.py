"""What functions that numba-cuda-mlir compiled return for random bytes, executed on this machine's CPU."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import abi_bytes
import abi_rows as rows
import pytest
from cpu_host import ARCH, loaded
from front_ends import MLIR_06

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME = "numba-cuda-mlir"
TRIES = 8
SCALARS = (*rows.NUMBERS, "bfloat16", "voidptr", "intenum", "datetime64", "timedelta64")
# With every member's neighbour a boolean or an optional.
AROUND = {
    "alone": lambda spec: spec,
    "optional": lambda spec: ("optional", spec),
    "tuple": lambda spec: ("tuple", ("boolean", spec, ("optional", "boolean"))),
    "named": lambda spec: ("named", (("a", spec), ("b", ("tuple", ("boolean", ("optional", "int8")))))),
    "array": lambda spec: ("array", spec, 2, "A"),
    "rows": lambda spec: ("array", spec, 2, "C"),
}
STRUCTS = (
    ("vector", "float32x3"),
    ("vector", "uint8x4"),
    ("pointer", "int8"),
    ("record", False, (("a", "boolean"), ("b", ("record", True, (("c", "int16"), ("d", "boolean")))))),
)


def differing(echoes: Sequence[rows.Echo], seed: object) -> Iterator[str]:
    """Yield the functions that return anything but their arguments, with both."""
    generator = random.Random(seed)  # noqa: S311 - a choice, not a secret
    compiled = rows.lower(echoes, ARCH.sm, NAME)
    for echo, signature, each in zip(echoes, compiled.signatures, compiled.functions, strict=True):
        layout = abi_bytes.Layout.of(echo, signature)
        call, _ = loaded(each.modules, signature.name, layout.result_size)
        for _ in range(TRIES):
            arguments = abi_bytes.fill(layout, generator, NAME)
            expected, relevant = abi_bytes.outcome(layout, arguments)
            got = call(*abi_bytes.split(layout, arguments))
            seen = bytes(byte if matters else 0 for byte, matters in zip(got, relevant, strict=True))
            if seen != expected:
                yield f"{echo}: {arguments.hex()} became {seen.hex()}, not {expected.hex()}"
                break


@pytest.mark.parametrize(
    "around", [pytest.param(name, marks=MLIR_06 if name == "named" else ()) for name in AROUND]
)
def test_every_type_comes_back(around):
    """Alone, in an Optional, beside others, and as an element: missing values come back as zeros."""
    specs = [
        AROUND[around](spec)
        for spec in (*SCALARS, *STRUCTS)
        if around not in ("array", "rows") or is_element(spec)
    ]
    echoes = [echo for echo in (rows.Echo((spec,)) for spec in specs) if echo.compiles(NAME)]
    assert len(echoes) > 10
    assert [] == list(differing(echoes, around))


def is_element(spec) -> bool:
    """Return whether arrays can have elements of *spec*."""
    return spec in {*rows.NUMBERS, "bfloat16"} or spec[0] == "record"


@MLIR_06
@pytest.mark.parametrize("count", [15, pytest.param(200, marks=pytest.mark.slow)])
def test_random_signatures_give_back_what_they_take(count):
    """Any types nested in any others, none of which is left out once it is drawn."""
    echoes = rows.draw(count, 7, NAME)
    assert count == len(echoes) == sum(echo.compiles(NAME) for echo in echoes)
    assert [] == list(differing(echoes, 7))


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_a_missing_value_is_zero_in_ptx(arch):
    """NVVM compiles the choice between a value and zeros in both of its dialects, without a branch."""
    echoes = [rows.Echo((("optional", spec),)) for spec in ("boolean", "float16", ("vector", "float32x3"))]
    ptx = rows.build(rows.lower(echoes, arch, NAME), arch, "ptx").artifacts["ptx"].decode()
    bodies = ptx.split(".visible .func")[1:]
    assert [True] * 3 == [("selp" in body or "and" in body) and "bra" not in body for body in bodies]
