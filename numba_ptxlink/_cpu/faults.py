"""What went wrong on the CPU, as an error that names the line, the lane and the instruction."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx
from numba_ptxlink.errors import DeviceFaultError

from .layout import Fault, Noted

if TYPE_CHECKING:
    from collections.abc import Sequence

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LONGEST = 1000
_CAUSES = {
    Fault.MISALIGNED: "{size} bytes at {address:#x} are accessed, which is no multiple of their size",
    Fault.READ_ONLY: "{size} bytes at {address:#x} are written, in {inside}, which is read-only",
    Fault.TRAP: "the code reached a trap, by which compilers end what must not happen",
    Fault.UNKNOWN: "the instruction is not one that the CPU knows as a device",
    Fault.LOOP: "a loop went on beyond the limit of steps",
    Fault.WAITING: "lanes wait for others that do not come: not all reach the barrier or the operation of a warp",
    Fault.STACK: "calls or the stack need more local memory than there is",
    Fault.CALL: "no function of the module is at {address:#x}, or one with other parameters",
    Fault.INTERRUPTED: "it was interrupted",
}
_CURES = {
    Fault.ACCESS: "check the index, or pass the array that it is meant for.",
    Fault.READ_ONLY: "pass an array that may be written.",
    Fault.MISALIGNED: "check the type that the pointer is converted to.",
    Fault.UNKNOWN: "run it on a GPU, or report the instruction.",
    Fault.LOOP: "correct the loop, or raise the limit.",
    Fault.WAITING: "let all lanes reach it, or give it the lanes that do.",
    Fault.STACK: "call less deeply.",
}


def text_at(address: int) -> str:
    """Return the C string at an address of this process."""
    return ctypes.string_at(address).decode(errors="replace") if address else ""


def _cause(noted: Noted, regions: Sequence[tuple[int, int, str]]) -> str:
    kind, address, size = Fault(noted.kind), noted.address, noted.size
    inside = next((name for low, high, name in regions if low <= address < high), "")
    if kind == Fault.ASSERT:
        return f"the assertion {text_at(address)!r} of {text_at(size)} failed"
    if kind == Fault.ACCESS:
        near = [
            (min(abs(address - low), abs(address - high)), name, address - low)
            for low, high, name in regions
            if high > low
        ]
        said = (
            f"{size} bytes at {address:#x} are accessed, which belong to nothing that the launch may access"
        )
        if near and min(near)[0] < 1 << 20:
            _, name, distance = min(near)
            said += f"; {name} begins {abs(distance)} bytes {'before' if distance >= 0 else 'after'} that"
        return said
    return _CAUSES[kind].format(address=address, size=size, inside=inside)


def error(
    module: ptx.Module,
    kernel: str,
    site: tuple[str, int],
    noted: Noted,
    regions: Sequence[tuple[int, int, str]],
) -> DeviceFaultError:
    """
    Return a fault as an error.

    Args:
        module: The PTX.
        kernel: What was launched or called.
        site: The function and the number of the statement where it happened.
        noted: The fault.
        regions: What may be accessed: first address, end, and name.
    """
    function = next(each for each in module.functions if each.name == site[0] and each.defined)
    file, line = "", 0
    for statement in function.body[: site[1] + 1]:
        if isinstance(statement, ptx.Directive) and statement.keyword == "loc":
            number, line_text, *_ = statement.text.split()[1:]
            names = dict(_FILE.findall(module.text))
            file, line = names.get(number, ""), int(line_text)
    instruction = " ".join(str(function.body[site[1]]).split())[:_LONGEST]
    kind = Fault(noted.kind)
    block, thread = tuple(noted.ctaid), tuple(noted.tid)
    where = f"{kernel}, " if site[0] == kernel else f"{kernel}, in {site[0]}, "
    place = f"{file}:{line}: " if file else ""
    return DeviceFaultError(
        f"{place}{where}block {block}, thread {thread}: {_cause(noted, regions)}; "
        f"{_CURES.get(kind, 'correct the code.')}\n    {instruction}",
        kernel=kernel,
        file=file,
        line=line,
        block=block,
        thread=thread,
        instruction=instruction,
    )
