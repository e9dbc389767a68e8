"""Read the symbols that one input of a link defines and references, where its kind allows it."""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from collections import OrderedDict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from numba_ptxlink import cache
from numba_ptxlink._arch import dotted
from numba_ptxlink._config import config
from numba_ptxlink._formats import containers, elf, llvm_ir, ptx
from numba_ptxlink._formats.kinds import ARCHIVE, CUBIN, LTOIR, PTX
from numba_ptxlink._formats.ptx import Param, Prototype
from numba_ptxlink._formats.symbol import Symbol
from numba_ptxlink._locks import Lock
from numba_ptxlink._tools import nvjitlink
from numba_ptxlink.cache.key import package_version
from numba_ptxlink.errors import LinkError

from . import symbol_tables

if TYPE_CHECKING:
    from numba_ptxlink._arch import Arch

    from .inputs import Input

log = logging.getLogger(__name__)

_WEAK = ("weak", "common")
_LETTERS = {"b": 8, "h": 16, "i": 32, "l": 64, "f": 32, "d": 64}
_TYPES = {"b": "b8", "h": "b16", "i": "b32", "l": "b64", "f": "f32", "d": "f64"}
_PARAM_NOTE = re.compile(r"b(\d+)|([a-z])")
# Symbols that the tools add to every relocatable image.
_OWN = re.compile(r"__U[DF]T\w*|\.nv\..*|\$.*")
_REMEMBERED = 256
# Smallest binary in bytes whose symbols are cached on disk, rather than read each time.
_WORTH_KEEPING = 256 << 10


@dataclass(frozen=True)
class Table:
    """
    The symbols of one input.

    Args:
        name: The input's name.
        kind: The input's kind.
        symbols: Its symbols, each once; None where they cannot be read.
        hidden: The functions and variables of PTX that no other input sees.
    """

    name: str
    kind: str
    symbols: tuple[Symbol, ...] | None
    hidden: frozenset[str] = frozenset()


def table(source: Input, arch: Arch, *, lto: bool = False, deep: bool = True) -> Table:
    """
    Read the symbols of *source*. Thread-safe; memoizes the last 256 binaries by content.

    Args:
        source: An input of any kind but CUDA C++.
        arch: The architecture of the link, which selects the code of a fat binary.
        lto: Whether the link optimises, which selects other code of a fat binary.
        deep: Whether to compile LTO-IR with nvJitLink where its symbols cannot be read otherwise.
    """
    if source.kind == PTX:
        found = of_ptx(source.module)
        # The lines are those of the PTX, which nobody has who gave its source.
        shown = tuple(replace(symbol, line=0) for symbol in found) if source.compiled else found
        symbols: tuple[ptx.Function | ptx.Variable, ...] = (
            *source.module.functions,
            *source.module.variables,
        )
        hidden = {each.name for each in symbols if each.defined and not each.linkage}
        return Table(source.name, source.kind, shown, frozenset(hidden))
    if source.witness:
        return Table(source.name, source.kind, _of_llvm(source.witness, arch))
    return Table(source.name, source.kind, _of_binary(source, arch, lto=lto, deep=deep))


def of_ptx(module: ptx.Module) -> tuple[Symbol, ...]:
    """Return the symbols of PTX that other code can see."""
    index: dict[tuple[str, ...], Symbol] = {}
    for function in module.functions:
        prototype = function.prototype
        if function.linkage or prototype.entry:
            _add(
                index,
                Symbol(
                    name=prototype.name,
                    kind="entry" if prototype.entry else "func",
                    defined=function.defined,
                    weak=function.linkage in _WEAK,
                    prototype=None if prototype.entry else prototype,
                    line=function.line,
                ),
            )
    aliases = {item.name for item in module.items if isinstance(item, ptx.Alias)}
    for function in module.functions:
        if function.name in aliases:
            # It is declared before, as a function with its target's prototype. The compilers make a visible
            # and strong definition of it, whatever is declared.
            form = function.name, "func", ""
            index[form] = Symbol(*form[:2], True, prototype=function.prototype, line=function.line)
    for variable in module.variables:
        if variable.linkage:
            _add(
                index,
                Symbol(
                    variable.name,
                    "variable",
                    variable.defined,
                    weak=variable.linkage in _WEAK,
                    line=variable.line,
                    size=variable.size,
                    common=variable.linkage == "common",
                    space=variable.memory,
                ),
            )
    return tuple(index.values())


