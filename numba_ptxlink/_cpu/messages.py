"""What code on the CPU tells: faults, as errors with line, lane and instruction, and what `printf` writes."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import DeviceFaultError, located

from .runtime import Fault, Noted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .worker import Region, Worker

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_CONVERSION = re.compile(r"%[-+ #0]*[\d*]*(?:\.[\d*]*)?(?:hh?|(ll?|[jzt]))?([diouxXeEfFgGaAcsp%])")
_write = ctypes.CDLL(None).snprintf
_write.argtypes = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_char_p
_LONGEST, _NEAR = 1000, 1 << 20
# What went wrong, and what to do about it.
_SAID = {
    Fault.MISALIGNED: "{size} bytes at {address:#x} are accessed, which is no multiple of their size; "
    "check the type that the pointer is converted to.",
    Fault.READ_ONLY: "{size} bytes at {address:#x} are written, in {inside}, which is read-only; "
    "pass an array that may be written.",
    Fault.TRAP: "the code reached a trap, by which compilers end what must not happen; correct the code.",
    Fault.UNKNOWN: "{missing}; run it on a GPU, or report the instruction.",
    Fault.LOOP: "a loop went on beyond the limit of steps; correct the loop, or raise the limit.",
    Fault.WAITING: "it waits for lanes that never reach this barrier, or this operation of a warp; "
    "let all lanes reach it, or give it the lanes that do.",
    Fault.STACK: "calls need more local memory than there is; call less deeply.",
    Fault.INTERRUPTED: "it was interrupted; correct the code.",
    Fault.UNDEFINED: "the function that is called is not in the module, or has other parameters there, or is "
    "called by its address; link what defines it, and call it by its name.",
}


# What a device has and the CPU does not, by how opcodes begin.
_MISSING = {
    ("tex", "tld4", "txq", "suld", "sust", "sured", "suq"): "textures and surfaces",
    ("mma", "wmma", "wgmma", "tcgen05", "ldmatrix", "stmatrix", "movmatrix"): "products of matrices by warps",
    ("cp.", "mbarrier", "multimem", "tensormap"): "copies and barriers that are asynchronous",
    ("mapa", "getctarank", "barrier.cluster"): "clusters",
    ("alloca",): "arrays on the stack whose size is not constant",
}


def text_at(address: int) -> str:
    """Return the C string at an address of this process."""
    return ctypes.string_at(address).decode(errors="replace") if address else ""


def _source_of(module: ptx.Module, function: str, place: int) -> tuple[str, str, int]:
    """Return the instruction at a place of a function, and the source file and line that it is of."""
    found = next(each for each in module.functions if each.name == function and each.defined)
    file, line, text = "", "0", ""
    for number, statement in enumerate(found.body):
        if isinstance(statement, ptx.Directive) and statement.keyword == "loc":
            _, file, line, *_ = statement.text.split()
        # The begin of a function is told by the instruction after it.
        if number >= place and isinstance(statement, ptx.Instruction):
            text = " ".join(str(statement).split())[:_LONGEST]
            break
    return text, dict(_FILE.findall(module.text)).get(file, ""), int(line)


def _said(noted: Noted, regions: Sequence[Region], instruction: str) -> str:
    kind, address, size = Fault(noted.kind), noted.address, noted.size
    if kind == Fault.ASSERT:
        return f"the assertion {text_at(address)!r} of {text_at(size)} failed; correct the code."
    if kind != Fault.ACCESS:
        inside = next((each.name for each in regions if each.address <= address < each.end), "")
        word = next((each for each in instruction.split() if each[:1] not in "@{"), "")
        found = [f"the CPU has no {what}" for begins, what in _MISSING.items() if word.startswith(begins)]
        missing = (*found, "it is no instruction that the CPU knows")[0]
        return _SAID[kind].format(address=address, size=size, inside=inside, missing=missing)
    said = f"{size} bytes at {address:#x} are accessed, which belong to nothing that it may access"
    near = [
        (min(abs(address - each.address), abs(address - each.end)), each) for each in regions if each.size
    ]
    distance, region = min(near, default=(_NEAR, None))
    if region and distance < _NEAR:
        place = address - region.address
        said += f"; {region.name}, of {region.size} bytes, begins {abs(place)} bytes "
        said += "before" if place >= 0 else "after"
    return f"{said}; check the index, or pass the array that it is meant for."


def fault(module: ptx.Module, called: str, function: str, statement: int, worker: Worker) -> DeviceFaultError:
    """
    Return the fault of a worker as an error.

    Args:
        module: The PTX.
        called: The kernel or function that was launched or called.
        function: The function whose code it is in.
        statement: The number of the statement in that.
        worker: What executed it.
    """
    instruction, file, line = _source_of(module, function, statement)
    context, lane = worker.context, worker.context.current
    (nx, ny, _), block = context.ntid, tuple(context.ctaid)
    thread = (lane % nx, lane // nx % ny, lane // (nx * ny)) if context.params else (lane, 0, 0)
    inside = "" if function == called else f", in {function}"
    told = _said(worker.noted, worker.regions, instruction)
    if not file:
        told += " Export, or link, with line numbers (lineinfo) to see the line; several inputs as LTO-IR."
    return DeviceFaultError(
        located(
            f"{file}:{line}" if file else "",
            f"{called}{inside}, block {block}, thread {thread}: {told}\n    {instruction}",
        ),
        kernel=called,
        file=file,
        line=line,
        block=block,
        thread=thread,
        instruction=instruction,
    )


def print_values(form: int, values: int) -> int:
    """Print the values at an address by the format at another, as the C library does; return how many."""
    place, count = values, 0

    def take(kind: type[Any]) -> Any:
        nonlocal place, count
        count += 1
        size = ctypes.sizeof(kind)
        place = -(-place // size) * size + size
        return kind.from_address(place - size)

    def one(match: re.Match[str]) -> str:
        spelled, (long, letter) = match[0].encode(), match.groups()
        passed = [take(ctypes.c_int32) for _ in range(match[0].count("*"))]
        if letter in "aAeEfFgG":
            passed.append(take(ctypes.c_double))
        elif letter != "%":
            passed.append(take(ctypes.c_int64 if long or letter in "sp" else ctypes.c_int32))
        size = _write(None, 0, spelled, *passed)
        text = ctypes.create_string_buffer(size + 1)
        _write(text, size + 1, spelled, *passed)
        return text.raw[:size].decode(errors="replace")

    print(_CONVERSION.sub(one, text_at(form)), end="")  # noqa: T201 - what the code prints
    return count
