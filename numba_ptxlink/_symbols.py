"""The symbols that one input of a link defines and asks for, as far as its kind lets them be read."""

from __future__ import annotations

import hashlib
import logging
import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from . import _elf, _llvm, _nvjitlink, _ptx
from ._locks import Lock
from ._ptx import Param, Prototype
from .errors import LinkError

if TYPE_CHECKING:
    from ._inputs import Input
    from ._target import Arch

log = logging.getLogger("numba_ptxlink")

_WEAK = ("weak", "common")
_LETTERS = {"b": 8, "h": 16, "i": 32, "l": 64, "f": 32, "d": 64}
_TYPES = {"b": "b8", "h": "b16", "i": "b32", "l": "b64", "f": "f32", "d": "f64"}
_PARAM_NOTE = re.compile(r"b(\d+)|([a-z])")
# What the tools themselves put into every relocatable image.
_OWN = re.compile(r"__U[DF]T\w*|\.nv\..*|\$.*")
_REMEMBERED = 256


@dataclass(frozen=True)
class Symbol:
    """
    One symbol that other inputs can see.

    Args:
        name: The symbol.
        kind: "entry" for a kernel, "func" for a device function, "variable" for data.
        defined: Whether the input defines it, rather than asking for it.
        weak: Whether another definition may stand in for this one.
        prototype: A function's interface, None where the input does not tell.
        line: 1-based line of the text, 0 for a binary.
    """

    name: str
    kind: str
    defined: bool
    weak: bool = False
    prototype: Prototype | None = None
    line: int = 0


@dataclass(frozen=True)
class Table:
    """
    The symbols of one input.

    Args:
        name: The input's name.
        kind: The input's kind.
        symbols: Its symbols, each once; None where they cannot be read.
    """

    name: str
    kind: str
    symbols: tuple[Symbol, ...] | None


def table(source: Input, arch: Arch, *, deep: bool = True) -> Table:
    """
    Read the symbols of *source*. Thread-safe; remembers the last few hundred binaries by their content.

    Args:
        source: An input of any kind but CUDA C++.
        arch: The architecture of the link; a fat binary gives the code for it.
        deep: Whether to let nvJitLink unpack what only it can read.
    """
    if source.kind == "ptx":
        return Table(source.name, source.kind, _of_ptx(source.code.decode(errors="replace")))
    if source.witness:
        return Table(source.name, source.kind, _of_llvm(source.witness, arch))
    if source.kind == "cubin":
        return Table(source.name, source.kind, of_image(_elf.read(source.code, source.name)))
    return Table(source.name, source.kind, _unpacked(source, arch) if deep else None)


def _of_ptx(text: str) -> tuple[Symbol, ...]:
    found: dict[str, Symbol] = {}
    for function in _ptx.functions(text):
        prototype = function.prototype
        if not function.linkage and not prototype.entry:
            continue
        known = found.get(prototype.name)
        if known is None or (function.defined and not known.defined):
            found[prototype.name] = Symbol(
                name=prototype.name,
                kind="entry" if prototype.entry else "func",
                defined=function.defined,
                weak=function.linkage in _WEAK,
                prototype=None if prototype.entry else prototype,
                line=function.line,
            )
    for variable in _ptx.variables(text):
        known = found.get(variable.name)
        if known is None or (variable.linkage != "extern" and not known.defined):
            defined = variable.linkage != "extern"
            found[variable.name] = Symbol(
                variable.name, "variable", defined, variable.linkage in _WEAK, line=variable.line
            )
    return tuple(found.values())


def _of_llvm(text: str, arch: Arch) -> tuple[Symbol, ...]:
    found: dict[str, Symbol] = {}
    for each in _llvm.symbols(text, arch):
        known = found.get(each.name)
        if known is None or (each.defined and not known.defined):
            found[each.name] = Symbol(each.name, each.kind, each.defined, each.weak, each.prototype)
    return tuple(found.values())


def of_image(image: _elf.Image) -> tuple[Symbol, ...]:
    """Return the symbols of a GPU's ELF image, the tools' own aside."""
    return tuple(
        Symbol(
            name=each.name,
            kind=each.kind,
            defined=each.defined,
            weak=each.weak,
            prototype=prototype(each.name, each.signature) if each.signature else None,
        )
        for each in image.symbols
        if not _OWN.fullmatch(each.name)
    )


def prototype(name: str, signature: str) -> Prototype:
    """Return what the compiler's note *signature* about the function *name* says, such as "#ii"."""
    notes = signature.lstrip("#").partition("|")[0]
    params = [
        Param(size=int(match[1]))
        if match[1]
        else Param(bits=_LETTERS.get(match[2], 0), type=_TYPES.get(match[2], ""))
        for match in _PARAM_NOTE.finditer(notes.removeprefix("v"))
    ]
    if notes.startswith("v"):
        return Prototype(name, None, tuple(params))
    return Prototype(name, params[0] if params else None, tuple(params[1:]))


_known: OrderedDict[tuple[str, str, str], tuple[Symbol, ...] | None] = OrderedDict()
_known_lock = Lock()


def _unpacked(source: Input, arch: Arch) -> tuple[Symbol, ...] | None:
    key = (source.kind, arch.sm, _digest(source.code))
    with _known_lock.held:
        if key in _known:
            _known.move_to_end(key)
            return _known[key]
    code = unpack(source, arch)
    found = None if code is None else of_image(_elf.read(code, source.name))
    with _known_lock.held:
        _known[key] = found
        while len(_known) > _REMEMBERED:
            _known.popitem(last=False)
    return found


def unpack(source: Input, arch: Arch) -> bytes | None:
    """Return *source* as one relocatable image made by nvJitLink, None where it has no code for *arch*."""
    plain, lto = (f"-arch={arch.sm}", "-r"), (f"-arch={arch.sm}", "-lto", "-r")
    for flags in (lto,) if source.kind == "ltoir" else (plain, lto):
        try:
            return _nvjitlink.link([(source.kind, source.name, source.code)], flags).code
        except LinkError as error:
            reason = error
    log.debug("the symbols of %s cannot be read: %s", source.name, reason)
    return None


def _digest(code: bytes) -> str:
    return hashlib.sha256(code).hexdigest()
