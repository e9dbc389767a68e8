"""
Hold the machine against a device: `python tests/ptx_machine/device.py`, in two minutes where there is a GPU.

Every instruction of `instructions.py` with random operands; and the programs of `test_fused.py`, as modules
that nvJitLink links and as the one module that the package makes of them. Ends with 1 if any bit is another.
"""

from __future__ import annotations

import argparse
import ctypes
import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

os.environ.setdefault("NUMBA_PTXLINK_CACHE", "0")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1] / "helpers")]

import numpy as np
from comparison import Launch, certain, compiled
from cxx_pairs import Program as Pair
from emulator import Machine
from instructions import HEAD, Sample, bits_of, kernel, samples
from programs import CALLS, CXX, RANDOM, units
from random_ptx import Program

import numba_ptxlink as pl

if TYPE_CHECKING:
    from collections.abc import Sequence

ROWS, LANES = 2048, 256
PARTS = 32


class Device:
    """The first device, by the driver's C interface."""

    def __init__(self) -> None:
        self._driver = ctypes.CDLL("libcuda.so.1")
        device, self._context = ctypes.c_int(), ctypes.c_void_p()
        self._call("cuInit", ctypes.c_uint(0))
        self._call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._call("cuCtxSetCurrent", self._context)
        digits = []
        for attribute in (75, 76):  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
            value = ctypes.c_int()
            self._call("cuDeviceGetAttribute", ctypes.byref(value), ctypes.c_int(attribute), device)
            digits.append(value.value)
        self.arch = "sm_{}{}".format(*digits)

    def _call(self, name: str, *args: object) -> None:
        status = getattr(self._driver, name)(*args)
        if status:
            raise RuntimeError(f"{name} returned {status}")

    def load(self, cubin: bytes) -> ctypes.c_void_p:
        """Return *cubin* as a module, which stays loaded."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(cubin))
        return module

    def array(self, values: np.ndarray) -> ctypes.c_uint64:
        """Return the address of a copy of an array."""
        address, values = ctypes.c_uint64(), np.ascontiguousarray(values)
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(values.nbytes))
        host = ctypes.c_void_p(values.ctypes.data)
        self._call("cuMemcpyHtoD_v2", address, host, ctypes.c_size_t(values.nbytes))
        return address

    def free(self, *addresses: ctypes.c_uint64) -> None:
        """Free arrays."""
        for address in addresses:
            self._call("cuMemFree_v2", address)

    def variable(self, module: ctypes.c_void_p, name: str) -> ctypes.c_uint64:
        """Return the address of a variable."""
        address, size = ctypes.c_uint64(), ctypes.c_size_t()
        encoded = ctypes.c_char_p(name.encode())
        self._call("cuModuleGetGlobal_v2", ctypes.byref(address), ctypes.byref(size), module, encoded)
        return address

    def read(self, address: ctypes.c_uint64, size: int) -> np.ndarray:
        """Return bytes out of the device's memory."""
        values = np.zeros(size, np.uint8)
        self._call("cuMemcpyDtoH_v2", ctypes.c_void_p(values.ctypes.data), address, ctypes.c_size_t(size))
        return values

    def launch(self, module: ctypes.c_void_p, name: str, grid: int, block: int, args: Sequence) -> None:
        """Launch a kernel, and wait for it."""
        function = ctypes.c_void_p()
        self._call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        pointers = (ctypes.c_void_p * len(args))(*(ctypes.addressof(arg) for arg in args))
        sizes = [ctypes.c_uint(size) for size in (grid, 1, 1, block, 1, 1, 0)]
        self._call("cuLaunchKernel", function, *sizes, ctypes.c_void_p(), pointers, ctypes.c_void_p())
        self._call("cuCtxSynchronize")


class Swept(NamedTuple):
    """An instruction with the bits of its operands and of what the machine computes."""

    sample: Sample
    operands: list[np.ndarray]
    results: np.ndarray