def _add(index: dict[tuple[str, ...], Symbol], symbol: Symbol) -> bool:
    """Add *symbol* to *index* and return True, unless there is one that says as much."""
    previous = index.get(_form(symbol))
    is_new = previous is None or (symbol.defined and not previous.defined)
    if is_new:
        index[_form(symbol)] = symbol
    return is_new


def _form(symbol: Symbol) -> tuple[str, ...]:
    """Return what entries for one thing share; what contradicts it in a library has an entry of its own."""
    return symbol.name, symbol.kind, symbol.space


def _of_llvm(text: str, arch: Arch) -> tuple[Symbol, ...]:
    index: dict[tuple[str, ...], Symbol] = {}
    for symbol in llvm_ir.symbols(text, arch):
        _add(index, symbol)
    return tuple(index.values())


def of_image(image: elf.Image) -> tuple[Symbol, ...]:
    """Return the symbols of a GPU's ELF image, except those that the tools add."""
    return tuple(
        Symbol(
            name=symbol.name,
            kind=symbol.kind,
            defined=symbol.defined,
            weak=symbol.weak,
            prototype=prototype(symbol.name, symbol.signature) if symbol.signature else None,
            size=symbol.size if symbol.kind == "variable" else 0,
            common=symbol.common,
            space=symbol.space,
        )
        for symbol in image.symbols
        if not _OWN.fullmatch(symbol.name)
    )


def prototype(name: str, signature: str) -> Prototype:
    """Return the prototype of the function *name* from the compiler's note *signature*, such as "#ii"."""
    return Prototype(name, *_interface(signature.lstrip("#").partition("|")[0]))


@functools.lru_cache(maxsize=1024)
def _interface(notes: str) -> tuple[Param | None, tuple[Param, ...]]:
    """Return the result and the parameters."""
    params = [
        Param(size=int(match[1]))
        if match[1]
        else Param(bits=_LETTERS.get(match[2], 0), type=_TYPES.get(match[2], ""))
        for match in _PARAM_NOTE.finditer(notes.removeprefix("v"))
    ]
    if notes.startswith("v"):
        return None, tuple(params)
    return (params[0] if params else None), tuple(params[1:])


_known: OrderedDict[tuple[str, str, bool, str], tuple[Symbol, ...]] = OrderedDict()
_known_lock = Lock()


def _of_binary(source: Input, arch: Arch, *, lto: bool, deep: bool) -> tuple[Symbol, ...] | None:
    small = len(source.code) < _WORTH_KEEPING
    if source.kind == CUBIN and small:
        return _read(source, arch, lto=lto)
    memo_key = (source.kind, arch.sm, lto, hashlib.sha256(source.code).hexdigest())
    with _known_lock.held:
        if memo_key in _known:
            _known.move_to_end(memo_key)
            return _known[memo_key]
    key = _key(source, arch, lto=lto)
    # Small binaries are read faster than an entry of the cache, so they are not cached on disk.
    symbols = _kept(key) if source.kind == LTOIR or not small else None
    if symbols is None:
        symbols = _read(source, arch, lto=lto)
        compiled = symbols is None and deep
        if compiled:
            symbols = _kept(key) or _compiled(source, arch)
        if symbols is not None and (compiled or not small) and config().cache:
            cache.default().put(key, cache.Entry({}, symbol_tables.write(symbols)))
    if symbols is not None:
        with _known_lock.held:
            _known[memo_key] = symbols
            while len(_known) > _REMEMBERED:
                _known.popitem(last=False)
    return symbols


