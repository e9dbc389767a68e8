"""Compile Python functions to C symbols: `udf` marks them; `export` writes header, artifacts and manifest."""

from __future__ import annotations

import inspect
import json
import logging
from collections.abc import Iterable
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from . import abi
from ._arch import Arch, ArchLike
from ._cabi import existing, header, proof
from ._config import config
from ._export import build, choice, definitions, files, schedule, sources
from ._export.artifacts import EMIT, Request, compile_each, file_name, join, parts_wanted
from ._export.manifest import describe as describe_export
from ._export.marks import Kernel, Udf, kernel, udf
from ._export.signatures import Typed, describe, typed
from ._formats.kinds import CUBIN, LTOIR, PTX
from ._front_end.protocol import CompileOptions
from ._imports import python_imports
from ._link.consumer import Consumer
from ._tools import archs as architectures
from ._tools import include_scan
from .errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from contextlib import AbstractContextManager


__all__ = ["EMIT", "Export", "Kernel", "Udf", "export", "kernel", "udf"]

log = logging.getLogger(__name__)


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
        left_out: What could not be made, and why, "" where the log tells it: kinds in binaries, "kernels".
    """

    header: Path
    manifest: Path
    artifacts: dict[tuple[str, str], Path]
    signatures: tuple[abi.Signature, ...]
    contents: Mapping[str, bytes] = field(default_factory=dict, repr=False)
    host_compiler: str = ""
    left_out: Mapping[str, str] = field(default_factory=dict)

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
    include_dirs: Sequence[str | Path] | str | Path = (),
    front_end: str | None = None,
    executor: Executor | None = None,
    progress: Callable[[int, int, str], object] | None = None,
) -> Export:
    """
    Compile UDFs to C symbols. Needs neither a GPU nor a driver.

    Files are written after all compilation has succeeded, all or none; an error leaves existing files
    unchanged. Files that the former export of the same name listed and this one does not write are deleted,
    unless they were changed since. Exports into one folder at once write one after another. What an export
    that was killed while it wrote leaves, files of it beside the former manifest and files named
    `.ptxlink.*`, the next one of its name replaces or deletes. The output is deterministic: the same
    functions and tools give the same bytes. A file that has them already is left alone, but for the manifest,
    which is written each time. `numba_ptxlink/array_view.h` comes along where the header includes it.

    Args:
        source: A module or the path of a Python file, of which all functions that it defines and marks are
            exported in that order, those that it keeps in a list or has deleted, too; or the UDFs
            themselves, or one. A file is imported from its source, with the modules of its
            folder, and leaves no module behind.
        out_dir: The output directory; created if missing. None writes nothing; the result has the contents.
        archs: The GPUs to generate code for. "native" are those of this machine, "all" those that the toolkit
            compiles for, "all-major" the first one of these and of each generation.
        emit: The kinds of artifact to write: any of "ptx", "ltoir", "cubin" (relocatable), "fatbin",
            "kernels", which `load` launches, "launcher", C++ that launches them, "object" and "library",
            which need nvcc or a C++ compiler. By default the first four, and "kernels" where there are some
            and no function of the export uses what is not defined.
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
            imported, on what the functions link, and on the headers that define structs for them. Its folder
            has to exist, unless it is *out_dir*. An export in memory has none.
        include_dirs: Where to find headers that define structs for the functions; the folders of their Python
            files are searched last.
        front_end: What compiles functions whose decorator names none: "numba-cuda" or "numba-cuda-mlir". By
            default the one whose types, functions and modules they use; else NUMBA_PTXLINK_FRONT_END; else
            what is installed, numba-cuda first. All functions of an export have the same.
        executor: Where the functions are compiled, in groups: a process pool, a Dask cluster by
            `Client.get_executor()`, `mpi4py.futures.MPIPoolExecutor`. By default in this process. Workers
            need the same packages, and get the source of the functions. The bytes do not depend on it: what
            a worker cannot do, or was lost with it, is done in this process, all of it where the pool takes
            no work.
        progress: Called with the number of groups that are done, their total, and what was done.

    Raises:
        ConfigError: An architecture, *cuda* or *ptx_isa* is not known, "native" finds no device, or
            *include_dirs* are no folders.
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
    # Compilers run in folders of their own.
    named = [Path(each).absolute() for each in include_scan.folders(include_dirs)]
    parsed = architectures.chosen(archs, consumer.isa if consumer else None)
    kinds = None if emit is None else _check_emit(emit)
    options = _options(opt=opt, fastmath=fastmath, lineinfo=lineinfo)
    if not parsed:
        raise ExportError('export() needs at least one arch, such as "sm_90".')
    out = files.check_out(out_dir)
    files.check_depfile(depfile, out_dir)
    schedule.check(executor, progress)
    if name is not None:
        files.check_stem(name)
    former = python_imports.former_modules()
    with _loaded(source, front_end) as (default_name, marked):
        stem = files.check_stem(default_name if name is None else name)
        searched = tuple(dict.fromkeys((*named, *sources.folders(marked))))
        request = Request(stem, parsed, kinds, options, consumer, searched)
        compiler = choice.common(marked, front_end)
        functions = typed(marked, compiler)
        passed = build.declared(functions)
        header.named_structs(passed)
        _check_passing(passed, request.asked)
        cubins = consumer is None and CUBIN in parts_wanted(request)[0]
        compiled = schedule.compile_each(
            functions, parsed, request.options, cubins=cubins, executor=executor, progress=progress
        )
        first = compiled[0]
        declarations = [
            _declare(*each) for each in zip(functions, first.signatures, first.raises, strict=True)
        ]
        structs = header.named_structs(first.signatures)
        python = () if depfile is None else sources.python_files(functions, former)
    _check_passing(first.signatures, request.asked)
    code = compile_each(compiled, request)
    declared = [sig for _, (_, sig) in sorted(code.externs.items()) if sig]
    text = header.render(stem, declarations, declared)
    proof.prove(text, declarations, declared, parsed, request.include_dirs)
    artifacts = join(code, request, text, declarations)
    described = list(zip(declarations, functions, first.raises, strict=True))
    manifest = describe_export(request, compiler, described, artifacts)
    names = {key: file_name(stem, key) for key in artifacts.files}
    made_of = {*python, *(file for each in compiled for file in each.files)}
    made_of.update(sources.headers(existing.includes(structs), request.include_dirs))
    contents = {
        f"{stem}.h": text.encode(),
        **_included(text),
        **{names[key]: content for key, content in artifacts.files.items()},
        **sources.rule(depfile, out / f"{stem}.json", made_of),
        # The last one: until it is there, the former manifest disagrees with what was replaced.
        f"{stem}.json": json.dumps(manifest, indent=2).encode() + b"\n",
    }
    if out_dir is not None:
        files.write(out, contents, out / f"{stem}.json", made_of)
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
    return _imported(python_imports.imported_module(name, partial(choice.prepare, front_end), choice.advice))


