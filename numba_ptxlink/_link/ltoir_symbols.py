"""
Read the symbols of LTO-IR from PTX, where nvJitLink makes no relocatable image: before CUDA 13.

Such PTX has a kernel with all that it reaches, and the functions that it calls and nobody defines. Of device
functions it has those that a kernel uses, so a temporary kernel uses each name that another input asks for.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING

from numba_ptxlink import cache
from numba_ptxlink._formats import ptx
from numba_ptxlink._formats.kinds import LTOIR
from numba_ptxlink._formats.symbol import Symbol
from numba_ptxlink._tools import nvjitlink, nvrtc
from numba_ptxlink.errors import PtxlinkError

from .symbols import Table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from numba_ptxlink._arch import Arch

    from .inputs import Input

log = logging.getLogger(__name__)

_USER = "numba_ptxlink_user"
# The parameter, in bytes, of functions that only the temporary kernel declares: no other has one like it.
_ODD = 251
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
# Functions that the compilers define themselves.
_SUPPLIED = ("vprintf", "malloc", "free", "__assertfail")


def tables(inputs: Sequence[Input], known: Iterable[Table], arch: Arch) -> tuple[Table, ...]:
    """
    Return the tables of *inputs*, all LTO-IR: what they define that others ask for, and what they ask for.

    Definitions count as weak: this PTX does not tell, and nvJitLink itself refuses two of them in LTO-IR.

    Args:
        inputs: The inputs to read.
        known: The tables of the other inputs of the link.
        arch: The architecture of the link.
    """
    asked = {symbol.name for table in known for symbol in table.symbols or () if symbol.kind == "func"}
    while True:
        done = tuple(Table(source.name, LTOIR, _symbols(source, asked, arch)) for source in inputs)
        more = {symbol.name for table in done for symbol in table.symbols or () if symbol.kind == "func"}
        # A function that another one asks for may ask for further ones.
        if more <= asked:
            return done
        asked |= more


def _symbols(source: Input, asked: Collection[str], arch: Arch) -> tuple[Symbol, ...] | None:
    names = sorted(name for name in asked if _IDENTIFIER.fullmatch(name) and name not in _SUPPLIED)
    try:
        text = _ptx(source, names, arch)
    except PtxlinkError as error:
        log.debug("the symbols of %s cannot be read: %s", source.name, error)
        return None
    symbols: dict[str, Symbol] = {}
    for function in ptx.parse(text.rstrip("\0")).functions:
        prototype = function.prototype
        if prototype.name == _USER or (function.defined and prototype.name in symbols):
            continue
        kind = "entry" if prototype.entry else "func"
        if function.defined and (prototype.entry or prototype.name in names):
            symbols[prototype.name] = Symbol(
                prototype.name, kind, True, weak=True, prototype=None if prototype.entry else prototype
            )
        elif function.linkage == "extern" and not any(param.size == _ODD for param in prototype.params):
            symbols.setdefault(prototype.name, Symbol(prototype.name, kind, False, False, prototype))
    return tuple(symbols.values())


def _ptx(source: Input, names: Sequence[str], arch: Arch) -> str:
    inputs = [(LTOIR, source.name, source.code)]
    if names:
        uses = "".join(f'extern "C" __device__ void {name}({_USER}_t);\n' for name in names)
        uses = f"struct {_USER}_t {{ char bytes[{_ODD}]; }};\n{uses}"
        body = "".join(f"p[{number}] = (void*)&{name};\n" for number, name in enumerate(names))
        user = f'{uses}extern "C" __global__ void {_USER}(void** p) {{\n{body}}}\n'
        compiled = nvrtc.compile_source(user, f"{_USER}.cu", arch, output=LTOIR)
        inputs.append((LTOIR, f"{_USER}.cu", compiled.code))
    flags = (f"-arch={arch.sm}", "-lto", "-ptx", "-O0")
    key = nvjitlink.key(inputs, flags)
    return cache.cached(key, lambda: cache.Entry({}, nvjitlink.link(inputs, flags).code)).code.decode()
