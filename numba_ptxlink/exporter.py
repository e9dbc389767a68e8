"""Compile Python functions to C symbols: `udf` marks them; `export` writes header, artifacts and manifest."""

from __future__ import annotations

import inspect
import json
import logging
import os
import unicodedata
from collections.abc import Iterable
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import abi
from ._arch import Arch, ArchLike
from ._cabi import existing, header, proof
from ._config import config
from ._export import build, choice, definitions, units
from ._export.artifacts import EMIT, Request, compile_each, file_name, join, parts_wanted
from ._export.manifest import describe as describe_export
from ._export.marks import Kernel, Udf, kernel, udf
from ._export.signatures import Typed, describe, typed
from ._formats.kinds import CUBIN, LTOIR, PTX
from ._front_end.protocol import CompileOptions
from ._link import depfile as depfile_rule
from ._link import manifests, outputs
from ._link.consumer import Consumer
from ._tools import archs as architectures
from ._tools import include_scan, python_imports, python_sources
from .errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager


__all__ = ["EMIT", "Export", "Kernel", "Udf", "export", "kernel", "udf"]

log = logging.getLogger(__name__)

# What may follow in a file name is 19 bytes, such as ".sm_100a.ltoir", and most file systems allow 255.
_LONGEST_STEM = 200
_DEVICES = {
    "CON",
    "PRN",
    "AUX",
    "NUL",
    *(f"{port}{number}" for port in ("COM", "LPT") for number in range(1, 10)),
}


@dataclass(frozen=True)
class Export:
    """
    The files and signatures of an export. In memory, paths are the names that the files would have.

    Args:
        header: The C and C++ header.
        manifest: The JSON file that lists functions, artifacts and tool versions.
        artifacts: Every artifact by (kind, arch), with arch "" for what holds several.
        signatures: The C signature of each function.
        contents: What each file holds, by name.
        host_compiler: Name and release of what compiled the host code of an object, "" without one.
        left_out: The kinds of code that fat binaries and objects lack, because they could not be made.
    """

    header: Path
    manifest: Path
    artifacts: dict[tuple[str, str], Path]
    signatures: tuple[abi.Signature, ...]
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    host_compiler: str = ""
    left_out: tuple[str, ...] = ()

    def read(self, kind: str, arch: ArchLike | None = None) -> bytes:
        """
        Return an artifact, for another linker or to load it.

        Args:
            kind: Such as "ltoir", "ptx" or "kernels".
            arch: The GPU it is for; may be left out where there is one of *kind*.

        Raises:
            ExportError: There is none, or several.
        """
        sm = None if arch is None else Arch.of(arch).sm
        paths = [path for (of, has), path in self.artifacts.items() if of == kind and sm in (None, has)]
        if len(paths) != 1:
            have = ", ".join(" for ".join(filter(None, key)) for key in self.artifacts)
            raise ExportError(
                f"The export has {len(paths)} artifacts of {kind}{f' for {sm}' if sm else ''}; it has "
                f"{have}: name one of these, or emit it."
            )
        return self.contents[paths[0].name]


