"""
Functions of each type and of random signatures, called from C++ with random bytes, which come back.

A function returns its argument, or all of them in a tuple. It is called as PTX beside the caller, as PTX in
one module with it, and as LTO-IR that nvJitLink makes PTX of.
"""

from __future__ import annotations

import random
import re

import abi_rows as rows
import front_ends
import numpy as np
import pytest
from abi_bytes import Layout, fill, moved_wrongly, outcome
from comparison import ARCH, fused
from emulator import Machine

from numba_ptxlink._tools import nvjitlink

LANES = 8
CALL = re.compile(r"\bcall\b[^;]*\bf\d+\b")
# Alone, as an Optional, and with a boolean and an optional beside it.
AROUND = (
    lambda spec: spec,
    lambda spec: spec if spec[0] == "optional" else ("optional", spec),
    lambda spec: ("tuple", ("boolean", spec, ("optional", "boolean"))),
)


def called(layouts: list[Layout], compiled: object, folder: object, output: str = "ptx") -> bytes:
    """Return the code that NVRTC compiles of kernels that call functions."""
    (folder / "echo.h").write_text(rows.header(compiled.signatures))
    source = "".join(layout.kernel() + layout.probe() for layout in layouts)
    return rows.nvrtc(f'#include "echo.h"\n{source}', ARCH, folder, output=output)


def wrong(machine: Machine, layout: Layout, arguments: list[bytes]) -> str:
    """Return the first wrong result of a function, "" if all are right."""
    arguments_address = machine.array(np.frombuffer(b"".join(arguments), np.uint8))
    out = machine.array(LANES * layout.result_size)
    machine.launch(f"check{layout.number}", 1, LANES, [arguments_address, out])
    for lane, argument in enumerate(arguments):
        address = out + lane * layout.result_size
        expected, relevant = (np.frombuffer(part, np.uint8) for part in outcome(layout, argument))
        values, known = machine.read(address, expected.size), machine.defined(address, expected.size)
        if ((values != expected) | (known != 255))[relevant != 0].any():
            return f"{layout.echo}: {values.tolist()} for {expected.tolist()}"
    return ""


def check(echoes: list[rows.Echo], seed: int, front_end: str, folder: object) -> int:
    """Execute functions in every way; return how many are not left out."""
    compiled = rows.lower(echoes, ARCH, front_end)
    layouts = [Layout.of(*pair) for pair in zip(echoes, compiled.signatures, strict=True)]
    artifacts = rows.build(compiled, ARCH, "ptx", "ltoir").artifacts
    caller = called(layouts, compiled, folder).rstrip(b"\0").decode()
    texts = [caller, artifacts["ptx"].decode()]
    inputs = [
        ("ltoir", "caller", called(layouts, compiled, folder, "ltoir")),
        ("ltoir", "f", artifacts["ltoir"]),
    ]
    optimised = nvjitlink.link(inputs, [f"-arch={ARCH}", "-lto", "-ptx"]).code.rstrip(b"\0").decode()
    assert [True, False] == [bool(CALL.search(text)) for text in (caller, optimised)]
    ways = {"modules": texts, "one module": [fused(texts, everything=True)], "LTO": [optimised]}
    # The machine has no stack that grows.
    ways = {way: modules for way, modules in ways.items() if "stacksave" not in "".join(modules)}
    # Some members of packed structs nvcc itself moves by instructions that trap.
    left_out = moved_wrongly(caller)
    layouts = [layout for layout in layouts if layout.number not in left_out]
    generator = random.Random(seed)  # noqa: S311 - not for secrets
    arguments = [[fill(layout, generator, front_end) for _ in range(LANES)] for layout in layouts]
    for way, modules in ways.items():
        machine = Machine(*modules, fill=255)
        faults = [wrong(machine, *pair) for pair in zip(layouts, arguments, strict=True)]
        assert (way, []) == (way, [fault for fault in faults if fault])
    return len(layouts)


@pytest.mark.parametrize(
    "seed",
    [
        0,
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 3)),
        *(pytest.param(seed, marks=[pytest.mark.slow, pytest.mark.long]) for seed in range(3, 41)),
    ],
)
@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_arguments_come_back(tmp_path, front_end, seed):
    """Each byte of a value comes back, whatever the types and the kind of link."""
    front_ends.get(front_end)
    # Seed 0 has each type once: alone, as an Optional, or with others, in turn.
    each_type = [rows.Echo((AROUND[n % len(AROUND)](spec),)) for n, spec in enumerate(rows.ROWS.values())]
    echoes = rows.draw(25, seed, front_end) if seed else [e for e in each_type if e.compiles(front_end)]
    assert len(echoes) // 2 < check(echoes, seed, front_end, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_each_type_comes_back_in_each_place(tmp_path, front_end):
    """Each byte of each type comes back: alone, as an Optional, and in a tuple with others."""
    front_ends.get(front_end)
    echoes = [rows.Echo((around(spec),)) for around in AROUND for spec in rows.ROWS.values()]
    echoes = [echo for echo in echoes if echo.compiles(front_end)]
    assert len(echoes) // 2 < check(echoes, 0, front_end, tmp_path)
