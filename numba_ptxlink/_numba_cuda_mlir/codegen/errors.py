"""
End the functions of an LLVM module at errors: return zero, or trap.

Code of numba-cuda-mlir writes to a variable when an error occurs, and continues. Here, each such write is
replaced by a return, and callers return, too, up to the exported function.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from .functions import Block

if TYPE_CHECKING:
    from .functions import Definition, ParsedModule

ERROR = "%numba_ptxlink_error"
"""The parameter by which a function reports an error: the address of a byte, which it sets to 1."""

_LEAVE_LABEL = "numba_ptxlink_leave"
_ERROR_VARIABLE = "__numba_cuda_mlir_error_code"
# For example `%5 = cmpxchg ptr @__numba_cuda_mlir_error_code, i32 0, i32 1 monotonic monotonic`.
_ERROR_WRITE = re.compile(rf"\bcmpxchg\b.*@{_ERROR_VARIABLE}\b")
_VARIABLE_DEFINITION = re.compile(rf"^@{_ERROR_VARIABLE} = ")
# A target of a branch, such as `label %v4`.
_TARGET = re.compile(r"label (%[\w.$-]+)")
# A phi, which takes the value of the block that has branched here: `%v5 = phi i32 [ %v1, %v0 ], [ 0, %v4 ]`.
_PHI = re.compile(r"^\s*%\S+ = phi ")
# An edge of a phi: the value, and the label of the predecessor. No space follows the opening bracket of types
# and constants, such as `[2 x i32]`.
_INCOMING = re.compile(r"\[ .+?, (%[\w.$-]+) \]")
# A call of a function by its name, such as `call i32 @f(`.
_CALL = re.compile(r'\bcall [^@]*@("[^"]+"|[\w.$-]+)\(')
_TRAP = '  call void asm sideeffect "trap;", ""()'


def end_at_errors(module: ParsedModule, root: str, *, trap: bool, byte_pointer: str) -> bool:
    """
    Make functions of *module* return or trap at errors; remove functions that *root* does not reach.

    Args:
        module: The module, which is changed.
        root: The exported function.
        trap: Whether an error ends the kernel by a trap; otherwise, the functions return.
        byte_pointer: The type of the address of a byte in the module's dialect: `i8*` or `ptr`.

    Returns:
        Whether the code of *root* or of a callee can meet an error.
    """
    module.keep_reachable(root)
    module.other_lines = [line for line in module.other_lines if not _VARIABLE_DEFINITION.match(line)]
    report = _TRAP if trap else f"  store i8 1, {byte_pointer} {ERROR}"
    raising_names = {name for name, function in module.functions.items() if _end_blocks(function, report)}
    # Functions that return after an error in their own code; then their callers, the callers of these, and so
    # on.
    failing_names = set() if trap else set(raising_names)
    while (
        callers := {
            name for name, function in module.functions.items() if failing_names & function.symbols.keys()
        }
        - failing_names
    ):
        failing_names |= callers
    for name in failing_names:
        function = module.functions[name]
        function.extra_params = (f"{byte_pointer} {ERROR}",)
        _return_after_failed_calls(function, failing_names, byte_pointer)
    return bool(raising_names)


def _end_blocks(function: Definition, report: str) -> bool:
    """
    Replace each write of an error, and the rest of its block, by *report* and a return.

    Returns:
        Whether *function* has such a write.
    """
    has_errors = False
    for block in _reachable_blocks(function):
        index = next((index for index, line in enumerate(block.lines) if _ERROR_WRITE.search(line)), None)
        if index is not None:
            block.lines[index:] = [report, _zero_return(function)]
            has_errors = True
    if has_errors:
        function.blocks = _reachable_blocks(function)
        _drop_phi_edges(function)
    return has_errors


def _reachable_blocks(function: Definition) -> list[Block]:
    """Return the blocks that are reachable from the first block, in the order of the function."""
    blocks = {block.label: block for block in function.blocks}
    reached, pending = {function.blocks[0].label}, [function.blocks[0].label]
    while pending:
        for label in _successors(blocks[pending.pop()]) - reached:
            reached.add(label)
            pending.append(label)
    return [block for block in function.blocks if block.label in reached]


def _successors(block: Block) -> set[str]:
    """Return the labels, without "%", of the blocks to which *block* branches."""
    branches = (index for index, line in enumerate(block.lines) if re.match(r"\s*(br|switch) ", line))
    # The branch ends the block. A switch has a line for each case.
    start = next(branches, len(block.lines))
    return {label[1:] for line in block.lines[start:] for label in _TARGET.findall(line)}


def _drop_phi_edges(function: Definition) -> None:
    """Remove each edge of a phi in *function* from a block that no longer branches to the phi's block."""
    predecessors: dict[str, set[str]] = {}
    for block in function.blocks:
        for label in _successors(block):
            predecessors.setdefault(label, set()).add(block.label)
    for block in function.blocks:
        existing = predecessors.get(block.label, set())
        for index, line in enumerate(block.lines):
            if _PHI.match(line):
                edges = [match[0] for match in _INCOMING.finditer(line) if match[1][1:] in existing]
                block.lines[index] = line[: line.index("[ ")] + ", ".join(edges)


def _return_after_failed_calls(function: Definition, failing_names: set[str], byte_pointer: str) -> None:
    """
    Pass `ERROR` to each call of *failing_names*, and return from *function* after the call if it has failed.

    Such a call ends its block by a branch, to a block that returns, or to a new block with the rest of the
    block.
    """
    blocks: list[Block] = []
    # For each former block, the label of the new block with its last instructions, from which phis get
    # values.
    last_labels: dict[str, str] = {}
    for block in function.blocks:
        blocks.append(Block(block.label))
        for line in block.lines:
            match = _CALL.search(line)
            if match is None or match[1] not in failing_names:
                blocks[-1].lines.append(line)
                continue
            number = len(blocks)  # For names: each call adds a block, so that no other call has this number.
            # Insert the argument before the call's last parenthesis; debug information may contain others.
            end_of_call = line.rindex(")", 0, line.index(", !dbg") if ", !dbg" in line else None)
            comma = "" if line[end_of_call - 1] == "(" else ", "
            blocks[-1].lines += [
                f"{line[:end_of_call]}{comma}{byte_pointer} {ERROR}{line[end_of_call:]}",
                f"  {ERROR}.{number} = load i8, {byte_pointer} {ERROR}",
                f"  {ERROR}.{number}.met = icmp ne i8 {ERROR}.{number}, 0",
                f"  br i1 {ERROR}.{number}.met, label %{_LEAVE_LABEL}, label {ERROR}.{number}.not",
            ]
            blocks.append(Block(f"{ERROR[1:]}.{number}.not"))
        last_labels[block.label] = blocks[-1].label
    if len(blocks) > len(function.blocks):
        blocks.append(Block(_LEAVE_LABEL, [_zero_return(function)]))
    for block in blocks:
        for index, line in enumerate(block.lines):
            if _PHI.match(line):
                block.lines[index] = _INCOMING.sub(lambda match: _update_incoming(match, last_labels), line)
    function.blocks = blocks


def _update_incoming(match: re.Match[str], last_labels: dict[str, str]) -> str:
    """Return the edge *match* of a phi with the new label of the block from which control comes."""
    return match[0].replace(f"{match[1]} ]", f"%{last_labels[match[1][1:]]} ]")


def _zero_return(function: Definition) -> str:
    """Return the instruction that returns zero from *function*, or nothing if its result is void."""
    result_type = function.result_type
    return "  ret void" if str(result_type) == "void" else f"  ret {result_type} zeroinitializer"