def export(
    source: ModuleType | str | Path | Udf | Iterable[Udf],
    out_dir: str | Path | None = None,
    *,
    archs: str | Iterable[ArchLike] = ("sm_75",),
    emit: Sequence[str] | None = None,
    name: str | None = None,
    opt: bool = True,
    fastmath: bool = False,
    lineinfo: bool = False,
    cuda: str | tuple[int, int] | None = None,
    ptx_isa: str | tuple[int, int] | None = None,
    depfile: str | Path | None = None,
    include_dirs: Sequence[str | Path] = (),
    front_end: str | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int, str], object] | None = None,
) -> Export:
    """
    Compile UDFs to C symbols. Needs neither a GPU nor a driver.

    Files are written after all compilation has succeeded, all or none; an error leaves existing files
    unchanged. Files that the former export of the same name listed and this one does not write are deleted,
    unless they were changed since. The output is deterministic: the same functions and tools give the same
    bytes. A file that has them already is left alone, but for the manifest, which is written each time.
    `numba_ptxlink/array_view.h` comes along where the header includes it.

    Args:
        source: A module or the path of a Python file, whose UDFs are exported in order of definition,
            or the UDFs themselves, or one. A file is imported from its source, with the modules of its
            folder, and leaves no module behind.
        out_dir: The output directory; created if missing. None writes nothing; the result has the contents.
        archs: The GPUs to generate code for. "native" are those of this machine, "all" those that the toolkit
            compiles for, "all-major" the first one of these and of each generation.
        emit: The kinds of artifact to write: any of "ptx", "ltoir", "cubin" (relocatable), "fatbin",
            "kernels", which `load` launches, "launcher", C++ that launches them, "object" and "library",
            which need nvcc or a C++ compiler. By default the first four, and "kernels" where there are some
            and these call nothing undefined.
        name: The stem of the file names; by default the module's name, or the first UDF's.
        opt: Whether NVVM optimises.
        fastmath: Whether floating-point arithmetic may be approximate.
        lineinfo: Whether the code carries the Python line numbers.
        cuda: The CUDA release of the toolkit and driver that the artifacts are for, such as "12.4"; None for
            those of this environment. PTX gets the lowest version that its text allows, and machine code is
            made by a compiler of that release or an older one. By default *emit* leaves out what cannot be
            made: LTO-IR, and machine code where no such compiler is installed.
        ptx_isa: The same by the newest PTX that is read, such as "8.4".
        depfile: Where to write a rule for make and Ninja: the manifest depends on the Python files that were
            imported, on what the functions link, and on the headers that define structs for them.
        include_dirs: Where to find headers that define structs for the functions; the folders of their Python
            files are searched last.
        front_end: What compiles functions whose decorator names none: "numba-cuda" or "numba-cuda-mlir". By
            default the one whose types, functions and modules they use; else NUMBA_PTXLINK_FRONT_END; else
            what is installed, numba-cuda first. All functions of an export have the same.
        executor: Where the functions are compiled, in groups: a process pool, a Dask cluster by
            `Client.get_executor()`, `mpi4py.futures.MPIPoolExecutor`. By default in this process. Workers
            need the same packages, and get the source of the functions. The bytes do not depend on it: what
            a worker cannot do, or was lost with it, is done in this process.
        progress: Called with the number of groups that are done, their total, and what was done.

    Raises:
        ConfigError: An architecture, *cuda* or *ptx_isa* is not known, or "native" finds no device.
        ExportError: The code needs newer PTX than asked for, or a kind cannot be made for *cuda*.
        ExportError: The file could not be imported or holds no UDF, a compiler refused a function or is not
            installed, the functions have several front ends, *name* cannot begin a file name, or a file could
            not be written.
        AbiError: A function's name or types have no counterpart in C, or a struct that is passed by value
            holds members that are not aligned and *emit* is not LTO-IR alone.
        AssembleError: The PTX could not be assembled.
    """
    config()
    consumer = Consumer.of(cuda, ptx_isa)
    if not isinstance(archs, Iterable):
        raise ExportError(f'archs is {archs!r}; pass a list of GPUs, such as ["sm_90"].')
    parsed = architectures.chosen(archs, consumer.isa if consumer else None)
    kinds = None if emit is None else _check_emit(emit)
    if not parsed:
        raise ExportError('export() needs at least one arch, such as "sm_90".')
    out = _check_out(out_dir)
    if name is not None:
        _check_stem(name)
    former = python_imports.former_modules()
    with _loaded(source, front_end) as (default_name, marked):
        stem = _check_stem(default_name if name is None else name)
        options = CompileOptions(opt, fastmath, lineinfo)
        # Compilers run in folders of their own.
        folders = (*(Path(each).absolute() for each in include_dirs), *_folders(marked))
        request = Request(stem, parsed, kinds, options, consumer, folders)
        compiler = choice.common(marked, front_end)
        functions = typed(marked, compiler)
        passed = build.declared(functions)
        header.named_structs(passed)
        _check_passing(passed, request.asked)
        cubins = consumer is None and CUBIN in parts_wanted(request)[0]
        compiled = units.compile_each(
            functions, parsed, request.options, cubins=cubins, executor=executor, progress=progress
        )
        first = compiled[0]
        declarations = [
            _declare(*each) for each in zip(functions, first.signatures, first.raises, strict=True)
        ]
        structs = header.named_structs(first.signatures)
        python = () if depfile is None else _python_files(functions, former)
    _check_passing(first.signatures, request.asked)
    code = compile_each(compiled, request)
    declared = [sig for _, (_, sig) in sorted(code.externs.items()) if sig]
    text = header.render(stem, declarations, declared)
    proof.prove(text, declarations, declared, parsed, request.include_dirs)
    artifacts = join(code, request, text, declarations)
    described = list(zip(declarations, functions, first.raises, strict=True))
    manifest = describe_export(request, compiler, described, artifacts)
    names = {key: file_name(stem, key) for key in artifacts.files}
    sources = {*python, *(file for each in compiled for file in each.files)}
    sources.update(_headers(existing.includes(structs), request.include_dirs))
    contents = {
        f"{stem}.h": text.encode(),
        **_included(text),
        **{names[key]: content for key, content in artifacts.files.items()},
        **_depfile(depfile, out / f"{stem}.json", sources),
        # The last one: until it is there, the former manifest disagrees with what was replaced.
        f"{stem}.json": json.dumps(manifest, indent=2).encode() + b"\n",
    }
    if out_dir is not None:
        _write(out, contents, out / f"{stem}.json")
    for each in code.undeclared:
        log.warning(
            "%s.h does not declare %s, whose types cuda.declare_device passes in another way than C++: "
            'define it with the prototype %s; or declare it with numbers and pointers alone and abi="c".',
            stem,
            each,
            code.externs[each][0],
        )
    return Export(
        header=out / f"{stem}.h",
        manifest=out / f"{stem}.json",
        artifacts={key: out / name for key, name in names.items()},
        signatures=first.signatures,
        contents=contents,
        host_compiler=artifacts.host_compiler,
        left_out=artifacts.left_out,
    )


