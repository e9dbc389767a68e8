"""Implement the command `numba-ptxlink`: parse arguments, call the functions, print errors to stderr."""

from __future__ import annotations

import argparse
import os
import re
import sys
from typing import TYPE_CHECKING

from ._cli import arguments as parsing
from ._cli import cache as cache_commands
from ._cli import cpu as cpu_command
from ._cli import export as export_command
from ._cli import link as link_commands
from ._cli import report
from ._cli import run as run_commands
from ._cli.output import Report, escape_controls, prepare_streams
from ._config import config
from ._version import __version__
from .errors import LinkError, PtxlinkError

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["main"]

# Shells report a program that a signal has ended as 128 plus the signal's number, and SIGINT is 2.
_INTERRUPTED_STATUS = 130


def main(argv: Sequence[str] | None = None) -> int:
    """
    Run the command.

    Args:
        argv: The arguments without the program's name; by default those of the process.

    Returns:
        The exit status: 0 for success, 1 for an error printed to stderr or, with --strict, for a found
        problem, 2 for wrong usage, 130 for Ctrl-C.
    """
    prepare_streams()
    parser = make_parser()
    status = 0
    try:
        arguments = parser.parse_args(argv)
        if arguments.include_dir or arguments.cmake_dir:
            from .linker import INCLUDE_DIR

            print(INCLUDE_DIR if arguments.include_dir else INCLUDE_DIR / "cmake")
        elif arguments.run is None:  # No command was passed.
            status = 2
            parser.print_help()
        else:
            # Report wrong settings before the command starts.
            config()
            with parsing.show_messages(arguments.verbose, quiet=arguments.quiet):
                output: Report = arguments.run(arguments)
            status = output.status
            output.show(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader of a pipe, such as head, has quit.
        _drop_stdout()
    except PtxlinkError as error:
        return _fail(str(error))
    except OSError as error:
        # Only writes to stdout have no file name.
        if error.filename is None:
            _drop_stdout()
        return _fail(f"{error.filename or 'The output'}: {error.strerror or error}; check path and disk.")
    except KeyboardInterrupt:
        print("numba-ptxlink: interrupted", file=sys.stderr)
        return _INTERRUPTED_STATUS
    return status


def _fail(message: str) -> int:
    """Print an error, and return the exit status."""
    # Editors and build tools recognise a location only at the beginning of a line.
    prefix = "" if re.match(r".+:\d+: error: ", message) else "numba-ptxlink: error: "
    print(f"{prefix}{escape_controls(message)}", file=sys.stderr)
    return 1


def _drop_stdout() -> None:
    """Send the rest of the output to the null device."""
    # Otherwise Python would flush stdout again at exit, fail, and change the exit status.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def make_parser() -> parsing.Parser:
    """Return the parser of the command, from which its reference page is generated."""
    parser = parsing.Parser(
        prog="numba-ptxlink",
        description="Python functions as CUDA symbols: export, link, inspect.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    parser.add_argument(
        "--include-dir", action="store_true", help="print the directory of the headers that exports include"
    )
    parser.add_argument(
        "--cmake-dir", action="store_true", help="print the directory of the CMake package NumbaPtxlink"
    )
    parser.set_defaults(run=None)
    commands = parser.add_subparsers(title="commands", metavar="COMMAND")

    export_command.add(commands)
    link_commands.add(commands)
    run_commands.add(commands)
    cpu_command.add(commands)

    inspect = parsing.add_command(
        commands,
        "inspect",
        _inspect,
        "show symbols, resources and machine code of a file",
        ("inspect app.cubin", "inspect udfs.fatbin --no-sass --json"),
    )
    inspect.add_argument(
        "file",
        type=parsing.parse_path,
        metavar="FILE",
        help="PTX, LTO-IR, a cubin, fat binary, object, library or program",
    )
    inspect.add_argument("--arch", help="the architecture to report resources for (default: the file's own)")
    inspect.add_argument(
        "--sass",
        action=argparse.BooleanOptionalAction,
        help="--sass: fail if the machine code cannot be shown; --no-sass: leave it out (default: show it if "
        "possible)",
    )

    doctor = parsing.add_command(
        commands,
        "doctor",
        _doctor,
        "show versions, the state of the plugin, and problems with their cures",
        ("doctor --strict -q",),
    )
    doctor.add_argument(
        "--strict", action="store_true", help="exit with status 1 if there is a problem that has a cure"
    )

    cache_commands.add(commands)
    return parser


def _inspect(arguments: argparse.Namespace) -> Report:
    """Run the command `inspect`."""
    from .inspection import inspect

    # Without --sass and --no-sass, `arguments.sass` is None: the machine code is shown if possible.
    inspection = inspect(arguments.file, arch=arguments.arch, sass=arguments.sass is not False)
    parts = (inspection, *inspection.parts)
    notes = dict.fromkeys(note for part in parts for note in part.notes)
    if arguments.sass and not any(part.sass for part in parts):
        raise LinkError(
            f"{inspection.name} has no machine code that can be shown. {' '.join(notes)}".rstrip()
        )
    if not (arguments.json or arguments.quiet):
        # Without the note on a part that could not be read, the file would seem to lack that part.
        for note in notes:
            print(f"numba-ptxlink: note: {escape_controls(note)}", file=sys.stderr)
    names = [symbol.name for part in parts for symbol in part.symbols if symbol.defined]
    return Report(
        content=inspection.as_dict(),
        text=report.format_inspection(inspection),
        brief="\n".join(dict.fromkeys(names)),
    )


def _doctor(arguments: argparse.Namespace) -> Report:
    """Run the command `doctor`."""
    from .doctor import diagnose

    diagnosis = diagnose()
    status = 1 if arguments.strict and diagnosis.problems else 0
    return Report(
        content=diagnosis.as_dict(),
        text=report.format_diagnosis(diagnosis),
        brief=report.format_problems(diagnosis.problems),
        status=status,
    )


if __name__ == "__main__":
    raise SystemExit(main())
