"""
Make a DeviceFaultError of the FaultRecord that generated code fills when a thread cannot continue.

The record has the kind of the fault, the number of the PTX statement, and for an access the address and size.
The error also names the PTX instruction, the source line, the block, the thread, and the nearest array:

    udfs.py:20: error: saxpy, block (0, 0, 0), thread (10, 0, 0): 4 bytes at 0x7f28 are out of bounds, 0 bytes
    past the end of parameter 'x' (40 bytes); check the index and the array.
        ld.global.f32 %f1, [%rd4]
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.mangling import written_name
from numba_ptxlink.errors import DeviceFaultError, with_location

from .printf import c_string_at
from .runtime import Fault

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .regions import Region
    from .worker import Worker

# The number and the name of `.file 1 "udfs.py"`.
_FILE_DIRECTIVE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
# Symbols that numba-cuda and numba-cuda-mlir give to arrays in constant memory, which have no name in Python.
_CONSTANT_ARRAY = re.compile(r"_cudapy_cmem\b.*|constant_array_\d+")
# The message has a longer instruction, such as a call with many operands, only up to this length.
_MAX_INSTRUCTION_CHARS = 1000
# The message names the nearest array, unless it is further away than this.
_MAX_DISTANCE_BYTES = 1 << 20
# The cures of an access out of bounds; `_UNKNOWN_MEMORY` is added to the first one if no array is near.
_INDEX_CURE = "check the index and the array"
_ARRAY_CURE = "keep the array until the kernel ends, or copy a host array to the device (cuda.to_device)"
_SHARED_CURE = "pass the size of dynamic shared memory at the launch"
_UNKNOWN_MEMORY = (
    ". A pointer that is read from a struct or an array has to refer to memory of an argument, or of the CPU "
    "device (numba_ptxlink.use_cpu()); pass checks=False for a pointer to other memory"
)
_NO_LINE = (
    "To see the source line, compile with lineinfo=True, `numba-ptxlink export --lineinfo` or "
    "`nvcc -lineinfo`."
)

# The messages: the cause, then the cure.
_FAULT_MESSAGES = {
    Fault.ACCESS: "{size} bytes at {address:#x} are out of bounds{nearest}; {cure}.",
    Fault.MISALIGNED: "{size} bytes at {address:#x} are accessed, and the address is no multiple of {size}; "
    "align the pointer, or check the type that it is cast to.",
    Fault.READ_ONLY: "{size} bytes at {address:#x} are written, in {region}, which is read-only; pass a "
    "writable array.",
    Fault.TRAP: "a trap instruction was executed, as by __trap() or a failed check of the compiler; correct "
    "the condition that leads to it.",
    Fault.ASSERT: "the assertion {condition!r} of {file} failed; correct the code.",
    Fault.UNSUPPORTED: "the CPU does not support {feature}; run the kernel on a GPU, or report the "
    "instruction.",
    Fault.STEP_LIMIT: "a loop exceeded the limit of steps; correct the loop, or pass a larger steps=.",
    Fault.DEADLOCK: "the thread waits at a barrier or a warp operation that other threads never reach; let "
    "all threads of the block, or of the mask, reach it.",
    Fault.STACK_OVERFLOW: "recursive calls exceeded the local memory of a thread; reduce their depth.",
    Fault.INTERRUPTED: "execution was interrupted; start it again.",
    Fault.UNDEFINED_FUNCTION: "{undefined}.",
    Fault.RECURSIVE_BARRIER: "a recursive function with a barrier or a warp operation is called, which the "
    "CPU does not support; write it as a loop, or run the kernel on a GPU.",
    Fault.NOT_COOPERATIVE: "the kernel synchronises its grid, but the launch is not cooperative; pass "
    "cooperative=True.",
}
# The CUresult that a GPU has for a kind of fault; _LAUNCH_FAILED for the kinds that are not listed.
_CUDA_ERRORS = {
    Fault.ACCESS: 700,  # CUDA_ERROR_ILLEGAL_ADDRESS
    Fault.READ_ONLY: 700,
    Fault.STEP_LIMIT: 702,  # CUDA_ERROR_LAUNCH_TIMEOUT
    Fault.DEADLOCK: 702,
    Fault.ASSERT: 710,  # CUDA_ERROR_ASSERT
    Fault.STACK_OVERFLOW: 714,  # CUDA_ERROR_HARDWARE_STACK_ERROR
    Fault.MISALIGNED: 716,  # CUDA_ERROR_MISALIGNED_ADDRESS
    # A GPU has no such faults. CUDA is usable after error 801, unlike after the others.
    Fault.UNSUPPORTED: 801,  # CUDA_ERROR_NOT_SUPPORTED
    Fault.UNDEFINED_FUNCTION: 801,
}
_LAUNCH_FAILED = 719  # CUDA_ERROR_LAUNCH_FAILED
# Features of GPUs that the CPU does not support, by prefixes of the opcodes.
_UNSUPPORTED_FEATURES = {
    ("tex", "tld4", "txq", "suld", "sust", "sured", "suq"): "textures and surfaces",
    (
        "mma",
        "wmma",
        "wgmma",
        "tcgen05",
        "ldmatrix",
        "stmatrix",
        "movmatrix",
    ): "this form of a matrix instruction",
    (
        "cp.async.bulk",
        "cp.reduce",
        "mbarrier",
        "multimem",
        "tensormap",
    ): "bulk copies of the tensor memory accelerator",
    ("mapa", "getctarank", "barrier.cluster"): "thread block clusters",
    ("alloca",): "stack arrays of variable size",
    ("call",): "kernel launches from a kernel (dynamic parallelism)",
}


class SourceLocation(NamedTuple):
    """
    An instruction, with its place in the source.

    Args:
        instruction: The text of the instruction; "" if `find_location` finds none.
        file: The file of the last `.loc` directive before the instruction; "" if there is none.
        line: The line of that directive; 0 if there is none.
    """

    instruction: str
    file: str
    line: int


def fault_error(
    module: ptx.Module, launched: str, function: str, statement_index: int, worker: Worker
) -> DeviceFaultError:
    """
    Return the error for the fault that a worker has recorded.

    Args:
        module: The PTX module.
        launched: The kernel that was launched, or the function that was called.
        function: The function that contains the instruction: *launched*, or one that it calls.
        statement_index: The index of the instruction in the function's body.
        worker: The worker that executed the instruction.
    """
    instruction, file, line = find_location(module, function, statement_index)
    undefined = ""
    if worker.fault_record.kind == Fault.UNDEFINED_FUNCTION:
        undefined = _undefined_message(module, function, statement_index)
    block, thread = tuple(worker.context.ctaid), _thread_index(worker)
    callee = "" if function == launched else f", in {written_name(function)}"
    message = _fault_message(worker, instruction, undefined)
    if not file:
        message += f" {_NO_LINE}"
    kernel = written_name(launched)
    text = f"{kernel}{callee}, block {block}, thread {thread}: {message}\n    {instruction}"
    # Compilers give line 0 to an instruction of several lines, such as one trap for all checks of a function.
    # For such an instruction, the message names only the file.
    location = f"{file}:{line}" if line else file
    return DeviceFaultError(
        with_location(location, text),
        kernel=kernel,
        file=file,
        line=line,
        block=block,
        thread=thread,
        instruction=instruction,
        cuda_error=_CUDA_ERRORS.get(Fault(worker.fault_record.kind), _LAUNCH_FAILED),
    )


def variable_name(symbol: str) -> str:
    """Return a name for the variable with a *symbol* of PTX, as the author of the source knows it."""
    if _CONSTANT_ARRAY.fullmatch(symbol):
        return "an array in constant memory, as by cuda.const.array_like"
    return written_name(symbol)


def source_files(module: ptx.Module) -> dict[str, str]:
    """Return the source files of a module by their numbers in `.loc` directives."""
    # Compilers put the working directory before the name of code that no file contains, such as "<string>".
    return {
        number: f"<{file.rpartition('/<')[2]}" if "/<" in file and file.endswith(">") else file
        for number, file in _FILE_DIRECTIVE.findall(module.text)
    }


def find_location(module: ptx.Module, function: str, statement_index: int) -> SourceLocation:
    """
    Return the instruction at a statement, or else the next one, and its source line.

    Args:
        module: The PTX module.
        function: The function.
        statement_index: The index of the statement in the function's body.
    """
    file_number, line = "", "0"
    for index, candidate in enumerate(_find_body(module, function)):
        if isinstance(candidate, ptx.Directive) and candidate.keyword == "loc":
            # `.loc 1 20 5`: the file, the line, the column.
            _, file_number, line, *_ = candidate.text.split()
        # A stack overflow is recorded for statement 0, which may be a declaration such as `.reg`.
        if index >= statement_index and isinstance(candidate, ptx.Instruction):
            instruction = " ".join(str(candidate).split())[:_MAX_INSTRUCTION_CHARS]
            return SourceLocation(instruction, source_files(module).get(file_number, ""), int(line))
    return SourceLocation("", "", 0)


def _find_body(module: ptx.Module, name: str) -> Sequence[ptx.Statement]:
    """Return the statements of a function, by its name."""
    return next(function.body for function in module.functions if function.name == name and function.defined)


def _thread_index(worker: Worker) -> tuple[int, int, int]:
    """Return threadIdx; for a call of a device function, (index of the array element, 0, 0)."""
    thread, (width, height, _) = worker.context.current_thread, worker.context.ntid
    # Each kernel has a parameter buffer, even one without parameters; for a call, the address is null.
    if not worker.context.params:
        return thread, 0, 0
    return thread % width, thread // width % height, thread // (width * height)


def _undefined_message(module: ptx.Module, function: str, statement_index: int) -> str:
    """Return why the call at a statement of *function* reaches no function, and the cure."""
    call = _find_body(module, function)[statement_index]
    callee = ptx.parse_call(call).callee if isinstance(call, ptx.Instruction) else ""
    # A register, such as %rd1, contains a pointer.
    if not callee or callee.startswith("%"):
        return (
            "the called pointer is not the address of a function with these parameters; correct the pointer, "
            "or link the file that defines the function"
        )
    name = written_name(callee)
    if any(definition.name == callee and definition.defined for definition in module.functions):
        return f"{name} is called with other parameters than it is defined with; correct its declaration"
    return f'{name} is called, which no input defines; link the file that defines it, in C++ as extern "C"'


def _fault_message(worker: Worker, instruction: str, undefined: str) -> str:
    """
    Return the cause and the cure.

    Args:
        worker: The worker that executed the instruction.
        instruction: The text of the instruction.
        undefined: The cause and the cure for `Fault.UNDEFINED_FUNCTION`; "" for another fault.
    """
    record = worker.fault_record
    kind, address, size, opcode = Fault(record.kind), record.address, record.size, _opcode(instruction)
    if kind == Fault.ASSERT:
        # For an assertion, the fields are the addresses of two C strings.
        return _FAULT_MESSAGES[kind].format(condition=c_string_at(address), file=c_string_at(size))
    regions, nearest, cure = worker.regions_near(address), "", _INDEX_CURE
    # `cp.async.ca.shared.global` accesses shared and global memory: take its address for a global one.
    if kind == Fault.ACCESS and ".shared" in opcode and ".global" not in opcode:
        shared_size = worker.context.shared_size
        nearest = f", in shared memory ({shared_size} bytes)"
        # Only dynamic shared memory can be empty.
        cure = cure if shared_size else _SHARED_CURE
    elif kind == Fault.ACCESS:
        if ".local" in opcode:
            # Local memory has no arrays of the caller.
            regions = [worker.thread_local_region()]
        elif ".const" in opcode:
            # Constant memory is read-only.
            regions = [region for region in regions if not region.writable]
        region, nearest = _nearest_region(address, regions)
        if region and not region.is_allocated:
            cure = _ARRAY_CURE
        elif not region and ".local" not in opcode:
            cure += _UNKNOWN_MEMORY
    return _FAULT_MESSAGES[kind].format(
        size=size,
        address=address,
        region=next((region.name for region in regions if region.address <= address < region.end), ""),
        nearest=nearest,
        cure=cure,
        feature=_unsupported_feature(opcode) if kind == Fault.UNSUPPORTED else "",
        undefined=undefined,
    )


def _opcode(instruction: str) -> str:
    """Return the opcode with its modifiers: the first word but for a guard such as `@%p1`, or a `{`."""
    return next((word for word in instruction.split() if word[0] not in "@{"), "")


def _unsupported_feature(opcode: str) -> str:
    """Return the feature of GPUs that an instruction belongs to; "this instruction" if it is not listed."""
    features = (name for prefixes, name in _UNSUPPORTED_FEATURES.items() if opcode.startswith(prefixes))
    return next(features, "this instruction")


def _nearest_region(address: int, regions: Iterable[Region]) -> tuple[Region | None, str]:
    """
    Return the region nearest to an address, and text such as ", 8 bytes before argument 'x' (48 bytes)".

    If no region is near, the results are None and "".
    """
    # The distance to the nearer end of each region; it is negative if *address* is inside of the region.
    distances = [
        (max(region.address - address, address - region.end), region)
        for region in regions
        if region.size or not region.is_allocated
    ]
    distance, region = min(distances, key=lambda pair: pair[0], default=(_MAX_DISTANCE_BYTES, None))
    if region is None or distance >= _MAX_DISTANCE_BYTES:
        return None, ""
    if not region.is_allocated:
        return region, f": {region.name} points to memory that is freed, or that is not the device's"
    if distance < 0:
        # An access that begins inside of a region faults because it ends after the region.
        return region, f", the last of them past the end of {region.name} ({region.size} bytes)"
    side = "before" if address < region.address else "past the end of"
    return region, f", {distance} bytes {side} {region.name} ({region.size} bytes)"
