"""
Find what kernels need on a GPU (shared memory, registers), their largest blocks, and why ptxas refuses PTX.

The CPU device, a CUDA driver without a GPU, lacks the limits of a GPU, but reports them as NVIDIA's driver
and ptxas do.
"""

from __future__ import annotations

import itertools
import math
import re
from typing import TYPE_CHECKING

from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.mangling import written_name

from .control import EXTERNAL_FUNCTIONS
from .faults import find_location

if TYPE_CHECKING:
    from collections.abc import Mapping

MAX_STATIC_SHARED_BYTES = 48 << 10
"""Static shared memory of a kernel ("Technical Specifications" in the CUDA C++ Programming Guide)."""
MAX_BLOCK_THREADS = 1024
"""The most threads of a block, from the same source."""
_NAME = re.compile(r"[\w$%]+")
# Such as `.reg .b32 %r<12>`. Predicates (`.reg .pred`) do not count, since they have separate registers.
_REGISTERS = re.compile(r"\.reg\s+\.[a-z](\d+)\s+%\w+<(\d+)>")
# The least number that `estimated_registers` returns without a smaller `.maxnreg`, and the most registers of
# a thread of a GPU.
_MIN_REGISTERS, _MAX_REGISTERS = 16, 255


def static_shared_sizes(module: ptx.Module) -> Mapping[str, int]:
    """
    Return the bytes of static shared memory of each kernel, by name.

    A variable counts if the body of the kernel, or of a function that it reaches, names or declares it. A
    function is reached if its name is in the body of the kernel or of a reached function, as in a call.
    """
    variable_sizes = {
        variable.name: variable.size for variable in module.variables if variable.memory == "shared"
    }
    functions = {function.name: function for function in module.functions if function.defined}
    # The names that each function contains, among them those of its callees.
    names = {name: set(_NAME.findall(_body_text(function))) for name, function in functions.items()}
    declared_sizes = {name: _declared_shared_size(function) for name, function in functions.items()}
    sizes = {}
    for kernel in (name for name, function in functions.items() if function.kind == "entry"):
        reached, pending = {kernel}, [kernel]
        while pending:
            callees = names[pending.pop()] & (functions.keys() - reached)
            reached |= callees
            pending += callees
        used_variables = set().union(*(names[name] for name in reached)) & variable_sizes.keys()
        sizes[kernel] = sum(variable_sizes[name] for name in used_variables)
        sizes[kernel] += sum(declared_sizes[name] for name in reached)
    return sizes


def excess_shared_reason(module: ptx.Module) -> str:
    """Return ptxas's message for a kernel with more static shared memory than a block can have, else ""."""
    for kernel, size in static_shared_sizes(module).items():
        if size > MAX_STATIC_SHARED_BYTES:
            return (
                f"ptxas error   : Entry function '{kernel}' uses too much shared data ({size:#x} bytes, "
                f"{MAX_STATIC_SHARED_BYTES:#x} max)"
            )
    return ""


def undefined_function_reason(module: ptx.Module) -> str:
    """
    Return ptxas's message for a function that is called and not defined, "" if there is none.

    The message ends with the place of a call if the PTX has line numbers.
    """
    defined = {function.name for function in module.functions if function.defined}
    defined |= {alias.name for alias in module.aliases}
    for name in (function.name for function in module.functions if function.name not in defined):
        # Do not refuse a module for calls of the device runtime (cudaLaunchDevice and so on), which the CPU
        # lacks: the kernels that call it need not be launched.
        is_accepted = name in EXTERNAL_FUNCTIONS or name.startswith(("cuda", "__cuda"))
        # Such as `call.uni (retval), f, (param0);`.
        if not is_accepted and re.search(rf"\bcall\b[^;]*[\s,]{re.escape(name)}\s*[,;]", module.text):
            return f"ptxas fatal   : Unresolved extern function '{name}'{_first_call(module, name)}"
    return ""


def _first_call(module: ptx.Module, name: str) -> str:
    """Return ", called at udfs.py:20 in saxpy" for a function; "" if the line is not known."""
    for function in (
        candidate for candidate in module.functions if candidate.defined and name in _body_text(candidate)
    ):
        for index, statement in enumerate(function.body):
            if (
                isinstance(statement, ptx.Instruction)
                and statement.opcode == "call"
                and ptx.parse_call(statement).callee == name
            ):
                _, file, line = find_location(module, function.name, index)
                if line:
                    return f", called at {file}:{line} in {written_name(function.name)}"
    return ""


def max_block_threads(kernel: ptx.Function) -> int:
    """Return the number of threads that a block of the kernel may have, by `.maxntid` and `.reqntid`."""
    limit = _declared_number(kernel, "maxntid", MAX_BLOCK_THREADS)
    return _declared_number(kernel, "reqntid", limit)


def estimated_registers(kernel: ptx.Function) -> int:
    """
    Return a guess at the number of 32-bit registers of a thread, which only a compiler for a GPU determines.

    The guess is half of the registers that PTX declares: PTX has a register for each value, while compilers
    for GPUs use a register for several values, one after the other.
    """
    declared = sum(
        int(count) * max(int(bits) // 32, 1) for bits, count in _REGISTERS.findall(_body_text(kernel))
    )
    return min(max(declared // 2, _MIN_REGISTERS), _declared_number(kernel, "maxnreg", _MAX_REGISTERS))


def _declared_number(kernel: ptx.Function, directive: str, limit: int) -> int:
    """
    Return the product of the numbers after a directive, but at most *limit*: 256 for `.maxntid 16, 16`.

    Without the directive, return *limit*.
    """
    words = [word.lstrip(".") for word in kernel.directives if word not in ",()"]
    if directive not in words:
        return limit
    numbers = itertools.takewhile(str.isdecimal, words[words.index(directive) + 1 :])
    return min(math.prod(map(int, numbers)), limit)


def _body_text(function: ptx.Function) -> str:
    """Return the PTX of a function's body."""
    return function.text[slice(*function.body_span)]


def _declared_shared_size(function: ptx.Function) -> int:
    """Return the bytes of shared memory that the body of a function declares."""
    if ".shared" not in _body_text(function):
        return 0
    declarations = [statement for statement in function.body if isinstance(statement, ptx.Declaration)]
    variables = (variable for declaration in declarations for variable in declaration.variables)
    return sum(int(variable.size) for variable in variables if variable.space == "shared")
