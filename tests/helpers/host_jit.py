"""LLVM IR of a GPU's functions, executed on this machine's CPU, which has the same layout of C values."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any

import llvmlite.binding as llvm
from llvmlite import ir

if TYPE_CHECKING:
    from collections.abc import Callable

# The target's own lines, and the attribute that makes its calling convention out of an address.
_TARGET = re.compile(r'^target (?:triple|datalayout) = ".*"$|\bbyval(?:\(.*?\))? ', re.MULTILINE)


def add_caller(function: ir.Function) -> None:
    """
    Add a function `call_NAME(result, arguments...)` to the module of *function*, which moves all by pointers.

    A struct is passed and returned in other ways by other calling conventions; a pointer is not.
    """
    result = function.ftype.return_type
    places = [] if isinstance(result, ir.VoidType) else [result.as_pointer()]
    by_address = ["byval" in each.attributes for each in function.args]
    kinds = [
        each.type if there else each.type.as_pointer()
        for each, there in zip(function.args, by_address, strict=True)
    ]
    kind = ir.FunctionType(ir.VoidType(), [*places, *kinds])
    caller = ir.Function(function.module, kind, f"call_{function.name}")
    builder = ir.IRBuilder(caller.append_basic_block("entry"))
    given = zip(caller.args[len(places) :], by_address, strict=True)
    value = builder.call(function, [each if there else builder.load(each, align=1) for each, there in given])
    if places:
        builder.store(value, caller.args[0], align=1)
    builder.ret_void()


def load(module: ir.Module, *others: ir.Module) -> Callable[..., bytes]:
    """
    Compile *module*, and *others* that it calls.

    Return what calls a function by its name, with arguments and the result as bytes.
    """
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    parsed = llvm.parse_assembly(_TARGET.sub("", str(module)))
    for other in others:
        parsed.link_in(llvm.parse_assembly(_TARGET.sub("", str(other))))
    parsed.verify()
    engine = llvm.create_mcjit_compiler(parsed, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()

    def call(name: str, size: int, *arguments: bytes) -> bytes:
        buffers: list[Any] = [ctypes.create_string_buffer(each, len(each)) for each in arguments]
        result = ctypes.create_string_buffer(size)
        buffers = [result, *buffers] if size else buffers
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(buffers))
        kind(engine.get_function_address(f"call_{name}"))(*(ctypes.addressof(each) for each in buffers))
        return result.raw

    return call
