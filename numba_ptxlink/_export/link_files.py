"""
Compile the CUDA C++ that functions link, under names that are private to one export.

Numba implements half and bfloat16 arithmetic in CUDA C++, and `cuda.declare_device` can add more of it. Each
export carries its own copy, whose external symbols have the export's tag appended, so that two exports with
the same file can be linked together. NVRTC appends it, by macros.
"""

from __future__ import annotations

import logging
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from numba_ptxlink._formats.kinds import CU, LTOIR, PTX
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._link import backends, check
from numba_ptxlink._link.read import Input
from numba_ptxlink._tools import includes, nvrtc
from numba_ptxlink.errors import ExportError, LinkError

from . import linkable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Function, Prototype, Variable
    from numba_ptxlink._front_end.protocol import LinkFile

log = logging.getLogger(__name__)

# The definitions that numba-cuda's bindings generator writes: shims of functions end in _nbst, those of
# constructors and conversions begin with the class.
_SHIM = re.compile(r'extern "C" __device__ int\s+(?=(\w+_nbst|____nv_\w+)\()')
_WORD = re.compile(r"\w+")
# Of functions outside of namespaces and classes; C++ puts the length of the name before it.
_MANGLED = re.compile(r"_Z(?P<length>[0-9]+)(?P<rest>\w+)", re.ASCII)


@dataclass(frozen=True)
class LinkFiles:
    """
    The code of the files that an export links.

    Args:
        code: Name and LTO-IR of each file.
        names: The private name of each function in them by the name that Python code calls.
    """

    code: tuple[tuple[str, bytes], ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)

    def renamed(self, modules: Iterable[str]) -> list[str]:
        """Return the LLVM IR *modules* with calls of the files' functions by their private names."""
        if not self.names:
            return [*modules]
        listed = "|".join(map(re.escape, self.names))
        symbol = re.compile(rf'(@"?)({listed})(?=["\s(,)])')
        return [symbol.sub(lambda match: match[1] + self.names[match[2]], module) for module in modules]


@dataclass(frozen=True)
class _Source:
    """
    A CUDA C++ source and its symbols.

    Args:
        text: The source.
        name: Its file name.
        folders: Where its own headers are.
        defined: The symbols that only one file of a link may define.
        ptx: Its PTX.
    """

    text: str
    name: str
    folders: tuple[Path, ...]
    defined: frozenset[str] = frozenset()
    ptx: str = ""


def compile_files(
    files: Iterable[LinkFile],
    missing: Mapping[str, Prototype],
    arch: Arch,
    tag: str,
    callers: Mapping[str, str],
) -> LinkFiles:
    """
    Compile *files* to LTO-IR, and log those that cannot be.

    Args:
        files: The files that the functions link.
        missing: The undefined functions by name; of Numba's shims, only these are compiled.
        arch: The GPU to generate code for.
        tag: The suffix of private names, one per export.
        callers: Which function calls each of the undefined ones, for messages.

    Raises:
        ExportError: NVRTC could not compile a file, or its function has another prototype than is called; or
            a function needs Numba's memory manager.
    """
    if not missing:
        return LinkFiles()
    files = list(files)
    compiled: dict[tuple[str, bytes], None] = {}
    # What each function links holds the shims of all functions that the process had compiled before it.
    pieces: dict[tuple[str, str, tuple[Path, ...]], set[tuple[str, str]]] = {}
    sources: list[_Source] = []
    for file in files:
        if file.kind == LTOIR:
            compiled[file.name, file.content] = None
        elif file.kind == CU:
            folders = _folders(file)
            text, name = file.content.decode(errors="surrogateescape"), PurePath(file.name).name
            head, functions = _split(text)
            if functions:
                wanted = {(symbol, functions[symbol].strip()) for symbol in missing.keys() & functions.keys()}
                pieces.setdefault((head.strip(), name, folders), set()).update(wanted)
            else:
                sources.append(_read(text, name, arch, folders))
    others = [Input(file.kind, file.name, file.content) for file in files if file.kind not in (CU, LTOIR)]
    others = [other for other in dict.fromkeys(others) if not backends.is_runtime(other)]
    compiled_ptx = [Input(PTX, each.name, each.ptx.encode(), compiled=True) for each in sources]
    texts = (each for each in (*compiled_ptx, *others) if each.kind == PTX)
    known = [symbol for text in texts for symbol in check.symbols(text)]
    linkable.check_prototypes(known, missing, callers)
    private = _private(sources, arch, tag)
    compiled |= {(source.name, _compile_private(source, private, arch)): None for source in sources}
    names = {name: _renamed(name, private) for source in sources for name in source.defined & missing.keys()}
    for (head, name, folders), of in pieces.items():
        if of:
            own = {symbol: f"{symbol}_{tag}" for symbol, _ in of}
            shims = _Source("\n".join((head, *(text for _, text in sorted(of)), "")), name, folders)
            compiled[name, _compile_private(shims, own, arch)] = None
            names |= own
    left = missing.keys() - names.keys()
    linkable.check_memory(left, callers)
    linkable.warn_of_left_out(files, others, left)
    return LinkFiles(tuple(sorted(compiled)), names)


