"""Programs of PTX on the CPU: compiled once, launched and called on memory of this process."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._formats import ptx as formats
from numba_ptxlink.errors import LaunchError

from . import machine_code, messages, runtime
from .module import ModuleTranslator, places
from .runtime import Fault, Told
from .worker import Buffer, Region, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numba_ptxlink._tools.launching import Configuration

__all__ = ["CpuProgram", "Region", "sizes"]

_UNLIMITED = 1 << 62
# Of any device; "Technical Specifications per Compute Capability" in the CUDA C++ Programming Guide.
_MOST_THREADS, _MOST_SHARED = 1024, 227 << 10
# The default streams by their handles; launches on the CPU have ended when they return.
_STREAMS = (0, 1, 2)
# Bytes that `malloc` has, as on a device whose limit nobody has set.
_HEAP = 8 << 20


def sizes(params: Sequence[formats.Variable]) -> list[int]:
    """Return the bytes of each parameter, or result, of a function."""
    return [max(each.size, 1) for each in params]


class CpuProgram:
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
        self._module, self._meta = module, code.meta
        self._loaded = machine_code.LoadedCode(_runtime(), code.code)
        self._heap = Buffer(_HEAP)
        self._heap_state = (ctypes.c_int64 * 3)(0, _HEAP, self._heap.address)
        self.functions: Mapping[str, formats.Function] = {
            each.name: each for each in module.functions if each.defined
        }
        self.variables: Mapping[str, Region] = {
            each.name: Region(
                self._loaded.address(f"v.{each.name}"), each.size, each.memory != "const", each.name
            )
            for each in module.variables
            if each.memory in ("global", "const", "managed") and each.size
        }

    @classmethod
    def of(cls, ptx: str | bytes, *, checks: bool = True) -> CpuProgram:
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
        how: Configuration,
        params: Sequence[bytes],
        regions: Sequence[Region],
        steps: int | None = None,
    ) -> None:
        """
        Launch a kernel; it has ended when this returns. What it prints is on the standard output.

        Args:
            name: The kernel.
            how: The grid and what else the launch has.
            params: The bytes of each parameter.
            regions: What it may access besides the variables of the module.
            steps: How often a loop may go on in each thread; None for no limit.

        Raises:
            DeviceFaultError: It did something that stops it. Names the place.
            LaunchError: It has other parameters, no device could launch it so, or there is no such thing on
                the CPU.
        """
        threads = math.prod(how.block)
        if threads > _MOST_THREADS or how.shared > _MOST_SHARED:
            raise LaunchError(
                f"Kernel {name} was given blocks of {threads} threads with {how.shared} bytes of dynamic "
                f"shared memory; no device has more than {_MOST_THREADS} threads and {_MOST_SHARED} bytes a "
                "block."
            )
        if how.stream not in _STREAMS:
            raise LaunchError(
                "There are no streams on the CPU, where each launch ends before the next; leave the stream "
                "out."
            )
        if how.cluster and math.prod(how.cluster) > 1:
            raise LaunchError(f"Kernel {name}: clusters are not executed on the CPU; leave cluster out.")
        declared = self.functions[name].params
        wanted, given = sizes(declared), [len(each) for each in params]
        if wanted != given:
            raise LaunchError(f"{name} takes parameters of {wanted} bytes, and was given {given}.")
        starts = places(declared)
        content = Buffer(starts[-1] + wanted[-1] if wanted else 0)
        for each, place in zip(params, starts, strict=True):
            ctypes.memmove(content.address + place, each, len(each))
        workspace, blocks = Buffer(64), math.prod(how.grid)
        workers = [
            self._worker(
                name,
                [*regions, workspace.region("the grid's barrier")],
                steps,
                grid=how.grid,
                block=how.block,
                dynamic=how.shared,
                params=content.address,
                workspace=workspace.address if how.cooperative else 0,
                cooperative=how.cooperative,
            )
            for _ in range(blocks if how.cooperative else 1)
        ]
        # Blocks that may wait for each other are executed each by a worker, others all by one.
        ready, held = dict.fromkeys(range(len(workers)), 0), list[int]()
        while ready:
            spinning = []
            for number, go in ready.items():
                told = self._run(name, workers[number], "block", number, blocks // len(workers), go)
                held += [number] * (told == Told.GRID)
                spinning += [number] * (told == Told.SPINS)
            # The barrier of the grid opens when no block is on its way there.
            ready = dict.fromkeys(spinning, 2) or dict.fromkeys(held, 1)
            held = held if spinning else []

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
            LaunchError: Lanes wait for others in it.
        """
        if self._meta["entries"][name][0]:
            raise LaunchError(f"Lanes wait for others in {name}; call it from a kernel that is launched.")
        pairs = [*([result] if self.functions[name].results else []), *params]
        arrays = (ctypes.c_int64 * (2 * len(pairs) + 1))(*(part for pair in pairs for part in pair))
        worker = self._worker(name, regions, steps)
        self._run(name, worker, "many", ctypes.addressof(arrays), count)

    def _worker(self, name: str, regions: Sequence[Region], steps: int | None, **launch: Any) -> Worker:
        waits, local = self._meta["entries"][name]
        return Worker(
            [*regions, *self.variables.values(), self._heap.region("the heap")],
            accesses=self._meta["accesses"],
            shared=self._meta["shared_size"],
            local=local,
            frame=machine_code.frame_size(self._loaded.address(f"ramp.{name}")) if waits else None,
            steps=_UNLIMITED if steps is None else steps,
            heap=ctypes.addressof(self._heap_state),
            **launch,
        )

    def _run(self, name: str, worker: Worker, how: str, first: int, count: int, go: int = 0) -> int:
        """Execute blocks, or call a function for elements."""
        entry = self._loaded.address("ptxlink.grid" if how == "block" else "ptxlink.elements")
        result = worker.run(entry, self._loaded.address(f"{how}.{name}"), first, count, go)
        if worker.noted.kind != Fault.NONE:
            function, statement = self._meta["sites"][worker.noted.site]
            raise messages.fault(self._module, name, function, statement, worker)
        return result


@functools.cache
def _runtime() -> bytes:
    text = runtime.text("runtime.ll")
    key = cache.Key.of("cpu runtime", {"tool": machine_code.target(), "ir": text})
    return cache.cached(key, lambda: cache.Entry({}, machine_code.compile_ir(text))).code


def _compiled(module: formats.Module, *, checks: bool) -> cache.Entry:
    translator = ModuleTranslator(module, checks=checks)
    code = machine_code.compile_ir(translator.text())
    names = ("sites", "accesses", "shared_size", "entries")
    return cache.Entry({name: getattr(translator, name) for name in names}, code)
