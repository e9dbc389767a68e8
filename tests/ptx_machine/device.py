"""
Compare the machine with a device: `python tests/ptx_machine/device.py`, which takes two minutes on a GPU.

Every instruction of `instructions.py` with random operands, those that the machine does not know as the CPU
computes them; and the programs of `test_fused.py`, as modules that nvJitLink links and as the one module that
the package makes of them. Ends with 1 if any bit is another.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

os.environ.setdefault("NUMBA_PTXLINK_CACHE", "0")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")]

import numpy as np
from comparison import COUNT, Launch, certain
from cuda.bindings import driver
from emulator import Machine
from instructions import HEAD, Sample, bits_of, kernel, samples
from programs import CALLS, CXX, RANDOM, units
from random_ptx import Program

import numba_ptxlink as pl
from numba_ptxlink._cpu.host import PtxKernel
from numba_ptxlink._cpu.run import CpuProgram

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS, LANES = 2048, 256
PARTS = 32


def call(function: object, *arguments: object) -> object:
    """Call a function of the driver."""
    status, *values = function(*arguments)
    if int(status):
        raise RuntimeError(f"{function.__name__}: {status.name}")
    return values[0] if len(values) == 1 else values


def load(cubin: bytes) -> object:
    """Return *cubin* as a module, which stays loaded."""
    return call(driver.cuModuleLoadData, np.frombuffer(cubin, np.uint8).ctypes.data)


def array(values: np.ndarray) -> int:
    """Return the address of a copy of an array."""
    values = np.ascontiguousarray(values)
    address = call(driver.cuMemAlloc, values.nbytes)
    call(driver.cuMemcpyHtoD, address, values.ctypes.data, values.nbytes)
    return int(address)


def read(address: int, size: int) -> np.ndarray:
    """Return bytes out of the device's memory."""
    values = np.zeros(size, np.uint8)
    call(driver.cuMemcpyDtoH, values.ctypes.data, address, size)
    return values


def launch(module: object, name: str, grid: int, block: int, args: Sequence[int], *, last: int = 0) -> None:
    """Launch a kernel with addresses, and one integer; and wait for it."""
    function = call(driver.cuModuleGetFunction, module, name.encode())
    kinds = (*[ctypes.c_void_p] * len(args), ctypes.c_int)
    call(driver.cuLaunchKernel, function, grid, 1, 1, block, 1, 1, 0, 0, ((*args, last), kinds), 0)
    call(driver.cuCtxSynchronize)


class Swept(NamedTuple):
    """An instruction with the bits of its operands and of its results, by the machine or the CPU."""

    sample: Sample
    operands: list[np.ndarray]
    results: np.ndarray


def swept(part: int) -> list[Swept]:
    """Return a part of the instructions with their results, by the machine or, for others, by the CPU."""
    references = []
    for sample in samples()[part::PARTS]:
        inputs = sample.operands(ROWS, np.random.default_rng(part))
        machine = Machine(HEAD + kernel("k", sample))
        out = machine.array(np.zeros(8 * ROWS, np.uint8))
        machine.launch("k", ROWS // LANES, LANES, [out, *map(machine.array, inputs)])
        references.append(Swept(sample, inputs, machine.read(out, ROWS, f"u{bits_of(sample.result) // 8}")))
    for sample in samples(further=True)[part::PARTS]:
        inputs = sample.operands(ROWS, np.random.default_rng(part))
        results = np.zeros(ROWS, f"u{bits_of(sample.result) // 8}")
        program = PtxKernel(CpuProgram.of(HEAD + kernel("k", sample)), "k")
        program[ROWS // LANES, LANES](results, *map(np.ascontiguousarray, inputs))
        references.append(Swept(sample, inputs, results))
    return references


def sweep(arch: str, every: list[Swept]) -> int:
    """Print the instructions of which the device computes something else; return how many there are."""
    text = HEAD + "".join(kernel(f"k{number}", one.sample) for number, one in enumerate(every))
    module, wrong = load(pl.assemble(text, arch).code), 0
    for number, (sample, inputs, expected) in enumerate(every):
        arrays = [array(np.zeros(8 * ROWS, np.uint8)), *map(array, inputs)]
        launch(module, f"k{number}", ROWS // LANES, LANES, arrays)
        results = read(arrays[0], expected.nbytes).view(expected.dtype)
        for address in arrays:
            call(driver.cuMemFree, address)
        differ = results != expected
        if differ.any():
            wrong += 1
            first = int(np.argmax(differ))
            operands = ", ".join(f"{values[first]:#x}" for values in inputs)
            print(f"DIFFERS {sample.opcode}({operands}): {expected[first]:#x}, device {results[first]:#x}")
    print(f"{len(every)} instructions, {wrong} differ")
    return wrong


class Built(NamedTuple):
    """A program: its launch, the bytes that the machine writes, and cubins that have to write the same."""

    name: str
    launch: Launch
    expected: np.ndarray
    known: np.ndarray
    cubins: dict[str, bytes]


def build(job: tuple[str, object, str]) -> Built:
    """Return a program: random PTX, or written CUDA C++."""
    kind, which, arch = job
    launch_config = RANDOM if kind == "ptx" else CXX
    texts = Program(which).texts if kind == "ptx" else units(which)
    expected, _, known = certain(launch_config, texts)
    # If calls are left, ptxas loses some of overlapping stores to a parameter. No compiler writes such
    # stores.
    ways = ("all",) if kind == "ptx" else ("none", "auto", "all")
    cubins = {inline: pl.link(*texts, arch=arch, inline=inline, lto=False).cubin for inline in ways}
    return Built(f"{kind} {which}", launch_config, expected, known, cubins)


def execute(built: Built) -> int:
    """Run the cubins of a program, print the differences, and return their number."""
    launch_config, wrong = built.launch, 0
    for inline, cubin in built.cubins.items():
        module, address = load(cubin), array(np.zeros(launch_config.size, np.uint8))
        launch(module, "k", 1, launch_config.lanes, [address], last=COUNT)
        variables = [
            (call(driver.cuModuleGetGlobal, module, name.encode())[0], size)
            for name, size in launch_config.variables
        ]
        values = np.concatenate([read(*variable) for variable in ((address, launch_config.size), *variables)])
        call(driver.cuMemFree, address)
        differ = ((values ^ built.expected) & built.known) != 0
        if differ.any():
            wrong += 1
            first = int(np.argmax(differ))
            print(
                f"DIFFERS {built.name}, inline={inline}: byte {first} of {differ.sum()}, {values[first]:#04x}"
            )
    return wrong


def main() -> int:
    """Return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=480, help="how many random programs of PTX")
    options = parser.parse_args()
    from cuda.core import Device

    device = Device(0)
    device.set_current()
    arch = pl.Arch.of(tuple(device.compute_capability)).sm
    jobs = [("ptx", seed, arch) for seed in range(options.programs)]
    jobs += [("calls", name, arch) for name in CALLS]
    # A process that uses the device must not be forked.
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        building = pool.map(build, jobs, chunksize=4)
        sweeping = pool.map(swept, range(PARTS))
        wrong = sum(map(execute, building))
        wrong += sweep(arch, [one for part in sweeping for one in part])
    print(f"{len(jobs)} programs, {arch}: {wrong} differences")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
