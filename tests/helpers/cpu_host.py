"""Functions that a front end compiled, executed on the CPU, which has the same layout of C values."""

from __future__ import annotations

import ctypes
import re
import struct
import types
from typing import TYPE_CHECKING, Any

import abi_rows
import llvmlite.binding as llvm

from numba_ptxlink import Arch
from numba_ptxlink._front_end.protocol import CompileOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numba_ptxlink import Udf
    from numba_ptxlink._export.compile import Program

# The target's own lines, and what makes a GPU's calling convention or assembly of the text.
_TARGET = re.compile(r'^target (?:triple|datalayout) = ".*"$', re.MULTILINE)
_TRAP = '  call void asm sideeffect "trap;", ""()'
# Only the dialect from sm_100 on is today's LLVM IR.
ARCH = Arch.of("sm_100")
_FORMATS = {"i8": "<b", "i16": "<h", "i32": "<i", "i64": "<q", "float": "<f", "double": "<d"}


def copied(function: Any, **names: Any) -> Any:
    """Return the Python function of *function* with other global names."""
    function = getattr(function, "py_func", getattr(function, "function", function))
    return types.FunctionType(
        function.__code__, {**function.__globals__, **names}, function.__name__, None, function.__closure__
    )


def lowered(*udfs: Udf, front_end: str = "numba-cuda-mlir", **options: bool) -> Program:
    """Return *udfs* as *front_end* compiles them."""
    return abi_rows.program(udfs, front_end, ARCH, CompileOptions(**options))


def host(udf: Udf, front_end: str = "numba-cuda-mlir") -> Callable[..., Any]:
    """
    Return what calls the function of *udf* on this machine.

    It takes numbers, and bytes where the C function takes a struct; it returns a number, or the bytes.
    """
    compiled = lowered(udf, front_end=front_end)
    call, result = loaded(compiled.functions[0].modules, udf.name, compiled.signatures[0].result.size)
    if result not in _FORMATS:
        return call
    return lambda *values: struct.unpack(_FORMATS[result], call(*values))[0]


def loaded(texts: Sequence[str], name: str, size: int) -> tuple[Callable[..., bytes], str]:
    """Return what calls *name* of the modules *texts*, whose result has *size* bytes, and its LLVM type."""
    head = re.compile(
        rf"^define (?:signext |zeroext )?(%\"[^\"]*\"|\S+) @\"{name}\"\((.*)\)[^()]*?\s?{{$", re.MULTILINE
    )
    (match,) = filter(None, map(head.search, texts))
    result = match[1]
    kinds = [each.rpartition(" %")[0] for each in _split(match[2])]
    by_address = [" byval(" in kind for kind in kinds]
    bare = [re.sub(r" (?:signext|zeroext)$", "", kind) for kind in kinds]
    loads = "".join(
        f"  %v{n} = load {kind}, ptr %a{n}, align 1\n" for n, kind in enumerate(bare) if not by_address[n]
    )
    passed = ", ".join(f"{kind} %{'a' if by_address[n] else 'v'}{n}" for n, kind in enumerate(bare))
    places = ", ".join(f"ptr %a{n}" for n, _ in enumerate(bare))
    caller = (
        f"define void @call(ptr %r{', ' if bare else ''}{places}) {{\n{loads}"
        f'  %r0 = call {result} @"{name}"({passed})\n  store {result} %r0, ptr %r, align 1\n'
        "  ret void\n}\n"
    )
    engine = _load([f"{text}{caller}" if text is match.string else text for text in texts])

    def call(*values: Any) -> bytes:
        given = [
            value if isinstance(value, bytes) else struct.pack(_FORMATS.get(kind, "<Q"), value)
            for value, kind in zip(values, bare, strict=True)
        ]
        buffers = [
            ctypes.create_string_buffer(size),
            *(ctypes.create_string_buffer(v, len(v)) for v in given),
        ]
        kind = ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * len(buffers))
        kind(engine.get_function_address("call"))(*map(ctypes.addressof, buffers))
        return buffers[0].raw

    return call, result


def _split(params: str) -> list[str]:
    # Types of arrays have commas in their quoted names.
    return [part.strip() for part in re.split(r',(?=(?:[^"]*"[^"]*")*[^"]*$)', params) if part.strip()]


def _load(texts: Sequence[str]) -> Any:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    module, *others = (llvm.parse_assembly(_TARGET.sub("", text).replace(_TRAP, "")) for text in texts)
    for other in others:
        module.link_in(other)
    module.verify()
    engine = llvm.create_mcjit_compiler(module, llvm.Target.from_default_triple().create_target_machine())
    engine.finalize_object()
    return engine
