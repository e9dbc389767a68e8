"""Implement the command `numba-ptxlink`: parse arguments, call the functions, print errors to stderr."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext, redirect_stdout
from typing import TYPE_CHECKING, Any

from ._cli import arguments as args
from ._cli import cache as cache_commands
from ._cli import files, report
from ._cli.said import Said
from ._config import BACKENDS, CHECKS, FRONT_ENDS, INLINE, config
from ._formats.kinds import CUBIN, PTX
from ._version import __version__
from .errors import LinkError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

_INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the command.

    Args:
        argv: Its arguments, without the program's name; the process's own by default.

    Returns:
        The exit status: 0 for success, 1 for an error printed to stderr or, with --strict, for a problem that
        was found, 2 for wrong usage, 130 for Ctrl-C.
    """
    parser = make_parser()
    arguments = parser.parse_args(argv)
    if arguments.include_dir or arguments.cmake_dir:
        from .linker import INCLUDE_DIR

        print(INCLUDE_DIR if arguments.include_dir else INCLUDE_DIR / "cmake")
        return 0
    if arguments.run is None:
        parser.print_help()
        return 2
    status = 0
    try:
        config()
        args.set_verbosity(arguments.verbose)
        said: Said = arguments.run(arguments)
        status = said.status
        said.show(arguments)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe, such as head, has quit.
        _drop_stdout()
    except PtxlinkError as error:
        return _fail(str(error))
    except OSError as error:
        if error.filename is None:
            _drop_stdout()
        return _fail(f"{error.filename or 'The output'}: {error.strerror or error}; check path and disk.")
    except KeyboardInterrupt:
        print("numba-ptxlink: interrupted", file=sys.stderr)
        return _INTERRUPTED
    return status


def _fail(message: str) -> int:
    print(f"numba-ptxlink: error: {message}", file=sys.stderr)
    return 1


def _drop_stdout() -> None:
    # Python would flush it once more at exit, and fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_parser() -> args.Parser:
    """Return the parser of the command, which its reference page is made of."""
    parser = args.Parser(
        prog="numba-ptxlink", description="Python functions as CUDA symbols: export, link, assemble."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    _add_folders(parser)
    parser.add_argument("--print-completion", action=args.Completion, metavar="SHELL")
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    export = args.add_command(commands, "export", _export, "compile the UDFs of a Python file to C symbols")
    source = export.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "file", type=args.path, nargs="?", help="the Python file; its @udf functions are exported"
    )
    source.add_argument(
        "-m", "--module", metavar="MODULE", help='a module in place of a file, such as "package.module"'
    )
    export.add_argument(
        "-o", "--out-dir", type=args.path, required=True, metavar="DIR", help="the folder to write into"
    )
    _add_build_options(export)
    export.add_argument(
        "--emit",
        metavar="KINDS",
        help="comma-separated: ptx, ltoir, cubin, fatbin, kernels, launcher, object, library (default: the "
        "first five)",
    )
    _add_compiling(export)
    _add_workers(export)

    link = args.add_command(
        commands, "link", _link, "link PTX, LTO-IR, cubins, objects and CUDA C++ to a cubin"
    )
    link.add_argument(
        "inputs", type=args.path, nargs="+", metavar="INPUT", help="a file of any of these kinds, or Python"
    )
    link.add_argument(
        "-o", "--output", type=args.path, required=True, metavar="FILE", help="where the result goes"
    )
    link.add_argument("--arch", required=True, help='the GPU, such as "sm_90"')
    link.add_argument(
        "--lto",
        action=argparse.BooleanOptionalAction,
        default=None,
        help="link-time optimisation (default: where an input is LTO-IR)",
    )
    args.add_repeated(
        link, "-I", "--include-dir", metavar="DIR", type=args.path, what="where CUDA C++ finds headers"
    )
    args.add_repeated(link, "-D", "--define", metavar="NAME[=VALUE]", what="a macro of CUDA C++")
    link.add_argument(
        "--std", dest="cxx_standard", type=args.text, metavar="STANDARD", help='such as "c++20"'
    )
    args.add_repeated(
        link,
        "--name-expression",
        metavar="NAME",
        what='a C++ name whose symbol is wanted, such as "scale<float>"',
    )
    link.add_argument(
        "--inline",
        choices=INLINE,
        help="which calls between PTX inputs are inlined (default: NUMBA_PTXLINK_INLINE, or auto)",
    )
    link.add_argument(
        "--emit",
        choices=(CUBIN, PTX),
        default=CUBIN,
        help="what is written: the cubin, or the PTX that all inputs become (default: cubin)",
    )
    link.add_argument("--backend", choices=BACKENDS, help="the tool to use (default: NUMBA_PTXLINK_BACKEND)")
    link.add_argument(
        "--checks",
        metavar="HOW",
        help=f"thoroughness of the checks: {', '.join(CHECKS)} (default: NUMBA_PTXLINK_CHECKS, or cheap)",
    )
    _add_code_options(link)
    _add_consumer(link, "link")
    _add_front_end(link)

    assemble = args.add_command(commands, "assemble", _assemble, "compile PTX to a cubin")
    assemble.add_argument("ptx", type=args.path, metavar="FILE", help="the PTX")
    assemble.add_argument(
        "-o", "--output", type=args.path, required=True, metavar="FILE", help="where the cubin goes"
    )
    assemble.add_argument("--arch", required=True, help='the GPU, such as "sm_90"')
    assemble.add_argument("--relocatable", action="store_true", help="leave calls open for a later link")
    assemble.add_argument(
        "--opt-level", type=int, default=3, choices=range(4), help="how much is optimised (default: 3)"
    )
    _add_code_options(assemble)

    inspect = args.add_command(
        commands, "inspect", _inspect, "show symbols, resources and machine code of a file"
    )
    inspect.add_argument("file", type=args.path, metavar="FILE", help="code of any kind, or a program")
    inspect.add_argument("--arch", help="the GPU to tell resources for (default: the file's own)")
    inspect.add_argument("--no-sass", action="store_true", help="leave out the machine code")

    doctor = args.add_command(
        commands, "doctor", _doctor, "show what is installed, what works and what helps"
    )
    doctor.add_argument(
        "--strict", action="store_true", help="exit with status 1 if there is a problem that has a cure"
    )

    cache_commands.add(commands)
    return parser