def swept(part: int) -> list[Swept]:
    """Return a part of the instructions, executed by the machine."""
    made = []
    for sample in samples()[part::PARTS]:
        rng = np.random.default_rng(part)
        given = sample.operands(ROWS, rng)
        machine = Machine(HEAD + kernel("k", sample), checked=False)
        out = machine.array(np.zeros(8 * ROWS, np.uint8))
        machine.launch("k", ROWS // LANES, LANES, [out, *map(machine.array, given)])
        size = bits_of(sample.result) // 8
        made.append(Swept(sample, given, machine.read(out, ROWS, f"u{size}")))
    return made


def numbers(kind: str, bits: np.ndarray) -> np.ndarray:
    """Return bits as floating-point numbers."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    return bits.view(f"f{bits.dtype.itemsize}").astype(np.float64)


def sweep(device: Device, every: list[Swept]) -> int:
    """Print the instructions of which the device computes something else; return how many there are."""
    text = HEAD + "".join(kernel(f"k{number}", one.sample) for number, one in enumerate(every))
    module = device.load(pl.assemble(text, device.arch).code)
    wrong, payloads, errors = 0, 0, {}
    for number, (sample, given, expected) in enumerate(every):
        arrays = [device.array(np.zeros(8 * ROWS, np.uint8)), *map(device.array, given)]
        device.launch(module, f"k{number}", ROWS // LANES, LANES, arrays)
        results = device.read(arrays[0], expected.nbytes).view(expected.dtype)
        device.free(*arrays)
        differ = results != expected
        if "f" in sample.result:
            with np.errstate(all="ignore"):
                ours, theirs = numbers(sample.result, expected), numbers(sample.result, results)
                nan = np.isnan(ours) & np.isnan(theirs)
                payloads += int((differ & nan).any())
                differ &= ~nan
                if sample.inexact:
                    errors[sample.opcode] = inexactness(ours, theirs)
                    continue
        if differ.any():
            wrong += 1
            first = int(np.argmax(differ))
            inputs = ", ".join(f"{each[first]:#x}" for each in given)
            print(
                f"DIFFERS {sample.opcode}({inputs}): {expected[first]:#x} by the machine, "
                f"{results[first]:#x} by the device; {differ.sum()} of {ROWS}"
            )
    for opcode, error in errors.items():
        print(f"approximate {opcode}: {error}")
    print(f"{len(every) - len(errors)} instructions, {wrong} differ; {payloads} give NaN of other bits")
    return wrong


def inexactness(ours: np.ndarray, theirs: np.ndarray) -> str:
    """Return how far an approximation is from the nearest result."""
    both = np.isfinite(ours) & np.isfinite(theirs)
    unit = np.maximum(np.spacing(np.abs(ours[both]).astype(np.float32)), np.float32(2.0**-149))
    error = np.abs(ours[both] - theirs[both])
    special = int((~both & ~((ours == theirs) | (np.isnan(ours) & np.isnan(theirs)))).sum())
    return (
        f"at most {np.max(error / unit, initial=0):.3g} units in the last place, "
        f"or {np.max(error, initial=0):.3g}; "
        f"{special} other special values"
    )


@dataclass
class Built:
    """A program: how it is launched, what the machine writes, and the cubins that are to do the same."""

    name: str
    launch: Launch
    expected: np.ndarray
    known: np.ndarray
    cubins: dict[str, bytes]
    failed: str = ""


def build(job: tuple[str, object, str]) -> Built:
    """Return a program: random PTX, random CUDA C++, or a written one."""
    kind, which, arch = job
    name = f"{kind} {which}"
    launch = RANDOM if kind == "ptx" else CXX
    built = Built(name, launch, np.zeros(0), np.zeros(0), {})
    try:
        if kind == "ptx":
            texts = Program(which).texts
        elif kind == "cxx":
            texts = [compiled(Pair(which).caller), compiled(Pair(which).callee)]
        else:
            texts = units(which)
        built.expected, _, built.known = certain(launch, texts)
        # Where calls are left, ptxas loses some of overlapping stores to a parameter, as no compiler writes.
        for inline in ("all",) if kind == "ptx" else ("none", "auto", "all"):
            built.cubins[inline] = pl.link(*texts, arch=arch, inline=inline, lto=False).cubin
    except Exception as error:  # noqa: BLE001 - it is told, and ends with 1
        built.failed = f"{type(error).__name__}: {error}"
    return built


def execute(device: Device, built: Built, counts: Counter[str]) -> None:
    """Run the cubins of a program, count how it ended, and print what differs."""
    if built.failed:
        counts["not built"] += 1
        print(f"NOT BUILT {built.name}: {built.failed[:500]}")
        return
    launch = built.launch
    for inline, cubin in built.cubins.items():
        module, array = device.load(cubin), device.array(np.zeros(launch.size, np.uint8))
        device.launch(module, "k", 1, launch.lanes, [array, ctypes.c_int(launch.count)])
        places = [
            (array, launch.size),
            *((device.variable(module, name), size) for name, size in launch.variables),
        ]
        values = np.concatenate([device.read(*place) for place in places])
        device.free(array)
        differ = ((values ^ built.expected) & built.known) != 0
        # ptxas loses some of several stores to a parameter that overlap, which no compiler writes.
        left = built.name.startswith("ptx") and inline != "all"
        counts[
            f"inline={inline}: {'equal' if not differ.any() else 'calls are left' if left else 'differ'}"
        ] += 1
        if differ.any() and not left:
            first = int(np.argmax(differ))
            print(
                f"DIFFERS {built.name}, inline={inline}: byte {first} is {values[first]:#04x} on the device, "
                f"{built.expected[first]:#04x} by the machine; {differ.sum()} of {differ.size} bytes"
            )


def main() -> int:
    """Return 1 if anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=480, help="how many random programs of PTX")
    parser.add_argument("--first", type=int, default=0, help="the seed of the first")
    parser.add_argument("--pairs", type=int, default=20, help="how many random programs of CUDA C++")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 2)
    options = parser.parse_args()
    began, counts = time.monotonic(), Counter()
    device = Device()
    jobs = [
        *(("ptx", seed, device.arch) for seed in range(options.first, options.first + options.programs)),
        *(("cxx", seed, device.arch) for seed in range(options.first, options.first + options.pairs)),
        *(("calls", name, device.arch) for name in CALLS),
    ]
    # What uses the device is no process to fork.
    with ProcessPoolExecutor(options.workers, multiprocessing.get_context("spawn")) as pool:
        building = pool.map(build, jobs, chunksize=4)
        sweeping = pool.map(swept, range(PARTS))
        for built in building:
            execute(device, built, counts)
        wrong = sweep(device, [one for part in sweeping for one in part])
    for what, count in sorted(counts.items()):
        print(f"{count:6} programs, {what}")
    wrong += sum(count for what, count in counts.items() if what.endswith(("differ", "not built")))
    print(f"{device.arch}: {wrong} differences, {time.monotonic() - began:.0f} s")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
