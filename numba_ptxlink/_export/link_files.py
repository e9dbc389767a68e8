"""
Compile the CUDA C++ that functions link, under names that are private to one export.

Numba implements half and bfloat16 arithmetic in CUDA C++, and `cuda.declare_device` can add more of it. Each
export carries its own copy, whose external symbols have the export's tag appended, so that two exports with
the same file can be linked together. NVRTC appends it, by macros.
"""

from __future__ import annotations

import logging
import os
import re
from dataclasses import dataclass, field
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.kinds import CU, LTOIR, PTX
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._front_end.protocol import LinkFile
from numba_ptxlink._link import backends, check
from numba_ptxlink._link.check import Symbol
from numba_ptxlink._link.read import Input, as_bytes
from numba_ptxlink._link.read import read as read_input
from numba_ptxlink._tools import includes, nvrtc
from numba_ptxlink.errors import ExportError, LinkError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._formats.ptx import Function, Prototype, Variable

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


def given(item: Any) -> str | LinkFile:
    """
    Return a link file as a function gives it: its path, which may be relative, or code in memory.

    A path is not read: what another process or an earlier export found there is not what this one finds.

    Args:
        item: A path, or a `LinkableCode` of a front end.

    Raises:
        ExportError: It is neither, or of no kind that can be linked.
    """
    return os.fspath(item) if _is_path(item) else read(item)


def read(item: Any) -> LinkFile:
    """
    Read a link file: a path, which is relative to the working directory, or a `LinkableCode` of a front end.

    Raises:
        ExportError: It does not exist, cannot be read, or is of no kind that can be linked. With the cure.
    """
    if isinstance(item, LinkFile):
        return item
    is_path = _is_path(item)
    try:
        if getattr(item, "kind", None) == CU:
            source = Input(CU, str(item.name), as_bytes(item.data))
        elif is_path or hasattr(item, "data"):
            source = read_input(Path(item) if is_path else item)
        else:
            raise ExportError(
                f"link= holds a {type(item).__name__}; give a path, or code in memory such as "
                "cuda.CUSource(text)."
            )
    except LinkError as error:
        raise ExportError(f"link= of a declaration: {error}", inputs=error.inputs) from error
    callbacks = any(getattr(item, f"{name}_callback", None) for name in ("setup", "teardown"))
    path = Path(item).absolute() if is_path else None
    return LinkFile(source.name, source.kind, source.code, path, has_callbacks=callbacks)


def _is_path(item: Any) -> bool:
    return isinstance(item, (str, os.PathLike))


def _check_prototypes(
    found: Sequence[Symbol], missing: Mapping[str, Prototype], callers: Mapping[str, str]
) -> None:
    """
    Refuse link files whose functions have other prototypes than the calls.

    Args:
        found: The symbols of the link files.
        missing: The functions that the code calls and does not define, by name.
        callers: Which function calls each of them, for messages.

    Raises:
        ExportError: Prototypes differ. Names both sides and the cure.
    """
    called = [
        Symbol(callers.get(name, "the functions"), name, "func", defined=False, prototype=prototype)
        for name, prototype in missing.items()
    ]
    try:
        check.compare([*found, *called])
    except LinkError as error:
        raise ExportError(str(error), inputs=error.inputs) from error


def _check_memory(missing: Iterable[str], callers: Mapping[str, str]) -> None:
    """
    Refuse functions that allocate: the manager of Numba's device memory is no part of an export.

    Raises:
        ExportError: One of the *missing* functions is its.
    """
    needed = sorted(name for name in missing if name.startswith("NRT_") and name not in callers)
    if needed:
        raise ExportError(
            f"The functions allocate arrays or count references ({', '.join(needed)}), and Numba's memory "
            "manager is no part of an export; export without NUMBA_CUDA_ENABLE_NRT, and take arrays as "
            "arguments."
        )


def _warn_of_left_out(files: Iterable[LinkFile], others: Iterable[Input], missing: Iterable[str]) -> None:
    """
    Log what C++ has to supply although a function links a file that may define it.

    Args:
        files: The link files.
        others: Those that are no part of the export.
        missing: The functions that are undefined in the export.
    """
    # nvcc and `link` add the device runtime, which numba-cuda-mlir names as a link file of kernels.
    wanted = sorted(name for name in missing if not backends.is_runtime_call(name))
    for other in others if wanted else ():
        log.warning(
            "%s %s for C++ to define: link= gives %s, of kind %s, and an export takes in CUDA C++ and "
            "LTO-IR alone. Give that file to the linker beside the artifact, or CUDA C++ or LTO-IR to link=.",
            ", ".join(wanted),
            "stays" if len(wanted) == 1 else "stay",
            other.name,
            other.kind,
        )
    called_back = ", ".join(dict.fromkeys(file.name for file in files if file.has_callbacks))
    if called_back:
        log.warning(
            "%s: its setup and teardown callbacks are Python, and no part of the export. Do what they do "
            "where the code is loaded and unloaded.",
            called_back,
        )


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
    _check_prototypes(known, missing, callers)
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
    _check_memory(left, callers)
    _warn_of_left_out(files, others, left)
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
