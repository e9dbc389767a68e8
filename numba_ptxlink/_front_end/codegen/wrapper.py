"""
Generate wrappers with the C ABI: functions with nvcc's prototype that call one that a compiler made.

A wrapper is used instead of a calling convention of the function itself, because a compiler's ABI has what C
lacks, such as a status for `raise`. The wrapper handles it, and NVVM inlines the function into it.
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

# In instructions of LLVM IR; whether to inline a larger function is NVVM's decision.
_SMALL = 1000
_BOUNDS = ("maxntidx", "minctasm", "cluster_max_blocks")
_NODE = re.compile(r"^!(\d+) = ", re.MULTILINE)
# Of debug information.
_SUBPROGRAM = re.compile(r"!dbg !(\d+)")
_LINE = re.compile(r"\bline: (\d+)")
_NAMES = re.compile(r'\b(name|linkageName): "[^"]*"')


def wrap(
    module: str,
    symbol: str,
    signature: Signature,
    typed: Any,
    *,
    convention: type[Convention],
    dialect: NvvmDialect,
    abi: AbiOptions,
    inline: bool,
    launch_bounds: int | tuple[int, ...] | None = None,
) -> str:
    """
    Return the LLVM IR of *module* with the C function of *signature*, which calls its function *symbol*.

    Args:
        module: The Python function, as its compiler made it.
        symbol: The symbol of that function.
        signature: The C signature of the new function.
        typed: The Numba types of its parameters and result.
        convention: How the Python function takes and returns values.
        dialect: How the module spells pointers; `NvvmDialect.written` makes the rest the dialect's.
        abi: What an error does.
        inline: Whether NVVM may inline the Python function into the new one.
        launch_bounds: For a kernel, the maximum number of threads in a block, or a tuple as for `cuda.jit`.
    """
    builder = FunctionBuilder(dialect)
    outer, result = prototype(builder, signature), typed.return_type
    callee, attributes, size = _callee(module, symbol)
    first = 1 + max((int(node) for node in _NODE.findall(module)), default=-1)
    head, call, nodes = _location(module, attributes, signature.name, first)
    # A record is returned by address, which may point into the function's frame.
    must = " alwaysinline" if inline or convention.holds_record(result) else ""
    calling = convention(builder)
    arguments = _arguments(calling, signature, typed.args)
    failed, leaves = calling.call(callee._replace(after=f"{must}{call}"), arguments, result)
    kind = builder.c_type(signature.result)
    if failed:
        after = builder.branch(failed)
        if abi.on_error == "trap":
            builder.globals["llvm.trap"] = 'declare void @"llvm.trap"()'
            builder.do('call void @"llvm.trap"()')
        builder.returns(kind, "zeroinitializer")
        builder.block(after)
    builder.returns(kind, calling.to_c(signature.result, result, leaves))
    types_passed = (signature.result, *(ctype for _, ctype in signature.params))
    # Unpacking arguments costs instructions that inlining removes, but the inliner's cost model counts.
    # A struct with members that are not aligned must not be passed at all, which inlining prevents.
    inlined = (inline and size < _SMALL) or any(map(unaligned_member, types_passed))
    more = [*outer.notes, *(_kernel(launch_bounds) if signature.kernel else [])]
    notes = [f"!{{{outer.symbol}, {note}}}" for note in more]
    listed = ", ".join(f"!{first + len(nodes) + number}" for number in range(len(notes)))
    lines = [
        *builder.globals.values(),
        *(f"!{number} = {node}" for number, node in enumerate([*nodes, *notes], first)),
        *([f"!nvvm.annotations = !{{{listed}}}"] if notes else []),
        *([_used(outer.symbol, dialect)] if signature.kernel else []),
        f"define {outer.head}{' alwaysinline' if inlined and not signature.kernel else ''}{head} {{",
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
                # It is the function's own already. NVVM's time for a copy grows with the cube of its size.
                arguments.append((pointer, value))
                continue
            value = builder.value(f"load {kind}, {pointer} {value}, align {ctype.align}")
        arguments += convention.from_c(ctype, ty, value)
    return arguments


def _callee(module: str, symbol: str) -> tuple[Callee, str, int]:
    """Return the function *symbol* of *module*, what stands behind its parameters, and its size."""
    head = rf'^define ([^@\n]*)@"?{re.escape(symbol)}"?\('
    _, before, text = re.split(head, module, maxsplit=1, flags=re.MULTILINE)
    line, *body = text[: text.index("\n}")].split("\n")
    params, after = llvm_types.split(line)
    size = sum(line.startswith("  ") for line in body)
    return Callee(symbol, llvm_types.read(before), list(map(llvm_types.read, params)), ""), after, size


def _used(symbol: str, dialect: NvvmDialect) -> str:
    """Return what keeps the kernel *symbol* in link-time optimisation, where no code refers to it."""
    kind = dialect.pointer("i8")
    item = symbol if dialect.is_opaque else f"{kind} bitcast ({symbol} to {kind})"
    return f'@"llvm.used" = appending global [1 x {kind}] [{item}], section "llvm.metadata"'


def _kernel(launch_bounds: int | tuple[int, ...] | None) -> list[str]:
    bounds = (launch_bounds,) if isinstance(launch_bounds, int) else launch_bounds or ()
    return [
        '!"kernel", i32 1',
        *(f'!"{name}", i32 {int(bound)}' for name, bound in zip(_BOUNDS, bounds, strict=False)),
    ]


def _location(module: str, attributes: str, name: str, first: int) -> tuple[str, str, list[str]]:
    """
    Return what a function *name*, which calls one with the *attributes*, carries of debug information.

    It is what stands behind its head, what stands behind the call, and the metadata that both name, in nodes
    from number *first* on. LLVM drops the lines of a function that it inlines where the call has no line.
    """
    match = _SUBPROGRAM.search(attributes)
    scope = re.search(rf"^!{match[1]} = (.*)$", module, re.MULTILINE) if match else None
    line = _LINE.search(scope[1]) if scope else None
    if scope is None or line is None:
        return "", "", []
    renamed = _NAMES.sub(lambda field: f'{field[1]}: "{name}"', scope[1])
    location = f"!DILocation(line: {line[1]}, column: 1, scope: !{first})"
    return f" !dbg !{first}", f", !dbg !{first + 1}", [renamed, location]
