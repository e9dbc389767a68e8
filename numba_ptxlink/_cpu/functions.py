"""
Translate a kernel or function, with all functions that it calls, to a module of LLVM IR.

Each instruction is translated by the handler of its opcode. A kernel with barriers or warp operations becomes
an LLVM coroutine, so that a thread can suspend; other kernels and functions become ordinary functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from numba_ptxlink._formats import ptx

from . import nan_bits, runtime
from .async_copies import ASYNC_HANDLERS
from .call_graph import CallGraph
from .checks import needs_accesses
from .control import CONTROL_HANDLERS, call
from .entry_module import EntryModule
from .instructions import REGISTER_HANDLERS, compute
from .matrices import MATRIX_HANDLERS
from .memory import MEMORY_HANDLERS
from .mnemonics import UnsupportedInstruction, parse_mnemonic
from .runtime import RECURSION_STACK_SIZE, Fault, ThreadState, thread_field_offset
from .translator import COMMON_PARAMETERS, Translator
from .video import VIDEO_HANDLERS
from .warp_matrices import WARP_MATRIX_HANDLERS
from .warps import WARP_HANDLERS

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from .symbols import Symbols

_HANDLERS = {
    **REGISTER_HANDLERS,
    **VIDEO_HANDLERS,
    **MEMORY_HANDLERS,
    **ASYNC_HANDLERS,
    **WARP_HANDLERS,
    **MATRIX_HANDLERS,
    **WARP_MATRIX_HANDLERS,
    **CONTROL_HANDLERS,
}
# The numbers of operands that an opcode may have: none for `range(1)`, 1 or 2 for `range(1, 3)`. An opcode
# that is not listed may have from 2 to 5.
_OPERAND_COUNTS = {
    **dict.fromkeys(("ret", "exit", "trap", "griddepcontrol"), range(1)),
    **dict.fromkeys(("bra", "activemask", "stacksave", "stackrestore"), range(1, 2)),
    **dict.fromkeys(
        ("mov", "brx", "cvta", "isspacep", "elect", "movmatrix", "ldmatrix", "stmatrix"), range(2, 3)
    ),
    **dict.fromkeys(("ld", "ldu", "st"), range(2, 4)),
    **dict.fromkeys(("vote", "match", "redux"), range(3, 4)),
    **dict.fromkeys(("selp", "slct", "prmt", "mma"), range(4, 5)),
    **dict.fromkeys(("membar", "fence"), range(3)),
    "shfl": range(5, 6),
    **dict.fromkeys(
        ("prefetch", "prefetchu", "applypriority", "discard", "nanosleep", "pmevent"), range(1, 3)
    ),
    **dict.fromkeys(("mbarrier", "bar", "barrier", "createpolicy"), range(1, 6)),
    "cp": range(6),
}
# %memory is the address of memory for the coroutine's frame. If it is null, the kernel does not start, but
# returns the size of the frame. The 16 is the alignment of the frame in bytes.
_COROUTINE_BEGIN = """%identity = call token @llvm.coro.id(i32 16, ptr null, ptr null, ptr null)
  %size = call i64 @llvm.coro.size.i64()
  %is_query = icmp eq ptr %memory, null
  br i1 %is_query, label %query, label %begun
query:
  ret i64 %size
