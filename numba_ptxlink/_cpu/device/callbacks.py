"""
Define the Python functions that this package's libcuda.so.1 calls, to compile PTX, launch a kernel, or link.

The functions raise no exception, since C calls them: they return a CUresult, and write a message to a buffer
of C. The fault of a kernel is kept for the thread, so that `fault_reports` can raise it in the Python
function that launched the kernel.
"""

from __future__ import annotations

import ctypes
import functools
import itertools
import logging
from typing import TYPE_CHECKING

from numba_ptxlink._cpu import checks, machine_code, require_packages
from numba_ptxlink._cpu.functions import param_offsets
from numba_ptxlink._cpu.regions import PAIR_SIZE, Region, RegionTable
from numba_ptxlink._cpu.resources import (
    estimated_registers,
    excess_shared_reason,
    max_block_threads,
    static_shared_sizes,
    undefined_function_reason,
)
from numba_ptxlink._cpu.run import CpuProgram, byte_sizes
from numba_ptxlink._locks import Lock
from numba_ptxlink._tools.launching import Configuration
from numba_ptxlink.errors import DeviceFaultError

from . import fault_reports, images

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from . import Settings

    Link = Callable[[Sequence[str], Sequence[bytes]], bytes]

log = logging.getLogger(__name__)

_INTERRUPTED = -1  # Returned by `launch` after Ctrl-C; no CUresult, but the value of INTERRUPTED in launch.c.
_ERROR_NO_BINARY_FOR_GPU, _ERROR_INVALID_PTX, _ERROR_UNKNOWN = 209, 218, 999  # CUDA_ERROR_... of cuda.h.
_DEFAULT_PTX_VERSION = 75  # The CU_FUNC_ATTRIBUTE_PTX_VERSION of PTX for sm_75, and of PTX without a target.


class _Launch(ctypes.Structure):
    """`struct launch` of driver.h."""

    _fields_ = (
        *((name, ctypes.c_uint32 * 3) for name in ("grid", "block", "cluster")),
        ("shared_size", ctypes.c_uint32),
        ("cooperative", ctypes.c_uint32),
        ("device", ctypes.c_int32),
        ("stream", ctypes.c_uint64),
    )


class _Allocation(ctypes.Structure):
    """`struct allocation` of driver.h."""

    _fields_ = (
        ("start", ctypes.c_uint64),
        ("size", ctypes.c_size_t),
        ("kind", ctypes.c_int),
        ("context", ctypes.c_void_p),
        ("device", ctypes.c_int),
        ("flags", ctypes.c_uint),
        ("id", ctypes.c_uint64),
        ("pool", ctypes.c_void_p),
    )


# Names of memory in errors, by the values of `enum memory_kind` in driver.h.
_MEMORY_KINDS = {
    1: "device memory",
    2: "managed memory",
    4: "pinned memory",
    8: "registered memory",
    16: "a variable",
    32: "a constant",
}
_CONSTANT = 32
_POINTER_BYTES = 8
# Smaller words of arguments are numbers or null pointers.
_MIN_POINTER = 1 << 16

# The types of two parameters: the address and the size of the buffer for a message.
_MESSAGE = (ctypes.c_void_p, ctypes.c_size_t)
# The types of the members of `struct python_functions`. PythonDriver has a method for each, such as `_load`.
_FUNCTIONS = {
    "load": ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, *_MESSAGE),
    "unload": ctypes.CFUNCTYPE(None, ctypes.c_uint64),
    "launch": ctypes.CFUNCTYPE(
        ctypes.c_int, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, *_MESSAGE
    ),
    "link": ctypes.CFUNCTYPE(
        ctypes.c_int, *[ctypes.c_void_p] * 3, ctypes.c_uint, *[ctypes.c_void_p] * 2, *_MESSAGE
    ),
    "log": ctypes.CFUNCTYPE(None, ctypes.c_char_p),
    "stop_compiling": ctypes.CFUNCTYPE(None),
}


class _PythonFunctions(ctypes.Structure):
    """`struct python_functions` of driver.h."""

    _fields_ = tuple(_FUNCTIONS.items())


