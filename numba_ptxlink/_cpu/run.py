"""
Launch kernels and call device functions of PTX on the CPU, on memory of this process.

A worker executes blocks, one after the other, in memory of its own. Several workers in threads share the
blocks of a launch; a cooperative launch, whose blocks wait for each other, has a worker for each block.
"""

from __future__ import annotations

import ctypes
import itertools
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink._config import config
from numba_ptxlink._formats import ptx as formats
from numba_ptxlink._formats.mangling import written_name
from numba_ptxlink._tools.launching import Configuration
from numba_ptxlink.errors import LaunchError

from . import faults, functions, parallel
from .checks import Launch, WorkerChecks, needs_accesses
from .checks import library as load_check_library
from .checks import parse as parse_checks
from .compiled import CompiledModule
from .regions import Region, RegionTable
from .runtime import BlockStatus, Fault, Resume
from .worker import Buffer, Worker

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .checks import CpuChecks
    from .compiled import CompiledEntry

__all__ = ["CpuProgram", "Region", "byte_sizes"]

# A call of a device function runs in a block of one thread.
_CALL_CONFIG = Configuration((1, 1, 1), (1, 1, 1))
# Room for `struct grid_workspace` of cooperative groups, of 8 bytes in driver_abi.h of CUDA 12.9 and 13.3.
_GRID_WORKSPACE_BYTES = 64
_MAX_IDLE_KEYS = 64  # Idle workers are dropped if they have more different `worker_key` than this.
_UNLIMITED_STEPS = 1 << 62  # More steps than a thread executes in a century.
# The highest limits of all GPUs ("Technical Specifications" in the CUDA C++ Programming Guide).
_MAX_BLOCK_THREADS, _MAX_SHARED_BYTES = 1024, 227 << 10
# Handles of the default streams: null, CU_STREAM_LEGACY and CU_STREAM_PER_THREAD. Launches on the CPU are
# synchronous, so that there are no other streams.
_DEFAULT_STREAMS = (0, 1, 2)
# A GPU's default for cudaLimitMallocHeapSize, the size of the heap of `malloc` in device code.
_HEAP_BYTES = 8 << 20


def byte_sizes(variables: Sequence[formats.Variable]) -> list[int]:
    """Return the size of each variable, a parameter or result of a function, in bytes."""
    # A `.pred` and an array without elements have size 0, for which the caller passes one byte.
    return [max(variable.size, 1) for variable in variables]


class _PackedLaunch(NamedTuple):
    """
    A launch whose arguments are in a buffer, or a call of a device function, which has none.

    Args:
        entry: The compiled kernel or function.
        launch_config: The grid, the blocks, and other properties of the launch.
        params_address: The address of the parameter buffer; 0 for a device function.
        regions: The memory of the caller that the code may access.
        step_limit: The maximum number of iterations of all loops of a thread; None for no limit.
    """

    entry: CompiledEntry
    launch_config: Configuration
    params_address: int
    regions: RegionTable
    step_limit: int | None

    @property
    def worker_key(self) -> tuple[Any, ...]:
        """The key of `CpuProgram._idle_workers`: launches with equal keys can have the same workers."""
        return self.entry.name, self.launch_config.block, self.launch_config.shared, self.step_limit


