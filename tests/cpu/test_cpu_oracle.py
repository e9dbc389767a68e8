"""The CPU computes what the machine of the tests computes, whose parser and arithmetic are its own."""

from __future__ import annotations

import ctypes
import struct

import numpy as np
import pytest
from comparison import COUNT, Launch, fused
from emulator import Machine
from instructions import HEAD, bits_of, kernel, samples
from programs import CALLS, CXX, RANDOM, batches, units
from random_ptx import Program as Random

from numba_ptxlink._cpu.run import CpuProgram, Region
from numba_ptxlink._tools.launching import Configuration

ROWS, LANES = 512, 256


def region(array: np.ndarray) -> Region:
    """Return an array as memory that may be accessed."""
    return Region(array.ctypes.data, array.nbytes, True, "array")


def pointers(*arrays: np.ndarray) -> list[bytes]:
    """Return the addresses of arrays as parameters."""
    return [struct.pack("Q", each.ctypes.data) for each in arrays]


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))])
def test_instructions_compute_what_the_machine_computes(part):
    """Each instruction of the sweep that is held against devices, with special and random operands."""
    every = samples()[part::4]
    program = CpuProgram.of(HEAD + "".join(kernel(f"k{number}", each) for number, each in enumerate(every)))
    wrong = []
    for number, sample in enumerate(every):
        given = sample.operands(ROWS, np.random.default_rng(number))
        machine = Machine(HEAD + kernel("k", sample))
        place = machine.array(np.zeros(8 * ROWS, np.uint8))
        machine.launch("k", ROWS // LANES, LANES, [place, *map(machine.array, given)])
        expected = machine.read(place, ROWS, f"u{bits_of(sample.result) // 8}")
        results = np.zeros_like(expected)
        arrays = [results, *map(np.ascontiguousarray, given)]
        how = Configuration((ROWS // LANES, 1, 1), (LANES, 1, 1))
        program.launch(f"k{number}", how, pointers(*arrays), list(map(region, arrays)))
        differ = (results ^ expected) & machine.defined(place, expected.nbytes).view(expected.dtype) != 0
        if sample.result[0] == "f":
            # A NaN may have other bits.
            floats = [each.view(f"f{each.itemsize}") for each in (results, expected)]
            differ &= ~(np.isnan(floats[0]) & np.isnan(floats[1]))
        wrong += [
            (sample.opcode, [hex(each[place]) for each in given]) for place in np.flatnonzero(differ)[:1]
        ]
    assert [] == wrong


def written(launch: Launch, text: str, *, checks: bool = True) -> np.ndarray:
    """Return the bytes that a program writes on the CPU, as `Launch.run` does on the machine."""
    program, array = CpuProgram.of(text, checks=checks), np.zeros(launch.size, np.uint8)
    params = [*pointers(array), struct.pack("i", COUNT)]
    program.launch("k", Configuration((1, 1, 1), (launch.lanes, 1, 1)), params, [region(array)])
    variables = [ctypes.string_at(program.variables[name].address, size) for name, size in launch.variables]
    return np.concatenate([array, *(np.frombuffer(each, np.uint8) for each in variables)])


# Of a fifth of a second that a program takes, LLVM has four fifths, and the machine of the tests a tenth.
@pytest.mark.parametrize(
    "seeds",
    [
        *batches(0, 100, 20),
        *batches(100, 2_000, 100, pytest.mark.slow),
        *batches(2_000, 20_000, 100, pytest.mark.slow, pytest.mark.long),
    ],
)
def test_random_programs_write_what_they_write_on_the_machine(seeds):
    """All defined bits that random programs of several functions write, with checks and without."""
    for seed in seeds:
        texts = Random(seed).texts
        expected, known = RANDOM.run(texts)
        found = written(RANDOM, fused(texts, everything=seed % 2 == 1), checks=seed % 4 < 2)
        assert not ((found ^ expected) & known).any(), seed


@pytest.mark.parametrize("name", CALLS)
def test_compiled_programs_write_what_they_write_on_the_machine(name):
    """Unions, structs of which parts are set, calls in some lanes, shuffles and barriers, by NVRTC."""
    texts = units(name)
    expected, known = CXX.run(texts)
    assert not ((written(CXX, fused(texts, everything=False)) ^ expected) & known).any()
