"""Where a compiled function raises: the lines whose errors are left in its code and in its callees."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .context import LibraryNotes, notes
from .modules import all_libraries, module_of

if TYPE_CHECKING:
    from collections.abc import Iterator

# The lines about NVIDIA's target, which a host's LLVM does not have.
_TARGET = re.compile(r'^target (?:triple|datalayout) = ".*"$', re.MULTILINE)
# The instructions whose value is one of their operands.
_JOINING = ("phi", "select")


def raise_sites(compiled: Any) -> tuple[str, ...]:
    """
    Return the lines where a compiled function or its callees raise, as "file.py:line", callers first.

    They are those of `raise` and `assert` and of the checks that Numba generates, without those that LLVM
    proves never to fail, such as the check of a constant divisor. A callee's lines are listed whatever its
    arguments.

    Args:
        compiled: The CUDACompileResult of the function, compiled with Numba's ABI.
    """
    sites: dict[str, dict[int, tuple[str, int]]] = {}
    homes: dict[str, Any] = {}
    for library in all_libraries([compiled.library]):
        sites |= notes(library, LibraryNotes).sites
        module = module_of(library)
        for function in module.functions if module else ():
            if function.blocks:
                homes[function.name] = library
    if not any(sites.values()):
        return ()
    parsed: dict[Any, Any] = {}
    places: dict[tuple[str, int], None] = {}
    pending = [compiled.fndesc.llvm_func_name]
    reached = set(pending)
    while pending:
        name = pending.pop(0)
        library = homes.get(name)
        if library is None:
            continue
        if library not in parsed:
            parsed[library] = _simplified(str(module_of(library)))
        function = parsed[library].get_function(name)
        statuses = set(_statuses(function))
        places |= dict.fromkeys(
            sorted(place for status, place in sites.get(name, {}).items() if status in statuses)
        )
        callees = [callee for callee in _callees(function) if callee not in reached]
        reached.update(callees)
        pending += dict.fromkeys(callees)
    return tuple(dict.fromkeys(f"{_spelled(file)}:{line}" for file, line in places))


def _simplified(text: str) -> Any:
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    module = llvm.parse_assembly(_TARGET.sub("", text))
    machine = llvm.Target.from_default_triple().create_target_machine()
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options())
    passes = llvm.create_new_module_pass_manager()
    passes.add_sroa_pass()
    passes.add_instruction_combine_pass()
    passes.add_simplify_cfg_pass()
    passes.run(module, builder)
    return module


def _statuses(function: Any) -> Iterator[int]:
    """Yield the constants that *function* may return."""
    instructions = [instruction for block in function.blocks for instruction in block.instructions]
    joined = {instruction.name: instruction for instruction in instructions if instruction.opcode in _JOINING}
    pending = [instruction for instruction in instructions if instruction.opcode == "ret"]
    while pending:
        for operand in pending.pop().operands:
            constant = re.fullmatch(r"i32 (-?\d+)", str(operand).strip())
            if constant:
                yield int(constant[1])
            elif operand.name in joined:
                pending.append(joined.pop(operand.name))


def _callees(function: Any) -> Iterator[str]:
    for block in function.blocks:
        for instruction in block.instructions:
            if instruction.opcode == "call":
                *_, callee = instruction.operands
                yield callee.name


def _spelled(file: str) -> str:
    """Return the name of *file*, with its folders if it is numba-cuda's own."""
    from numba import cuda

    path, package = Path(file), Path(cuda.__file__).parent
    if path.is_relative_to(package):
        return f"numba/cuda/{path.relative_to(package).as_posix()}"
    return path.name