class CpuProgram:
    """
    A PTX module that runs on the CPU, with memory for its variables and a heap.

    Nothing is copied: addresses are those of this process. Several threads may launch and call at the same
    time.

    Args:
        text: The PTX.
        checks: The names of checks ("memcheck", "racecheck", "initcheck", "synccheck"); True for memcheck, or
            False for none.

    Attributes:
        module: The PTX module.
        functions: Kernels and functions with a body, by name.
        variables: The memory of the module's variables, by name, without those of size 0.
    """

    def __init__(self, text: str, *, checks: CpuChecks) -> None:
        self.module = formats.parse(text)
        # Malformed text has no keyword.
        malformed = [
            item for item in self.module.items if isinstance(item, formats.UnparsedItem) and not item.keyword
        ]
        if malformed:
            raise LaunchError(f"The PTX is malformed: {malformed[0].cause}; correct it.")
        self._checks = parse_checks(checks)
        if needs_accesses(self._checks):
            # The machine code calls functions of the library, which therefore is loaded first.
            load_check_library()
        self._code = CompiledModule(self.module, checks=self._checks)
        # The reports of checks that `WorkerChecks.log_reports` has logged, so that each is logged once.
        self._logged_reports: set[tuple[Any, ...]] = set()
        # The sizes and offsets of the parameters of each kernel, by name.
        self._param_layouts: dict[str, tuple[list[int], list[int]]] = {}
        # Workers of launches that have finished, by `_PackedLaunch.worker_key`.
        self._idle_workers: dict[tuple[Any, ...], list[Worker]] = {}
        self._heap = Buffer(_HEAP_BYTES)
        # The words that @ptxlink.allocate of runtime.ll reads: state, size and address of the heap.
        self._heap_state = (ctypes.c_int64 * 3)(0, _HEAP_BYTES, self._heap.address)
        self.functions: Mapping[str, formats.Function] = {
            function.name: function for function in self.module.functions if function.defined
        }
        self.variables: Mapping[str, Region] = {
            name: Region(
                self._code.address(f"v.{name}"),
                variable.size,
                variable.memory != "const",
                faults.variable_name(name),
            )
            for name, variable in self._code.symbols.variables.items()
            if variable.size
        }

    @classmethod
    def of(cls, ptx: str | bytes, *, checks: CpuChecks = True) -> CpuProgram:
        """
        Return a program of a PTX module.

        Args:
            ptx: The module, which defines all functions that it calls, except those of the device runtime and
                of the C library, such as `vprintf` and `malloc`.
            checks: As for the class. Without memcheck, a wrong access may end the process.

        Raises:
            LaunchError: llvmlite is missing, the module is malformed, or a variable that it declares is not
                defined.
        """
        return cls(ptx.decode(errors="surrogateescape") if isinstance(ptx, bytes) else ptx, checks=checks)

    def launch(
        self,
        name: str,
        launch_config: Configuration,
        params: Sequence[bytes],
        regions: Sequence[Region],
        steps: int | None = None,
    ) -> None:
        """
        Launch a kernel, and wait until it has finished. Output of the kernel is written to `sys.stdout`.

        Args:
            name: The kernel.
            launch_config: The grid, the blocks, and other properties of the launch.
            params: The bytes of each parameter.
            regions: The memory that the kernel may access besides the variables of the module.
            steps: The maximum number of iterations of all loops of a thread; None for no limit.

        Raises:
            DeviceFaultError: A thread faulted, as at an access out of bounds; the error names the statement.
            LaunchError: The kernel has parameters of other sizes, or the configuration exceeds the limits of
                GPUs, or needs streams or clusters, which the CPU lacks.
        """
        _check_config(name, launch_config)
        expected_sizes, offsets = self._param_layout(name)
        actual_sizes = [len(content) for content in params]
        if expected_sizes != actual_sizes:
            raise LaunchError(
                f"Kernel {name} takes parameters of {expected_sizes} bytes, and was given {actual_sizes}; "
                "pass the bytes of each parameter."
            )
        param_buffer = Buffer(offsets[-1] + expected_sizes[-1] if offsets else 0)
        for content, offset in zip(params, offsets, strict=True):
            ctypes.memmove(param_buffer.address + offset, content, len(content))
        self.launch_packed(name, launch_config, param_buffer.address, RegionTable.of(regions), steps)

    def _param_layout(self, name: str) -> tuple[list[int], list[int]]:
        """Return the size and the offset of each parameter of a kernel in its parameter buffer."""
        if name not in self._param_layouts:
            params = self.functions[name].params
            self._param_layouts[name] = byte_sizes(params), functions.param_offsets(params)
        return self._param_layouts[name]

    def local_size(self, name: str) -> int:
        """Return the bytes of local memory that a kernel and its callees declare for a thread."""
        return functions.declared_local_size(self._code.symbols, name)

    def launch_packed(
        self,
        name: str,
        launch_config: Configuration,
        params_address: int,
        regions: RegionTable,
        steps: int | None = None,
    ) -> None:
        """
        Launch a kernel whose configuration and arguments have been checked, and wait until it has finished.

        Args:
            name: The kernel.
            launch_config: The grid, the blocks, and other properties of the launch.
            params_address: The address of the parameter buffer.
            regions: The memory that the kernel may access besides the variables of the module.
            steps: The maximum number of iterations of all loops of a thread; None for no limit.

        Raises:
            DeviceFaultError: A thread faulted, as at an access out of bounds; the error names the statement.
        """
        packed = _PackedLaunch(self._code.entry(name), launch_config, params_address, regions, steps)
        if launch_config.cooperative:
            self._launch_cooperative(packed)
            return
        block_count = math.prod(launch_config.grid)
        worker_count = min(config().cpu_threads, block_count)
        workers = [self._take_worker(packed) for _ in range(worker_count)]
        _begin_checks(workers)

        def run_part(worker: Worker, first_block: int, count: int) -> None:
            self._run(packed.entry, worker, "ptxlink.run_grid", first_block, count)

        if worker_count == 1:
            run_part(workers[0], 0, block_count)
        else:
            parallel.run_blocks(workers, block_count, run_part)
        for worker in workers:
            self._keep_worker(packed, worker)

    def _launch_cooperative(self, packed: _PackedLaunch) -> None:
        """
        Launch a kernel whose blocks wait for each other at the grid barrier.

        All blocks therefore are resident, each in a worker of its own. The blocks run in turn, each until it
        has finished, waits at the grid barrier, or yields in a loop.
        """
        workspace = Buffer(_GRID_WORKSPACE_BYTES)
        block_count = math.prod(packed.launch_config.grid)
        workers = [self._create_worker(packed, workspace) for _ in range(block_count)]
        _begin_checks(workers)
        # The blocks that can run, by index, with the point where each continues.
        ready = dict.fromkeys(range(block_count), Resume.START)
        at_grid_barrier: list[int] = []
        while ready:
            yielded = []
            for index, resume_mode in ready.items():
                status = self._run(packed.entry, workers[index], "ptxlink.run_grid", index, 1, resume_mode)
                if status == BlockStatus.AT_GRID_BARRIER:
                    at_grid_barrier.append(index)
                elif status == BlockStatus.YIELDED:
                    yielded.append(index)
                # A block that has finished is in neither list.
            # Release the grid barrier once every block has finished or waits at it.
            if yielded:
                ready = dict.fromkeys(yielded, Resume.YIELD)
            else:
                ready, at_grid_barrier = dict.fromkeys(at_grid_barrier, Resume.GRID_BARRIER), []

    def call_elementwise(
        self,
        name: str,
        count: int,
        param_arrays: Sequence[tuple[int, int]],
        result_array: tuple[int, int],
        regions: Sequence[Region],
        steps: int | None = None,
    ) -> None:
        """
        Call a device function for each element of arrays.

        Args:
            name: The function.
            count: The number of elements, and so of calls.
            param_arrays: For each parameter, the address of the first element and the stride in bytes.
            result_array: The address and the stride of the results; ignored if the function has no result.
            regions: The memory that the function may access besides the variables of the module.
            steps: The maximum number of iterations of all loops of a call; None for no limit.

        Raises:
            DeviceFaultError: A call faulted; `thread` of the error has the index of the element.
            LaunchError: The function has a barrier or a warp operation.
        """
        packed = _PackedLaunch(self._code.entry(name), _CALL_CONFIG, 0, RegionTable.of(regions), steps)
        array_pairs = [*([result_array] if self.functions[name].results else []), *param_arrays]
        arrays = (ctypes.c_int64 * (2 * len(array_pairs)))(*itertools.chain.from_iterable(array_pairs))
        worker = self._take_worker(packed)
        _begin_checks([worker])
        self._run(packed.entry, worker, "ptxlink.run_elements", ctypes.addressof(arrays), count)
        self._keep_worker(packed, worker)

    def _take_worker(self, packed: _PackedLaunch) -> Worker:
        """Return the worker of a finished launch with the same `worker_key`, or a new worker."""
        try:
            worker = self._idle_workers[packed.worker_key].pop()
        except (KeyError, IndexError):
            return self._create_worker(packed)
        worker.reset(packed.regions, packed.launch_config.grid, packed.params_address)
        return worker

    def _keep_worker(self, packed: _PackedLaunch, worker: Worker) -> None:
        """Keep a worker for the next launch of the kernel, unless the worker's memory is large."""
        if len(self._idle_workers) > _MAX_IDLE_KEYS:
            self._idle_workers.clear()
        if worker.is_small:
            self._idle_workers.setdefault(packed.worker_key, []).append(worker)

    def _create_worker(self, packed: _PackedLaunch, workspace: Buffer | None = None) -> Worker:
        """Return a worker for a launch; *workspace* is None if the launch is not cooperative."""
        program_regions = [*self.variables.values(), self._heap.region("the heap")]
        if workspace:
            program_regions.append(workspace.region("the workspace of the grid barrier"))
        entry, launch_config = packed.entry, packed.launch_config
        return Worker(
            packed.regions,
            program_regions,
            access_count=entry.access_count,
            static_shared_size=entry.shared_size,
            local_size=entry.local_size,
            frame_size=entry.frame_size,
            grid=launch_config.grid,
            block=launch_config.block,
            dynamic_shared_size=launch_config.shared,
            params=packed.params_address,
            step_limit=_UNLIMITED_STEPS if packed.step_limit is None else packed.step_limit,
            heap=ctypes.addressof(self._heap_state),
            workspace=workspace.address if workspace else 0,
            cooperative=workspace is not None,
            checks=self._worker_checks(),
        )

    def _worker_checks(self) -> WorkerChecks | None:
        """Return the state of a worker for checks other than memcheck, which needs none."""
        return WorkerChecks(self._checks) if self._checks - {"memcheck"} else None

    def _run(
        self,
        entry: CompiledEntry,
        worker: Worker,
        runner: str,
        start: int,
        count: int,
        resume_mode: Resume = Resume.START,
    ) -> int:
        """
        Execute blocks, or call a function for elements; log the reports of checks.

        The arguments and the result, a BlockStatus, are those of `Worker.run`; *runner* is a function of
        runtime.ll, by its name.

        Raises:
            DeviceFaultError: A thread faulted.
        """
        status = worker.run(self._code.address(runner), entry.address, start, count, resume_mode)
        if worker.checks:
            worker.checks.log_reports(self._launch_description(entry, worker), self._logged_reports)
        if worker.fault_record.kind != Fault.NONE:
            function, statement = entry.fault_sites[worker.fault_record.fault_site]
            raise faults.fault_error(self.module, entry.name, function, statement, worker)
        return status

    def _launch_description(self, entry: CompiledEntry, worker: Worker) -> Launch:
        """Return the description of a launch for reports of checks."""

        def location_of(site: int) -> faults.SourceLocation:
            function, statement = entry.fault_sites[site]
            return faults.find_location(self.module, function, statement)

        def name_of(address: int) -> str:
            regions = worker.regions_near(address)
            return next((region.name for region in regions if region.address <= address < region.end), "")

        grid, block = tuple(worker.context.nctaid), tuple(worker.context.ntid)
        return Launch(written_name(entry.name), grid, block, location_of, name_of)


