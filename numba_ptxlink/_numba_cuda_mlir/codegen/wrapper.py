"""
Generate wrappers with the C ABI: functions with nvcc's prototype that call one that numba-cuda-mlir compiled.

A wrapper is text, as what it calls is: the LLVM IR of numba-cuda-mlir has no other form in Python.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from numba_cuda_mlir.numba_cuda import types

from numba_ptxlink._cabi.signatures import Signature, unaligned_member

from .builder import I8, FunctionBuilder, nvvm_annotations, prototype
from .convert import check, count, from_c, holds_record, to_c
from .llvm import members

if TYPE_CHECKING:
    from numba_ptxlink._formats.llvm_ir import NvvmDialect

    from .functions import Definition, ParsedModule
    from .llvm import Type

INNER = "numba_ptxlink_inner"
"""The symbol of a function with the ABI of numba-cuda-mlir."""

# In instructions of LLVM IR; whether to inline a larger function is NVVM's decision.
_SMALL = 1000
_BOUNDS = ("maxntidx", "minctasm", "cluster_max_blocks")
# Of debug information.
_SUBPROGRAM = re.compile(r"!dbg !(\d+)")
_LINE = re.compile(r"\bline: (\d+)")
_NAMES = re.compile(r'\b(name|linkageName): "[^"]*"')


def wrap(
    module: ParsedModule,
    typed: Any,
    signature: Signature,
    *,
    dialect: NvvmDialect,
    inline: bool,
    launch_bounds: int | tuple[int, ...] | None = None,
) -> str:
    """
    Return the text of *module* with the C function of *signature*, which calls its function `INNER`.

    Args:
        module: The Python function, as numba-cuda-mlir compiled it, whose errors end it.
        typed: The types of its parameters and result.
        signature: The C signature of the new function.
        dialect: The dialect that the module is in.
        inline: Whether NVVM may inline the Python function into the new one.
        launch_bounds: For a kernel, the maximum number of threads in a block, or a tuple as for `cuda.jit`.
    """
    result = typed.return_type
    check(signature, typed.args, result)
    builder = FunctionBuilder(dialect)
    outer = prototype(builder, signature)
    arguments: list[tuple[Type, str]] = []
    for (_, ctype), ty, (value, address) in zip(signature.params, typed.args, outer.values, strict=True):
        kind, loaded = builder.c_type(ctype), value
        if address is not None and isinstance(ty, types.Record) and unaligned_member(ctype) is None:
            # It is the function's own already. NVVM's time for a copy grows with the cube of its size.
            arguments.append((builder.pointer(kind), value))
            continue
        if address is not None:
            loaded = builder.value(f"load {kind}, {address} {value}, align {ctype.align}")
        arguments += from_c(builder, ctype, ty, loaded)
    function = module.functions[INNER]
    by_head, by_call, nodes = _location(module, function.attributes, signature.name)
    _call(builder, function, arguments, signature, result, by_call)
    if inline or holds_record(result):
        # A record is returned by address, which may point into the function's frame.
        function.attributes = f"alwaysinline {function.attributes}".rstrip()
    notes = [*outer.notes, *(_kernel(launch_bounds) if signature.kernel else [])]
    small = sum(len(block.lines) for block in function.blocks) < _SMALL
    types_passed = (signature.result, *(ctype for _, ctype in signature.params))
    # Unpacking arguments costs instructions that inlining removes, but the inliner's cost model counts.
    # A struct with members that are not aligned must not be passed at all, which inlining prevents.
    inlined = (inline and small) or any(map(unaligned_member, types_passed))
    attributes = " alwaysinline" if inlined and not signature.kernel else ""
    module.add_types(builder.bodies)
    module.rest += nodes
    module.rest += nvvm_annotations(module.last_node + 1, outer.symbol, notes)
    if signature.kernel:
        module.rest.append(_used(outer.symbol, dialect))
    body = "\n".join([f"define {outer.head}{attributes}{by_head} {{", *builder.lines, "}\n"])
    functions = [each.text() for each in module.functions.values()]
    return "\n".join([*module.rest, *functions, body])


def _call(  # noqa: PLR0917 - one call
    builder: FunctionBuilder,
    function: Definition,
    arguments: list[tuple[Type, str]],
    signature: Signature,
    result: Any,
    location: str,
) -> None:
    """Emit the call of *function*, and the return of what it returns."""
    kind, inner = builder.c_type(signature.result), function.result_type
    passed = [
        f"{want} {builder.convert(have, value, want)}"
        for (have, value), want in zip(arguments, function.param_types, strict=True)
    ]
    byte, slot = builder.pointer(I8), ""
    if function.more:
        slot = builder.value("alloca i8, align 1")
        builder.do(f"store i8 0, {byte} {slot}, align 1")
        passed.append(f"{byte} {slot}")
    call = f"call {inner} @{function.name}({', '.join(passed)}){location}"
    value = ""
    if str(inner) == "void":
        builder.do(call)
    else:
        value = builder.value(call)
    if slot:
        met = builder.value(f"load i8, {byte} {slot}, align 1")
        builder.do(f"br i1 {builder.value(f'icmp ne i8 {met}, 0')}, label %error, label %done")
        builder.lines.append("error:")
        builder.do("ret void" if str(kind) == "void" else f"ret {kind} zeroinitializer")
        builder.lines.append("done:")
    if str(kind) == "void":
        builder.do("ret void")
        return
    leaves = [(inner, value)]
    if count(result) > 1:
        leaves = [(part, builder.extract(inner, value, at)) for at, part in enumerate(members(inner))]
    builder.do(f"ret {kind} {to_c(builder, signature.result, result, iter(leaves))}")


def _used(symbol: str, dialect: NvvmDialect) -> str:
    """Return what keeps the kernel *symbol* in link-time optimisation, where no code refers to it."""
    kind = dialect.pointer("i8")
    item = symbol if dialect.is_opaque else f"{kind} bitcast ({symbol} to {kind})"
    return f'@llvm.used = appending global [1 x {kind}] [{item}], section "llvm.metadata"'


def _kernel(launch_bounds: int | tuple[int, ...] | None) -> list[str]:
    bounds = (launch_bounds,) if isinstance(launch_bounds, int) else launch_bounds or ()
    return [
        '!"kernel", i32 1',
        *(f'!"{name}", i32 {int(bound)}' for name, bound in zip(_BOUNDS, bounds, strict=False)),
    ]


def _location(module: ParsedModule, attributes: str, name: str) -> tuple[str, str, tuple[str, ...]]:
    """
    Return what a function *name*, which calls one with the *attributes*, carries of debug information.

    It is what stands behind its head, what stands behind the call, and the metadata that both name. LLVM
    drops the lines of a function that it inlines where the call has no line.

    Args:
        module: The module.
        attributes: The attributes of the function that is called.
        name: The symbol of the generated function.
    """
    match = _SUBPROGRAM.search(attributes)
    head = f"!{match[1]} = " if match else ""
    scope = next((line for line in module.rest if head and line.startswith(head)), "")
    line = _LINE.search(scope)
    if line is None:
        return "", "", ()
    first = module.last_node + 1
    renamed = _NAMES.sub(lambda field: f'{field[1]}: "{name}"', scope.removeprefix(head))
    return (
        f" !dbg !{first}",
        f", !dbg !{first + 1}",
        (
            f"!{first} = {renamed}",
            f"!{first + 1} = !DILocation(line: {line[1]}, column: 1, scope: !{first})",
        ),
    )