def imported_module(name: str, front_end: str | None = None) -> AbstractContextManager[ModuleType]:
    """
    Import the module *name* for a `with` block in which it is exported, as `python -m` finds it.

    Args:
        name: The module.
        front_end: What is to compile it, as for `export`.
    """
    return python_imports.imported_module(name, partial(choice.prepare, front_end))


def compile_udfs(
    source: Path | Iterable[Udf], arch: Arch, *, lto: bool, front_end: str | None = None
) -> tuple[str, bytes, tuple[abi.Signature, ...]]:
    """
    Compile UDFs, or a Python file's, with the default options.

    Returns:
        Kind and code, PTX, or LTO-IR for *lto* if possible; and the signatures.
    """
    options, kinds = CompileOptions(), (LTOIR, PTX) if lto else (PTX,)
    with _loaded(source, front_end) as (_, marked):
        lowered = build.lower(typed(marked, choice.common(marked, front_end)), arch, options)
    built = build.build(lowered, kinds, options, dispensable=(LTOIR,))
    kind = next(kind for kind in kinds if kind in built.artifacts)
    _check_passing(lowered.signatures, (kind,))
    return kind, built.artifacts[kind], lowered.signatures


def _check_emit(emit: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(emit, Iterable):
        raise ExportError(f"emit is {emit!r}; pass a list of kinds: {', '.join(EMIT)}.")
    kinds = (emit,) if isinstance(emit, str) else tuple(emit)
    for kind in kinds:
        if kind not in EMIT:
            raise ExportError(f"Cannot emit {kind!r}; the kinds are {', '.join(EMIT)}.")
    return kinds


@contextmanager
def _loaded(source: Any, front_end: str | None = None) -> Iterator[tuple[str, tuple[Udf, ...]]]:
    if isinstance(source, (str, Path)):
        with python_imports.imported_file(Path(source), partial(choice.prepare, front_end)) as module:
            yield Path(source).stem, _defined_in(module)
        return
    if isinstance(source, ModuleType):
        yield source.__name__.rpartition(".")[2], _defined_in(source)
    else:
        source = (source,) if isinstance(source, Udf) else source
        if not isinstance(source, Iterable):
            raise ExportError(f"export() takes a module, a path, or functions with @udf, not {source!r}.")
        udfs = tuple(source)
        for function in udfs:
            if not isinstance(function, Udf):
                raise ExportError(f"export() takes functions marked with @udf, not {function!r}.")
        if not udfs:
            raise ExportError("export() was given no UDF; mark functions with @udf.")
        yield udfs[0].name, udfs


def _defined_in(module: ModuleType) -> tuple[Udf, ...]:
    definitions.check(module)
    udfs = definitions.of_module(module)
    if not udfs:
        raise ExportError(f"{module.__name__} defines no UDF; mark functions with @udf(signature).")
    return udfs


def _declare(each: Typed, signature: abi.Signature, raises: tuple[str, ...]) -> header.Declaration:
    return header.Declaration(
        signature=signature,
        python=describe(each),
        doc=inspect.getdoc(each.udf.function) or "",
        source=each.udf.source,
        errors=_errors(each.udf, raises),
        namespace=each.udf.cxx.namespace,
        name=each.udf.function.__name__,
    )


def _headers(includes: Iterable[str], folders: Sequence[Path]) -> list[Path]:
    """Return the files in *folders* that *includes* lead to."""
    text = "".join(f"#include {name}\n" for name in includes)
    return include_scan.files_included(text.encode(), folders[0], folders[1:]) if text and folders else []


def _folders(marked: Iterable[Udf]) -> dict[Path, None]:
    """Return the folders of the Python files that define *marked*."""
    files = (Path(each.function.__code__.co_filename) for each in marked)
    return {file.parent.absolute(): None for file in files if file.is_file()}


def _python_files(functions: Iterable[Typed], former: Mapping[str, Any]) -> set[Path]:
    """Return the Python files that *functions* depend on, and what the file of the export has run."""
    imported = python_imports.imported_now()
    files = python_sources.of_modules({each.udf.function.__module__ for each in functions}, former)
    return {*files, *(Path(path).absolute() for path in (imported.sources if imported else ()))}


def _errors(function: Udf, raises: tuple[str, ...]) -> str:
    if not raises:
        return ""
    options = function.options
    does = "stops the kernel" if options.on_error == "trap" else "returns zero"
    if function.is_kernel and options.on_error == "zero":
        does = "returns"
    checks = "are checked" if options.checked else "are not checked"
    return f"Where it raises, it {does}. Division by zero and indices {checks}."


def _included(header_text: str) -> dict[str, bytes]:
    """Return this package's own headers that *header_text* includes, by their paths in an include folder."""
    name = "numba_ptxlink/array_view.h"
    path = Path(__file__).with_name("include") / name
    return {name: path.read_bytes()} if f'#include "{name}"' in header_text else {}


def _depfile(path: str | Path | None, manifest: Path, sources: Iterable[Path]) -> dict[str, bytes]:
    if path is None:
        return {}
    listed = sorted(sources)
    for reason in depfile_rule.misread(manifest, listed):
        log.warning("%s: %s, so that an edit may not export again; choose another path.", path, reason)
    return {str(Path(path).absolute()): depfile_rule.render(manifest, listed)}


def _check_passing(signatures: Sequence[abi.Signature], kinds: Sequence[str]) -> None:
    """Refuse what cannot be passed where one of *kinds* is, or holds, PTX or machine code made of it."""
    if any(kind != LTOIR for kind in kinds):
        for signature in signatures:
            abi.check_ptx(signature)


def _write(out: Path, files: Mapping[str, bytes], manifest: Path) -> None:
    """Write *files* by name into *out*, and delete what only the former export of *manifest* wrote."""
    former = manifests.read(manifest)
    _check_owners(out, files, manifest)
    try:
        for name in files:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
        outputs.write({out / name: content for name, content in files.items()})
    except OSError as error:
        raise ExportError(
            f"{error.filename or out} could not be written: {error.strerror or error}; no file was changed. "
            "Choose another folder, or mend this one."
        ) from error
    digests = former.digests if former else {}
    for path in (out / name for name in digests if name not in files):
        try:
            if manifests.digest(path.read_bytes()) == digests[path.name]:
                path.unlink()
                continue
        except FileNotFoundError:
            continue
        except OSError as error:
            log.debug("%s: %s", path, error)
        log.warning(
            "%s is left over from the former export and was not deleted, because it was changed since or "
            "cannot be deleted; delete it, or rename it.",
            path,
        )


def _check_owners(out: Path, files: Mapping[str, bytes], manifest: Path) -> None:
    """Refuse to write into *out* what another export there lists."""
    for path in sorted(out.glob("*.json")) if out.is_dir() else ():
        other = manifests.read(path) if path.name != manifest.name else None
        both = sorted({*files, manifest.name}.intersection(other.digests)) if other else []
        if both or (other and path.name in files):
            raise ExportError(
                f"{out / (both or [path.name])[0]} belongs to the export {path}; no file was changed. Choose "
                "another name or folder, or delete that export."
            )


def _check_stem(stem: str) -> str:
    """Return *stem*, which becomes a part of file names on any system, and of a comment in C."""
    if not isinstance(stem, str):
        raise ExportError(f"The name is {stem!r}; pass text that begins file names.")
    bad = sorted({char for char in stem if char in '/\\:*?"<>|' or unicodedata.category(char)[0] == "C"})
    reason = ""
    if not stem.strip(". "):
        reason = "is empty or consists of dots"
    elif bad:
        reason = f"has {' '.join(map(repr, bad))} in it"
    elif stem != stem.strip() or stem.endswith("."):
        reason = "begins or ends with a space, or ends with a dot"
    elif stem.partition(".")[0].upper() in _DEVICES:
        reason = "is the name of a device on Windows"
    elif len(stem.encode()) > _LONGEST_STEM:
        reason = f"is longer than {_LONGEST_STEM} bytes"
    if reason:
        raise ExportError(f"{stem!r} {reason}, and cannot begin file names; choose another name.")
    return stem


def _check_out(out_dir: str | Path | None) -> Path:
    """Return the folder *out_dir*; for an export in memory, the one that leaves names as they are."""
    out = Path("" if out_dir is None else out_dir)
    if "\0" in str(out):
        raise ExportError(f"{str(out)!r} is no path: it has a NUL in it; give another folder.")
    try:
        if out_dir is None or out.is_dir():
            return out
    except OSError as error:
        raise ExportError(f"{out} cannot be used: {error.strerror}; give another folder.") from error
    if os.path.lexists(out):
        what = "a link to nothing" if out.is_symlink() else "a file"
        raise ExportError(f"{out} is {what}; give a folder to write into.")
    return out