def _begin_checks(workers: Sequence[Worker]) -> None:
    """Give the checks of all workers one launch number, since only accesses of one launch can race."""
    launch_number = 0  # `begin` returns a new number for 0, and else the number that it gets.
    for worker in workers:
        if worker.checks:
            launch_number = worker.checks.begin(launch_number)


def _check_config(name: str, launch_config: Configuration) -> None:
    """Raise LaunchError if a configuration exceeds the limits of GPUs, or needs streams or clusters."""
    threads = math.prod(launch_config.block)
    if threads > _MAX_BLOCK_THREADS or launch_config.shared > _MAX_SHARED_BYTES:
        raise LaunchError(
            f"Kernel {name} was given blocks of {threads} threads with {launch_config.shared} bytes of "
            f"dynamic shared memory; no device has more than {_MAX_BLOCK_THREADS} threads and "
            f"{_MAX_SHARED_BYTES} bytes a block. Pass smaller blocks, or less shared memory."
        )
    if launch_config.stream not in _DEFAULT_STREAMS:
        raise LaunchError(
            f"Kernel {name} was given a stream. There are no streams on the CPU, where each launch ends "
            "before the next; leave the stream out."
        )
    if launch_config.cluster and math.prod(launch_config.cluster) > 1:
        raise LaunchError(f"Kernel {name}: clusters are not executed on the CPU; leave cluster out.")