def paths(files: Iterable[LinkFile]) -> list[Path]:
    """Return those of *files* that are on disk, and the headers that all of them include, but CUDA's."""
    files = list(files)
    headers = [header for file in files if file.kind == CU for header in _headers(file)]
    return list(dict.fromkeys([*(file.path for file in files if file.path), *headers]))


def is_shims(file: LinkFile) -> bool:
    """Return whether *file* is what numba-cuda's bindings generator writes, which has no state."""
    return file.kind == CU and bool(_split(file.content.decode(errors="surrogateescape"))[1])


def _headers(file: LinkFile) -> list[Path]:
    """Return the files that *file* can include, but CUDA's."""
    return sorted(map(Path, includes.of(file.content, Path("/"), _folders(file)).files))


def _folders(file: LinkFile) -> tuple[Path, ...]:
    """Return where the own headers of *file* are."""
    return (file.path.parent,) if file.path else ()


def _read(text: str, name: str, arch: Arch, folders: tuple[Path, ...]) -> _Source:
    ptx = compile_source(text, name, arch, folders, output=PTX).decode()
    module = parse(ptx)
    items: list[Function | Variable] = [*module.functions, *module.variables]
    defined = frozenset(item.name for item in items if item.defined and item.linkage == "visible")
    return _Source(text, name, folders, defined, ptx)


def _private(sources: Sequence[_Source], arch: Arch, tag: str) -> dict[str, str]:
    """Return the private names of the identifiers to rename in *sources*; none where that breaks them."""
    identifiers = {_identifier(name) for source in sources for name in source.defined}
    private = {name: f"{name}_{tag}" for name in sorted(identifiers) if name}
    try:
        for source in sources:
            _compile_private(source, private, arch)
    except ExportError as error:
        log.debug("the functions of link files keep their names: %s", error)
        return {}
    return private


def _identifier(symbol: str) -> str:
    """Return the name of what is in no namespace and no class, "" for anything else of C++."""
    match = _MANGLED.fullmatch(symbol)
    if match is None:
        return "" if symbol.startswith("_Z") else symbol
    return match["rest"][: int(match["length"])]


def _renamed(symbol: str, private: Mapping[str, str]) -> str:
    """Return *symbol* where the identifiers *private* are renamed."""
    name = _identifier(symbol)
    new = private.get(name, name)
    if name == symbol:
        return new
    return symbol.replace(f"_Z{len(name)}{name}", f"_Z{len(new)}{new}", 1)


def needed_shims(source: str, modules: Iterable[str]) -> str:
    """
    Return *source* with only the shims of Numba that the LLVM IR *modules* call, sorted by name.

    Numba-cuda accumulates the shims of all functions that the process has compiled.
    """
    head, shims = _split(source)
    if not shims:
        return source
    wanted = {name for module in modules for name in _WORD.findall(module)} & shims.keys()
    return "\n".join([head.rstrip(), *(shims[name].strip() for name in sorted(wanted)), ""])


def _split(source: str) -> tuple[str, dict[str, str]]:
    """Split *source* into its head and Numba's shims by name; no shims if it holds anything else."""
    starts = list(_SHIM.finditer(source))
    if not starts:
        return source, {}
    ends = [start.start() for start in starts[1:]] + [len(source)]
    pieces = {start[1]: source[start.start() : end] for start, end in zip(starts, ends, strict=True)}
    head = source[: starts[0].start()]
    plain = all(line.startswith("#") or not line.strip() for line in head.splitlines())
    if not plain or len(pieces) < len(starts) or not all(map(_is_one_function, pieces.values())):
        return source, {}
    others = {word for name, piece in pieces.items() for word in _WORD.findall(piece) if word != name}
    return (source, {}) if others & pieces.keys() else (head, pieces)


def _is_one_function(piece: str) -> bool:
    """Return whether *piece*, which starts with a function, ends with its body."""
    depth = 0
    for at, character in enumerate(piece):
        depth += (character == "{") - (character == "}")
        if character == "}" and not depth:
            return not piece[at + 1 :].strip()
    return False


def _compile_private(source: _Source, private: Mapping[str, str], arch: Arch, output: str = LTOIR) -> bytes:
    macros = [f"-D{identifier}={new}" for identifier, new in sorted(private.items())]
    return compile_source(source.text, source.name, arch, source.folders, macros, output=output)


def compile_source(
    source: str,
    name: str,
    arch: Arch,
    folders: Sequence[Path],
    flags: Sequence[str] = (),
    *,
    output: str = LTOIR,
) -> bytes:
    """
    Compile CUDA C++ with NVRTC to code; PTX is the same wherever its headers and the working directory are.

    Raises:
        ExportError: NVRTC refused the source. Carries its log.
    """
    try:
        return nvrtc.compile_source(
            source,
            name,
            arch,
            output=output,
            flags=["-std=c++17", *flags],
            include_dirs=[*folders, *nvrtc.toolkit_include_dirs()],
            folder=nvrtc.NOWHERE,
        ).code
    except LinkError as error:
        raise ExportError(str(error), flags=error.flags, inputs=error.inputs, log=error.log) from error
