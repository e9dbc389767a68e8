"""
Compile the CUDA C++ that functions link, under names that are private to one export, and merge it into them.

Numba implements half and bfloat16 arithmetic in CUDA C++, and `cuda.declare_device` can add more of it. Each
export carries its own copy, whose external symbols have the export's tag appended, so that two exports with
the same file can be linked together as LTO-IR. NVRTC appends it, by macros.
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
from numba_ptxlink._front_end.protocol import LinkFile
from numba_ptxlink._link import backends, check
from numba_ptxlink._link.check import Symbol
from numba_ptxlink._link.read import Input, as_bytes
from numba_ptxlink._link.read import read as read_input
from numba_ptxlink._tools import includes, nvjitlink, nvrtc
from numba_ptxlink._tools.options import LTO
from numba_ptxlink.errors import ExportError, LinkError, converted, located

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.signatures import Signature
    from numba_ptxlink._formats.ptx import Prototype
    from numba_ptxlink._front_end.protocol import LoweredFunction
    from numba_ptxlink._tools.options import Options

log = logging.getLogger(__name__)

_KEEP = "numba_ptxlink_keep"
# Of functions outside of namespaces and classes; C++ puts the length of the name before it.
_MANGLED = re.compile(r"_Z(?P<length>[0-9]+)(?P<rest>\w+)", re.ASCII)
# The head of CUDA C++, its name, and the folders of its headers.
_Place = tuple[str, str, tuple[Path, ...]]


@contextlib.contextmanager
def as_export_errors(functions: Iterable[LoweredFunction] = ()) -> Iterator[None]:
    """Raise an ExportError for a LinkError within, at the first of *functions* that links what it names."""
    try:
        yield
    except LinkError as error:
        # NVRTC is given names without folders, and its errors have these.
        named = {PurePath(name).name for name in error.inputs}
        users = (
            each.location for each in functions for file in each.links if PurePath(file.name).name in named
        )
        raise converted(error, ExportError, located(next(users, ""), error)) from error


def read(item: Any) -> LinkFile:
    """
    Read a link file: a path, which is relative to the working directory, or a `LinkableCode` of a front end.

    Raises:
        ExportError: It does not exist, cannot be read, or is of no kind that can be linked. With the cure.
    """
    path = Path(item) if isinstance(item, (str, os.PathLike)) else None
    if path is None and not hasattr(item, "data"):
        raise ExportError(
            f"link= holds a {type(item).__name__}; give a path, or code such as cuda.CUSource(text)."
        )
    with as_export_errors():
        if getattr(item, "kind", None) == CU:
            source = Input(CU, str(item.name), as_bytes(item.data))
        else:
            source = read_input(path or item)
    return LinkFile(source.name, source.kind, source.code, path and path.absolute())


def is_here(file: LinkFile) -> bool:
    """Return whether *file*, which another process may have read, is the same in this one."""
    return file.path is None or (file.path.is_file() and file.path.read_bytes() == file.content)


def compile_files(
    files: Iterable[LinkFile],
    missing: Mapping[str, Prototype],
    arch: Arch,
    tag: str,
    callers: Mapping[str, str],
) -> tuple[list[tuple[str, bytes]], dict[str, str]]:
    """
    Compile *files* to LTO-IR, and log those that cannot be.

    Args:
        files: The files that the functions link.
        missing: The undefined functions by name; of Numba's shims, only these are compiled.
        arch: The GPU to generate code for.
        tag: The suffix of private names, one per export.
        callers: Which function calls each of the undefined ones, for messages.

    Returns:
        Name and LTO-IR of each file, and the private names of functions in them.

    Raises:
        LinkError: NVRTC could not compile a file, or its function has another prototype than is called.
        ExportError: A function needs Numba's memory manager.
    """
    if not missing:
        return [], {}
    allocating = sorted(name for name in missing if name.startswith("NRT_") and name not in callers)
    if allocating:
        raise ExportError(
            f"The functions allocate arrays or count references ({', '.join(allocating)}), and Numba's "
            "memory manager is no part of an export; export without NUMBA_CUDA_ENABLE_NRT, and take arrays "
            "as arguments."
        )
    code, texts = _needed(files, missing)
    symbols: list[Symbol] = []
    defined: set[str] = set()
    sources = []
    for (head, name, folders), used_shims in texts.items():
        text = "\n".join([head, *(used_shims[name] for name in sorted(used_shims))])
        sources.append((text, name, folders))
        defined |= used_shims.keys()
        if not used_shims:
            ptx = compile_source(text, name, arch, folders, output=PTX)
            symbols += check.symbols(Input(PTX, name, ptx, compiled=True))
    defined |= {symbol.name for symbol in symbols if symbol.strong}
    calls = [
        Symbol(callers.get(name, "the functions"), name, "func", defined=False, prototype=prototype)
        for name, prototype in missing.items()
    ]
    check.check_declarations_agree([*symbols, *calls])
    # Those that are called have the names by which they are called.
    called = missing.keys() & defined
    private = {name: f"{name}_{tag}" for name in sorted({*map(_identifier, defined - called), *called})}
    compiled, private = _compile_renamed(sources, private, arch)
    return sorted(code | compiled), {name: private[name] for name in called & private.keys()}


def _compile_renamed(
    sources: Sequence[tuple[str, str, Sequence[Path]]], private: dict[str, str], arch: Arch
) -> tuple[set[tuple[str, bytes]], dict[str, str]]:
    """
    Compile CUDA C++ to LTO-IR with symbols renamed, as far as macros can rename them.

    A macro also replaces what has the same name in headers, so that a variable `x` would break `threadIdx.x`.
    Such a symbol keeps its name.

    Args:
        sources: The text, the name and the include directories of each file.
        private: The new names.
        arch: The GPU to generate code for.

    Returns:
        Name and LTO-IR of each file, and those of *private* that are in use.
    """
    while True:
        macros = [f"-D{name}={new}" for name, new in private.items()]
        try:
            code = {
                (name, compile_source(text, name, arch, folders, macros)) for text, name, folders in sources
            }
        except LinkError as error:
            if not private:
                raise
            # NVRTC's log usually contains the new name at fault. If not, no symbol is renamed.
            kept = {name for name, new in private.items() if new in error.log} or set(private)
            log.info("%s: not renamed, since CUDA's headers use the name too", ", ".join(sorted(kept)))
            private = {name: new for name, new in private.items() if name not in kept}
        else:
            return code, private


def _needed(
    files: Iterable[LinkFile], missing: Mapping[str, Prototype]
) -> tuple[set[tuple[str, bytes]], dict[_Place, dict[str, str]]]:
    """Return the LTO-IR among *files*, and the CUDA C++, with its shims of the functions *missing*."""
    code: set[tuple[str, bytes]] = set()
    # What each function links holds the shims of all functions that the process had compiled before it.
    texts: dict[_Place, dict[str, str]] = {}
    for file in files:
        if file.kind == LTOIR:
            code.add((file.name, file.content))
        elif file.kind == CU:
            head, known = shims.split(file.content.decode(errors="surrogateescape"))
            called = {name: known[name] for name in missing.keys() & known.keys()}
            if called or not known:
                key = (head, PurePath(file.name).name, _folders(file))
                texts.setdefault(key, {}).update(called)
        # nvcc and `link` add the device runtime, which numba-cuda-mlir names as a link file of kernels.
        elif not backends.is_runtime(Input(file.kind, file.name, file.content)):
            log.warning(
                "link= gives %s, of kind %s, and an export takes in CUDA C++ and LTO-IR alone; give that "
                "file to the linker beside the artifact, or one of these to link=.",
                file.name,
                file.kind,
            )
    return code, texts


def _identifier(symbol: str) -> str:
    """Return the name in C++ of what is in no namespace and no class, the symbol of anything else."""
    match = _MANGLED.fullmatch(symbol)
    return match["rest"][: int(match["length"])] if match else symbol


def renamed(modules: Iterable[str], private: Mapping[str, str]) -> list[str]:
    """Return the LLVM IR *modules* with the calls of link files' functions by their *private* names."""
    if not private:
        return [*modules]
    symbol = re.compile(rf'(@"?)({"|".join(map(re.escape, private))})(?=["\s(,)])')
    return [symbol.sub(lambda match: match[1] + private[match[2]], module) for module in modules]


