"""Export Python functions with `@udf` or `@kernel` as C symbols: write a header, code and a manifest."""

from __future__ import annotations

import json
import logging
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ._artifacts import outputs
from ._artifacts.target_release import TargetRelease
from ._config import config
from ._export import externs, jobs
from ._export.artifacts import EMIT, Request, check_struct_passing
from ._export.compile import build, compile_in_groups
from ._export.load import Source, check_file
from ._export.marks import Kernel, Udf, kernel, udf
from ._export.write import Export, check_stem, write
from ._formats.kinds import FATBIN, LTOIR, OBJECT, PTX
from ._link.compile import PythonCode
from ._link.declarations import from_prototype, from_signature
from ._link.read import Input
from ._tools import includes
from ._tools.options import DEFAULT_LEVEL, Options, as_texts, checked_bools
from ._tools.toolchain import parse_archs
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
    unchanged. Files that the manifest of the previous export of the same name lists, and that this one does
    not write, are deleted, unless they were changed since. If two exports write the same files at once, or an
    export is killed while it writes, `link` and `load` refuse files that do not match the manifest; the next
    export of that name replaces them and deletes files named `.ptxlink.*`. The output is deterministic: the
    same functions and tools give the same bytes. A file that has the same bytes already is not written again,
    except for the manifest. `numba_ptxlink/array_view.h` is copied if the header includes it.

    Args:
        source: A module or the path of a Python file, which exports all functions that it marks, in the order
            in which it marks them, also those that have no global name, or no longer have one; or marked
            functions, one or several. A file and the modules of its folder are imported in a child process,
            from their source instead of byte code.
        out_dir: The output directory; created if missing. With None, no file is written, and the result has
            the contents.
        arch: The GPUs to generate code for: one, several, or text with commas. "native" means those of
            this machine, "all" those that the toolkit compiles for, "all-major" the first one of each
            generation.
        emit: The kinds of artifact to write, one, several, or text with commas: "ptx", "ltoir", "cubin"
            (relocatable), "fatbin", "kernels" (for `load`), "launcher" (C++ that launches the kernels),
            "object" (needs nvcc or a C++ compiler), "host" (the functions as C++ for the host; the header
            declares them `__host__ __device__`). By default the first four, and "kernels" if the export has
            kernels and no undefined functions.
        name: The stem of the file names; by default the module's name, or the first function's.
        opt: Whether NVVM optimises.
        fastmath: Whether floating-point arithmetic may be approximate.
        lineinfo: Whether the code contains the Python line numbers.
        fma: Whether multiplications and additions are fused; they are by default. The options from *fma* to
            *prec_sqrt* apply to PTX and machine code. LTO-IR gets them when it is linked: `link` has the same
            options, nvcc and nvJitLink have their own. A warning is logged if one of them is passed and the
            export has LTO-IR.
        ftz: Whether subnormal floats become zero; by default only with *fastmath*.
        prec_div: Whether divisions of floats are rounded as IEEE 754 requires; by default unless *fastmath*.
        prec_sqrt: The same for square roots of floats.
        cuda: The CUDA release of the toolkit and driver that the artifacts are for, such as "12.4"; None for
            those of this environment. PTX gets the lowest version that its text allows; machine code and
            LTO-IR are made by a ptxas and a libNVVM of that release or an older one. By default *emit* leaves
            out kinds that cannot be made, for example if no such tool is found.
        ptx_isa: Instead of *cuda*, the newest PTX version that the toolkit or driver reads, such as "8.4".
        depfile: The path of a rule for make and Ninja: the manifest depends on the imported Python files, on
            link files, and on the headers that define structs. The folder is created. Not with *out_dir*
            None.
        include_dirs: The folders of headers that define structs for the functions; the folders of their
            Python files are searched last.
        front_end: The compiler of functions whose decorator names none: "numba-cuda" or "numba-cuda-mlir". By
            default the one whose types, functions and modules they use; otherwise an installed one,
            numba-cuda first. All functions of an export have the same front end.
        executor: Compiles the functions of a file, in groups: a pool of processes or threads, a Dask cluster
            by `Client.get_executor()`, `mpi4py.futures.MPIPoolExecutor`. Each worker imports the file in a
            child process. The output does not depend on it: groups that a worker loses, or would compile
            differently, are compiled on this machine.

    Raises:
        ConfigError: An architecture, *cuda* or *ptx_isa* is unknown, "native" finds no device, or an item of
            *include_dirs* is not a folder.
        ExportError: The code needs newer PTX than the target reads, a kind cannot be made for *cuda*, the
            file could not be imported or marks no function, a compiler refused a function or is not
            installed, the functions have several front ends, *name* cannot begin a file name, or a file could
            not be written.
        AbiError: A function's name or types have no counterpart in C, or a struct that is passed by value
            holds members that are not aligned and *emit* is not LTO-IR alone.
        AssembleError: The PTX could not be assembled.
    """
    # The first call in a process sets up logging.
    config()
    target_release = TargetRelease.of(cuda, ptx_isa)
    switches = {"opt": opt, "fastmath": fastmath, "lineinfo": lineinfo}
    for option, value in switches.items():
        if value not in (True, False):
            raise ExportError(f"{option} is {value!r}; pass True or False.")
    arithmetic_choices = {"fma": fma, "ftz": ftz, "prec_div": prec_div, "prec_sqrt": prec_sqrt}
    arithmetic: dict[str, Any] = {**checked_bools(arithmetic_choices)}
    request = Request(
        stem="" if name is None else check_stem(name),
        archs=parse_archs(arch, target_release.isa if target_release else None),
        kinds=None if emit is None else _check_emit(emit),
        options=Options(
            opt_level=DEFAULT_LEVEL if opt else 0,
            lineinfo=bool(lineinfo),
            fast_math=bool(fastmath),
            **arithmetic,
        ),
        target_release=target_release,
        # Absolute, since compilers run in temporary folders.
        include_dirs=tuple(
            outputs.require_path("include_dirs", folder).absolute()
            for folder in includes.check_include_dirs(include_dirs)
        ),
        front_end=front_end,
        # The command writes the files itself, and passes a `Source` and no *out_dir*.
        writes_files=out_dir is not None or (isinstance(source, Source) and source.will_be_written),
    )
    if not request.archs:
        raise ExportError('export() needs at least one arch, such as "sm_90".')
    out_dir = None if out_dir is None else outputs.require_path("out_dir", out_dir)
    depfile = None if depfile is None else outputs.require_path("depfile", depfile)
    if out_dir is not None and os.path.lexists(out_dir) and not out_dir.is_dir():
        raise ExportError(f"{out_dir} is not a folder; give the path of a folder.")
    if depfile is not None and out_dir is None:
        raise ExportError("An export in memory writes no depfile; pass out_dir, or leave depfile out.")
    checked_source = Source(str(source)) if isinstance(source, (str, Path)) else source
    if isinstance(checked_source, Source):
        if not checked_source.is_module:
            check_file(Path(checked_source.name))
    elif executor is not None:
        raise ExportError(
            "executor= compiles the functions of a file; pass the path of their file, or leave executor out."
        )
    if arithmetic and {LTOIR, FATBIN, OBJECT}.intersection(request.requested_kinds):
        log.warning(
            "LTO-IR gets %s when it is linked; pass the same options to the link",
            ", ".join(arithmetic),
        )
    exported = jobs.export(checked_source, request, executor)
    _warn_of_left_out(exported)
    _warn_of_older_nvcc(exported)
    return write(exported, out_dir, depfile)


def _warn_of_left_out(exported: Export) -> None:
    """Warn of kinds that were not made: here, since an imported file may turn off logging in the child."""
    for left_out in exported.left_out:
        log.warning("Left out of %s: %s (%s)", exported.header.stem, left_out.kind, left_out)


def _warn_of_older_nvcc(exported: Export) -> None:
    """Warn if the nvcc that compiled the host code of an object is too old to link its functions."""
    nvcc_match = re.fullmatch(r"nvcc (\d+\.\d+)", exported.host_compiler)
    if nvcc_match is None:
        return
    manifest = json.loads(exported.contents[exported.manifest.name])
    # Kernels alone need no device link.
    has_functions = any(function["kind"] == "function" for function in manifest["functions"])
    (object_file,) = (artifact for artifact in manifest["artifacts"] if artifact["kind"] == OBJECT)
    # The text is None if the release of a compiler is unknown.
    needed_release = object_file["oldest"]["toolkit"]
    nvcc_release = nvcc_match[1]
    if not has_functions or not needed_release:
        return
    if tuple(map(int, needed_release.split("."))) > tuple(map(int, nvcc_release.split("."))):
        log.warning(
            "%s is linked by CUDA %s or later, and the nvcc that was found is of CUDA %s; "
            "export with --cuda %s (in Python, cuda=%r)",
            object_file["file"],
            needed_release,
            nvcc_release,
            nvcc_release,
            nvcc_release,
        )


def compile_udfs(
    name: str,
    source: Path | Iterable[Udf],
    arch: Arch,
    link_options: Options,
    *,
    front_end: str | None,
    linked_ltoir: Collection[bytes],
) -> PythonCode:
    """
    Compile marked functions, or those of a Python file, for a link: optimised, with the link's arithmetic.

    Args:
        name: The name of this input of the link.
        source: The functions, or the file.
        arch: The GPU architecture.
        link_options: The options of the link. With link-time optimisation, the result is LTO-IR if possible,
            else PTX.
        front_end: The front end of functions whose decorator names none.
        linked_ltoir: The LTO-IR inputs of the link. If a function has a link file with the same content, that
            file is not merged into its code, since nvJitLink would find two definitions.
    """
    arguments = (front_end, name, arch, link_options, linked_ltoir)
    # A file is imported in a child process; functions are objects of this process.
    if not isinstance(source, Path):
        return _compile_python(source, *arguments)
    check_file(source)
    compiled: PythonCode = jobs.in_child(_compile_python, Source(str(source)), *arguments)
    return compiled


def _compile_python(  # noqa: PLR0917 - children pass positional arguments
    source: Any,
    front_end: str | None,
    name: str,
    arch: Arch,
    link_options: Options,
    linked_ltoir: Collection[bytes],
) -> PythonCode:
    """Compile the functions of *source*, in this process; the arguments are those of `compile_udfs`."""
    arithmetic: dict[str, Any] = {**link_options.arithmetic}
    options = Options(**arithmetic)
    # LTO-IR is dispensable below: if it cannot be made, PTX takes its place.
    kinds = (LTOIR, PTX) if link_options.lto else (PTX,)
    _, functions = jobs.functions_of(source, front_end)
    (group,) = compile_in_groups(functions, [arch], options, compiled_elsewhere={})
    lowered_functions = tuple(
        replace(function, links=tuple(file for file in function.links if file.content not in linked_ltoir))
        for function in group.functions
    )
    code = build(replace(group, functions=lowered_functions), kinds, options, dispensable=(LTOIR,))
    kind = next(kind for kind in kinds if kind in code.artifacts)
    for left_out in code.left_out:
        log.warning("%s goes into the link as PTX, and its calls are not inlined: %s", name, left_out)
    check_struct_passing(lowered_functions, (kind,))
    callers = externs.callers(lowered_functions)
    # If the C signature of an external function is unknown, the link compares its prototype in PTX.
    return PythonCode(
        Input(kind, name, code.artifacts[kind], compiled=True),
        tuple(from_signature(signature, name) for signature in group.signatures if not signature.kernel),
        tuple(
            from_signature(signature, callers[symbol])
            if signature
            else from_prototype(prototype, callers[symbol])
            for symbol, (prototype, signature) in code.externs.items()
            if symbol in callers
        ),
    )


def _check_emit(emit: Sequence[str]) -> tuple[str, ...]:
    """Return the kinds in *emit*: one, several, or text with commas; raise if one is unknown."""
    kinds = tuple(map(str.strip, emit.split(","))) if isinstance(emit, str) else as_texts("emit", emit)
    unknown_kinds = [kind for kind in kinds if kind not in EMIT]
    if unknown_kinds or not kinds:
        names = ", ".join(filter(None, unknown_kinds)) or "nothing"
        raise ExportError(f"Cannot emit {names}; the kinds are {', '.join(EMIT)}.")
    return kinds
