"""
Call functions that `cuda.declare_device(abi="c")` declared by nvcc's prototypes, in exported functions.

numba-cuda-mlir calls them by its own ABI, which is another one for halves, complex numbers, tuples, records,
arrays and some vectors. Here it calls an internal function in place of each, which converts both ways.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink import abi

from . import llvm
from .builder import Builder, argument, extension, nvvm_annotations, prototype
from .convert import check, from_c, memrefs, to_c

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numba_ptxlink._cabi.signatures import Signature

    from .functions import Module

_CALL = "numba_ptxlink_call_"
_DECLARED = re.compile(rf"^declare (?P<result>.*?)@{_CALL}(?P<number>\d+)\(")


class Extern(NamedTuple):
    """A function that `cuda.declare_device` declared: its symbol, and the Numba types of its parameters."""

    name: str
    args: tuple[Any, ...]
    result: Any

    @property
    def signature(self) -> Signature:
        """Its signature in C; raises an `AbiError` where a type has no counterpart or would be misread."""
        params = [(f"arg{number}", ty) for number, ty in enumerate(self.args)]
        signature = abi.c_signature(self.name, self.result, params)
        check(signature, self.args, self.result)
        return signature


def symbol(extern: Extern, externs: dict[Extern, int]) -> str:
    """Return what to call in place of *extern*, which is added to those of an export."""
    _ = extern.signature  # before anything is compiled
    return f"{_CALL}{externs.setdefault(extern, len(externs))}"


def define(module: Module, externs: Sequence[Extern], *, modern: bool) -> None:
    """Define what *module* calls in place of *externs*, and declare these."""
    declared = [match for match in map(_DECLARED.match, module.rest) if match]
    module.rest = [line for line in module.rest if not _DECLARED.match(line)]
    for match in declared:
        params, _ = llvm.split(match.string[match.end() :])
        extern, kinds = externs[int(match["number"])], [llvm.read(param) for param in params]
        _define(module, f"{_CALL}{match['number']}", extern, llvm.read(match["result"]), kinds, modern=modern)


def _define(
    module: Module, name: str, extern: Extern, inner: llvm.Type, kinds: list[llvm.Type], *, modern: bool
) -> None:
    signature = extern.signature
    builder = Builder(module.types, modern=modern)
    outer = prototype(builder, signature)
    given = iter([(kind, f"%a{number}") for number, kind in enumerate(kinds)])
    leaves = iter([leaf for ty in extern.args for leaf in memrefs(builder, ty, given)])
    passed = []
    for (_, ctype), ty, (_, address) in zip(signature.params, extern.args, outer.values, strict=True):
        kind, value = builder.c_type(ctype), to_c(builder, ctype, ty, leaves)
        if address is not None:
            slot = builder.value(f"alloca {kind}, align {ctype.align}")
            builder.do(f"store {kind} {value}, {address} {slot}, align {ctype.align}")
            value = slot
        passed.append(argument(builder, ctype, value))
    returned = builder.c_type(signature.result)
    call = f"call {extension(signature.result)}{returned} @{extern.name}({', '.join(passed)})"
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
        module.rest.append(f"declare {outer.head}")
        module.rest += nvvm_annotations(module.last_node + 1, outer.symbol, outer.notes)


def _together(builder: Builder, inner: llvm.Type, results: list[tuple[llvm.Type, str]]) -> str:
    if len(results) == 1:
        return builder.convert(*results[0], inner)
    out = "undef"
    for at, ((have, value), want) in enumerate(zip(results, llvm.members(inner), strict=True)):
        out = builder.insert(inner, out, want, builder.convert(have, value, want), at)
    return out
