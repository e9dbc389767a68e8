"""
Check kernels as compute-sanitizer's tools do: memcheck, initcheck, racecheck and synccheck.

memcheck is part of the generated code, and ends a kernel at the first wrong access. The other checks are in C
(checks.c): generated code calls them at accesses and barriers, and they collect reports. This module logs the
reports as warnings. If there was one, the process prints a summary when it ends, and its exit status is
EXIT_STATUS in place of 0.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import _native
from numba_ptxlink._config import CPU_CHECKS
from numba_ptxlink.errors import LaunchError, short_repr, with_location

from . import machine_code
from .runtime import BlockContext

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from .faults import SourceLocation

    CpuChecks = bool | Collection[str]

log = logging.getLogger(__name__)

LIBRARY = Path(_native.__file__).parent / "checks" / "libptxlink_checks.so"
# `enum report_kind` of checks.c.
_RACE, _UNINITIALISED, _DIVERGENT_BARRIER = range(3)
# The bits of `enabled` in `struct checks` of checks.c.
_ENABLED_BITS = {"racecheck": 1, "initcheck": 2}
_WARP_SIZE = 32
# `other_site` of a report about one statement only, and of one about a mask that does not name the thread.
_NO_SITE, _NOT_IN_MASK = (1 << 32) - 1, (1 << 32) - 2
# The fields of BlockContext whose offsets checks.c needs, in the order of its `fields`.
_CONTEXT_FIELDS = (
    "checks",
    "ctaid",
    "nctaid",
    "current_thread",
    "shared_base",
    "shared_size",
    "local_base",
    "local_total_size",
)
# C functions that generated code calls, by their names in LLVM IR.
_C_FUNCTIONS = {
    "ptxlink.check_access": "numba_ptxlink_check_access",
    "ptxlink.check_order": "numba_ptxlink_check_order",
}


class Report(ctypes.Structure):
    """
    `struct report` of checks.c: an access or a barrier at which a check failed.

    `site` is the number of the PTX statement, `thread` and `block` are linear indices, `size` is in bytes.
    `count` is how often the check failed there. The fields `other_...` are those of the earlier access of a
    race, or of the other barrier. Only C uses `with_atomic`.
    """

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("kind", "site", "other_site", "thread", "other_thread")),
        *((name, ctypes.c_uint32) for name in ("block", "other_block", "size", "count")),
        *((name, ctypes.c_uint32) for name in ("is_write", "other_is_write", "is_shared", "with_atomic")),
        ("address", ctypes.c_uint64),
    )


class Launch(NamedTuple):
    """
    The launch that a report belongs to.

    Args:
        kernel: The name of the kernel in the source.
        grid: The number of blocks along x, y and z.
        block: The number of threads of a block along x, y and z.
        location_of: Called with the number of a statement (`site`); returns its instruction and source line.
        name_of: Called with an address; returns a name for the memory there, such as "parameter 'x'", or ""
            if it is unknown.
    """

    kernel: str
    grid: Sequence[int]
    block: Sequence[int]
    location_of: Callable[[int], SourceLocation]
    name_of: Callable[[int], str]


def parse(checks: CpuChecks) -> frozenset[str]:
    """
    Return the names of the requested checks.

    Args:
        checks: True for memcheck, False for no check, or the names.

    Raises:
        LaunchError: A name is unknown.
    """
    if isinstance(checks, bool):
        return frozenset(("memcheck",) if checks else ())
    if isinstance(checks, (tuple, list, set, frozenset)) and all(name in CPU_CHECKS for name in checks):
        return frozenset(checks)
    raise LaunchError(
        f"checks is {short_repr(checks)}; pass True, False, or a tuple of {', '.join(CPU_CHECKS)}."
    )


def needs_accesses(checks: Iterable[str]) -> bool:
    """Return whether generated code has to report its accesses: racecheck or initcheck is requested."""
    return not _ENABLED_BITS.keys().isdisjoint(checks)


@functools.cache
def library() -> Any:
    """Load the C library once, and make its functions known to generated code; return it."""
    c_library = ctypes.CDLL(str(LIBRARY))
    c_library.numba_ptxlink_checks_size.restype = ctypes.c_size_t
    c_library.numba_ptxlink_checks_reports.argtypes = ctypes.c_void_p, ctypes.c_void_p
    c_library.numba_ptxlink_checks_begin.argtypes = ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32
    offsets = [getattr(BlockContext, name).offset for name in _CONTEXT_FIELDS]
    c_library.numba_ptxlink_checks_fields((ctypes.c_uint32 * len(offsets))(*offsets))
    for ir_name, c_name in _C_FUNCTIONS.items():
        machine_code.add_symbol(ir_name, function_address(c_library, c_name))
    return c_library


def mark_function_address() -> int:
    """Return the address of the C function that marks memory as initialised."""
    return function_address(library(), "numba_ptxlink_mark_memory")


def function_address(c_library: Any, name: str) -> int:
    """Return the address of a function of a C library."""
    return int(ctypes.cast(getattr(c_library, name), ctypes.c_void_p).value or 0)


class WorkerChecks:
    """
    The state of the checks of one worker, which executes the blocks of a launch one after the other.

    Args:
        checks: The names of the checks.

    Attributes:
        address: The address of the state, a `struct checks` of checks.c.
        barrier_function: The address of synccheck's C function; 0 if synccheck is not requested.
    """

    def __init__(self, checks: Iterable[str]) -> None:
        self._library = library()
        self._state = ctypes.create_string_buffer(self._library.numba_ptxlink_checks_size())
        self._enabled_bits = sum(bit for name, bit in _ENABLED_BITS.items() if name in checks)
        self.address = ctypes.addressof(self._state)
        self.barrier_function = 0
        if "synccheck" in checks:
            self.barrier_function = function_address(self._library, "numba_ptxlink_check_barrier")

    def begin(self, launch: int = 0) -> int:
        """
        Begin a launch; return its number.

        Args:
            launch: 0 for the first worker of a launch; for its other workers, the number that was returned
                for the first one.
        """
        return int(self._library.numba_ptxlink_checks_begin(self.address, self._enabled_bits, launch))

    def log_reports(self, launch: Launch, reported: set[tuple[Any, ...]]) -> None:
        """
        Log the reports of a launch as warnings, each pair of source lines once.

        Args:
            launch: The launch.
            reported: The kernel, the kind and the source lines of each report that has been logged. Those of
                new reports are added.
        """
        reports = ctypes.POINTER(Report)()
        count = self._library.numba_ptxlink_checks_reports(self.address, ctypes.byref(reports))
        for report in reports[:count]:
            sites = [site for site in (report.site, report.other_site) if site < _NOT_IN_MASK]
            key = (
                launch.kernel,
                report.kind,
                *(_source_position(launch.location_of(site)) for site in sites),
            )
            if key not in reported:
                reported.add(key)
                message = _message(report, launch)
                log.warning("%s", message)
                _add_to_summary(message)


EXIT_STATUS = 66
"""The exit status, as of ThreadSanitizer, of a process with reports that would otherwise end with 0."""
_summary: list[str] = []


def _add_to_summary(message: str) -> None:
    """Print the beginning of *message* when the process ends: pytest hides the log of tests that pass."""
    if not _summary:
        atexit.register(_print_summary)
        library().numba_ptxlink_checks_set_exit_status(EXIT_STATUS)
    # "kernels.py:26: warning: racecheck: saxpy"; the block, the thread and the cure are in the log.
    _summary.append(message.partition(", block")[0])


def clear_summary() -> None:
    """Forget the reports, so that the process prints no summary and keeps its own exit status."""
    if _summary:
        _summary.clear()
        library().numba_ptxlink_checks_set_exit_status(0)


def _print_summary() -> None:
    if _summary and sys.__stderr__ is not None:
        reports = "1 report" if len(_summary) == 1 else f"{len(_summary)} reports"
        print(f"numba-ptxlink: {reports} of the checks:", *_summary, sep="\n  ", file=sys.__stderr__)


def _message(report: Report, launch: Launch) -> str:
    """Return the text of a report: what happened, where, and what to do."""
    location = launch.location_of(report.site)
    block, thread = _index(report.block, launch.grid), _index(report.thread, launch.block)
    subject = f"{launch.kernel}, block {block}, thread {thread}"
    if report.kind == _DIVERGENT_BARRIER:
        text = f"synccheck: {subject}: {_divergence(report, launch)}"
    elif report.kind == _UNINITIALISED:
        text = (
            f"initcheck: {subject}: {report.size} bytes at {report.address:#x}{_in_memory(report, launch)} "
            "are read, and nothing has written them; write them first."
        )
    else:
        text = f"racecheck: {subject}: {_race(report, launch)}"
    count_note = f" ({report.count} times)" if report.count > 1 else ""
    source = _source_position(location) if location.file else ""
    return with_location(source, f"{text}{count_note}\n    {location.instruction}", severity="warning")


def _race(report: Report, launch: Launch) -> str:
    """Return the two accesses of a race, and what to do."""
    position = _source_position(launch.location_of(report.site))
    other_position = _source_position(launch.location_of(report.other_site))
    is_other_block = report.block != report.other_block
    if is_other_block:
        cure = "let the blocks use different memory or atomic operations, or make two launches"
    elif report.thread // _WARP_SIZE == report.other_thread // _WARP_SIZE:
        cure = (
            "put __syncwarp() (cuda.syncwarp()) between them, since lanes of a warp need not run in "
            "lockstep, or __syncthreads() (cuda.syncthreads()) if other warps use the memory too"
        )
    else:
        cure = "put __syncthreads() (cuda.syncthreads()) between them"
    if not is_other_block and position == other_position:
        # The statement may be `total[0] += x`, for which a barrier is no cure.
        cure += ", or use an atomic operation (cuda.atomic.add) if all add to one element"
    verb = "writes" if report.is_write else "reads"
    other_verb = "wrote" if report.other_is_write else "read"
    other_block = f"block {_index(report.other_block, launch.grid)}" if is_other_block else "the block"
    return (
        f"the thread {verb} {report.size} bytes at {report.address:#x}{_in_memory(report, launch)}, which "
        f"thread {_index(report.other_thread, launch.block)} of {other_block} {other_verb} at "
        f"{other_position}, and nothing orders the two accesses; {cure}."
    )


def _divergence(report: Report, launch: Launch) -> str:
    """Return the text for a barrier that some threads of the block do not reach, and what to do."""
    if report.other_site == _NOT_IN_MASK:
        lane = report.thread % _WARP_SIZE
        return (
            f"the thread is lane {lane} of its warp, which the mask of the operation does not name, so that "
            "the result is undefined; pass a mask that names each lane that executes it."
        )
    if report.other_site == _NO_SITE:
        return (
            "the barrier opens although other threads of the block have ended; let all threads of the block "
            "reach it, or none."
        )
    other = _source_position(launch.location_of(report.other_site))
    return (
        f"threads of the block wait at different barriers, here and at {other}; let all threads reach the "
        "same one."
    )


def _source_position(location: SourceLocation) -> str:
    """Return the file and the line, or the instruction if the PTX has no lines."""
    return f"{location.file}:{location.line}" if location.file else f"`{location.instruction}`"


def _in_memory(report: Report, launch: Launch) -> str:
    """Return text such as " in parameter 'x'"; "" if the memory has no name."""
    name = "shared memory" if report.is_shared else launch.name_of(report.address)
    return f" in {name}" if name else ""


def _index(linear_index: int, extents: Sequence[int]) -> tuple[int, int, int]:
    """Return the indices along x, y and z of a block or thread; x is fastest in the linear index."""
    width, height, _ = extents
    return linear_index % width, linear_index // width % height, linear_index // (width * height)