class PythonDriver:
    """
    The part of the CUDA driver that is in Python, for all devices of the process.

    Args:
        settings: The devices.
        link: Links PTX inputs, given by their names and contents, to one PTX module.
        prepare: Patches Python packages; called whenever a CUDA module is loaded, since packages may have
            been imported since the last call.
    """

    def __init__(self, settings: Settings, link: Link, prepare: Callable[[], None]) -> None:
        self._settings, self._link_ptx, self._prepare = settings, link, prepare
        # Use PyDLL, which keeps the GIL during calls, since they take microseconds only.
        self._libcuda = ctypes.PyDLL("libcuda.so.1")
        # For initcheck, libcuda.so.1 marks by this function which memory is initialised.
        if "initcheck" in settings.checks:
            self._libcuda.numba_ptxlink_set_marker(ctypes.c_void_p(checks.mark_function_address()))
        # The compiled modules, by the numbers that C passes.
        self._programs: dict[int, CpuProgram] = {}
        self._program_numbers = itertools.count(1)
        # For each device, the generation and a copy of the table in C: the memory that kernels may access.
        self._tables: dict[int, tuple[int, RegionTable]] = {}
        self._lock = Lock()
        self._functions = _PythonFunctions(
            **{name: function_type(getattr(self, f"_{name}")) for name, function_type in _FUNCTIONS.items()}
        )
        self._libcuda.numba_ptxlink_generation.restype = ctypes.c_uint64
        self._libcuda.numba_ptxlink_regions.restype = ctypes.c_size_t
        arch, memory = settings.arch, ctypes.c_size_t(_memory_size())
        self._libcuda.numba_ptxlink_configure(settings.devices, arch.major, arch.minor, memory)
        self._libcuda.numba_ptxlink_register(ctypes.byref(self._functions))

    # Functions that C calls. `message` is the address of the buffer for the reason of an error.

    def _load(self, library: int, image: int, message: int, message_size: int) -> int:
        """Compile the PTX at the address *image*; write its description to `struct CUlib_st` at *library*."""
        try:
            require_packages()
            text = images.ptx_at(image, self._settings.arch)
            program = CpuProgram.of(text, checks=self._settings.checks)
            reason = excess_shared_reason(program.module) or undefined_function_reason(program.module)
            if reason:
                _write_message(reason, message, message_size)
                return _ERROR_INVALID_PTX
            self._add_symbols(library, program)
            number = next(self._program_numbers)
            self._programs[number] = program
            self._libcuda.numba_ptxlink_set_program(ctypes.c_void_p(library), ctypes.c_uint64(number))
            self._prepare()
        except images.NoPtxError as error:
            _write_message(str(error), message, message_size)
            return _ERROR_NO_BINARY_FOR_GPU
        except BaseException as error:
            log.debug("a module could not be loaded", exc_info=True)
            _write_message(f"{type(error).__name__}: {error}", message, message_size)
            return _ERROR_INVALID_PTX
        return 0

    def _unload(self, number: int) -> None:
        """Forget the program that `_load` gave *number*."""
        self._programs.pop(number, None)

    def _launch(
        self, number: int, name: bytes, launch: int, params: int | None, message: int, message_size: int
    ) -> int:
        """
        Launch a kernel, and wait until it has ended.

        Args:
            number: The number that `_load` gave the program.
            name: The kernel.
            launch: The address of a `struct launch`.
            params: The address of the parameter buffer; None for a null pointer.
            message: The address of the buffer for the reason of an error.
            message_size: The size of that buffer in bytes.
        """
        fault_reports.last_launch.error = None
        try:
            c_launch = _Launch.from_address(launch)
            launch_config = Configuration(
                tuple(c_launch.grid),
                tuple(c_launch.block),
                shared=c_launch.shared_size,
                cooperative=bool(c_launch.cooperative),
            )
            program, kernel = self._programs[number], name.decode()
            find_near = functools.partial(self._regions_near, program, kernel, params or 0)
            regions = self._region_table(c_launch.device)._replace(find_near=find_near)
            program.launch_packed(kernel, launch_config, params or 0, regions)
        except KeyboardInterrupt:
            return _INTERRUPTED
        except DeviceFaultError as error:
            fault_reports.last_launch.error = error
            _write_message(str(error), message, message_size)
            return error.cuda_error
        except BaseException as error:
            log.debug("a kernel could not be launched", exc_info=True)
            _write_message(f"{type(error).__name__}: {error}", message, message_size)
            return _ERROR_UNKNOWN
        return 0

    def _link(
        self,
        inputs: int,
        sizes: int,
        names: int,
        count: int,
        output: int,
        output_size: int,
        message: int,
        message_size: int,
    ) -> int:
        """
        Link PTX.

        Args:
            inputs: The address of an array with the address of each input.
            sizes: The address of an array with the size of each input in bytes.
            names: The address of an array with the name of each input, a C string.
            count: The number of inputs.
            output: The address where the address of the linked PTX is stored.
            output_size: The address where the size of the linked PTX is stored.
            message: The address of the buffer for the reason of an error.
            message_size: The size of that buffer in bytes.
        """
        try:
            contents = [
                ctypes.string_at(address, size)
                for address, size in zip(
                    (ctypes.c_void_p * count).from_address(inputs),
                    (ctypes.c_size_t * count).from_address(sizes),
                    strict=True,
                )
            ]
            c_names = (ctypes.c_char_p * count).from_address(names)
            input_names = [(name or b"").decode(errors="replace") for name in c_names]
            ptx = self._link_ptx(input_names, contents) + b"\0"
            # The caller in C frees the copy.
            ctypes.c_void_p.from_address(output).value = _copy_to_c(ptx)
            ctypes.c_size_t.from_address(output_size).value = len(ptx)
        except BaseException as error:
            log.debug("modules could not be linked", exc_info=True)
            _write_message(str(error), message, message_size)
            return _ERROR_INVALID_PTX
        return 0

    def _log(self, text: bytes) -> None:
        """Log a warning of libcuda.so.1."""
        log.warning("%s", text.decode(errors="replace"))

    def _stop_compiling(self) -> None:
        """Wait for compilations to end, and allow no others, since the process exits."""
        machine_code.stop_compiling()

    # Modules

    def _add_symbols(self, library: int, program: CpuProgram) -> None:
        """Add the kernels and variables of a program to the `struct CUlib_st` at the address *library*."""
        shared_sizes = static_shared_sizes(program.module)
        constant_bytes = sum(
            variable.size for variable in program.module.variables if variable.memory == "const"
        )
        # 90 for `.target sm_90a, debug`.
        target = next((item for item in program.module.header.target if item.startswith("sm_")), "")
        ptx_version = int("".join(filter(str.isdecimal, target)) or _DEFAULT_PTX_VERSION)
        handle = ctypes.c_void_p(library)
        for name, function in program.functions.items():
            if function.kind != "entry":
                continue
            params, count = function.params, len(function.params)
            # In the order of CUfunction_attribute in cuda.h, from CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK on.
            attributes = (
                max_block_threads(function),
                shared_sizes[function.name],
                constant_bytes,
                program.local_size(name),
                estimated_registers(function),
                ptx_version,
                self._settings.arch.number,
            )
            size_array = ctypes.c_size_t * count
            self._libcuda.numba_ptxlink_add_function(
                handle,
                name.encode(),
                (ctypes.c_int * len(attributes))(*attributes),
                len(attributes),
                count,
                size_array(*byte_sizes(params)),
                size_array(*param_offsets(params)),
            )
        for name, region in program.variables.items():
            self._libcuda.numba_ptxlink_add_variable(
                handle,
                name.encode(),
                ctypes.c_uint64(region.address),
                ctypes.c_size_t(region.size),
                not region.writable,
            )

    # Memory

    def _region_table(self, device: int) -> RegionTable:
        """
        Return the memory that kernels on a device may access.

        The table is in C, with a generation number that each change increases. `_tables` has a copy for each
        device, which is read again if the number is not that of the copy.
        """
        known_generation, table = self._tables.get(device, (0, None))
        if table is not None and known_generation == self._libcuda.numba_ptxlink_generation():
            return table
        with self._lock.held:
            generation, writable_count = ctypes.c_uint64(0), ctypes.c_size_t(0)
            capacity = 64  # A guess, enlarged below.
            while True:
                pairs = (ctypes.c_uint64 * (2 * capacity))()
                count = self._libcuda.numba_ptxlink_regions(
                    device,
                    ctypes.byref(generation),
                    pairs,
                    ctypes.c_size_t(capacity),
                    ctypes.byref(writable_count),
                )
                # C leaves the generation 0 if the table has more than *capacity* regions.
                if generation.value:
                    break
                capacity = 2 * count
            # Each pair is the first and the end address of a region; C writes the writable regions first.
            packed = bytes(memoryview(pairs).cast("B")[: PAIR_SIZE * count])
            writable_size = PAIR_SIZE * writable_count.value
            # `_launch` replaces the function `find_near`.
            table = RegionTable(packed[:writable_size], packed[writable_size:], lambda _: ())
            self._tables[device] = generation.value, table
            return table

    def _regions_near(self, program: CpuProgram, kernel: str, params: int, address: int) -> Iterator[Region]:
        """
        Yield the regions before and after an address, for an error.

        The name of a region is the argument that points to it, or else its kind of memory. An argument that
        points to no memory of the device has a region without bytes.

        Args:
            program: The program with the kernel.
            kernel: The name of the kernel.
            params: The address of the parameter buffer.
            address: The address of the access that faulted.
        """
        arguments = _argument_words(program, kernel, params)
        for allocation in self._allocations_near(address):
            addresses = _addresses_of(allocation)
            names = (name for name, words in arguments if any(word in addresses for word in words))
            name = next(names, _MEMORY_KINDS[allocation.kind])
            yield Region(allocation.start, allocation.size, allocation.kind != _CONSTANT, name)
        for name, words in arguments:
            for word in words:
                if _MIN_POINTER <= word <= address and not any(
                    word in _addresses_of(allocation) for allocation in self._allocations_near(word)
                ):
                    yield Region(word, 0, True, name, is_allocated=False)

    def _allocations_near(self, address: int) -> Sequence[_Allocation]:
        """Return the allocation at or before an address, and the one after it, if there are any."""
        neighbours = (_Allocation * 2)()
        count = self._libcuda.numba_ptxlink_neighbours(ctypes.c_uint64(address), neighbours)
        return neighbours[:count]


