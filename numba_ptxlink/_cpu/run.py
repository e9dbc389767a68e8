"""Programs of PTX on the CPU: compiled once, launched and called on memory of this process."""

from __future__ import annotations

import ctypes
import functools
import math
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._formats import ptx as formats
from numba_ptxlink.errors import LaunchError

from . import faults, machine_code, runtime
from .module import ModuleTranslator, param_offsets
from .regions import Region, RegionTable
from .runtime import BlockStatus, Fault, Resume
from .worker import Buffer, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numba_ptxlink._tools.launching import Configuration

__all__ = ["CpuProgram", "Region", "byte_sizes"]

_UNLIMITED_STEPS = 1 << 62
# Of any device; "Technical Specifications per Compute Capability" in the CUDA C++ Programming Guide.
_MAX_BLOCK_THREADS, _MAX_SHARED_BYTES = 1024, 227 << 10
# The default streams by their handles; launches on the CPU have ended when they return.
_DEFAULT_STREAMS = (0, 1, 2)
# Bytes that `malloc` has, as on a device whose limit nobody has set.
_HEAP_BYTES = 8 << 20


def byte_sizes(params: Sequence[formats.Variable]) -> list[int]:
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
        module: The PTX.
        functions: What can be launched and called, by name.
        variables: Where the variables of the module are, by name.
    """

    def __init__(self, module: formats.Module, code: cache.Entry) -> None:
        self.module, self._metadata = module, code.meta
        self._loaded = machine_code.LoadedCode(_compiled_runtime(), code.code)
        self._heap = Buffer(_HEAP_BYTES)
        self._heap_state = (ctypes.c_int64 * 3)(0, _HEAP_BYTES, self._heap.address)
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
        unparsed = [each for each in module.items if isinstance(each, formats.Part) and not each.keyword]
        if unparsed:
            raise LaunchError(f"The PTX is malformed: {unparsed[0].cause}; correct it.")
        parts = {
            "package": cache.package_version(),
            "tool": machine_code.target(),
            "checks": str(checks),
            "ptx": text,
        }
        key = cache.Key.of("cpu", parts)
        return cls(module, cache.cached(key, lambda: _compile(module, checks=checks)))

    def launch(
        self,
        name: str,
        launch_config: Configuration,
        params: Sequence[bytes],
        regions: Sequence[Region],
        steps: int | None = None,
    ) -> None:
        """
        Launch a kernel; it has ended when this returns. What it prints is on the standard output.

        Args:
            name: The kernel.
            launch_config: The grid, the blocks, and other properties of the launch.
            params: The bytes of each parameter.
            regions: What it may access besides the variables of the module.
            steps: How often a loop may go on in each thread; None for no limit.

        Raises:
            DeviceFaultError: It did something that stops it. Names the place.
            LaunchError: It has other parameters, no device could launch it so, or there is no such thing on
                the CPU.
        """
        threads = math.prod(launch_config.block)
        if threads > _MAX_BLOCK_THREADS or launch_config.shared > _MAX_SHARED_BYTES:
            raise LaunchError(
                f"Kernel {name} was given blocks of {threads} threads with {launch_config.shared} bytes of "
                f"dynamic shared memory; no device has more than {_MAX_BLOCK_THREADS} threads and "
                f"{_MAX_SHARED_BYTES} bytes a block."
            )
        if launch_config.stream not in _DEFAULT_STREAMS:
            raise LaunchError(
                "There are no streams on the CPU, where each launch ends before the next; leave the stream "
                "out."
            )
        if launch_config.cluster and math.prod(launch_config.cluster) > 1:
            raise LaunchError(f"Kernel {name}: clusters are not executed on the CPU; leave cluster out.")
        declared = self.functions[name].params
        expected_sizes, actual_sizes = byte_sizes(declared), [len(each) for each in params]
        if expected_sizes != actual_sizes:
            raise LaunchError(
                f"{name} takes parameters of {expected_sizes} bytes, and was given {actual_sizes}."
            )
        buffer = Buffer(self.param_size(name))
        for each, offset in zip(params, param_offsets(declared), strict=True):
            ctypes.memmove(buffer.address + offset, each, len(each))
        self.launch_packed(name, launch_config, buffer.address, RegionTable.of(regions), steps)

    def param_size(self, name: str) -> int:
        """Return the bytes of a kernel's parameters, each at its offset."""
        params = self.functions[name].params
        return param_offsets(params)[-1] + byte_sizes(params)[-1] if params else 0

    def local_size(self, name: str) -> int:
        """Return the bytes of local memory of a thread."""
        return int(self._metadata["entry_points"][name][1])

    def launch_packed(
        self,
        name: str,
        launch_config: Configuration,
        params: int,
        regions: RegionTable,
        steps: int | None = None,
    ) -> None:
        """
        Launch a kernel whose configuration and arguments have been checked.

        Args:
            name: The kernel.
            launch_config: The grid, the blocks, and other properties of the launch.
            params: The address of the parameters, each at its offset.
            regions: What it may access besides the variables of the module.
            steps: How often a loop may go on in each thread; None for no limit.

        Raises:
            DeviceFaultError: It did something that stops it. Names the place.
        """
        workspace, blocks = Buffer(64), math.prod(launch_config.grid)
        workers = [
            self._worker(
                name,
                regions,
                steps,
                [workspace.region("the grid's barrier")],
                grid=launch_config.grid,
                block=launch_config.block,
                dynamic=launch_config.shared,
                params=params,
                workspace=workspace.address if launch_config.cooperative else 0,
                cooperative=launch_config.cooperative,
            )
            for _ in range(blocks if launch_config.cooperative else 1)
        ]
        # A cooperative launch needs all blocks resident: one worker for each. Otherwise one worker runs the
        # blocks in turn.
        ready, at_grid_barrier = dict.fromkeys(range(len(workers)), Resume.START), list[int]()
        while ready:
            yielded = []
            for number, resume_mode in ready.items():
                status = self._run(
                    name, workers[number], "block", number, blocks // len(workers), resume_mode
                )
                at_grid_barrier += [number] * (status == BlockStatus.AT_GRID_BARRIER)
                yielded += [number] * (status == BlockStatus.YIELDED)
            # Release the grid barrier once every block has finished or waits at it.
            if yielded:
                ready = dict.fromkeys(yielded, Resume.YIELD)
            else:
                ready, at_grid_barrier = dict.fromkeys(at_grid_barrier, Resume.GRID_BARRIER), []

    def call_elementwise(
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
        if self._metadata["entry_points"][name][0]:
            raise LaunchError(f"Lanes wait for others in {name}; call it from a kernel that is launched.")
        pairs = [*([result] if self.functions[name].results else []), *params]
        arrays = (ctypes.c_int64 * (2 * len(pairs) + 1))(*(part for pair in pairs for part in pair))
        worker = self._worker(name, RegionTable.of(regions), steps)
        self._run(name, worker, "elementwise", ctypes.addressof(arrays), count)

    def _worker(
        self,
        name: str,
        regions: RegionTable,
        steps: int | None,
        launch_regions: Sequence[Region] = (),
        **launch: Any,
    ) -> Worker:
        suspends, local = self._metadata["entry_points"][name]
        return Worker(
            regions,
            [*self.variables.values(), self._heap.region("the heap"), *launch_regions],
            access_count=self._metadata["access_count"],
            shared=self._metadata["shared_size"],
            local=local,
            frame=machine_code.frame_size(self._loaded.address(f"ramp.{name}")) if suspends else None,
            step_limit=_UNLIMITED_STEPS if steps is None else steps,
            heap=ctypes.addressof(self._heap_state),
            **launch,
        )

    def _run(
        self,
        name: str,
        worker: Worker,
        entry_name: str,
        first: int,
        count: int,
        resume_mode: Resume = Resume.START,
    ) -> int:
        """Execute blocks, or call a function for elements."""
        entry = self._loaded.address("ptxlink.run_grid" if entry_name == "block" else "ptxlink.run_elements")
        result = worker.run(entry, self._loaded.address(f"{entry_name}.{name}"), first, count, resume_mode)
        if worker.fault_record.kind != Fault.NONE:
            function, statement = self._metadata["fault_sites"][worker.fault_record.fault_site]
            raise faults.fault_error(self.module, name, function, statement, worker)
        return result


@functools.cache
def _compiled_runtime() -> bytes:
    text = runtime.read_ir("runtime.ll")
    key = cache.Key.of("cpu runtime", {"tool": machine_code.target(), "ir": text})
    return cache.cached(key, lambda: cache.Entry({}, machine_code.compile_ir(text))).code


def _compile(module: formats.Module, *, checks: bool) -> cache.Entry:
    translator = ModuleTranslator(module, checks=checks)
    code = machine_code.compile_ir(translator.to_text())
    names = ("fault_sites", "access_count", "shared_size", "entry_points")
    return cache.Entry({name: getattr(translator, name) for name in names}, code)