begun:
  %handle = call ptr @llvm.coro.begin(token %identity, ptr %memory)"""
# Return the address of the frame. The result type at {END} depends on LLVM's release; `machine_code` fills it
# in.
_COROUTINE_END = """call {END} @llvm.coro.end(ptr %handle, i1 false, token none)
  %address = ptrtoint ptr %handle to i64
  ret i64 %address"""


class Translation(NamedTuple):
    """
    A kernel or function, translated to LLVM IR.

    Args:
        text: The LLVM module.
        suspends: Whether a thread may suspend, so that a kernel is a coroutine.
        local_size: Bytes of local memory for each thread.
        shared_size: Bytes of static shared memory for each block.
        access_count: The number of checked accesses; each has an entry of 16 bytes in the region cache.
        fault_sites: Function and statement index of each statement that can fault.
    """

    text: str
    suspends: bool
    local_size: int
    shared_size: int
    access_count: int
    fault_sites: list[tuple[str, int]]


def param_offsets(params: Sequence[ptx.Variable]) -> list[int]:
    """Return the offset of each parameter of a kernel in its parameter buffer, in bytes."""
    offsets, end = [], 0
    for variable in params:
        # Without `.align`, a parameter has the alignment of its type.
        alignment = variable.param.align or variable.bits // 8 or 1
        # Round `end` up to a multiple.
        offset = -(-end // alignment) * alignment
        offsets.append(offset)
        # As in `Storage`, an empty parameter has one byte.
        end = offset + max(variable.size, 1)
    return offsets


def translate(symbols: Symbols, entry: str, *, checks: Collection[str]) -> Translation:
    """
    Return the LLVM module of a kernel or function, with the functions that it calls and an executor.

    Python calls the executor, which runs a block of the kernel, or calls the function for each element of
    arrays. A function that may suspend has no executor, since only a kernel can call it.

    Args:
        symbols: The symbols of the PTX module.
        entry: The name of the kernel or function.
        checks: The names of the requested checks, such as "memcheck".
    """
    module = EntryModule(
        symbols, entry, checks_accesses="memcheck" in checks, reports_accesses=needs_accesses(checks)
    )
    graph, function = module.call_graph, symbols.functions[entry]
    texts, frame_sizes, callee_offsets = [], {}, {}
    for name in graph.bodies:
        text, frame_sizes[name], callee_offsets[name] = _translate_function(module, symbols.functions[name])
        texts.append(text)
    local_size = graph.stack_sizes(frame_sizes, callee_offsets, RECURSION_STACK_SIZE)[function.name]
    suspends = function.name in graph.suspending
    if function.kind == "entry":
        texts.append(runtime.block_entry(function.name, suspends=suspends))
    elif not suspends:
        texts.append(runtime.elementwise_entry(function.name, len(function.results) + len(function.params)))
    text = "\n".join((*module.global_values.values(), *texts, runtime.read_ir("program.ll")))
    return Translation(
        module.shared.resolve(text),
        suspends,
        local_size,
        module.shared.size,
        module.access_count,
        module.fault_sites,
    )


def declared_local_size(symbols: Symbols, entry: str) -> int:
    """
    Return the bytes of the local variables that a kernel and its callees declare.

    Only the functions on one path of calls count: the path whose variables have most bytes.
    `Translation.local_size` may be larger, since on the CPU alignment and calls take bytes, too.
    """
    graph = CallGraph(symbols.functions, entry, lambda: symbols.address_taken)
    declared = {
        name: sum(
            variable.size
            for _, statement, _ in body
            if isinstance(statement, ptx.Declaration)
            for variable in statement.variables
            if variable.space == "local"
        )
        for name, body in graph.bodies.items()
    }
    return graph.stack_sizes(declared, declared, RECURSION_STACK_SIZE)[symbols.functions[entry].name]


def _translate_function(module: EntryModule, function: ptx.Function) -> tuple[str, int, int]:
    """Return a function in LLVM IR, and the Translator's `local_memory_size` and `callee_offset`."""
    name, is_kernel, graph = function.name, function.kind == "entry", module.call_graph
    body, suspends = graph.bodies[name], function.name in graph.suspending
    b = Translator(module, function, find_labels(body), suspends=suspends)
    if is_kernel:
        b.prologue += [
            f"  {pointer} = getelementptr i8, ptr %params, i64 {offset}"
            for pointer, offset in zip(b.pointers, param_offsets(function.params), strict=True)
        ]
    parameters = COMMON_PARAMETERS.format(local="%local")
    # Only a kernel is a coroutine. Since a coroutine cannot suspend in a callee, functions that suspend are
    # inlined into the kernel.
    is_coroutine = is_kernel and suspends
    if is_coroutine:
        signature = f'i64 @"ramp.{name}"({parameters}, ptr %memory) presplitcoroutine'
        b.emit(_COROUTINE_BEGIN)
    else:
        # A function takes pointers to its results and parameters. A kernel has a parameter buffer.
        pointers = "" if is_kernel else "".join(f", ptr {pointer}" for pointer in b.pointers)
        attribute = " alwaysinline" if suspends else ""
        signature = f'internal i8 @"f.{name}"({parameters}{pointers}){attribute}'
    # A coroutine that is asked for its frame size gets null pointers, and returns before this line. So only
    # the code from here on reads parameters.
    b.emit_step_counters()
    if name in graph.recursive:
        # The local memory of the thread ends at %limit, and the frame of this call at %top.
        top, limit = (b.emit_value(f"ptrtoint ptr {pointer} to i64") for pointer in ("%top", "%limit"))
        b.fault_unless(b.emit_op("icmp ule", "i64", top, limit), Fault.STACK_OVERFLOW)
    translate_body(b, body)
    # The blocks below are the targets of `ret`, of `exit` and faults ("leave"), and of suspensions.
    b.begin_block("return")
    if is_coroutine:
        b.begin_block("leave")
        b.store("i32", int(ThreadState.EXITED), "%thread_record", thread_field_offset("state"))
        b.begin_block("suspended")
        b.end_block(_COROUTINE_END)
    else:
        # The caller (`Translator.call_function`) reads the result. 0: the function has returned. 1: the
        # thread ends. 2: the thread suspends.
        b.end_block("ret i8 0")
        b.begin_block("leave")
        b.end_block("ret i8 1")
        if suspends:
            b.begin_block("suspended")
            b.end_block("ret i8 2")
    return b.to_text(signature), b.local_memory_size, b.callee_offset


