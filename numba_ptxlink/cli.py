"""Implement the command `numba-ptxlink`: parse arguments, call the functions, print errors to stderr."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

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
        The exit status: 0 for success, 1 for an error printed to stderr, 2 for wrong usage, 130 for Ctrl-C.
    """
    parser = _parser()
    arguments = parser.parse_args(argv)
    if arguments.include_dir or arguments.cmake_dir:
        from .linker import INCLUDE_DIR

        print(INCLUDE_DIR if arguments.include_dir else INCLUDE_DIR / "cmake")
        return 0
    if arguments.run is None:
        parser.print_help()
        return 2
    try:
        config()
        arguments.run(arguments)
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
    return 0


def _fail(message: str) -> int:
    print(f"numba-ptxlink: error: {message}", file=sys.stderr)
    return 1


def _drop_stdout() -> None:
    # Python would flush it once more at exit, and fail.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _path(text: str) -> Path:
    """Return the path of an argument; an empty one, of an unset variable, would be the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def _text(text: str) -> str:
    """Return an argument that says nothing where it is empty, and is not left out silently."""
    if not text:
        raise argparse.ArgumentTypeError("the value is empty")
    return text


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="numba-ptxlink", description="Python functions as CUDA symbols: export, link, assemble."
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    _add_folders(parser)
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands")

    export = commands.add_parser("export", help="compile the UDFs of a Python file to C symbols")
    source = export.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "file", type=_path, nargs="?", help="the Python file; its @udf functions are exported"
    )
    source.add_argument(
        "-m", "--module", metavar="MODULE", help='a module in place of a file, such as "package.module"'
    )
    export.add_argument("-o", "--out-dir", type=_path, required=True, metavar="DIR")
    _add_build_options(export)
    export.add_argument(
        "--emit",
        metavar="KINDS",
        help="comma-separated: ptx, ltoir, cubin, fatbin, kernels, launcher, object, library (default: the "
        "first five)",
    )
    _add_compiling(export)
    export.set_defaults(run=_export)

    link = commands.add_parser("link", help="link PTX, LTO-IR, cubins, objects and CUDA C++ to a cubin")
    link.add_argument("inputs", type=_path, nargs="+", metavar="INPUT")
    link.add_argument("-o", "--output", type=_path, required=True, metavar="FILE")
    link.add_argument("--arch", required=True, help='the GPU, such as "sm_90"')
    link.add_argument("--lto", action=argparse.BooleanOptionalAction, default=None)
    link.add_argument(
        "-I", "--include-dir", dest="include_dirs", type=_path, action="append", default=[], metavar="DIR"
    )
    link.add_argument(
        "-D", "--define", dest="defines", type=_text, action="append", default=[], metavar="NAME[=VALUE]"
    )
    link.add_argument("--std", dest="cxx_standard", type=_text, metavar="STANDARD", help='such as "c++20"')
    link.add_argument(
        "--name-expression",
        dest="name_expressions",
        type=_text,
        action="append",
        default=[],
        metavar="NAME",
        help='a C++ name whose symbol is wanted, such as "scale<float>"; repeat for more',
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
    link.set_defaults(run=_link)

    assemble = commands.add_parser("assemble", help="compile PTX to a cubin")
    assemble.add_argument("ptx", type=_path, metavar="FILE")
    assemble.add_argument("-o", "--output", type=_path, required=True, metavar="FILE")
    assemble.add_argument("--arch", required=True, help='the GPU, such as "sm_90"')
    assemble.add_argument("--relocatable", action="store_true", help="leave calls open for a later link")
    assemble.add_argument("--opt-level", type=int, default=3, choices=range(4))
    _add_code_options(assemble)
    assemble.set_defaults(run=_assemble)

    inspect = commands.add_parser("inspect", help="show symbols, resources and machine code of a file")
    inspect.add_argument("file", type=_path, metavar="FILE")
    inspect.add_argument("--arch", help="the GPU to tell resources for (default: the file's own)")
    inspect.add_argument("--no-sass", action="store_true", help="leave out the machine code")
    inspect.add_argument("--json", action="store_true", help="print JSON")
    inspect.set_defaults(run=_inspect)

    doctor = commands.add_parser("doctor", help="show what is installed, what works and what helps")
    doctor.add_argument("--json", action="store_true", help="print JSON")
    doctor.set_defaults(run=_doctor)

    _add_cache(commands.add_parser("cache", help="inspect, verify, clear, export or import the cache"))
    return parser


def _add_cache(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(title="commands", required=True)
    for name, run, what in (
        ("stats", _cache_stats, "statistics of each directory"),
        ("list", _cache_list, "every entry: kind, size and the parts of its key"),
        ("clear", _cache_clear, "delete every entry"),
        ("path", _cache_path, "the directory that is written"),
        ("verify", _cache_verify, "check every entry, and delete the damaged ones"),
        ("export", _cache_export, "write every entry to one file"),
        ("import", _cache_import, "read the entries of a file that export wrote"),
    ):
        command = commands.add_parser(name, help=what)
        if name in ("export", "import"):
            command.add_argument("archive", type=_path, metavar="FILE.tar")
        command.set_defaults(run=run)


def _add_folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--include-dir", action="store_true", help="print the directory of the headers that exports include"
    )
    parser.add_argument(
        "--cmake-dir", action="store_true", help="print the directory of the CMake package NumbaPtxlink"
    )


def _add_compiling(export: argparse.ArgumentParser) -> None:
    export.add_argument(
        "-I",
        "--include-dir",
        dest="include_dirs",
        type=_path,
        action="append",
        default=[],
        metavar="DIR",
        help="where the headers are that define structs of the functions; repeat for more",
    )
    export.add_argument("--name", help="stem of the files (default: the Python file's)")
    _add_front_end(export)
    export.add_argument("--fastmath", action="store_true", help="allow approximate floating-point arithmetic")
    export.add_argument("--lineinfo", action="store_true", help="keep the Python line numbers")
    export.add_argument("--no-opt", action="store_true", help="do not optimise")


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
        type=_path,
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


def _export(arguments: argparse.Namespace) -> None:
    from .exporter import export, imported_module

    module, file, front_end = arguments.module, arguments.file, arguments.front_end
    with nullcontext(file) if module is None else imported_module(module, front_end) as source:
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
        )
    for signature in exported.signatures:
        print(f"{signature};")
    for path in (exported.header, *exported.artifacts.values(), exported.manifest):
        print(f"  {path}  {path.stat().st_size} bytes")
    if exported.host_compiler:
        print(f"Host code of the object: {exported.host_compiler}")


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _link(arguments: argparse.Namespace) -> None:
    from .linker import link

    _check_output(arguments.output, arguments.inputs)
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
    _write(arguments.output, content)
    # What is written to the standard output is the content alone.
    shown = sys.stderr if _is_stream(arguments.output) else sys.stdout
    print(f"{arguments.output}  {len(content)} bytes, {linked.backend}: {linked.reason}", file=shown)
    for line in linked.log.splitlines():
        if line.startswith("call not inlined"):
            print(f"  {line}", file=shown)
    for expression, symbol in linked.lowered_names.items():
        print(f"  {expression}  {symbol}", file=shown)


def _assemble(arguments: argparse.Namespace) -> None:
    from .assembler import assemble

    _check_output(arguments.output, [arguments.ptx])
    cubin = assemble(
        _read(arguments.ptx),
        arguments.arch,
        relocatable=arguments.relocatable,
        opt_level=arguments.opt_level,
        debug=arguments.debug,
        lineinfo=arguments.lineinfo,
        max_registers=arguments.max_registers,
    )
    _write(arguments.output, cubin.code)
    shown = sys.stderr if _is_stream(arguments.output) else sys.stdout
    print(f"{arguments.output}  {len(cubin.code)} bytes", file=shown)


def _inspect(arguments: argparse.Namespace) -> None:
    from . import _report
    from .inspection import inspect

    report = inspect(arguments.file, arch=arguments.arch, sass=not arguments.no_sass)
    print(_report.as_json(report) if arguments.json else _report.inspection(report))


def _doctor(arguments: argparse.Namespace) -> None:
    from . import _report
    from .doctor import diagnose

    report = diagnose()
    print(_report.as_json(report) if arguments.json else _report.diagnosis(report))


def _cache_stats(_: argparse.Namespace) -> None:
    from . import cache
    from .cache import maintenance

    default = cache.default()
    for stats in maintenance.stats(default):
        use = "written" if stats.writable else "read"
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(stats.kinds.items())) or "empty"
        print(f"{stats.path}  ({use})\n  {stats.entries} entries, {stats.size} of {stats.cap} bytes: {kinds}")
    for reason in default.tiers()[2]:
        print(f"not used: {reason}")


def _cache_list(_: argparse.Namespace) -> None:
    from . import cache

    for entry in cache.default().entries():
        print(f"{entry.path.name[:12]}  {entry.kind:<8}  {entry.size:>9} bytes")
        for label, part in entry.parts.items():
            print(f"    {label}: {part}")


def _cache_clear(_: argparse.Namespace) -> None:
    from . import cache
    from .cache import maintenance

    print(f"{maintenance.clear(cache.default())} entries deleted")


def _cache_path(_: argparse.Namespace) -> None:
    from . import cache
    from .cache import maintenance

    print(maintenance.path(cache.default()))


def _cache_verify(_: argparse.Namespace) -> None:
    from . import cache
    from .cache import maintenance

    result = maintenance.verify(cache.default())
    print(f"{result.sound} sound, {len(result.removed)} damaged, {len(result.foreign)} with another seal")
    for path, reason in {**result.removed, **result.foreign}.items():
        print(f"  {path}: {reason}")


def _cache_export(arguments: argparse.Namespace) -> None:
    from . import cache
    from .cache import maintenance

    path, stream = arguments.archive, _is_stream(arguments.archive)
    if stream:
        try:
            with path.open("wb") as file:
                count = maintenance.write(cache.default(), file)
        except OSError as error:
            raise _unwritten(path, error) from error
    else:
        count = maintenance.export(cache.default(), Path(os.path.realpath(path)))
    print(f"{count} entries written to {path}", file=sys.stderr if stream else sys.stdout)


def _cache_import(arguments: argparse.Namespace) -> None:
    from . import cache
    from .cache import maintenance

    imported = maintenance.import_(cache.default(), arguments.archive)
    print(f"{imported.taken} entries taken, {imported.present} already there, {imported.refused} refused")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise PtxlinkError(f"{path} could not be read: {error.strerror}; check the path.") from error


def _write(path: Path, content: bytes) -> None:
    from ._link import outputs

    try:
        if _is_stream(path):
            path.write_bytes(content)
        else:
            outputs.write({Path(os.path.realpath(path)): content})
    except OSError as error:
        raise _unwritten(path, error) from error


def _unwritten(path: Path, error: OSError) -> PtxlinkError:
    return PtxlinkError(f"{path} could not be written: {error.strerror}; check the folder.")


def _is_stream(path: Path) -> bool:
    """Return whether *path* is a device, a pipe or an open file, which no other file may replace."""
    return (path.exists() and not path.is_file()) or path.parts[:2] in (("/", "dev"), ("/", "proc"))


def _check_output(path: Path, inputs: Sequence[Path]) -> None:
    """Refuse, before anything is compiled, an output that cannot be written or is one of *inputs*."""
    try:
        if path.is_dir():
            raise PtxlinkError(f"{path} could not be written: it is a folder; give the path of a file.")
        if not Path(os.path.realpath(path)).parent.is_dir():
            raise PtxlinkError(f"{path} could not be written: its folder does not exist; create it.")
        if path.is_file() and any(source.exists() and path.samefile(source) for source in inputs):
            raise PtxlinkError(f"{path} is an input too; give another output.")
    except OSError as error:
        raise PtxlinkError(f"{path} could not be written: {error.strerror}; check the path.") from error


if __name__ == "__main__":
    raise SystemExit(main())
