"""
Generate wrappers: functions with nvcc's prototype (the C ABI) that each call a compiled Python function.

A front end's compiler does not give the Python function itself the C ABI: its calling convention has features
that C lacks, such as a status for `raise`. The wrapper handles the status, and NVVM inlines the function into
it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi.signatures import Signature, unaligned_member
from numba_ptxlink._formats import llvm_types

from .builder import Callee, FunctionBuilder, function_head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._cabi.options import AbiOptions
    from numba_ptxlink._formats.llvm_ir import NvvmDialect

    from .builder import TypedValue
    from .convention import Convention

# The wrapper of a smaller function is always inlined into its callers; of a larger one, if NVVM decides so.
# The limit, an estimate, keeps large functions from being copied to each call.
_MAX_INLINED_INSTRUCTIONS = 1000
# NVVM's annotations for launch bounds, in the order of `launch_bounds` of `cuda.jit`: threads in a block,
# blocks on a multiprocessor, blocks in a cluster.
_BOUND_NAMES = ("maxntidx", "minctasm", "cluster_max_blocks")
# A metadata node, such as `!7 = !{i32 1}`.
_NODE = re.compile(r"^!(\d+) = ", re.MULTILINE)
# Debug information: a function's head ends in the number of its node, `!dbg !5`. The node is, for example,
# `!5 = distinct !DISubprogram(name: "f", linkageName: "_Z1f", line: 5, ...)`.
_SUBPROGRAM = re.compile(r"!dbg !(\d+)")
_LINE = re.compile(r"\bline: (\d+)")
_NAMES = re.compile(r'\b(name|linkageName): "[^"]*"')


def wrap(
    module: str,
    symbol: str,
    signature: Signature,
    numba_signature: Any,
    *,
    convention: type[Convention],
    dialect: NvvmDialect,
    abi: AbiOptions,
    inline: bool,
    launch_bounds: int | tuple[int, ...] | None = None,
) -> str:
    """
    Return *module* with a wrapper added, a function with *signature* that calls the function *symbol*.

    Args:
        module: The Python function as LLVM IR.
        symbol: The symbol of that function.
        signature: The C signature of the wrapper.
        numba_signature: The Numba types of its parameters and result.
        convention: The calling convention of the Python function.
        dialect: The spelling of pointers in *module*, which the wrapper uses, too.
        abi: The options of the ABI, of which `on_error` is used: the effect of an error.
        inline: Whether NVVM may inline the Python function into the wrapper, and the wrapper into callers.
        launch_bounds: For a kernel, the maximum number of threads in a block, or a tuple as for `cuda.jit`.
    """
    builder = FunctionBuilder(dialect)
    head, result = function_head(builder, signature), numba_signature.return_type
    callee, attributes, instruction_count = _read_callee(module, symbol)
    first_number = 1 + max((int(number) for number in _NODE.findall(module)), default=-1)
    debug_head, debug_call, debug_nodes = _debug_location(module, attributes, signature.name, first_number)
    # The function returns a record by its address, which may be one in the stack frame of the function: the
    # memory is valid after the call only if the function is inlined.
    inlining = " alwaysinline" if inline or convention.holds_record(result) else ""
    callee_convention = convention(builder)
    arguments = _arguments(callee_convention, signature, numba_signature.args)
    failure_flag, results = callee_convention.call(
        callee._replace(suffix=f"{inlining}{debug_call}"), arguments, result
    )
    result_type = builder.c_type(signature.result)
    if failure_flag:  # "" if the function cannot fail.
        after = builder.branch(failure_flag)
        if abi.on_error == "trap":
            builder.globals["llvm.trap"] = 'declare void @"llvm.trap"()'
            builder.emit('call void @"llvm.trap"()')
        builder.emit_return(result_type, "zeroinitializer")
        builder.begin_block(after)
    builder.emit_return(result_type, callee_convention.to_c(signature.result, result, results))
    passed_types = (signature.result, *(ctype for _, ctype in signature.params))
    # Inline a small device function's wrapper into its callers, which NVVM alone would not always do: its
    # cost model counts the instructions that unpack arguments, which inlining removes. NVVM passes structs
    # with unaligned members wrongly (see `unaligned_member`), unless the call is inlined.
    is_inlined = not signature.kernel and (
        (inline and instruction_count < _MAX_INLINED_INSTRUCTIONS) or any(map(unaligned_member, passed_types))
    )
    annotations = [*head.annotations, *(_kernel_annotations(launch_bounds) if signature.kernel else [])]
    annotation_nodes = [f"!{{{head.typed_symbol}, {annotation}}}" for annotation in annotations]
    nodes = dict(enumerate([*debug_nodes, *annotation_nodes], first_number))
    # The nodes of the annotations come last; a list refers to them by their numbers.
    annotation_list = ", ".join(f"!{number}" for number in [*nodes][len(debug_nodes) :])
    lines = [
        *builder.globals.values(),
        *(f"!{number} = {node}" for number, node in nodes.items()),
        *([f"!nvvm.annotations = !{{{annotation_list}}}"] if annotations else []),
        *([_llvm_used(head.typed_symbol, dialect)] if signature.kernel else []),
        f"define {head.definition}{' alwaysinline' if is_inlined else ''}{debug_head} {{",
        *builder.lines,
        "}",
    ]
    return "\n".join([module, *lines, ""])


def _arguments(convention: Convention, signature: Signature, types: Sequence[Any]) -> list[TypedValue]:
    """Return the parameters of the wrapper, converted to arguments of the Numba types *types*."""
    arguments: list[TypedValue] = []
    builder = convention.builder
    for number, ((_, ctype), ty) in enumerate(zip(signature.params, types, strict=True)):
        llvm_type, value = builder.c_type(ctype), f"%p{number}"
        if signature.is_passed_by_address(ctype):
            pointer = builder.pointer(llvm_type)
            if isinstance(ty, convention.types.Record) and unaligned_member(ctype) is None:
                # No copy: byval memory belongs to the function, and NVVM needs cubic time for large copies.
                arguments.append((pointer, value))
                continue
            value = builder.emit_value(f"load {llvm_type}, {pointer} {value}, align {ctype.align}")
        arguments += convention.from_c(ctype, ty, value)
    return arguments


def _read_callee(module: str, symbol: str) -> tuple[Callee, str, int]:
    """Return the function *symbol* of *module*, the text after its parameters, and its instruction count."""
    # For `define i32 @"f"(i32 %x) !dbg !5 {`, the result is "i32 ", and the text is from "i32 %x)" on.
    definition = rf'^define ([^@\n]*)@"?{re.escape(symbol)}"?\('
    _, result, text = re.split(definition, module, maxsplit=1, flags=re.MULTILINE)
    head, *body = text[: text.index("\n}")].split("\n")
    params, attributes = llvm_types.split(head)
    callee = Callee(symbol, llvm_types.read(result), list(map(llvm_types.read, params)), "")
    # Instructions are indented, and labels are not.
    return callee, attributes, sum(line.startswith("  ") for line in body)


def _llvm_used(typed_symbol: str, dialect: NvvmDialect) -> str:
    """
    Return the definition of `llvm.used`, a list of the functions that optimisers must keep.

    A kernel is called from the host only: link-time optimisation would drop it.
    """
    pointer = dialect.pointer("i8")
    element = typed_symbol if dialect.is_opaque else f"{pointer} bitcast ({typed_symbol} to {pointer})"
    return f'@"llvm.used" = appending global [1 x {pointer}] [{element}], section "llvm.metadata"'


def _kernel_annotations(launch_bounds: int | tuple[int, ...] | None) -> list[str]:
    """Return the annotations that make a function a kernel, and give it *launch_bounds*."""
    bounds = (launch_bounds,) if isinstance(launch_bounds, int) else launch_bounds or ()
    return [
        '!"kernel", i32 1',
        *(f'!"{name}", i32 {int(bound)}' for name, bound in zip(_BOUND_NAMES, bounds, strict=False)),
    ]


def _debug_location(module: str, attributes: str, name: str, first_number: int) -> tuple[str, str, list[str]]:
    """
    Return the wrapper's debug information: text after its head, text after its call, and new metadata nodes.

    Without it, the call in the wrapper has no line, and LLVM drops the lines of a function that is inlined
    into such a call. If the Python function has no debug information, the texts are "", and there are no
    nodes.

    Args:
        module: The module of the Python function.
        attributes: The text after the Python function's parameters.
        name: The wrapper's symbol.
        first_number: The number of the first new metadata node.
    """
    match = _SUBPROGRAM.search(attributes)
    scope = re.search(rf"^!{match[1]} = (.*)$", module, re.MULTILINE) if match else None
    line = _LINE.search(scope[1]) if scope else None
    if scope is None or line is None:
        return "", "", []
    # The new nodes are a copy of the Python function's node with the wrapper's name, and the location of the
    # wrapper's call: the first line of the Python function, in the scope of that copy.
    renamed = _NAMES.sub(lambda field: f'{field[1]}: "{name}"', scope[1])
    location = f"!DILocation(line: {line[1]}, column: 1, scope: !{first_number})"
    return f" !dbg !{first_number}", f", !dbg !{first_number + 1}", [renamed, location]