def _add_folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--include-dir", action="store_true", help="print the directory of the headers that exports include"
    )
    parser.add_argument(
        "--cmake-dir", action="store_true", help="print the directory of the CMake package NumbaPtxlink"
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
    _add_front_end(export)
    export.add_argument("--fastmath", action="store_true", help="allow approximate floating-point arithmetic")
    export.add_argument("--lineinfo", action="store_true", help="keep the Python line numbers")
    export.add_argument("--no-opt", action="store_true", help="do not optimise")


def _add_workers(export: argparse.ArgumentParser) -> None:
    where = export.add_mutually_exclusive_group()
    where.add_argument(
        "-j", "--jobs", type=int, default=1, metavar="N", help="processes that compile (default: 1)"
    )
    where.add_argument(
        "--scheduler",
        type=args.text,
        metavar="ADDRESS",
        help='a Dask scheduler whose workers compile, such as "tcp://host:8786"',
    )


def _add_front_end(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--front-end",
        choices=FRONT_ENDS,
        help="what compiles functions whose decorator names none (default: what they use, or what is "
        "installed, numba-cuda first)",
    )


def _add_build_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--arch",
        dest="archs",
        action="append",
        metavar="ARCH",
        help='a GPU to generate code for, such as "sm_90"; a list with commas, native, all or all-major '
        "(default: sm_75)",
    )
    _add_consumer(parser, "export")
    parser.add_argument(
        "--depfile",
        type=args.path,
        metavar="FILE",
        help="write a rule for make and Ninja: what the export is made of",
    )


def _add_consumer(parser: argparse.ArgumentParser, what: str) -> None:
    consumer = parser.add_mutually_exclusive_group()
    consumer.add_argument(
        "--cuda", metavar="RELEASE", help=f'the oldest CUDA toolkit and driver to {what} for, such as "12.4"'
    )
    consumer.add_argument(
        "--ptx-isa", metavar="VERSION", help='the same by the newest PTX they read, such as "8.4"'
    )


def _add_code_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--debug", "-g", action="store_true", help="keep debug information")
    parser.add_argument("--lineinfo", action="store_true", help="keep line numbers")
    parser.add_argument("--max-registers", type=int, metavar="N", help="cap on registers per thread")