@contextmanager
def _imported(module: AbstractContextManager[ModuleType]) -> Iterator[ModuleType]:
    """Import *module* for a `with` block, and refuse all names in it together."""
    with ExitStack() as stack:
        with definitions.refused_together():
            there = stack.enter_context(module)
        yield there


@dataclass(frozen=True)
class CompiledUdfs:
    """
    UDFs for a link.

    Args:
        kind: "ptx" or "ltoir".
        code: The code.
        signatures: The functions.
        externs: What they call and others define: the first caller, and the signature in C where it is known.
    """

    kind: str
    code: bytes = field(repr=False)
    signatures: tuple[abi.Signature, ...]
    externs: tuple[tuple[str, abi.Signature], ...]


def compile_udfs(
    source: Path | Iterable[Udf],
    arch: Arch,
    *,
    lto: bool,
    front_end: str | None = None,
    beside: Collection[bytes] = (),
) -> CompiledUdfs:
    """
    Compile UDFs, or a Python file's, with the default options.

    Args:
        source: The UDFs, or the file.
        arch: The GPU.
        lto: Whether to compile to LTO-IR if possible, rather than to PTX.
        front_end: What compiles those whose decorator names none.
        beside: LTO-IR that is linked beside them, and so is no part of them where they link it too.
    """
    options, kinds = CompileOptions(), (LTOIR, PTX) if lto else (PTX,)
    with _loaded(source, front_end) as (_, marked):
        lowered = build.lower(typed(marked, choice.common(marked, front_end)), arch, options)
    lowered = replace(lowered, links=tuple(each for each in lowered.links if each.content not in beside))
    built = build.build(lowered, kinds, options, dispensable=(LTOIR,))
    kind = next(kind for kind in kinds if kind in built.artifacts)
    _check_passing(lowered.signatures, (kind,))
    callers = build.callers(lowered)
    called = ((callers[name], signature) for name, (_, signature) in built.externs.items() if signature)
    return CompiledUdfs(kind, built.artifacts[kind], lowered.signatures, tuple(called))


def _check_emit(emit: Sequence[str]) -> tuple[str, ...]:
    if not isinstance(emit, Iterable):
        raise ExportError(f"emit is {emit!r}; pass a list of kinds: {', '.join(EMIT)}.")
    kinds = (emit,) if isinstance(emit, str) else tuple(emit)
    if not kinds:
        raise ExportError(f"emit names no kind of artifact; give at least one of {', '.join(EMIT)}, or None.")
    for kind in kinds:
        if kind not in EMIT:
            raise ExportError(f"Cannot emit {kind!r}; the kinds are {', '.join(EMIT)}.")
    return kinds


def _options(**flags: Any) -> CompileOptions:
    for name, value in flags.items():
        # Flags of fastmath, as Numba's decorators take them, would be all of it.
        if value not in (True, False):
            raise ExportError(f"{name} is {value!r}; pass True or False.")
    return CompileOptions(**{name: bool(value) for name, value in flags.items()})


@contextmanager
def _loaded(source: Any, front_end: str | None = None) -> Iterator[tuple[str, tuple[Udf, ...]]]:
    if isinstance(source, (str, Path)):
        path = Path(source)
        found = python_imports.imported_file(path, partial(choice.prepare, front_end), choice.advice)
        with _imported(found) as module:
            # A package has its folder's name.
            yield path.stem if path.stem != "__init__" else path.resolve().parent.name, _defined_in(module)
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
        source=_decoded(each.udf.source),
        errors=_errors(each.udf, tuple(map(_decoded, raises))),
        namespace=each.udf.cxx.namespace,
        name=each.udf.function.__name__,
    )


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


def _check_passing(signatures: Sequence[abi.Signature], kinds: Sequence[str]) -> None:
    """Refuse what cannot be passed where one of *kinds* is, or holds, PTX or machine code made of it."""
    if any(kind != LTOIR for kind in kinds):
        for signature in signatures:
            abi.check_ptx(signature)


def _decoded(place: str) -> str:
    """Return *place*, a file and a line, without bytes that the locale does not decode: headers are UTF-8."""
    return place.encode(errors="surrogateescape").decode(errors="replace")
