"""Implement the command `export`: its arguments, and the report of the written files."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from . import arguments as parsing
from . import output, report
from .output import Report

if TYPE_CHECKING:
    import argparse
    from concurrent.futures import ThreadPoolExecutor

    from numba_ptxlink.exporter import Export


_EXAMPLES = (
    "export udfs.py -o build --arch sm_80,sm_90",
    "export udfs.py -o build --arch native --emit object --cuda 13.0",
    "export one.py two.py three.py -o build -j 4",
    "export -m package.udfs -o build --emit ptx,ltoir -j 8 --quiet",
)
# Options of this command that the function `export` has under the same names.
_SAME_NAME_OPTIONS = (
    "arch",
    "emit",
    "name",
    "opt",
    "fastmath",
    "lineinfo",
    "cuda",
    "ptx_isa",
    "include_dirs",
    "front_end",
    *parsing.ARITHMETIC,
)
# More files than this take seconds to export, so that their progress is printed.
_MAX_FILES_WITHOUT_PROGRESS = 4


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    export = parsing.add_command(
        commands, "export", _export, "compile the functions of Python files to C symbols", _EXAMPLES
    )
    source = export.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "files",
        type=parsing.parse_path,
        nargs="*",
        default=[],
        metavar="FILE",
        help="a Python file with functions to export; each file gets a header of its own",
    )
    source.add_argument(
        "-m", "--module", metavar="MODULE", help='a module instead of a file, such as "package.module"'
    )
    export.add_argument(
        "-o",
        "--out-dir",
        type=parsing.parse_path,
        required=True,
        metavar="DIR",
        help="the output folder; created if missing",
    )
    export.add_argument(
        "--arch",
        action="append",
        metavar="ARCH",
        help='a GPU to generate code for, such as "sm_90"; a list with commas, native, all or all-major '
        "(default: sm_75)",
    )
    parsing.add_cuda_release(export, "export")
    export.add_argument(
        "--depfile",
        type=parsing.parse_path,
        metavar="FILE",
        help="write a rule for make and Ninja, with the files that the export depends on",
    )
    export.add_argument(
        "--emit",
        action="append",
        metavar="KIND",
        help="ptx, ltoir, cubin, fatbin, kernels, launcher, object or host; a list with commas "
        "(default: the first five)",
    )
    parsing.add_repeated(
        export,
        "-I",
        "--include-dir",
        metavar="DIR",
        type=parsing.parse_path,
        summary="a folder of headers that define structs of the functions",
    )
    export.add_argument("--name", help="stem of the files (default: the Python file's)")
    parsing.add_front_end(export)
    export.add_argument("--fastmath", action="store_true", help="allow approximate floating-point arithmetic")
    parsing.add_arithmetic(export)
    export.add_argument("--lineinfo", action="store_true", help="keep the Python line numbers")
    export.add_argument("--no-opt", dest="opt", action="store_false", help="do not optimise")
    export.add_argument(
        "-j",
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="number of compiler processes, at most one for each core (default: 1)",
    )


def _export(arguments: argparse.Namespace) -> Report:
    from numba_ptxlink._export import progress
    from numba_ptxlink._export.load import Source
    from numba_ptxlink.exporter import export

    module, paths = arguments.module, arguments.files
    options = {name: getattr(arguments, name) for name in _SAME_NAME_OPTIONS}
    # --arch and --emit may be repeated, each time with a list with commas. The function `export` splits each
    # item of a list `arch` at its commas, but splits `emit` only if it is one string.
    options["arch"] = options["arch"] or "sm_75"
    options["emit"] = options["emit"] and ",".join(options["emit"])
    with (
        # Text printed by imported modules must not mix with the report, which may be JSON.
        output.stdout_to_stderr(),
        _threads(arguments.jobs) as threads,
        progress.display(is_quiet=arguments.quiet),
    ):
        if len(paths) > 1:
            exported = _export_each(arguments, options, threads)
        else:
            # The threads compile groups of functions of the one file.
            executor = threads if arguments.jobs > 1 else None
            if module is None:
                source = Source(str(paths[0]), is_module=False)
            else:
                source = Source(module, is_module=True)
            depfile = arguments.depfile
            exported = [export(source, arguments.out_dir, **options, depfile=depfile, executor=executor)]
    return _report(exported)


def _export_each(
    arguments: argparse.Namespace,
    options: dict[str, Any],
    threads: ThreadPoolExecutor,
) -> list[Export]:
    """
    Export several files in parallel, on *threads*.

    The target of a depfile is the manifest of the first file. A build tool considers all outputs up to date
    once the target exists. So with a depfile, the first file is exported to memory, and its outputs are
    written last, if no file has failed.

    Raises:
        PtxlinkError: A file could not be exported. If several could not, the error reports all of them.
    """
    from numba_ptxlink._export.load import Source
    from numba_ptxlink._export.write import write
    from numba_ptxlink.errors import ExportError, PtxlinkError, raise_all
    from numba_ptxlink.exporter import export

    paths, out = arguments.files, arguments.out_dir
    stems = [path.resolve().parent.name if path.stem == "__init__" else path.stem for path in paths]
    if len({*stems}) < len(stems) or arguments.name is not None:
        raise ExportError(
            "The outputs of several files are named by their stems, so that neither equal stems nor "
            f"--name are possible: {', '.join(stems)}; export them one by one."
        )
    exports, errors = [], []
    deferred_path = paths[0] if arguments.depfile else None
    futures = [
        threads.submit(
            export,
            # An export without a folder stays in memory. With `will_be_written`, it calls the same compilers
            # as an export to files.
            Source(str(path), will_be_written=True),
            None if path is deferred_path else out,
            **options,
        )
        for path in paths
    ]
    for count, (path, future) in enumerate(zip(paths, futures, strict=True), start=1):
        try:
            exports.append(future.result())
        except PtxlinkError as error:
            errors.append(error)
        if len(paths) > _MAX_FILES_WITHOUT_PROGRESS and not arguments.quiet:
            # On a terminal, a line of progress may be displayed: delete it (ECMA-48, "EL").
            delete_line = "\x1b[K" if sys.stderr.isatty() else ""
            print(f"{delete_line}[{count}/{len(paths)}] {path}", file=sys.stderr, flush=True)
    raise_all(errors)
    if deferred_path:
        # The depfile names the sources of all files.
        sources = {source for exported in exports for source in exported.sources}
        exports[0] = write(replace(exports[0], sources=tuple(sources)), out, arguments.depfile)
    return exports


def _threads(jobs: int) -> ThreadPoolExecutor:
    """Return a pool of *jobs* threads, at most one for each core; each waits for one compiler process."""
    from concurrent.futures import ThreadPoolExecutor

    from numba_ptxlink.errors import ExportError

    if jobs < 1:
        raise ExportError(f"--jobs is {jobs}, which is no number of processes; pass 1 or more.")
    return ThreadPoolExecutor(min(jobs, len(os.sched_getaffinity(0))))


def _report(exports: list[Export]) -> Report:
    prototypes = [f"{signature};" for exported in exports for signature in exported.signatures]
    paths = [
        path
        for exported in exports
        for path in (exported.header, *exported.artifacts.values(), exported.manifest)
    ]
    sizes = {str(path): path.stat().st_size for path in paths}
    lines = [
        *prototypes,
        *report.format_table([(f"  {path}", report.format_size(size)) for path, size in sizes.items()]),
    ]
    compilers = ", ".join(dict.fromkeys(filter(None, (exported.host_compiler for exported in exports))))
    if compilers:
        lines.append(f"Host code of the object: {compilers}")
    content = {
        "functions": prototypes,
        "files": sizes,
        "host compiler": compilers,
        "left out": sorted({missing.kind for exported in exports for missing in exported.left_out}),
    }
    return Report(content, "\n".join(lines))