def _export(arguments: argparse.Namespace) -> Said:
    from ._tools import progress, workers
    from .exporter import export, imported_module

    module, file, front_end = arguments.module, arguments.file, arguments.front_end
    with (
        # What imported modules print is not the command's, whose standard output may be JSON.
        redirect_stdout(sys.stderr),
        workers.chosen(arguments.jobs, arguments.scheduler) as executor,
        progress.shown(quiet=arguments.quiet) as show,
        nullcontext(file) if module is None else imported_module(module, front_end) as source,
    ):
        exported = export(
            source,
            arguments.out_dir,
            archs=arguments.archs or ("sm_75",),
            emit=None if arguments.emit is None else _listed(arguments.emit),
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
        lines.append(f"Left out, for it could not be made (-v tells why): {', '.join(exported.left_out)}")
    content = {
        "functions": prototypes,
        "files": sizes,
        "host compiler": exported.host_compiler,
        "left out": list(exported.left_out),
    }
    return Said(content, "\n".join(lines))


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _link(arguments: argparse.Namespace) -> Said:
    from .linker import link

    files.check_output(arguments.output, arguments.inputs)
    # It imports the Python files among the inputs.
    with redirect_stdout(sys.stderr):
        linked = link(
            *arguments.inputs,
            arch=arguments.arch,
            lto=arguments.lto,
            debug=arguments.debug,
            lineinfo=arguments.lineinfo,
            max_registers=arguments.max_registers,
            include_dirs=arguments.include_dirs,
            nvrtc_flags=[f"--define-macro={define}" for define in arguments.defines],
            cxx_standard=arguments.cxx_standard,
            name_expressions=arguments.name_expressions,
            backend=arguments.backend,
            checks=arguments.checks,
            inline=arguments.inline,
            cuda=arguments.cuda,
            ptx_isa=arguments.ptx_isa,
            front_end=arguments.front_end,
        )
    if arguments.emit == PTX and not linked.ptx:
        raise LinkError(
            f"The inputs did not become one PTX module: {linked.reason}. Give PTX, CUDA C++ or Python alone, "
            "with --no-lto.",
            inputs=linked.inputs,
        )
    content = linked.cubin if arguments.emit == CUBIN else linked.ptx.encode(errors="surrogateescape")
    size = report.size(len(content))
    lines = [f"{arguments.output}  {size}, {linked.backend}: {linked.reason}"]
    if arguments.emit == CUBIN and not _has_kernel(content):
        lines.append("  no kernel in it, so nothing to launch: link the code that calls these functions too")
    log = linked.log.splitlines()
    lines += [f"  {line}" for line in log if line.startswith("call not inlined")]
    lines += [f"  {expression}  {symbol}" for expression, symbol in linked.lowered_names.items()]
    return _written(
        arguments,
        content,
        lines,
        backend=linked.backend,
        reason=linked.reason,
        log=log,
        inlined=linked.inlined,
        names=dict(linked.lowered_names),
    )


def _has_kernel(cubin: bytes) -> bool:
    from ._formats import elf

    return any(symbol.kind == "entry" and symbol.defined for symbol in elf.read(cubin).symbols)


def _written(arguments: argparse.Namespace, content: bytes, lines: list[str], **more: Any) -> Said:
    """Write *content*, and return that and *lines* as what is said."""
    files.write(arguments.output, content)
    # What is written to the standard output is the content alone.
    aside = files.is_stream(arguments.output)
    said = {"file": str(arguments.output), "size": len(content), **more}
    return Said(said, "\n".join(lines), aside=aside)


def _assemble(arguments: argparse.Namespace) -> Said:
    from .assembler import assemble

    files.check_output(arguments.output, [arguments.ptx])
    cubin = assemble(
        files.read(arguments.ptx),
        arguments.arch,
        relocatable=arguments.relocatable,
        opt_level=arguments.opt_level,
        debug=arguments.debug,
        lineinfo=arguments.lineinfo,
        max_registers=arguments.max_registers,
    )
    return _written(arguments, cubin.code, [f"{arguments.output}  {report.size(len(cubin.code))}"])


def _inspect(arguments: argparse.Namespace) -> Said:
    from .inspection import inspect

    found = inspect(arguments.file, arch=arguments.arch, sass=not arguments.no_sass)
    names = [symbol.name for part in (found, *found.parts) for symbol in part.symbols if symbol.defined]
    return Said(found.as_dict(), report.inspection(found), "\n".join(dict.fromkeys(names)))


def _doctor(arguments: argparse.Namespace) -> Said:
    from .doctor import diagnose

    found = diagnose()
    curable = [problem for problem in found.problems if not problem.cure.startswith("none needed")]
    status = 1 if arguments.strict and curable else 0
    return Said(found.as_dict(), report.diagnosis(found), report.problems(curable), status=status)


if __name__ == "__main__":
    raise SystemExit(main())
