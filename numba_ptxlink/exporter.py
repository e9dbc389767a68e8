"""Compile Python functions to C symbols: `udf` marks them; `export` writes header, artifacts and manifest."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._artifacts.target_release import TargetRelease
from ._config import config
from ._export import externs, jobs
from ._export.artifacts import EMIT, Request, check_passing
from ._export.compile import build, compile_units
from ._export.load import Source, check_file
from ._export.marks import Kernel, Udf, kernel, udf
from ._export.write import Export, check_stem, write
from ._formats.kinds import FATBIN, LTOIR, OBJECT, PTX
from ._link.compile import PythonCode
from ._link.declarations import counted, declaration
from ._link.read import Input
from ._tools import includes
from ._tools.options import DEFAULT_LEVEL, Options, given_choices
from ._tools.toolchain import chosen_archs
from .errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from concurrent.futures import Executor
    from types import ModuleType

    from ._arch import Arch, ArchLike
    from ._config import FrontEndName


log = logging.getLogger(__name__)

__all__ = ["EMIT", "Export", "Kernel", "Udf", "export", "kernel", "udf"]


def export(
    source: ModuleType | str | Path | Udf | Iterable[Udf] | Source,
    out_dir: str | Path | None = None,
    *,
    arch: ArchLike | Iterable[ArchLike] = "sm_75",
    emit: str | Sequence[str] | None = None,
    name: str | None = None,
    opt: bool = True,
    fastmath: bool = False,
    lineinfo: bool = False,
    fma: bool | None = None,
    ftz: bool | None = None,
    prec_div: bool | None = None,
    prec_sqrt: bool | None = None,
    cuda: str | tuple[int, int] | None = None,
    ptx_isa: str | tuple[int, int] | None = None,
    depfile: str | Path | None = None,
    include_dirs: Sequence[str | Path] | str | Path = (),
    front_end: FrontEndName | None = None,
    executor: Executor | None = None,
) -> Export:
    """
    Compile UDFs to C symbols. Needs neither a GPU nor a driver.

    Files are written after all compilation has succeeded, all or none; an error leaves existing files
    unchanged. Files that the former export of the same name listed and this one does not write are deleted,
    unless they were changed since. Of two exports of one name into one folder at once, each file is that of
    one of them: the manifest then disagrees with files of the other, which `link` and `load` refuse. What an
    export that was killed while it wrote leaves, files of it beside the former manifest and files named
    `.ptxlink.*`, the next one of its name replaces or deletes. The output is deterministic: the same
    functions and tools give the same bytes. A file that has them already is left alone, but for the manifest,
    which is written each time. `numba_ptxlink/array_view.h` comes along where the header includes it.

    Args:
        source: A module or the path of a Python file, of which all functions that it marks are exported in
            that order, those that it keeps in a list or has deleted, too; or the UDFs
            themselves, or one. A file is imported from its source, with the modules of its
            folder, by a process that ends with the export.
        out_dir: The output directory; created if missing. None writes nothing; the result has the contents.
        arch: The GPUs to generate code for: one, several, or text with commas. "native" are those of this
            machine, "all" those that the toolkit compiles for, "all-major" the first one of these and of each
            generation.
        emit: The kinds of artifact to write, one, several, or text with commas: "ptx", "ltoir", "cubin"
            (relocatable), "fatbin", "kernels", which `load` launches, "launcher", C++ that launches them,
            "object", which needs nvcc or a C++ compiler. By default the first four, and
            "kernels" where there are some and no function of the export uses what is not defined.
        name: The stem of the file names; by default the module's name, or the first UDF's.
        opt: Whether NVVM optimises.
        fastmath: Whether floating-point arithmetic may be approximate.
        lineinfo: Whether the code carries the Python line numbers.
        fma: Whether multiplications and additions become fused ones; by default they do. This and the next
            three are in PTX and machine code. LTO-IR gets them where it is linked: `link` takes the same
            options, nvcc and nvJitLink their own, and a warning says so.
        ftz: Whether subnormal floats become zero; by default as *fastmath* says, like the next two.
        prec_div: Whether divisions of floats are rounded as IEEE 754 says.
        prec_sqrt: Whether square roots of floats are.
        cuda: The CUDA release of the toolkit and driver that the artifacts are for, such as "12.4"; None for
            those of this environment. PTX gets the lowest version that its text allows; machine code and
            LTO-IR are made by a ptxas and a libNVVM of that release or an older one. By default *emit* leaves
            out what cannot be made, such as these where no such tool is found.
        ptx_isa: The same by the newest PTX that is read, such as "8.4".
        depfile: Where to write a rule for make and Ninja: the manifest depends on the Python files that were
            imported, on what the functions link, and on the headers that define structs for them. Its folder
            is created. An export in memory has none.
        include_dirs: Where to find headers that define structs for the functions; the folders of their Python
            files are searched last.
        front_end: What compiles functions whose decorator names none: "numba-cuda" or "numba-cuda-mlir". By
            default the one whose types, functions and modules they use; else what is installed, numba-cuda
            first. All functions of an export have the same.
        executor: Where the functions of a file are compiled, in groups: a pool of processes or threads, a
            Dask cluster by `Client.get_executor()`, `mpi4py.futures.MPIPoolExecutor`. Each worker imports the
            file in a child of its own. The bytes do not depend on it: what was lost with a worker, or what
            another environment would compile otherwise, is done on this machine.

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
    target_release = TargetRelease.of(cuda, ptx_isa)
    switches = {"opt": opt, "fastmath": fastmath, "lineinfo": lineinfo}
    for option, value in switches.items():
        if value not in (True, False):
            raise ExportError(f"{option} is {value!r}; pass True or False.")
    asked = {"fma": fma, "ftz": ftz, "prec_div": prec_div, "prec_sqrt": prec_sqrt}
    arithmetic: dict[str, Any] = {**given_choices(asked)}
    request = Request(
        "" if name is None else check_stem(name),
        chosen_archs(arch, target_release.isa if target_release else None),
        None if emit is None else _check_emit(emit),
        Options(
            opt_level=DEFAULT_LEVEL if opt else 0,
            lineinfo=bool(lineinfo),
            fast_math=bool(fastmath),
            **arithmetic,
        ),
        target_release,
        # Compilers run in folders of their own.
        tuple(Path(each).absolute() for each in includes.folders(include_dirs)),
        front_end,
    )
    if not request.archs:
        raise ExportError('export() needs at least one arch, such as "sm_90".')
    if out_dir is not None and os.path.lexists(out_dir) and not Path(out_dir).is_dir():
        raise ExportError(f"{out_dir} is not a folder; give the path of a folder.")
    if depfile is not None and out_dir is None:
        raise ExportError("An export in memory writes no depfile; give out_dir, or no depfile.")
    named = Source(str(source)) if isinstance(source, (str, Path)) else source
    if isinstance(named, Source):
        if not named.is_module:
            check_file(Path(named.name))
    elif executor is not None:
        raise ExportError("executor= compiles the functions of a file; export its path, or leave it out.")
    if arithmetic and {LTOIR, FATBIN, OBJECT}.intersection(request.requested_kinds):
        log.warning(
            "LTO-IR takes %s from the link that optimises it; give them there, too",
            ", ".join(arithmetic),
        )
    made = jobs.export(named, request, executor)
    _warn_of_left_out(made)
    return write(made, out_dir, depfile)


