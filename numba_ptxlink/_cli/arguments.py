"""Arguments of the command line: what all commands take, and their types."""

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
    """A parser whose errors are short."""

    def error(self, message: str) -> NoReturn:
        """End with *message* in place of a usage of many lines."""
        # argparse takes -1 and -1.5 for values, and -1e3 and -inf for options.
        if re.match("unrecognized arguments: -[^-]", message):
            message += "; a value that begins with a minus stands after --"
        self.exit(2, f"{self.prog}: error: {message}\nSee `{self.prog} --help`.\n")


def add_command(
    commands: Any, name: str, run: Any, what: str, examples: Sequence[str] = ()
) -> argparse.ArgumentParser:
    """Add the command *name*, which *run* carries out, with *examples* and the options of all commands."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=what,
        description=f"{what[0].upper()}{what[1:]}.",
        epilog="\n".join(["examples:", *(f"  numba-ptxlink {each}" for each in examples)])
        if examples
        else None,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    # Of arguments that name none.
    parser.register("type", None, text)
    parser.set_defaults(run=run)
    talk = parser.add_argument_group("messages")
    talk.add_argument("-v", "--verbose", action="count", default=0, help="log decisions; twice: each step")
    talk.add_argument("-q", "--quiet", action="store_true", help="print only results, warnings and errors")
    talk.add_argument("--json", action="store_true", help="print JSON")
    return parser


def add_front_end(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses what compiles Python."""
    parser.add_argument(
        "--front-end",
        choices=FRONT_ENDS,
        help="the compiler of functions whose decorator names none (default: what they use, or what is "
        "installed, numba-cuda first)",
    )


ARITHMETIC = {
    "fma": "fuse multiplications and additions (default: yes)",
    "ftz": "make subnormal floats zero (default: no)",
    "prec_div": "round divisions of floats correctly (default: yes)",
    "prec_sqrt": "round square roots of floats correctly (default: yes)",
}
"""The options of arithmetic that several commands have: what they do, by their names."""


def add_arithmetic(command: argparse.ArgumentParser) -> None:
    """Add the options of floating-point arithmetic to *command*."""
    for name, meaning in ARITHMETIC.items():
        flag = f"--{name.replace('_', '-')}"
        command.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=meaning)


def add_target_release(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options that say which toolkit or PTX to *what* for."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--cuda",
        metavar="RELEASE",
        help=f'the oldest CUDA toolkit and driver to {what} for, such as "12.4"',
    )
    group.add_argument(
        "--ptx-isa",
        metavar="VERSION",
        help='the same release, as the newest PTX ISA version it reads, such as "8.4"',
    )


@contextmanager
def messages_shown(verbose: int, *, quiet: bool) -> Iterator[None]:
    """Show as many messages as the number of -v asks for, on top of NUMBA_PTXLINK_LOG, or with -q fewer."""
    root, logger = logging.getLogger(), logging.getLogger("numba_ptxlink")
    level = logger.level
    if verbose:
        logger.setLevel(logging.INFO if verbose == 1 else logging.DEBUG)
    elif quiet:
        logger.setLevel(max(level, logging.WARNING))
    handler = logging.StreamHandler()
    form = "numba-ptxlink: %(levelname)s: %(message)s" if config().log_level is None else LOG_FORMAT
    handler.setFormatter(logging.Formatter(form))
    # A package that the command imports gives the root logger a handler where it has none, with another form.
    if not root.handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        logger.setLevel(level)


def text(given: str) -> str:
    """Return an argument that says nothing where it is empty, as of an unset variable."""
    if not given:
        raise argparse.ArgumentTypeError("the value is empty")
    return given


def path(given: str) -> Path:
    """Return the path of an argument; an empty one would be the working directory."""
    return Path(text(given))


def add_repeated(
    parser: argparse.ArgumentParser,
    *names: str,
    metavar: str,
    what: str,
    type: Callable[[str], Any] = text,  # noqa: A002 - argparse's name
) -> None:
    """Add an option that may be given several times; its values are listed under its long name's plural."""
    parser.add_argument(
        *names,
        dest=f"{names[-1].removeprefix('--').replace('-', '_')}s",
        type=type,
        action="append",
        default=[],
        metavar=metavar,
        help=f"{what}; repeat for more",
    )
