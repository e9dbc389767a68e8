"""Implement the command `export`: its arguments, and what is said of what it wrote."""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any

from . import arguments as args
from . import files, report
from .said import Said

if TYPE_CHECKING:
    import argparse


def add(commands: Any) -> None:
    """Add the command to *commands*."""
    export = args.add_command(commands, "export", _export, "compile the UDFs of a Python file to C symbols")
    source = export.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "file", type=args.path, nargs="?", help="the Python file; its @udf functions are exported"
    )
    source.add_argument(
        "-m", "--module", metavar="MODULE", help='a module in place of a file, such as "package.module"'
    )
    export.add_argument(
        "-o",
        "--out-dir",
        type=args.path,
        required=True,
        metavar="DIR",
        help="the folder to write into; created if missing",
    )
    _add_build_options(export)
    export.add_argument(
        "--emit",
        type=_kinds,
        metavar="KINDS",
        help="comma-separated: ptx, ltoir, cubin, fatbin, kernels, launcher, object, library (default: the "
        "first five)",
    )
    _add_compiling(export)
    _add_workers(export)


def _add_build_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--arch",
        dest="archs",
        type=args.arch,
        action="append",
        metavar="ARCH",
        help='a GPU to generate code for, such as "sm_90"; a list with commas, native, all or all-major '
        "(default: sm_75)",
    )
    args.add_consumer(parser, "export")
    parser.add_argument(
        "--depfile",
        type=args.path,
        metavar="FILE",
        help="write a rule for make and Ninja, what the export is made of, into DIR or a folder that exists",
    )


def _add_compiling(export: argparse.ArgumentParser) -> None:
    args.add_repeated(
        export,
        "-I",
        "--include-dir",
        metavar="DIR",
        type=args.path,
        what="where the headers are that define structs of the functions",
    )
    export.add_argument("--name", help="stem of the files (default: the Python file's)")
    args.add_front_end(export)
    export.add_argument("--fastmath", action="store_true", help="allow approximate floating-point arithmetic")
    export.add_argument("--lineinfo", action="store_true", help="keep the Python line numbers")
    export.add_argument("--no-opt", action="store_true", help="do not optimise")


def _add_workers(export: argparse.ArgumentParser) -> None:
    where = export.add_mutually_exclusive_group()
    where.add_argument(
        "-j",
        "--jobs",
        type=int,
        default=1,
        metavar="N",
        help="processes that compile, this one included; at most one for each core (default: 1)",
    )
    where.add_argument(
        "--scheduler",
        type=args.text,
        metavar="ADDRESS",
        help='a Dask scheduler whose workers compile, such as "tcp://host:8786"',
    )


def _export(arguments: argparse.Namespace) -> Said:
    from numba_ptxlink._export import units
    from numba_ptxlink._tools import progress, workers
    from numba_ptxlink.exporter import export, imported_module

    module, file, front_end = arguments.module, arguments.file, arguments.front_end
    with (
        # What imported modules print is not the command's, whose standard output may be JSON.
        files.stdout_to_stderr(),
        workers.chosen(arguments.jobs, arguments.scheduler, partial(units.prepare, front_end)) as executor,
        progress.shown(quiet=arguments.quiet) as show,
        nullcontext(file) if module is None else imported_module(module, front_end) as source,
    ):
        exported = export(
            source,
            arguments.out_dir,
            archs=arguments.archs or ("sm_75",),
            emit=arguments.emit,
            name=arguments.name,
            opt=not arguments.no_opt,
            fastmath=arguments.fastmath,
            lineinfo=arguments.lineinfo,
            cuda=arguments.cuda,
            ptx_isa=arguments.ptx_isa,
            depfile=arguments.depfile,
            include_dirs=arguments.include_dirs,
            front_end=front_end,
            executor=executor,
            progress=show,
        )
    prototypes = [f"{signature};" for signature in exported.signatures]
    paths = [exported.header, *exported.artifacts.values(), exported.manifest]
    sizes = {str(path): path.stat().st_size for path in paths}
    lines = [*prototypes, *report.table([(f"  {path}", report.size(size)) for path, size in sizes.items()])]
    if exported.host_compiler:
        lines.append(f"Host code of the object: {exported.host_compiler}")
    if exported.left_out:
        kinds = [f"{kind} ({why})" if why else kind for kind, why in exported.left_out.items()]
        lines.append(f"Left out, for it could not be made (-v tells why): {', '.join(kinds)}")
    content = {
        "functions": prototypes,
        "files": sizes,
        "host compiler": exported.host_compiler,
        "left out": list(exported.left_out),
    }
    return Said(content, "\n".join(lines))


def _kinds(text: str) -> list[str]:
    from numba_ptxlink._export.artifacts import EMIT

    return args.known(_listed(text), EMIT)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