def _addresses_of(allocation: _Allocation) -> range:
    """Return the addresses of an allocation and of its end, which an empty slice at the end has."""
    return range(allocation.start, allocation.start + allocation.size + 1)


def _argument_words(program: CpuProgram, kernel: str, params: int) -> list[tuple[str, Sequence[int]]]:
    """
    Return for each argument of a kernel its name, such as "argument 'x'", and its words of 8 bytes.

    Each word may be a pointer. Without a name in Python, an argument is called "parameter 1".

    Args:
        program: The program with the kernel.
        kernel: The name of the kernel.
        params: The address of the parameter buffer.
    """
    declared = program.functions[kernel].params
    # The names are in a comment of the PTX, which has "-" for a parameter without a name.
    names = images.argument_names(program.module.text).get(kernel, [])
    layout = zip(param_offsets(declared), byte_sizes(declared), strict=True)
    arguments: list[tuple[str, Sequence[int]]] = []
    for index, (offset, size) in enumerate(layout):
        words = (ctypes.c_uint64 * (size // _POINTER_BYTES)).from_address(params + offset)
        name = names[index] if len(names) == len(declared) else "-"
        arguments.append((f"parameter {index + 1}" if name == "-" else f"argument {name!r}", list(words)))
    return arguments


def _copy_to_c(content: bytes) -> int:
    """Return the address of a copy, allocated by malloc, which C has to free."""
    malloc = ctypes.CDLL(None).malloc
    malloc.argtypes, malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    address: int = malloc(len(content))
    ctypes.memmove(address, content, len(content))
    return address


def _write_message(message: str, address: int, size: int) -> None:
    """Write a message, cut to *size* bytes, to a buffer of C."""
    content = message.encode(errors="replace")[: size - 1] + b"\0"
    ctypes.memmove(address, content, len(content))


def _memory_size() -> int:
    """Return the bytes of memory of each device: 16 GiB, as a T4 (sm_75) has, but at most the machine's."""
    import os

    return min(16 << 30, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))


@functools.cache
def register(settings: Settings, link: Link, prepare: Callable[[], None]) -> PythonDriver:
    """Register the functions with libcuda.so.1. The cache keeps them alive as long as the process."""
    return PythonDriver(settings, link, prepare)
