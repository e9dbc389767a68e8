"""
Generate wrappers with the C ABI: functions with nvcc's prototype that call a compiled Python function.

The function itself cannot have the C ABI, because a compiler's calling convention has features that C lacks,
such as a status for `raise`. The wrapper handles the status, and NVVM inlines the function into it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi.signatures import Signature, unaligned_member
from numba_ptxlink._formats import llvm_types

from .builder import Callee, FunctionBuilder, prototype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._cabi.options import AbiOptions
    from numba_ptxlink._formats.llvm_ir import NvvmDialect

    from .builder import Leaf
    from .convention import Convention

# Functions with more LLVM instructions are inlined into the wrapper only if NVVM decides so.
_MAX_INLINED_INSTRUCTIONS = 1000
_BOUNDS = ("maxntidx", "minctasm", "cluster_max_blocks")
_NODE = re.compile(r"^!(\d+) = ", re.MULTILINE)
# Parts of debug information.
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
    Return the LLVM IR of *module* with the wrapper of *signature*, which calls its function *symbol*.

    Args:
        module: The Python function as LLVM IR.
        symbol: The symbol of that function.
        signature: The C signature of the wrapper.
        numba_signature: The Numba types of its parameters and result.
        convention: The calling convention of the Python function.
        dialect: The spelling of pointers; `NvvmDialect.convert` converts the rest of the module.
        abi: The effect of an error.
        inline: Whether NVVM may inline the Python function into the wrapper.
        launch_bounds: For a kernel, the maximum number of threads in a block, or a tuple as for `cuda.jit`.
    """
    builder = FunctionBuilder(dialect)
    head, result = prototype(builder, signature), numba_signature.return_type
    callee, attributes, size = _callee(module, symbol)
    first = 1 + max((int(node) for node in _NODE.findall(module)), default=-1)
    debug_head, debug_call, nodes = _debug_location(module, attributes, signature.name, first)
    # Without inlining, the address of a returned record may point into a frame that has ended.
    inlining = " alwaysinline" if inline or convention.holds_record(result) else ""
    callee_convention = convention(builder)
    arguments = _arguments(callee_convention, signature, numba_signature.args)
    failed, leaves = callee_convention.call(
        callee._replace(suffix=f"{inlining}{debug_call}"), arguments, result
    )
    result_type = builder.c_type(signature.result)
    if failed:
        after = builder.branch(failed)
        if abi.on_error == "trap":
            builder.globals["llvm.trap"] = 'declare void @"llvm.trap"()'
            builder.emit('call void @"llvm.trap"()')
        builder.emit_return(result_type, "zeroinitializer")
        builder.begin_block(after)
    builder.emit_return(result_type, callee_convention.to_c(signature.result, result, leaves))
    types_passed = (signature.result, *(ctype for _, ctype in signature.params))
    # The wrapper itself is inlined into its callers. The inliner's cost model counts instructions that unpack
    # arguments, though inlining removes them. Structs with unaligned members can only be passed by inlining.
    inlined = (inline and size < _MAX_INLINED_INSTRUCTIONS) or any(map(unaligned_member, types_passed))
    annotations = [*head.annotations, *(_kernel_annotations(launch_bounds) if signature.kernel else [])]
    notes = [f"!{{{head.symbol}, {note}}}" for note in annotations]
    annotation_nodes = ", ".join(f"!{first + len(nodes) + number}" for number in range(len(notes)))
    lines = [
        *builder.globals.values(),
        *(f"!{number} = {node}" for number, node in enumerate([*nodes, *notes], first)),
        *([f"!nvvm.annotations = !{{{annotation_nodes}}}"] if notes else []),
        *([_llvm_used(head.symbol, dialect)] if signature.kernel else []),
        f"define {head.head}{' alwaysinline' if inlined and not signature.kernel else ''}{debug_head} {{",
        *builder.lines,
        "}",
    ]
    return "\n".join([module, *lines, ""])


def _arguments(convention: Convention, signature: Signature, types: Sequence[Any]) -> list[Leaf]:
    """Return the parameters of *signature* as arguments of the Python function, of the Numba *types*."""
    arguments: list[Leaf] = []
    builder = convention.builder
    for number, ((_, ctype), ty) in enumerate(zip(signature.params, types, strict=True)):
        kind, value = builder.c_type(ctype), f"%p{number}"
        if signature.is_by_address(ctype):
            pointer = builder.pointer(kind)
            if isinstance(ty, convention.types.Record) and unaligned_member(ctype) is None:
                # No copy: byval memory belongs to the function, and NVVM needs cubic time for large copies.
                arguments.append((pointer, value))
                continue
            value = builder.emit_value(f"load {kind}, {pointer} {value}, align {ctype.align}")
        arguments += convention.from_c(ctype, ty, value)
    return arguments


def _callee(module: str, symbol: str) -> tuple[Callee, str, int]:
    """Return the function *symbol* of *module*, the text behind its parameters, and its instruction count."""
    head = rf'^define ([^@\n]*)@"?{re.escape(symbol)}"?\('
    _, before, text = re.split(head, module, maxsplit=1, flags=re.MULTILINE)
    line, *body = text[: text.index("\n}")].split("\n")
    params, after = llvm_types.split(line)
    size = sum(line.startswith("  ") for line in body)
    return Callee(symbol, llvm_types.read(before), list(map(llvm_types.read, params)), ""), after, size


def _llvm_used(symbol: str, dialect: NvvmDialect) -> str:
    """Return `llvm.used`, since link-time optimisation drops the kernel *symbol*, which nothing refers to."""
    pointer = dialect.pointer("i8")
    item = symbol if dialect.is_opaque else f"{pointer} bitcast ({symbol} to {pointer})"
    return f'@"llvm.used" = appending global [1 x {pointer}] [{item}], section "llvm.metadata"'


def _kernel_annotations(launch_bounds: int | tuple[int, ...] | None) -> list[str]:
    bounds = (launch_bounds,) if isinstance(launch_bounds, int) else launch_bounds or ()
    return [
        '!"kernel", i32 1',
        *(f'!"{name}", i32 {int(bound)}' for name, bound in zip(_BOUNDS, bounds, strict=False)),
    ]


def _debug_location(module: str, attributes: str, name: str, first: int) -> tuple[str, str, list[str]]:
    """
    Return the debug information of the wrapper *name*: text behind its head, text behind its call, and nodes.

    LLVM drops the lines of an inlined function if its call has no line.

    Args:
        module: The module of the Python function.
        attributes: The text behind the Python function's parameters.
        name: The wrapper's symbol.
        first: The number of the first new metadata node.
    """
    match = _SUBPROGRAM.search(attributes)
    scope = re.search(rf"^!{match[1]} = (.*)$", module, re.MULTILINE) if match else None
    line = _LINE.search(scope[1]) if scope else None
    if scope is None or line is None:
        return "", "", []
    renamed = _NAMES.sub(lambda field: f'{field[1]}: "{name}"', scope[1])
    location = f"!DILocation(line: {line[1]}, column: 1, scope: !{first})"
    return f" !dbg !{first}", f", !dbg !{first + 1}", [renamed, location]
