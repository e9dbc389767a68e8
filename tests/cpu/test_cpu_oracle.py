"""The CPU has the results of the tests' PTX machine, which has a parser and arithmetic of its own."""

from __future__ import annotations

import ctypes
import gc
import re
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from comparison import COUNT, Launch, fused
from emulator import Machine
from instructions import HEAD, bits_of, kernel, samples
from programs import CALLS, CXX, RANDOM, batches, units
from random_ptx import Program as Random

from numba_ptxlink._cpu import machine_code
from numba_ptxlink._cpu.run import CpuProgram, Region
from numba_ptxlink._tools.launching import Configuration

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

ROWS, LANES = 512, 256
_HEADING = re.compile(r"^\.(version|target|address_size) .*\n", re.MULTILINE)
# Names that random programs have in common: the kernel, functions and variables.
_NAMES = re.compile(r"(?<![%$.\w])(k|trace|tile\w*|f\d\w*)\b")


def region(array: np.ndarray) -> Region:
    """Return an array as memory that may be accessed."""
    return Region(array.ctypes.data, array.nbytes, True, "array")


def pointers(*arrays: np.ndarray) -> list[bytes]:
    """Return the addresses of arrays as parameters."""
    return [struct.pack("Q", array.ctypes.data) for array in arrays]


@pytest.mark.parametrize("part", [0, *(pytest.param(part, marks=pytest.mark.slow) for part in (1, 2, 3))])
def test_instructions_compute_what_the_machine_computes(part):
    """Each instruction of the sweep computes what the machine computes, for special and random operands."""
    every = samples()[part::4]
    program = CpuProgram.of(
        HEAD + "".join(kernel(f"k{number}", sample) for number, sample in enumerate(every))
    )
    wrong = []
    for number, sample in enumerate(every):
        operands = sample.operands(ROWS, np.random.default_rng(number))
        machine = Machine(HEAD + kernel("k", sample))
        address = machine.array(np.zeros(8 * ROWS, np.uint8))
        machine.launch("k", ROWS // LANES, LANES, [address, *map(machine.array, operands)])
        expected = machine.read(address, ROWS, f"u{bits_of(sample.result) // 8}")
        results = np.zeros_like(expected)
        arrays = [results, *map(np.ascontiguousarray, operands)]
        launch_config = Configuration((ROWS // LANES, 1, 1), (LANES, 1, 1))
        program.launch(f"k{number}", launch_config, pointers(*arrays), list(map(region, arrays)))
        differ = (results ^ expected) & machine.defined(address, expected.nbytes).view(expected.dtype) != 0
        wrong += [
            (sample.opcode, [hex(operand[index]) for operand in operands])
            for index in np.flatnonzero(differ)[:1]
        ]
    assert [] == wrong


def written(launch: Launch, program: CpuProgram, end: str = "") -> np.ndarray:
    """Return the bytes that a program writes on the CPU, as `Launch.run` does on the machine."""
    array = np.zeros(launch.size, np.uint8)
    params = [*pointers(array), struct.pack("i", COUNT)]
    program.launch(f"k{end}", Configuration((1, 1, 1), (launch.lanes, 1, 1)), params, [region(array)])
    variables = [(program.variables[f"{name}{end}"].address, size) for name, size in launch.variables]
    return np.concatenate(
        [array, *(np.frombuffer(ctypes.string_at(*variable), np.uint8) for variable in variables)]
    )


def of_seed(seed: int) -> tuple[list[str], str]:
    """Return the modules of a random program, and the module that the package fuses them to."""
    texts = Random(seed).texts
    return texts, fused(texts, everything=seed % 2 == 1)


def checked(seed: int) -> bool:
    """Return whether a random program is executed with checks, which take LLVM twice as long."""
    return seed % 8 < 2


@pytest.mark.parametrize(
    "seeds",
    [
        *batches(0, 40, 20),
        *batches(40, 400, 20, pytest.mark.slow),
        *batches(400, 20_000, 100, pytest.mark.slow, pytest.mark.long),
    ],
)
def test_random_programs_write_what_they_write_on_the_machine(seeds):
    """All defined bits that random programs of several functions write, with checks and without."""
    for seed in seeds:
        texts, text = of_seed(seed)
        expected, known = RANDOM.run(texts)
        actual = written(RANDOM, CpuProgram.of(text, checks=checked(seed)))
        assert not ((actual ^ expected) & known).any(), seed


def unoptimised(text: str) -> bytes:
    """Return machine code as `machine_code.compile_ir` does, in a seventh of the time."""
    llvm = machine_code._load_llvm()
    *_, cpu, features = machine_code.target()
    # LLVM has a fast way to select instructions, but not for calls across more than two gigabytes.
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=0, reloc="pic", codemodel="small", jit=True
    )
    module, tuning = machine_code._parse(text, machine), llvm.create_pipeline_tuning_options(speed_level=0)
    # With variables as SSA values, LLVM emits a third less code. A builder keeps its analyses: each run needs
    # a new one.
    first = llvm.create_new_module_pass_manager()
    first.add_sroa_pass()
    first.run(module, llvm.create_pass_builder(machine, tuning))
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    return bytes(machine.emit_object(module))


@pytest.fixture
def quick(monkeypatch) -> Generator[None]:
    """Let LLVM not optimise programs, and Python not look for cycles, of which they leave few."""
    # The runtime stays in the process, and is optimised as for users.
    CpuProgram.of(HEAD)
    monkeypatch.setattr(machine_code, "compile_ir", unoptimised)
    gc.disable()
    yield
    gc.enable()


def joined(texts: Mapping[int, str]) -> str:
    """Return programs as one module, in which the names of each end with its seed."""
    parts = [
        _NAMES.sub(rf"\1_{seed}", _HEADING.sub("", text) if number else text)
        for number, (seed, text) in enumerate(texts.items())
    ]
    return "\n".join(parts)


# A program takes 50 ms: its modules are executed for 12, fused for 7, translated for 8, and compiled by LLVM
# for 20 (130 with optimisation). Programs of half the size take half as long, and reveal less than half of
# the faults.
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "seeds",
    [
        *batches(40, 270, 46),
        *batches(270, 500, 46, pytest.mark.slow),
        *batches(500, 4_000, 100, pytest.mark.slow),
        *batches(4_000, 20_000, 100, pytest.mark.slow, pytest.mark.long),
    ],
)
def test_many_random_programs_write_what_they_write_on_the_machine(seeds):
    """The same of more programs, translated as those of users, and not optimised by LLVM."""
    wrong = []
    for checks in (True, False):
        programs = {seed: of_seed(seed) for seed in seeds if checked(seed) == checks}
        program = CpuProgram.of(joined({seed: text for seed, (_, text) in programs.items()}), checks=checks)
        for seed, (texts, _) in programs.items():
            expected, known = RANDOM.run(texts)
            actual = written(RANDOM, program, f"_{seed}")
            wrong += [seed] * bool(((actual ^ expected) & known).any())
    assert [] == wrong


@pytest.mark.parametrize("name", CALLS)
def test_compiled_programs_write_what_they_write_on_the_machine(name):
    """Unions, structs of which parts are set, calls in some lanes, shuffles and barriers, by NVRTC."""
    texts = units(name)
    expected, known = CXX.run(texts)
    actual = written(CXX, CpuProgram.of(fused(texts, everything=False)))
    assert not ((actual ^ expected) & known).any()
