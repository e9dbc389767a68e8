"""
Symbols of a module of MLIR that depend on the program alone.

numba-cuda-mlir names the functions that a kernel calls by addresses of the process, and its arrays and
strings by counters. Both are replaced by a digest of the module, so that it is the same in every process.
"""

from __future__ import annotations

import hashlib
import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

_COUNTED = re.compile(r"((?:constant_array|static_shared_memory|__numba_cuda_mlir_str)_)\d+")
# Long enough for an address, and too long for a number that people write.
_ADDRESSED = re.compile(r"(\w+_)\d{9,}", re.ASCII)
_LENGTH = re.compile(r"\d+", re.ASCII)
_DIGITS = 16


def stabilise(module: Any, kept: str, *, debug: bool) -> str:
    """
    Rename what *module* defines under an address or a counter, and all references to it.

    Args:
        module: A module of numba-cuda-mlir with one `gpu.module`, inside its context. It is changed.
        kept: The symbol that stays as it is; "" for none.
        debug: Whether the locations in it are part of the program.

    Returns:
        Its text.
    """
    from numba_cuda_mlir import mlir_optimization

    program = mlir_optimization._get_single_gpu_module(module).operation
    found = [(op, parts) for op, name in _defined(program) if name != kept and (parts := _parts(name))]
    # First under their positions: what the digest is made of must not know the process.
    for place, (op, _) in enumerate(found):
        _rename(program, op, f"numba_ptxlink_{place}")
    digest = hashlib.sha256(_text(module, debug=debug).encode()).hexdigest()
    for place, (op, (before, name, after)) in enumerate(found):
        own = hashlib.sha256(f"{digest} {place}".encode()).hexdigest()[:_DIGITS]
        new = f"{name}{own}"
        _rename(program, op, f"{before}{len(new)}{new}{after}" if before else new)
    return _text(module, debug=debug)


def _text(module: Any, *, debug: bool) -> str:
    written = io.StringIO()
    module.operation.print(enable_debug_info=debug, file=written)
    return written.getvalue()


def _defined(program: Any) -> Iterator[tuple[Any, str]]:
    for op in program.regions[0].blocks[0].operations:
        if "sym_name" in op.attributes:
            yield op, op.attributes["sym_name"].value


def _parts(symbol: str) -> tuple[str, str, str] | None:
    """
    Return what is before the length of the name in *symbol*, the name up to its number, and what follows it.

    The first is "" where *symbol* is no mangled name. None if it has neither an address nor a counter.
    """
    counted = _COUNTED.fullmatch(symbol)
    if counted:
        return "", counted[1], ""
    nested, at = symbol.startswith("_ZN"), 2
    if not symbol.startswith("_Z"):
        return None
    at += nested
    while length := _LENGTH.match(symbol, at):
        before, end = at, length.end() + int(length[0])
        # Types, too, begin with their lengths.
        if not nested or symbol[end : end + 1] == "E":
            addressed = _ADDRESSED.fullmatch(symbol, length.end(), end)
            return (symbol[:before], addressed[1], symbol[end:]) if addressed else None
        at = end
    return None


def _rename(program: Any, op: Any, name: str) -> None:
    from numba_cuda_mlir._mlir.ir import SymbolTable

    SymbolTable.replace_all_symbol_uses(op.attributes["sym_name"].value, name, program)
    SymbolTable.set_symbol_name(op, name)
