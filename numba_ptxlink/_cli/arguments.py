"""Define the arguments that several commands share, and their types."""

from __future__ import annotations

import argparse
import logging
import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from numba_ptxlink._config import FRONT_ENDS, LOG_FORMAT, config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


class Parser(argparse.ArgumentParser):
    """A parser with short errors in place of argparse's, which begin with the usage of all options."""

    def error(self, message: str) -> NoReturn:
        """Exit with status 2 and *message*, and a hint if its cause is the order of the arguments."""
        # argparse accepts -1 and -1.5 as values, but takes -1e3 and -inf for options. The values of one
        # argument have to be consecutive: argparse does not recognise one that follows an option.
        if re.match("unrecognized arguments: -[^-]", message):
            message += "; put values that begin with a minus after --"
        elif re.fullmatch(r"unrecognized arguments:( [^-]\S*)+", message):
            message += "; put all values before the options"
        self.exit(2, f"{self.prog}: error: {message}\nSee `{self.prog} --help`.\n")


def add_command(
    commands: Any, name: str, run: Any, summary: str, examples: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """
    Add a command with the options that all commands have, and return its parser.

    Args:
        commands: The subparsers to add it to.
        name: The name of the command.
        run: The function that runs the command: from the parsed arguments to a `Report`.
        summary: A sentence for the help, without capital and full stop.
        examples: Command lines for the help, without "numba-ptxlink".
    """
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog="\n".join(["examples:", *(f"  numba-ptxlink {example}" for example in examples)])
        if examples
        else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    # argparse calls `parse_text` for arguments that are added without type=.
    parser.register("type", None, parse_text)
    parser.set_defaults(run=run)
    messages = parser.add_argument_group("messages")
    messages.add_argument(
        "-v", "--verbose", action="count", default=0, help="log decisions; twice: each step"
    )
    messages.add_argument(
        "-q", "--quiet", action="store_true", help="print only results, warnings and errors"
    )
    messages.add_argument("--json", action="store_true", help="print JSON")
    return parser


def add_front_end(parser: argparse.ArgumentParser) -> None:
    """Add the option for the front end."""
    parser.add_argument(
        "--front-end",
        choices=FRONT_ENDS,
        help="the compiler of functions whose decorator names none (default: the one whose types and "
        "functions they use, or an installed one, numba-cuda first)",
    )


ARITHMETIC = {
    "fma": "fuse multiplications and additions (default: yes)",
    "ftz": "make subnormal floats zero (default: no)",
    "prec_div": "round divisions of floats correctly (default: yes)",
    "prec_sqrt": "round square roots of floats correctly (default: yes)",
}
"""The help of the arithmetic options that several commands have, by their names as Python parameters."""


def add_arithmetic(command: argparse.ArgumentParser) -> None:
    """Add the options of floating-point arithmetic to *command*."""
    for name, meaning in ARITHMETIC.items():
        flag = f"--{name.replace('_', '-')}"
        command.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=meaning)


def add_cuda_release(parser: argparse.ArgumentParser, verb: str) -> None:
    """
    Add --cuda and --ptx-isa, of which either gives the oldest CUDA release that reads the output.

    Args:
        parser: The parser of the command.
        verb: "export" or "link", for the help.
    """
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--cuda",
        metavar="RELEASE",
        help=f'the oldest CUDA toolkit and driver to {verb} for, such as "12.4"',
    )
    group.add_argument(
        "--ptx-isa",
        metavar="VERSION",
        help='the same release, as the newest PTX ISA version it reads, such as "8.4"',
    )


@contextmanager
def show_messages(verbose: int, *, quiet: bool) -> Iterator[None]:
    """
    Print the package's log to standard error in a `with` block.

    Args:
        verbose: How often -v is given: once for decisions, twice for each step; 0 for the level of
            NUMBA_PTXLINK_LOG.
        quiet: Whether only warnings and errors are printed.
    """
    root, logger = logging.getLogger(), logging.getLogger("numba_ptxlink")
    level = logger.level
    if verbose:
        logger.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    elif quiet:
        logger.setLevel(max(level, logging.WARNING))
    handler = logging.StreamHandler()
    # Users of NUMBA_PTXLINK_LOG get its format, with the names of modules.
    log_format = "numba-ptxlink: %(levelname)s: %(message)s" if config().log_level is None else LOG_FORMAT
    handler.setFormatter(logging.Formatter(log_format))
    # If the root logger had no handler, a package that the command imports may add one with another format.
    if not root.handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        logger.setLevel(level)


def parse_text(argument: str) -> str:
    """Return an argument; refuse an empty one, which an unset variable of the shell in quotes gives."""
    if not argument:
        raise argparse.ArgumentTypeError("the value is empty")
    return argument


def parse_path(argument: str) -> Path:
    """Return an argument as a path; refuse an empty one, which would mean the working directory."""
    return Path(parse_text(argument))


def add_repeated(
    parser: argparse.ArgumentParser,
    *names: str,
    metavar: str,
    summary: str,
    type: Callable[[str], Any] = parse_text,  # noqa: A002 - argparse's name
) -> None:
    """
    Add an option that may be repeated.

    Args:
        parser: The parser of the command.
        names: The names of the option, the long one last: "--include-dir" gives the attribute include_dirs.
        metavar: The name of a value in the help.
        summary: The help.
        type: Converts a value.
    """
    parser.add_argument(
        *names,
        dest=f"{names[-1].removeprefix('--').replace('-', '_')}s",
        type=type,
        action="append",
        default=[],
        metavar=metavar,
        help=f"{summary}; repeat for more",
    )