def paths(files: Sequence[LinkFile]) -> set[Path]:
    """Return those of *files* that are on disk, and the headers that all of them include, but CUDA's."""
    found = (includes.of(file.content, Path("/"), _folders(file)).files for file in files if file.kind == CU)
    return {*(file.path for file in files if file.path), *map(Path, itertools.chain.from_iterable(found))}


def _folders(file: LinkFile) -> tuple[Path, ...]:
    """Return where the own headers of *file* are."""
    return (file.path.parent,) if file.path else ()


def is_shims(file: LinkFile) -> bool:
    """Return whether *file* is what numba-cuda's bindings generator writes, which has no state."""
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
    Compile CUDA C++ with NVRTC to code; PTX is the same wherever its headers and the working directory are.

    Raises:
        LinkError: NVRTC refused the source. Carries its log.
    """
    return nvrtc.compile_source(
        source,
        name,
        arch,
        nvrtc.SourceOptions((*folders, *nvrtc.toolkit_include_dirs()), flags=("-std=c++17", *flags)),
        output=output,
        folder=nvrtc.NOWHERE,
    ).code


def merge_ltoir(
    ltoir: bytes, linked: Sequence[tuple[str, bytes]], arch: Arch, functions: Iterable[LoweredFunction]
) -> bytes:
    """
    Merge *functions* and the code they call into one LTO-IR module.

    Raises:
        LinkError: nvJitLink refused the code, or cannot return LTO-IR.
    """
    if not nvjitlink.merges_ltoir():
        uses = ", ".join(
            f"{each.title} uses {'float16 or bfloat16' if is_shims(file) else file.name}"
            for each in functions
            for file in each.links
        )
        raise LinkError(
            f"{uses}: nvJitLink {dotted(nvjitlink.version())} cannot merge their code into LTO-IR; CUDA "
            "13.4 is the first that can. Export these from a file of their own, and the other functions "
            "have LTO-IR; or leave ltoir out: PTX, cubins and fat binaries hold all of them.",
            inputs=tuple(name for name, _ in linked),
        )
    return _link(ltoir, linked, ["-lto", "-r"], arch, LTOIR)


def merge_ptx(
    ltoir: bytes,
    linked: Sequence[tuple[str, bytes]],
    arch: Arch,
    signatures: Sequence[Signature],
    options: Options,
) -> bytes:
    """
    Return PTX of the functions *signatures* after link-time optimisation with what they call.

    All other symbols are internal. Link-time optimisation drops functions that no kernel uses, so a temporary
    kernel uses them; it is removed from the PTX.
    """
    symbols = sorted(each.name for each in signatures if not each.kernel)
    kernels = sorted(each.name for each in signatures if each.kernel)
    uses = "".join(f'extern "C" __device__ int {name}();\n' for name in symbols)
    body = "".join(f"{_KEEP}_p[{number}] = (void*)&{name};\n" for number, name in enumerate(symbols))
    kernel = f'extern "C" __global__ void {_KEEP}(void** {_KEEP}_p) {{\n{body}}}\n'
    keep = compile_source(uses + kernel, f"{_KEEP}.cu", arch, [])
    # Kernels of the link files would stay otherwise.
    used = [f"-kernels-used={name}" for name in (_KEEP, *kernels)]
    flags = ["-lto", "-ptx", *used, *options.to_flags(LTO)]
    text = _link(ltoir, [*linked, (_KEEP, keep)], flags, arch, PTX).decode().rstrip("\0").strip() + "\n"
    module = parse(text)
    (kept,) = (function for function in module.functions if function.name == _KEEP)
    module = parse(module.replace({Span(kept.start, kept.end): ""}))
    linkages = {function.name: "visible" for function in module.functions if function.name in symbols}
    linkages |= {variable.name: "" for variable in module.variables if variable.linkage == "visible"}
    return module.relinked(linkages).encode()


def _link(
    ltoir: bytes, linked: Sequence[tuple[str, bytes]], flags: list[str], arch: Arch, output: str
) -> bytes:
    vector = [f"-arch={arch.sm}", *flags]
    inputs = [(LTOIR, "<functions>", ltoir), *((LTOIR, name, code) for name, code in linked)]
    return cache.cached(
        nvjitlink.key(inputs, vector, output),
        lambda: cache.Entry({}, nvjitlink.link(inputs, vector, output=output).code),
    ).code
