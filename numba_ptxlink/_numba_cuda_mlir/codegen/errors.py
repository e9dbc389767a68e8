"""
End functions at errors: return zero from the exported function, or trap.

Code of numba-cuda-mlir writes to a variable when an error occurs, and continues. Here each such write is
replaced by a return, and callers return, too.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .functions import Block

if TYPE_CHECKING:
    from .functions import Definition, ParsedModule

ERROR = "%numba_ptxlink_error"
"""The parameter through which a function reports an error to its callers: the address of a byte."""

_LEAVE = "numba_ptxlink_leave"
_ERROR_VARIABLE = "__numba_cuda_mlir_error_code"
_WRITE = re.compile(rf"\bcmpxchg\b.*@{_ERROR_VARIABLE}\b")
_DEFINITION = re.compile(rf"^@{_ERROR_VARIABLE} = ")
_TARGET = re.compile(r"label (%[\w.$-]+)")
_PHI = re.compile(r"^\s*%\S+ = phi ")
# The brackets of a phi have spaces; those of types and constants have none.
_INCOMING = re.compile(r"\[ .+?, (%[\w.$-]+) \]")
_CALL = re.compile(r'\bcall [^@]*@("[^"]+"|[\w.$-]+)\(')
_TRAP = '  call void asm sideeffect "trap;", ""()'


def end_at_errors(module: ParsedModule, root: str, *, trap: bool, byte: str) -> bool:
    """
    Make functions of *module* return or trap at errors; remove those that *root* does not reach.

    Args:
        module: The module, which is changed.
        root: The exported function.
        trap: Whether an error stops the kernel instead of returning.
        byte: The type of the address of a byte in the module's dialect.

    Returns:
        Whether an error can occur.
    """
    module.keep_reachable(root)
    module.other_lines = [line for line in module.other_lines if not _DEFINITION.match(line)]
    action = _TRAP if trap else f"  store i8 1, {byte} {ERROR}"
    raising = {name for name, function in module.functions.items() if _end_blocks(function, action)}
    failing = set() if trap else set(raising)
    while (
        callers := {name for name, function in module.functions.items() if failing & function.symbols.keys()}
        - failing
    ):
        failing |= callers
    for name in failing:
        function = module.functions[name]
        function.extra_params = (f"{byte} {ERROR}",)
        _return_after_failed_calls(function, failing, byte)
    return bool(raising)


def _end_blocks(function: Definition, action: str) -> bool:
    """End each block in which an error occurs by the instruction *action*; return whether there are any."""
    ended = False
    for block in _reachable_blocks(function):
        index = next((index for index, line in enumerate(block.lines) if _WRITE.search(line)), None)
        if index is not None:
            block.lines[index:] = [action, _zero_return(function)]
            ended = True
    if ended:
        function.blocks = _reachable_blocks(function)
        _drop_phi_edges(function)
    return ended


def _reachable_blocks(function: Definition) -> list[Block]:
    """Return the blocks that are reachable from the first one, in their order."""
    blocks = {block.label: block for block in function.blocks}
    reached, pending = {function.blocks[0].label}, [function.blocks[0].label]
    while pending:
        for label in _successors(blocks[pending.pop()]) - reached:
            reached.add(label)
            pending.append(label)
    return [block for block in function.blocks if block.label in reached]


def _successors(block: Block) -> set[str]:
    # A switch has several lines, one for each case.
    last = next((index for index, line in enumerate(block.lines) if re.match(r"\s*(br|switch) ", line)), None)
    lines = [] if last is None else block.lines[last:]
    return {label[1:] for line in lines for label in _TARGET.findall(line)}


def _drop_phi_edges(function: Definition) -> None:
    """Remove edges that no longer exist from the phis of *function*."""
    predecessors: dict[str, set[str]] = {}
    for block in function.blocks:
        for label in _successors(block):
            predecessors.setdefault(label, set()).add(block.label)
    for block in function.blocks:
        existing = predecessors.get(block.label, set())
        for index, line in enumerate(block.lines):
            if _PHI.match(line):
                incoming = [match[0] for match in _INCOMING.finditer(line) if match[1][1:] in existing]
                block.lines[index] = line[: line.index("[ ")] + ", ".join(incoming)


def _return_after_failed_calls(function: Definition, failing: set[str], byte: str) -> None:
    """Pass `ERROR` to calls of *failing* functions, and return from *function* if one has failed."""
    blocks: list[Block] = []
    last: dict[str, str] = {}
    for block in function.blocks:
        blocks.append(Block(block.label))
        for line in block.lines:
            match = _CALL.search(line)
            if match is None or match[1] not in failing:
                blocks[-1].lines.append(line)
                continue
            number = len(blocks)
            end_of_call = line.rindex(")", 0, line.index(", !dbg") if ", !dbg" in line else None)
            comma = "" if line[end_of_call - 1] == "(" else ", "
            blocks[-1].lines += [
                f"{line[:end_of_call]}{comma}{byte} {ERROR}{line[end_of_call:]}",
                f"  {ERROR}.{number} = load i8, {byte} {ERROR}",
                f"  {ERROR}.{number}.met = icmp ne i8 {ERROR}.{number}, 0",
                f"  br i1 {ERROR}.{number}.met, label %{_LEAVE}, label {ERROR}.{number}.not",
            ]
            blocks.append(Block(f"{ERROR[1:]}.{number}.not"))
        last[block.label] = blocks[-1].label
    if len(blocks) > len(function.blocks):
        blocks.append(Block(_LEAVE, [_zero_return(function)]))
    for block in blocks:
        for index, line in enumerate(block.lines):
            if _PHI.match(line):
                block.lines[index] = _INCOMING.sub(lambda match: _update_incoming(match, last), line)
    function.blocks = blocks


def _update_incoming(match: re.Match[str], last: dict[str, str]) -> str:
    return match[0].replace(f"{match[1]} ]", f"%{last[match[1][1:]]} ]")


def _zero_return(function: Definition) -> str:
    returned = function.result_type
    return "  ret void" if str(returned) == "void" else f"  ret {returned} zeroinitializer"
