"""Programs of PTX on the CPU: what a launch or a call needs is put together here, and faults become errors."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from numba_ptxlink import cache
from numba_ptxlink._formats import ptx as formats
from numba_ptxlink.errors import LaunchError

from . import faults, machine_code
from .formatted import formatted
from .layout import LANE, SHARED_START, Context, Fault, Noted
from .module import Entry, Unit, places

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_HEAP = 8 << 20
_ALIGNED = 1024
_MOST_LANES = 1024
_UNLIMITED = 1 << 62
_PRINT = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_uint64, ctypes.c_uint64)
_GRID = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int32
)
_ELEMENTS = ctypes.PYFUNCTYPE(
    ctypes.c_int32, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
)
_RAMP = ctypes.CFUNCTYPE(
    ctypes.c_int64, *[ctypes.c_void_p] * 3, *[ctypes.c_int32] * 3, *[ctypes.c_void_p] * 3
)
_ACTIVE = 0  # the state of a lane that is yet to begin


class Region(NamedTuple):
    """
    Memory of this process that a launch or a call may access.

    Args:
        address: Where it begins.
        size: Its bytes.
        writable: Whether it may be written.
        name: What it is called in errors.
    """

    address: int
    size: int
    writable: bool
    name: str


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


class Buffer:
    """Zeroed memory that begins at a multiple of 1024."""

    def __init__(self, size: int) -> None:
        self._array = np.zeros(size + _ALIGNED, np.uint8)
        self.address = -(-self._array.ctypes.data // _ALIGNED) * _ALIGNED
        self.size = size

    def fill(self, content: bytes, at: int = 0) -> None:
        """Copy bytes into it."""
        ctypes.memmove(self.address + at, content, len(content))

    def region(self, name: str, *, writable: bool = True) -> Region:
        """Return it as a region."""
        return Region(self.address, self.size, writable, name)


class Program:
    """
    A PTX module in machine code, with variables and a heap of its own.

    Its calls and launches may come from several threads. Nothing is copied: addresses are those of this process.

    Args:
        module: The PTX.
        code: The object code and what is known of it.
    """

    def __init__(self, module: formats.Module, code: cache.Entry) -> None:
        meta = code.meta
        self._module = module
        self._loaded = machine_code.Loaded(code.code)
        self._sites = [(str(name), int(place)) for name, place in meta["sites"]]
        self._accesses = int(meta["accesses"])
        self._shared_size = int(meta["shared"])
        self._locals = {str(name): int(size) for name, size in meta["locals"].items()}
        self._kernels = {str(name): Entry(*each) for name, each in meta["kernels"].items()}
        self._frame_sizes: dict[str, int] = {}
        self._heap = Buffer(_HEAP)
        self._heap_state = (ctypes.c_int64 * 2)(self._heap.address, self._heap.address + _HEAP)
        self._variables = [
            Region(
                self._loaded.variable(f"v.{each.name}"),
                each.size,
                each.memory != "const",
                f"the variable {each.name}",
            )
            for each in module.variables
            if each.memory in ("global", "const", "managed") and each.size
        ]
        self.functions: Mapping[str, Callee] = {
            each.name: Callee(
                each.kind == "entry",
                tuple((max(p.size, 1), p.param.align or p.bits // 8) for p in each.params),
                next(((max(r.size, 1), r.param.align or r.bits // 8) for r in each.results), None),
            )
            for each in module.functions
            if each.defined
        }
        """What can be launched and called, by name."""

    @classmethod
    def of(cls, ptx: str | bytes, *, checks: bool = True) -> Program:
        """
        Return a program of a PTX module, compiled or out of the cache.

        Args:
            ptx: The module; nothing is external to it but what the device runtime and the C library have.
            checks: Whether each access is compared with the memory that may be accessed. Without, an access that
                is wrong may end the process.

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
            LaunchError: It has other parameters.
        """
        callee = self._callee(name, params, entry=True)
        entry = self._kernels[name]
        grid, block = (*grid, 1, 1)[:3], (*block, 1, 1)[:3]
        lanes, blocks = math.prod(block), math.prod(grid)
        if not 0 < lanes <= _MOST_LANES or not blocks:
            raise LaunchError(
                f"A block of {lanes} threads in a grid of {blocks} blocks cannot be launched; a block has 1 to 1024."
            )
        function = next(each for each in self._module.functions if each.name == name and each.defined)
        content = Buffer(sum(size + align for size, align in callee.params) + 16)
        for given, place in zip(params, places(function.params), strict=True):
            content.fill(given, place)
        run = _Run(self, name, regions, content, steps)
        address = self._loaded.function(f"block.{name}")
        if cooperative:
            workers = [run.worker(grid, block, entry, shared_bytes) for _ in range(blocks)]
            for worker in workers:
                worker.context.cooperative = 1
            pending, go = dict(enumerate(workers)), 0
            while pending:
                told = {
                    number: run.grid(worker, address, number, 1, go) for number, worker in pending.items()
                }
                pending = {number: workers[number] for number, status in told.items() if status == 3}
                go = 1
        else:
            run.grid(run.worker(grid, block, entry, shared_bytes), address, 0, blocks, 0)
        return "".join(run.printed)

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
            LaunchError: It has other parameters.
        """
        callee = self._callee(name, params, entry=False)
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
        callee = self.functions[name]
        pairs = [*([result] if callee.result else []), *params]
        arrays = (ctypes.c_int64 * (2 * len(pairs) + 1))(*(part for pair in pairs for part in pair))
        run = _Run(self, name, regions, None, steps)
        worker = run.worker((1, 1, 1), (1, 1, 1), Entry(waits=False, local=self._locals[name]), 0)
        run.elements(worker, self._loaded.function(f"many.{name}"), arrays, count, int(bool(callee.result)))

    def _callee(self, name: str, params: Sequence[bytes], *, entry: bool) -> Callee:
        callee = self.functions.get(name)
        if callee is None or callee.entry != entry:
            raise LaunchError(f"The PTX defines no {'kernel' if entry else 'function'} {name}.")
        wanted = [size for size, _ in callee.params]
        if [len(each) for each in params] != wanted:
            raise LaunchError(
                f"{name} takes parameters of {wanted} bytes, and was given {[len(each) for each in params]}."
            )
        return callee

    @functools.cached_property
    def _entries(self) -> tuple[ctypes._CFuncPtr, ctypes._CFuncPtr]:
        return _GRID(self._loaded.function("ptxlink.grid")), _ELEMENTS(
            self._loaded.function("ptxlink.elements")
        )

    def frame_size(self, name: str) -> int:
        """Return how many bytes a lane of a kernel keeps while it waits."""
        if name not in self._frame_sizes:
            told = _RAMP(self._loaded.function(f"ramp.{name}"))(None, None, None, 0, 0, 0, None, None, None)
            self._frame_sizes[name] = -(-told // 64) * 64
        return self._frame_sizes[name]


def _compiled(module: formats.Module, *, checks: bool) -> cache.Entry:
    unit = Unit(module, checks=checks)
    code = machine_code.compile_ir(unit.text())
    meta = {
        "sites": unit.sites,
        "accesses": unit.accesses,
        "shared": unit.shared_size,
        "locals": unit.locals,
        "kernels": unit.kernels,
        "unknown": unit.unknown,
    }
    return cache.Entry(meta, code)


class _Worker:
    """The memory of a thread that executes blocks, one after the other."""

    def __init__(self, context: Context, noted: Noted, regions: Sequence[Region], kept: object) -> None:
        self.context, self.noted, self.regions, self.kept = context, noted, regions, kept


class _Run:
    """One launch or call."""

    def __init__(
        self, program: Program, name: str, regions: Sequence[Region], params: Buffer | None, steps: int | None
    ) -> None:
        self._program, self._name, self._params = program, name, params
        self._regions = [*regions, *program._variables, program._heap.region("the heap")]
        if params:
            self._regions.append(params.region("the parameters", writable=False))
        self._steps = _UNLIMITED if steps is None else steps
        self._stop = ctypes.c_int32(0)
        self.printed: list[str] = []
        self._print = _PRINT(self._printing)

    def _printing(self, form: int, values: int) -> int:
        self.printed.append(formatted(form, values))
        return 0

    def worker(self, grid: Sequence[int], block: Sequence[int], entry: Entry, dynamic: int) -> _Worker:
        program, lanes = self._program, math.prod(block)
        context, noted = Context(), Noted()
        shared = Buffer(program._shared_size + dynamic)
        many = lanes if entry.waits else 1
        local = Buffer(entry.local * many)
        frame = program.frame_size(self._name) if entry.waits else 0
        frames, records = Buffer(frame * lanes), Buffer(LANE * (lanes if entry.waits else 0))
        found = np.zeros(2 * program._accesses + 2, np.int64)
        every = [*self._regions, shared.region("shared memory"), local.region("local memory")]
        every.sort(key=lambda each: not each.writable)
        table = (ctypes.c_uint64 * (2 * len(every)))(
            *(part for each in every for part in (each.address, each.address + each.size))
        )
        context.ntid[:], context.nctaid[:] = block, grid
        context.dynamic, context.count = dynamic, lanes
        context.shared, context.shared_size = shared.address - SHARED_START, shared.size
        context.regions, context.readable = ctypes.addressof(table), len(every)
        context.writable = sum(each.writable for each in every)
        context.found, context.noted = found.ctypes.data, ctypes.addressof(noted)
        context.steps, context.stop = self._steps, ctypes.addressof(self._stop)
        context.heap = ctypes.addressof(program._heap_state)
        context.print = ctypes.cast(self._print, ctypes.c_void_p).value
        context.params = self._params.address if self._params else None
        context.local, context.local_size = local.address, entry.local
        context.frames, context.frame_size = frames.address, frame
        context.lanes = records.address
        for name, function in _python().items():
            setattr(context, name, function)
        return _Worker(context, noted, every, (shared, local, frames, records, found, table))

    def grid(self, worker: _Worker, address: int, first: int, count: int, go: int) -> int:
        """Execute blocks; return whether they wait for others."""
        told = self._program._entries[0](ctypes.addressof(worker.context), address, first, count, go)
        self._raise(worker)
        return int(told)

    def elements(
        self, worker: _Worker, address: int, arrays: ctypes.Array[ctypes.c_int64], count: int, results: int
    ) -> None:
        """Call a function for elements."""
        self._program._entries[1](
            ctypes.addressof(worker.context), address, ctypes.addressof(arrays), count, results
        )
        self._raise(worker)

    def _raise(self, worker: _Worker) -> None:
        noted = worker.noted
        if noted.kind == Fault.NONE:
            return
        program = self._program
        named = [(each.address, each.address + each.size, each.name) for each in worker.regions]
        raise faults.error(program._module, self._name, program._sites[noted.site], noted, named)


@functools.cache
def _python() -> dict[str, int | None]:
    """Return the addresses of what lets other threads of Python run, and looks for an interrupt."""
    names = {"save": "PyEval_SaveThread", "restore": "PyEval_RestoreThread", "check": "PyErr_CheckSignals"}
    return {
        field: ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value
        for field, name in names.items()
    }