def find_labels(body: Sequence[tuple[int, ptx.Statement, ptx.Scope]]) -> dict[tuple[int, str], int]:
    """Return the statement index of each label, by the number of the `{ }` block around it and its name."""
    return {
        (scope.block, statement.name): index
        for index, statement, scope in body
        if isinstance(statement, ptx.Label)
    }


def translate_body(b: Translator, body: Sequence[tuple[int, ptx.Statement, ptx.Scope]]) -> None:
    """Translate the statements of a function, each of which comes with its index and its scope."""
    # The origins say which registers float32 arithmetic writes: `b` replaces NaNs in them by a GPU's NaN.
    b.origins = nan_bits.find_origins(body)
    latest_label = ""
    for index, statement, scope in body:
        b.scope, b.statement_index = scope, index
        if isinstance(statement, ptx.Label):
            latest_label = statement.name
            b.begin_block(f"L{index}")
        elif isinstance(statement, ptx.Directive) and statement.keyword == "branchtargets":
            # The label before the directive is the name by which `brx.idx` refers to it.
            b.branch_targets[latest_label] = statement.names
        elif isinstance(statement, ptx.Directive) and statement.keyword == "loc":
            b.source_location = statement
        elif isinstance(statement, ptx.Declaration):
            for variable in statement.variables:
                # `Register` is the key of any name that a block declares. For a variable, its type is "".
                key = ptx.Register(scope.block, variable.name, "")
                if variable.space in ("local", "param"):
                    b.declare(key, variable)
                elif variable.space == "shared":
                    b.module.shared_variables[b.function.name, key] = variable
        # After a branch or a return, no thread reaches the instructions before the next label.
        elif isinstance(statement, ptx.Instruction) and b.block_is_open:
            b.emit_source_location()
            _translate_instruction(b, statement)


def _translate_instruction(b: Translator, instruction: ptx.Instruction) -> None:
    """Translate an instruction. If the CPU does not support it, it becomes a fault at run time."""
    mnemonic = parse_mnemonic(instruction.mnemonic)
    first_line, skip_label = len(b.lines), ""
    try:
        if instruction.guard:
            # Branch around the instruction if the predicate of a guard such as `@%p1` or `@!%p1` is false.
            run_label, skip_label = b.unique_name(), b.unique_name()
            predicate = b.read_operand(instruction.guard[1:].strip(), 1)
            b.cond_branch(predicate, run_label, skip_label)
            b.begin_block(run_label)
            first_line = len(b.lines)
        if mnemonic.opcode == "call":
            call(b, ptx.parse_call(instruction))
        elif len(instruction.operands) not in _OPERAND_COUNTS.get(mnemonic.opcode, range(2, 6)):
            raise UnsupportedInstruction  # noqa: TRY301 - as handlers do; one `except` is for all
        else:
            _HANDLERS.get(mnemonic.opcode, compute)(b, mnemonic, instruction.operands)
    except UnsupportedInstruction:
        # Delete the lines that the handler added before it raised the exception. If one was a branch, it
        # closed the block: open the block again.
        del b.lines[first_line:]
        b.block_is_open = True
        b.fault(Fault.UNDEFINED_FUNCTION if mnemonic.opcode == "call" else Fault.UNSUPPORTED)
    if skip_label:
        b.begin_block(skip_label)
