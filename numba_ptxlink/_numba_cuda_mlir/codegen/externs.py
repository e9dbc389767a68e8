"""
Call functions that `cuda.declare_device(abi="c")` declared by nvcc's prototypes.

numba-cuda-mlir calls them by its own ABI, which is another one for halves, complex numbers, tuples, records,
arrays and some vectors. Here it calls an internal function in place of each, which converts both ways.
"""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import abi

from . import functions, llvm, prototypes
from .builder import Builder
from .convert import from_c, memrefs, to_c

if TYPE_CHECKING:
    from .functions import Module

_CALL = "numba_ptxlink_call_"
_DECLARED = re.compile(rf"^declare (?P<result>.*?)@{_CALL}(?P<digest>[0-9a-f]+)\(")

_CALLED = re.compile(rf"@{_CALL}([0-9a-f]+)")


class _Extern(NamedTuple):
    name: str
    args: tuple[Any, ...]
    result: Any


_DIGITS = 32
_externs: dict[str, _Extern] = {}


def symbol(name: str, args: tuple[Any, ...], result: Any) -> str:
    """
    Return the symbol to call in place of the function *name*.

    Raises:
        AbiError: A type has no counterpart in C.
    """
    signature = abi.c_signature(name, result, _params(args))
    # By its content: what is compiled of MLIR that has the symbol is kept for other processes.
    content = f"{signature!r} {result} {args}"
    digest = hashlib.sha256(content.encode()).hexdigest()[:_DIGITS]
    _externs[digest] = _Extern(name, args, result)
    return f"{_CALL}{digest}"


def define(module: Module, *, modern: bool) -> None:
    """Define what *module* calls in place of C functions, and declare these."""
    declared = [match for match in map(_DECLARED.match, module.rest) if match]
    module.rest = [line for line in module.rest if not _DECLARED.match(line)]
    for match in declared:
        params, _ = llvm.split(match.string[match.end() :])
        extern, kinds = _externs[match["digest"]], [llvm.read(param) for param in params]
        _define(module, f"{_CALL}{match['digest']}", extern, llvm.read(match["result"]), kinds, modern=modern)


def used() -> bool:
    """Return whether this process has compiled a call of a C function."""
    return bool(_externs)


def called_in(text: str) -> bool:
    """Return whether *text*, of MLIR or LLVM IR, calls a C function."""
    return _CALL in text


def declared_in(text: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """
    Return the C functions that the MLIR *text* calls.

    Returns:
        The symbol of each, and the names of its C types: of the result and of each parameter.
    """
    found = []
    for digest in dict.fromkeys(_CALLED.findall(text)):
        extern = _externs[digest]
        signature = abi.c_signature(extern.name, extern.result, _params(extern.args))
        types = (signature.result, *(ctype for _, ctype in signature.params))
        found.append((extern.name, tuple(ctype.name for ctype in types)))
    return tuple(found)


def defined(text: str, *, modern: bool) -> str:
    """Return LLVM IR *text* with what it calls in place of C functions."""
    module = functions.read(text)
    define(module, modern=modern)
    return "\n".join([*module.rest, *(each.text() for each in module.functions.values()), *module.more])


def _params(args: tuple[Any, ...]) -> list[tuple[str, Any]]:
    return [(f"arg{number}", ty) for number, ty in enumerate(args)]


def _define(
    module: Module, name: str, extern: _Extern, inner: llvm.Type, kinds: list[llvm.Type], *, modern: bool
) -> None:
    signature = abi.c_signature(extern.name, extern.result, _params(extern.args))
    builder = Builder(module.types, modern=modern)
    prototype = prototypes.of(builder, signature)
    given = iter([(kind, f"%a{number}") for number, kind in enumerate(kinds)])
    leaves = iter([leaf for ty in extern.args for leaf in memrefs(builder, ty, given)])
    passed = []
    for (_, ctype), ty, (_, address) in zip(signature.params, extern.args, prototype.values, strict=True):
        kind, value = builder.c_type(ctype), to_c(builder, ctype, ty, leaves)
        if address is not None:
            slot = builder.value(f"alloca {kind}, align {ctype.align}")
            builder.do(f"store {kind} {value}, {address} {slot}, align {ctype.align}")
            value = slot
        passed.append(prototypes.argument(builder, ctype, value))
    returned = builder.c_type(signature.result)
    call = f"call {prototypes.extension(signature.result)}{returned} @{extern.name}({', '.join(passed)})"
    if isinstance(returned, llvm.Void):
        builder.do(call)
        builder.do("ret void")
    else:
        results = iter(from_c(builder, signature.result, extern.result, builder.value(call)))
        whole = list(memrefs(builder, extern.result, results))
        builder.do(f"ret {inner} {_together(builder, inner, whole)}")
    params = ", ".join(f"{kind} %a{number}" for number, kind in enumerate(kinds))
    body = [f"define internal {inner} @{name}({params}) alwaysinline {{", *builder.lines, "}\n"]
    module.more.append("\n".join(body))
    module.add_types(builder.bodies)
    if not any(line.startswith("declare ") and f"@{extern.name}(" in line for line in module.rest):
        module.rest.append(f"declare {prototype.head}")
        module.rest += prototypes.metadata(module.last_node + 1, prototype.symbol, prototype.notes)


def _together(builder: Builder, inner: llvm.Type, results: list[tuple[llvm.Type, str]]) -> str:
    if len(results) == 1:
        return builder.convert(*results[0], inner)
    out = "undef"
    for at, ((have, value), want) in enumerate(zip(results, llvm.members(inner), strict=True)):
        out = builder.insert(inner, out, want, builder.convert(have, value, want), at)
    return out