def _warn_of_left_out(made: Export) -> None:
    """Warn of the kinds that *made* lacks: not in the child, where an imported file may turn logging off."""
    for each in made.left_out:
        log.warning("Left out of %s: %s (%s)", made.header.stem, each.kind, each)


def compile_udfs(
    name: str,
    source: Path | Iterable[Udf],
    arch: Arch,
    link: Options,
    *,
    front_end: str | None,
    beside: Collection[bytes],
) -> PythonCode:
    """
    Compile UDFs for a link, or a Python file's, optimised, with the arithmetic of the link.

    Args:
        name: What the link calls them.
        source: The UDFs, or the file.
        arch: The GPU.
        link: The options of the link. With link-time optimisation they become LTO-IR if possible, else PTX.
        front_end: What compiles those whose decorator names none.
        beside: LTO-IR that is linked beside them, and so is no part of them where they link it too.
    """
    options = (front_end, name, arch, link, beside)
    if not isinstance(source, Path):
        return _python_code(source, *options)
    check_file(source)
    compiled: PythonCode = jobs.in_child(_python_code, Source(str(source)), *options)
    return compiled


def _python_code(  # noqa: PLR0917 - a child takes what is given by place
    source: Any,
    front_end: str | None,
    name: str,
    arch: Arch,
    link: Options,
    beside: Collection[bytes],
) -> PythonCode:
    arithmetic: dict[str, Any] = {**link.arithmetic}
    how, kinds = Options(**arithmetic), (LTOIR, PTX) if link.lto else (PTX,)
    _, functions = jobs.functions_of(source, front_end)
    (group,) = compile_units(functions, [arch], how, {})
    own = tuple(
        replace(each, links=tuple(link for link in each.links if link.content not in beside))
        for each in group.functions
    )
    code = build(replace(group, functions=own), kinds, how, dispensable=(LTOIR,))
    kind = next(kind for kind in kinds if kind in code.artifacts)
    for left_out in code.left_out:
        log.warning("%s goes into the link as PTX, and its calls are not inlined: %s", name, left_out)
    check_passing(own, (kind,))
    callers = externs.callers(own)
    return PythonCode(
        Input(kind, name, code.artifacts[kind], compiled=True),
        tuple(declaration(each, name) for each in group.signatures if not each.kernel),
        tuple(
            declaration(plain, callers[symbol]) if plain else counted(prototype, callers[symbol])
            for symbol, (prototype, plain) in code.externs.items()
            if symbol in callers
        ),
    )


def _check_emit(emit: Sequence[str]) -> tuple[str, ...]:
    kinds = tuple(map(str.strip, emit.split(","))) if isinstance(emit, str) else tuple(emit)
    unknown = [kind for kind in kinds if kind not in EMIT]
    if unknown or not kinds:
        names = ", ".join(filter(None, unknown)) or "nothing"
        raise ExportError(f"Cannot emit {names}; the kinds are {', '.join(EMIT)}.")
    return kinds
