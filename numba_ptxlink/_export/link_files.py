"""
Compile the CUDA C++ that exported functions link, and merge it into the code of the functions.

Numba implements half and bfloat16 arithmetic in CUDA C++, and `cuda.declare_device` can add more files. Each
export has its own copy of a file, in which macros append the export's tag to external symbols, so that two
exports with the same file can be linked together as LTO-IR.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import re
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from numba_ptxlink import cache
from numba_ptxlink._arch import dotted
from numba_ptxlink._formats.kinds import CU, LTOIR, PTX
from numba_ptxlink._formats.ptx import Span, parse
from numba_ptxlink._front_end import shims
from numba_ptxlink._front_end.lowered import LinkFile
from numba_ptxlink._link import backends
from numba_ptxlink._link.read import Input, as_bytes
from numba_ptxlink._link.read import read as read_input
from numba_ptxlink._link.symbols import Symbol, check_declarations_agree, symbols
from numba_ptxlink._tools import includes, nvjitlink, nvrtc
from numba_ptxlink._tools.options import LTO
from numba_ptxlink._tools.source_options import SourceOptions
from numba_ptxlink.errors import ExportError, LinkError, convert_error, with_location

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._formats.ptx import Prototype
    from numba_ptxlink._front_end.lowered import LoweredFunction
    from numba_ptxlink._tools.options import Options

log = logging.getLogger(__name__)

# The temporary kernel of `merge_ptx`.
_KEEPER = "numba_ptxlink_keep"
# The mangled name of a C++ function outside of namespaces and classes, such as _Z5saxpyf: the length of the
# name, then the name, then the types.
_MANGLED = re.compile(r"_Z(?P<length>[0-9]+)(?P<rest>\w+)", re.ASCII)
# A file's CUDA C++ without its shims (functions through which Numba calls those of C++ headers), its name,
# and the folders of its headers.
_SourceKey = tuple[str, str, tuple[Path, ...]]


@contextlib.contextmanager
def as_export_errors(functions: Iterable[LoweredFunction] = ()) -> Iterator[None]:
    """Convert a LinkError to an ExportError, at the line of the first function that links a file at fault."""
    try:
        yield
    except LinkError as error:
        # Errors of NVRTC have file names without folders.
        names_at_fault = {PurePath(name).name for name in error.inputs}
        users = (
            function.location
            for function in functions
            for file in function.links
            if PurePath(file.name).name in names_at_fault
        )
        raise convert_error(error, ExportError, with_location(next(users, ""), error)) from error


def read(entry: Any) -> LinkFile:
    """
    Read an entry of `link=`: a path, relative to the working directory, or a `LinkableCode` of a front end.

    Raises:
        ExportError: The file does not exist, cannot be read, or is of no kind that can be linked.
    """
    path = Path(entry) if isinstance(entry, (str, os.PathLike)) else None
    if path is None and not hasattr(entry, "data"):
        raise ExportError(
            f"link= holds a {type(entry).__name__}; give a path, or code such as cuda.CUSource(text)."
        )
    with as_export_errors():
        if getattr(entry, "kind", None) == CU:
            source = Input(CU, str(entry.name), as_bytes(entry.data))
        else:
            source = read_input(path or entry)
    return LinkFile(source.name, source.kind, source.code, path and path.absolute())


def is_unchanged(file: LinkFile) -> bool:
    """Return whether *file*, which a worker has read, has the same content at its path on this machine."""
    return file.path is None or (file.path.is_file() and file.path.read_bytes() == file.content)


def compile_files(
    files: Iterable[LinkFile],
    undefined: Mapping[str, Prototype],
    arch: Arch,
    tag: str,
    callers: Mapping[str, str],
) -> tuple[list[tuple[str, bytes]], dict[str, str]]:
    """
    Compile the CUDA C++ among *files* to LTO-IR, keep the LTO-IR, and log a warning for other kinds of file.

    Args:
        files: The files that the functions link.
        undefined: The functions that are called and not defined, by name; only shims that define one of them
            are compiled.
        arch: The GPU to generate code for.
        tag: The suffix of the private names, which replace C++ names; it differs between exports.
        callers: The title of the first caller of each `cuda.declare_device` function, by symbol.

    Returns:
        Name and LTO-IR of each file, and the new symbols of called functions by their old ones.

    Raises:
        LinkError: NVRTC could not compile a file, or a call has another prototype than the function.
        ExportError: A function needs Numba's memory manager.
    """
    if not undefined:  # The functions call no function of a file.
        return [], {}
    memory_functions = sorted(name for name in undefined if name.startswith("NRT_") and name not in callers)
    if memory_functions:
        raise ExportError(
            f"The functions allocate arrays or count references ({', '.join(memory_functions)}), and an "
            "export does not contain Numba's memory manager; export without NUMBA_CUDA_ENABLE_NRT, and pass "
            "arrays as arguments."
        )
    ltoir_files, shims_by_source = _select_code(files, undefined)
    file_symbols: list[Symbol] = []
    defined_symbols: set[str] = set()
    sources = []
    for (head, name, folders), shims_by_symbol in shims_by_source.items():
        source = "\n".join([head, *(shims_by_symbol[symbol] for symbol in sorted(shims_by_symbol))])
        sources.append((source, name, folders))
        defined_symbols |= shims_by_symbol.keys()
        if not shims_by_symbol:
            # The user wrote the file: compile it to PTX, too, to see its symbols.
            ptx = compile_source(source, name, arch, folders, output=PTX)
            file_symbols += symbols(Input(PTX, name, ptx, compiled=True))
    defined_symbols |= {symbol.name for symbol in file_symbols if symbol.is_strong}
    calls = [
        Symbol(callers.get(name, "the functions"), name, "func", defined=False, prototype=prototype)
        for name, prototype in undefined.items()
    ]
    check_declarations_agree([*file_symbols, *calls])
    called_symbols = undefined.keys() & defined_symbols
    shim_names = {name for shims_by_symbol in shims_by_source.values() for name in shims_by_symbol}
    # Macros rename C++ names. A shim is `extern "C"`: its C++ name is its symbol.
    cxx_names = {
        symbol: symbol if symbol in shim_names else _identifier(symbol) for symbol in defined_symbols
    }
    private_names = {name: f"{name}_{tag}" for name in sorted({*cxx_names.values()})}
    compiled_files, private_names = _compile_renamed(sources, private_names, arch)
    private_symbols = {
        symbol: _renamed_symbol(symbol, cxx_names[symbol], private_names[cxx_names[symbol]])
        for symbol in called_symbols
        if cxx_names[symbol] in private_names and (symbol in shim_names or not _is_nested(symbol))
    }
    return sorted(ltoir_files | compiled_files), private_symbols


def _compile_renamed(
    sources: Sequence[tuple[str, str, Sequence[Path]]], private_names: dict[str, str], arch: Arch
) -> tuple[set[tuple[str, bytes]], dict[str, str]]:
    """
    Compile CUDA C++ to LTO-IR with symbols renamed, as far as macros can rename them.

    A macro also replaces equal names in headers: one for a variable `x` would break `threadIdx.x`. Such a
    symbol keeps its name.

    Args:
        sources: The text, the name and the include directories of each file.
        private_names: The new name for each C++ name.
        arch: The GPU to generate code for.

    Returns:
        Name and LTO-IR of each file, and *private_names* without the names that are kept.
    """
    while True:
        macros = [f"-D{name}={new}" for name, new in private_names.items()]
        try:
            compiled_files = {
                (name, compile_source(text, name, arch, folders, macros)) for text, name, folders in sources
            }
        except LinkError as error:
            if not private_names:
                raise
            # NVRTC's log usually contains the new name at fault. If not, no symbol is renamed.
            names_at_fault = {name for name, new in private_names.items() if new in error.log}
            kept_names = names_at_fault or set(private_names)
            log.info("%s: not renamed, since CUDA's headers use the name too", ", ".join(sorted(kept_names)))
            private_names = {name: new for name, new in private_names.items() if name not in kept_names}
        else:
            return compiled_files, private_names


def _select_code(
    files: Iterable[LinkFile], undefined: Mapping[str, Prototype]
) -> tuple[set[tuple[str, bytes]], dict[_SourceKey, dict[str, str]]]:
    """
    Return name and LTO-IR of the files in LTO-IR, and the called shims of each source in CUDA C++.

    A shim is called if *undefined* has it. A source without shims, which the user wrote, has an empty
    dictionary.
    """
    ltoir_files: set[tuple[str, bytes]] = set()
    # A function's link file also has the shims of all functions that the process compiled before it.
    shims_by_source: dict[_SourceKey, dict[str, str]] = {}
    for file in files:
        if file.kind == LTOIR:
            ltoir_files.add((file.name, file.content))
        elif file.kind == CU:
            head, all_shims = shims.split(file.content.decode(errors="surrogateescape"))
            called_shims = {name: all_shims[name] for name in undefined.keys() & all_shims.keys()}
            if called_shims or not all_shims:
                key = (head, PurePath(file.name).name, _folders(file))
                shims_by_source.setdefault(key, {}).update(called_shims)
        # numba-cuda-mlir links the device runtime to kernels. An export can leave it out without a warning,
        # since nvcc and `link` add it.
        elif not backends.is_runtime(Input(file.kind, file.name, file.content)):
            log.warning(
                "link= lists %s, of kind %s, and an export includes only CUDA C++ and LTO-IR; pass that file "
                "to the linker together with the artifact, or pass CUDA C++ or LTO-IR to link=.",
                file.name,
                file.kind,
            )
    return ltoir_files, shims_by_source


def _identifier(symbol: str) -> str:
    """Return the C++ name of a function outside of namespaces and classes; other symbols unchanged."""
    match = _MANGLED.fullmatch(symbol)
    return match["rest"][: int(match["length"])] if match else symbol


def _is_nested(symbol: str) -> bool:
    """Return whether *symbol* is of a function in a namespace or class, which `_identifier` does not name."""
    return symbol.startswith("_Z") and _MANGLED.fullmatch(symbol) is None


def _renamed_symbol(symbol: str, name: str, new_name: str) -> str:
    """Return *symbol* with another C++ name: "_Z5twicef" becomes "_Z7twice_af" for "twice" and "twice_a"."""
    if symbol == name:
        return new_name
    return f"_Z{len(new_name)}{new_name}{symbol.removeprefix(f'_Z{len(name)}{name}')}"


def rename_functions(modules: Iterable[str], private_names: Mapping[str, str]) -> list[str]:
    """Return the LLVM IR *modules*, in which functions of link files have their private names."""
    if not private_names:
        return [*modules]
    # Such as `@f(` or `@"f"`.
    use = re.compile(rf'(@"?)({"|".join(map(re.escape, private_names))})(?=["\s(,)])')
    return [use.sub(lambda match: match[1] + private_names[match[2]], module) for module in modules]


def source_paths(files: Sequence[LinkFile]) -> set[Path]:
    """Return the paths of those *files* that are on disk, and of their headers except for those of CUDA."""
    headers = (
        includes.find_includes(file.content, Path("/"), _folders(file)).files
        for file in files
        if file.kind == CU
    )
    return {*(file.path for file in files if file.path), *map(Path, itertools.chain.from_iterable(headers))}


def _folders(file: LinkFile) -> tuple[Path, ...]:
    """Return the folder of *file*, which may have its headers; nothing for code without a path."""
    return (file.path.parent,) if file.path else ()


def is_shims(file: LinkFile) -> bool:
    """Return whether *file* has shims from the generator of numba-cuda's bindings, which have no state."""
    return file.kind == CU and bool(shims.split(file.content.decode(errors="surrogateescape"))[1])


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
    Compile CUDA C++ with NVRTC; the code does not depend on the folders of headers or the working directory.

    Raises:
        LinkError: NVRTC refused the source. The error has the log of NVRTC.
    """
    return nvrtc.compile_source(
        source,
        name,
        arch,
        SourceOptions((*folders, *nvrtc.toolkit_include_dirs()), flags=("-std=c++17", *flags)),
        output=output,
        # No working directory.
        folder=nvrtc.NOWHERE,
    ).code


def merge_ltoir(
    ltoir: bytes, linked_files: Sequence[tuple[str, bytes]], arch: Arch, functions: Iterable[LoweredFunction]
) -> bytes:
    """
    Merge *ltoir*, the LTO-IR of *functions*, and the link files into one LTO-IR module.

    Raises:
        LinkError: nvJitLink refused the code, or cannot return LTO-IR.
    """
    if not nvjitlink.merges_ltoir():
        uses = ", ".join(
            f"{function.title} uses {'float16 or bfloat16' if is_shims(file) else file.name}"
            for function in functions
            for file in function.links
        )
        raise LinkError(
            f"{uses}: nvJitLink {dotted(nvjitlink.version())} cannot merge that code into LTO-IR, and "
            "nvJitLink 13.4 or later can; export these functions from a separate file, so that the others "
            "have LTO-IR, or leave ltoir out: PTX, cubins and fat binaries contain all functions.",
            inputs=tuple(name for name, _ in linked_files),
        )
    return _link(ltoir, linked_files, ["-lto", "-r"], arch, LTOIR)


def merge_ptx(
    ltoir: bytes,
    linked_files: Sequence[tuple[str, bytes]],
    arch: Arch,
    signatures: Sequence[Signature],
    options: Options,
) -> bytes:
    """
    Return PTX of the functions *signatures* after link-time optimisation with their callees.

    All other symbols are internal. Link-time optimisation drops functions that no kernel uses, so a temporary
    kernel takes the addresses of the functions, and is removed from the PTX.
    """
    names = sorted(signature.name for signature in signatures if not signature.kernel)
    kernels = sorted(signature.name for signature in signatures if signature.kernel)
    # The kernel only takes addresses, so that the types in these declarations do not matter.
    declarations = "".join(f'extern "C" __device__ int {name}();\n' for name in names)
    body = "".join(f"{_KEEPER}_p[{index}] = (void*)&{name};\n" for index, name in enumerate(names))
    keeper_source = f'extern "C" __global__ void {_KEEPER}(void** {_KEEPER}_p) {{\n{body}}}\n'
    try:
        keeper_ltoir = compile_source(declarations + keeper_source, f"{_KEEPER}.cu", arch, [])
    except LinkError as error:
        conflicting = ", ".join(name for name in names if re.search(rf"\b{name}\b", error.log))
        message = f"{conflicting}: CUDA C++ itself declares this name; rename the function.\n{error.log}"
        raise convert_error(error, LinkError, message) from error
    # Drop the kernels of link files.
    kernel_flags = [f"-kernels-used={name}" for name in (_KEEPER, *kernels)]
    flags = ["-lto", "-ptx", *kernel_flags, *options.to_flags(LTO)]
    ptx = _link(ltoir, [*linked_files, (_KEEPER, keeper_ltoir)], flags, arch, PTX).decode()
    # nvJitLink returns text that ends with a null byte.
    module = parse(ptx.rstrip("\0").strip() + "\n")
    (keeper,) = (function for function in module.functions if function.name == _KEEPER)
    module = parse(module.replace({Span(keeper.start, keeper.end): ""}))
    linkages = {function.name: "visible" for function in module.functions if function.name in names}
    # "" makes a variable internal.
    linkages |= {variable.name: "" for variable in module.variables if variable.linkage == "visible"}
    return module.with_linkages(linkages).encode()


def _link(
    ltoir: bytes, linked_files: Sequence[tuple[str, bytes]], flags: list[str], arch: Arch, output: str
) -> bytes:
    """Link the LTO-IR of the functions with that of the link files; return code of the kind *output*."""
    arguments = [f"-arch={arch.sm}", *flags]
    inputs = [(LTOIR, "<functions>", ltoir), *((LTOIR, name, code) for name, code in linked_files)]
    return cache.cached(
        nvjitlink.key(inputs, arguments, output),
        lambda: cache.Entry({}, nvjitlink.link(inputs, arguments, output=output).code),
    ).code
