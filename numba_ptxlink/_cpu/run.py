"""Programs of PTX on the CPU: compiled once, launched and called on memory of this process."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink import cache
from numba_ptxlink._formats import ptx as formats
from numba_ptxlink.errors import LaunchError

from . import faults, machine_code, runtime
from .formatted import formatted
from .layout import Fault, Told
from .module import Entry, Unit, places
from .worker import Buffer, Given, Heap, Region, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Callee", "Program", "Region"]

_MOST_LANES = 1024
_UNLIMITED = 1 << 62


class Callee(NamedTuple):
    """
    A kernel or a function as PTX declares it.

    Args:
        entry: Whether it is a kernel.
        params: The size and the alignment of each parameter in bytes.
        result: Those of the result, None for none.
    """

    entry: bool
    params: tuple[tuple[int, int], ...]
    result: tuple[int, int] | None

    @classmethod
    def of(cls, function: formats.Function) -> Callee:
        """Return what a function is to its caller."""
        params, results = (
            [(max(each.size, 1), each.param.align or each.bits // 8) for each in formals]
            for formals in (function.params, function.results)
        )
        return cls(function.kind == "entry", tuple(params), results[0] if results else None)


class Program:
    """
    A PTX module in machine code, with variables and a heap of its own.

    Nothing is copied: addresses are those of this process. Several threads may launch and call at a time.

    Args:
        module: The PTX.
        code: The object code, and what is known of it.

    Attributes:
        functions: What can be launched and called, by name.
        variables: Where the variables of the module are, by name.
    """

    def __init__(self, module: formats.Module, code: cache.Entry) -> None:
        self._module, meta = module, code.meta
        self._loaded = machine_code.Loaded(_runtime(), code.code)
        self._sites = meta["sites"]
        self._table = self._loaded.variable("ptxlink.accesses")
        self._accesses, self._shared = int(meta["accesses"]), int(meta["shared"])
        self._entries = {name: Entry(*each) for name, each in meta["entries"].items()}
        self._heap = Heap()
        self._grid, self._elements = (
            self._loaded.function(f"ptxlink.{entry}") for entry in ("grid", "elements")
        )
        self._defined = {each.name: each for each in module.functions if each.defined}
        self.functions: Mapping[str, Callee] = {
            name: Callee.of(function) for name, function in self._defined.items()
        }
        self.variables: Mapping[str, Region] = {
            each.name: Region(
                self._loaded.variable(f"v.{each.name}"), each.size, each.memory != "const", each.name
            )
            for each in module.variables
            if each.memory in ("global", "const", "managed") and each.size
        }

    @classmethod
    def of(cls, ptx: str | bytes, *, checks: bool = True) -> Program:
        """
        Return a program of a PTX module, compiled or out of the cache.

        Args:
            ptx: The module; nothing is external to it but what the device runtime and the C library have.
            checks: Whether each access is compared with the memory that may be accessed. Without, a wrong
                access may end the process.

        Raises:
            LaunchError: llvmlite is missing, or the module needs a variable that it does not define.
        """
        text = ptx.decode(errors="surrogateescape") if isinstance(ptx, bytes) else ptx
        module = formats.parse(text)
        parts = {
            "package": cache.package_version(),
            "tool": machine_code.target(),
            "checks": str(checks),
            "ptx": text,
        }
        key = cache.Key.of("cpu", parts)
        return cls(module, cache.cached(key, lambda: _compiled(module, checks=checks)))

    def launch(
        self,
        name: str,
        *,
        grid: Sequence[int],
        block: Sequence[int],
        shared_bytes: int = 0,
        params: Sequence[bytes],
        regions: Sequence[Region],
        cooperative: bool = False,
        steps: int | None = None,
    ) -> str:
        """
        Launch a kernel and wait for it.

        Args:
            name: The kernel.
            grid: How many blocks there are along x, y and z.
            block: How many lanes a block has.
            shared_bytes: Bytes of dynamic shared memory.
            params: The bytes of each parameter.
            regions: What it may access besides the variables of the module.
            cooperative: Whether all blocks run together, so that they can wait for each other.
            steps: How often a loop may go on in each lane; None for no limit.

        Returns:
            What it printed.

        Raises:
            DeviceFaultError: It did what it must not do.
            LaunchError: There is no such kernel, it has other parameters, or a block has too many lanes.
        """
        callee = self._callee(name, [len(each) for each in params], entry=True)
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        lanes, blocks = math.prod(block), math.prod(grid)
        if not 0 < lanes <= _MOST_LANES or blocks < 1:
            raise LaunchError(
                f"{name} cannot be launched with {blocks} blocks of {lanes} threads; "
                f"launch one block at least, of 1 to {_MOST_LANES} threads."
            )
        content = Buffer(sum(size + align for size, align in callee.params))
        for each, place in zip(params, places(self._defined[name].params), strict=True):
            ctypes.memmove(content.address + place, each, len(each))
        entry, printed = self._entries[name], list[str]()
        given = self._given(
            entry.local,
            regions,
            steps,
            printed,
            frame=machine_code.frame_size(self._loaded.function(f"ramp.{name}")) if entry.waits else None,
            params=content,
            workspace=Buffer(64) if cooperative else None,
        )
        workers = [Worker(given, grid, block, shared_bytes) for _ in range(blocks if cooperative else 1)]
        address = self._loaded.function(f"block.{name}")
        if cooperative:
            self._together(name, workers, address)
        else:
            workers[0].grid(self._grid, address, 0, blocks)
            self._raise(name, workers[0])
        return "".join(printed)

    def _together(self, name: str, workers: Sequence[Worker], address: int) -> None:
        """Execute blocks that may wait for each other, each by a worker."""
        ready, held = dict.fromkeys(range(len(workers)), 0), list[int]()
        while ready:
            spinning = []
            for number, go in ready.items():
                told = workers[number].grid(self._grid, address, number, 1, go)
                self._raise(name, workers[number])
                held += [number] * (told == Told.GRID)
                spinning += [number] * (told == Told.SPINS)
            # The barrier of the grid opens when no block is on its way there.
            ready = dict.fromkeys(spinning, 2) or dict.fromkeys(held, 1)
            held = held if spinning else []

    def call(
        self, name: str, params: Sequence[bytes], regions: Sequence[Region] = (), steps: int | None = None
    ) -> bytes:
        """
        Call a device function.

        Args:
            name: The function.
            params: The bytes of each parameter.
            regions: What it may access besides the variables of the module.
            steps: How often a loop may go on; None for no limit.

        Returns:
            The bytes of the result, none where there is no result.

        Raises:
            DeviceFaultError: It did what it must not do.
            LaunchError: There is no such function, or it has other parameters.
        """
        callee = self._callee(name, [len(each) for each in params], entry=False)
        given = [ctypes.create_string_buffer(each, len(each)) for each in params]
        result = ctypes.create_string_buffer(callee.result[0] if callee.result else 1)
        arrays = [(ctypes.addressof(each), 0) for each in given]
        self.call_many(name, 1, arrays, (ctypes.addressof(result), 0), regions, steps)
        return result.raw if callee.result else b""

    def call_many(
        self,
        name: str,
        count: int,
        params: Sequence[tuple[int, int]],
        result: tuple[int, int],
        regions: Sequence[Region],
        steps: int | None = None,
    ) -> None:
        """
        Call a device function for each element of arrays.

        Args:
            name: The function.
            count: How many elements there are.
            params: For each parameter the address of the first element, and the bytes from one to the next.
            result: The same for where results are written.
            regions: What it may access besides the variables of the module.
            steps: How often a loop may go on in each call; None for no limit.

        Raises:
            DeviceFaultError: It did what it must not do; its thread is the number of the element.
        """
        callee = self._callee(name, entry=False)
        entry = self._entries[name]
        if entry.waits:
            raise LaunchError(f"Lanes wait for others in {name}; call it from a kernel that is launched.")
        pairs = [*([result] if callee.result else []), *params]
        arrays = (ctypes.c_int64 * (2 * len(pairs) + 1))(*(part for pair in pairs for part in pair))
        worker = Worker(self._given(entry.local, regions, steps, []))
        worker.elements(self._elements, self._loaded.function(f"many.{name}"), arrays, count)
        self._raise(name, worker)

    def _callee(self, name: str, sizes: list[int] | None = None, *, entry: bool) -> Callee:
        callee = self.functions.get(name)
        if callee is None or callee.entry != entry:
            kind = "kernel" if entry else "function"
            raise LaunchError(f"The PTX defines no {kind} {name}; it has {', '.join(self.functions)}.")
        wanted = [size for size, _ in callee.params]
        if sizes not in (None, wanted):
            raise LaunchError(f"{name} takes parameters of {wanted} bytes, and was given {sizes}.")
        return callee

    def _given(
        self,
        local: int,
        regions: Sequence[Region],
        steps: int | None,
        printed: list[str],
        *,
        frame: int | None = None,
        params: Buffer | None = None,
        workspace: Buffer | None = None,
    ) -> Given:
        every = [*regions, *self.variables.values(), self._heap.region]
        if params:
            every.append(params.region("the parameters", writable=False))
        if workspace:
            every.append(workspace.region("the grid's barrier"))

        def take(form: int, values: int) -> int:
            printed.append(formatted(form, values))
            return 0

        steps = _UNLIMITED if steps is None else steps
        code = self._accesses, self._table, self._shared
        return Given(every, self._heap, *code, local, steps, take, frame, params, workspace)

    def _raise(self, name: str, worker: Worker) -> None:
        if worker.noted.kind != Fault.NONE:
            function, place = self._sites[worker.noted.site]
            raise faults.error(faults.Place(self._module, name, function, place), worker)


@functools.cache
def _runtime() -> bytes:
    text = runtime.text()
    key = cache.Key.of("cpu runtime", {"tool": machine_code.target(), "ir": text})
    return cache.cached(key, lambda: cache.Entry({}, machine_code.compile_ir(text))).code


def _compiled(module: formats.Module, *, checks: bool) -> cache.Entry:
    unit = Unit(module, checks=checks)
    code = machine_code.compile_ir(unit.text())
    meta = {
        "sites": unit.sites,
        "accesses": len(unit.accesses),
        "shared": unit.shared_size,
        "entries": unit.entries,
    }
    return cache.Entry(meta, code)