def _key(source: Input, arch: Arch, *, lto: bool) -> cache.Key:
    parts: dict[str, bytes | str] = {
        "package": package_version(),
        "arch": arch.sm,
        "lto": str(lto),
        "form": "spaces",
        source.kind: source.code,
    }
    return cache.Key.of("symbols", parts)


def _kept(key: cache.Key) -> tuple[Symbol, ...] | None:
    entry = cache.default().get(key) if config().cache else None
    return None if entry is None else symbol_tables.read(entry.code)


def _read(source: Input, arch: Arch, *, lto: bool) -> tuple[Symbol, ...] | None:
    """Return the symbols that can be read without a tool; None where some cannot."""
    try:
        if source.kind == CUBIN:
            return of_image(elf.read(source.code, source.name))
        if source.kind == LTOIR:
            return None
        lists = containers.fatbins(source.code, source.kind, source.name)
        parts = [_of_entry(entries, arch, lto=lto, name=source.name) for entries in lists]
    except elf.UnfamiliarError as error:
        log.debug("the symbols of %s are not read: %s", source.name, error)
        return None
    index: dict[tuple[str, ...], Symbol] = {}
    for symbols in parts:
        if symbols is None:
            log.debug("the symbols of %s are not read: nothing in it that tells them", source.name)
            return None
        for symbol in symbols:
            known = not _add(index, symbol)
            if known and source.kind == ARCHIVE and symbol.defined and not symbol.weak:
                # A strong definition says more than a weak one.
                index[_form(symbol)] = replace(symbol, repeated=not index[_form(symbol)].weak)
    return tuple(index.values()) if lists else None


def _of_entry(
    entries: tuple[containers.FatbinEntry, ...], arch: Arch, *, lto: bool, name: str
) -> tuple[Symbol, ...] | None:
    entry = containers.chosen(entries, arch, lto=lto)
    if entry is not None and entry.kind == LTOIR:
        # Machine code or PTX for the same architecture comes from the same source, and can be read directly.
        beside = tuple(
            candidate for candidate in entries if candidate.arch == entry.arch and candidate.kind != LTOIR
        )
        entry = containers.chosen(beside, arch, lto=False)
    content = None if entry is None else entry.content()
    if entry is None or content is None:
        return None
    if entry.kind == PTX:
        return of_ptx(ptx.parse(content.rstrip(b"\0").decode(errors="replace")))
    return of_image(elf.read(content, name))


def _compiled(source: Input, arch: Arch) -> tuple[Symbol, ...] | None:
    # Optimisation takes most of the time and does not change the symbols.
    code = unpack(source, arch, "-O0") or unpack(source, arch)
    try:
        return None if code is None else of_image(elf.read(code, source.name))
    except elf.UnfamiliarError as error:
        log.debug("the symbols of %s are not read: %s", source.name, error)
        return None


def unpack(source: Input, arch: Arch, *flags: str) -> bytes | None:
    """Return *source* as one relocatable image from nvJitLink, None where that is not to be had."""
    try:
        return relocatable(source, arch, *flags)
    except LinkError as error:
        log.debug("the symbols of %s cannot be read: %s", source.name, error)
        return None


def relocatable(source: Input, arch: Arch, *flags: str) -> bytes:
    """
    Return *source* as one relocatable image from nvJitLink.

    Raises:
        LinkError: nvJitLink is missing, refused *source*, or is of CUDA 12, which makes no such image.
    """
    if not nvjitlink.makes_relocatable():
        raise LinkError(
            f"nvJitLink {dotted(nvjitlink.version())} makes no relocatable code, from which the "
            "symbols are read; CUDA 13's does.",
            inputs=(source.name,),
        )
    plain, lto = (f"-arch={arch.sm}", "-r", *flags), (f"-arch={arch.sm}", "-lto", "-r", *flags)
    for arguments in (lto,) if source.kind == LTOIR else (plain, lto):
        try:
            return nvjitlink.link([(source.kind, source.name, source.code)], arguments).code
        except LinkError as error:
            reason = error
    raise reason
