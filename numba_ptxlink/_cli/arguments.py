"""Arguments of the command line: what all commands take, and what is said of those that are mistyped."""

from __future__ import annotations

import argparse
import difflib
import logging
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from numba_ptxlink._config import FRONT_ENDS, LOG_FORMAT, config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

_SHELLS = ("bash", "zsh", "tcsh")
_LEVELS = (logging.INFO, logging.DEBUG)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are short, and propose what may have been meant."""

    def error(self, message: str) -> NoReturn:
        """End with *message* in place of a usage of many lines."""
        self.exit(2, f"{self.prog}: error: {message}\nSee `{self.prog} --help`.\n")

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise argparse.ArgumentError(action, _unknown(value, [str(choice) for choice in action.choices]))

    def parse_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        """Parse the arguments of the process, or *args*."""
        arguments, unknown = self.parse_known_args(args, namespace)
        parser = getattr(arguments, "parser", None) or self
        # argparse takes those inputs alone that stand together.
        inputs = [each for each in parser._actions if str(each.nargs) in "+*" and not each.option_strings]
        if not inputs or any(_is_option(word) or not word.strip() for word in unknown):
            _refuse(parser, unknown)
        for word in unknown:
            getattr(arguments, inputs[0].dest).append(parser._get_value(inputs[0], word))
        return arguments


def _refuse(parser: argparse.ArgumentParser, unknown: Sequence[str]) -> None:
    """End with what may have been meant by the first of the *unknown* words, if there are any."""
    for empty in (word for word in unknown if not word.strip()):
        parser.error(f"{empty!r} is an argument without text; leave it out")
    known = [option for action in parser._actions for option in action.option_strings]
    for wrong in [*filter(_is_option, unknown), *unknown]:
        given = wrong.partition("=")[0]
        if given in known:
            parser.error(f"{given} belongs after the command: {parser.prog} {given}")
        parser.error(f"{wrong} is unknown{_meant(given, known)}")


def _is_option(text: str) -> bool:
    return text.startswith("-") and text != "-"


def _unknown(given: object, known: Sequence[str]) -> str:
    return f"{given!r} is unknown{_meant(str(given), known)}; choose from {', '.join(known)}"


def _meant(given: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(given, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


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
    )
    parser.set_defaults(run=run, parser=parser)
    talk = parser.add_argument_group("messages")
    talk.add_argument("-v", "--verbose", action="count", default=0, help="log decisions; twice: each step")
    talk.add_argument(
        "-q", "--quiet", action="store_true", help="results alone, warnings and errors, as builds want it"
    )
    talk.add_argument("--json", action="store_true", help="print JSON")
    return parser


def add_front_end(parser: argparse.ArgumentParser) -> None:
    """Add the option that chooses what compiles Python."""
    parser.add_argument(
        "--front-end",
        choices=FRONT_ENDS,
        help="what compiles functions whose decorator names none (default: what they use, or what is "
        "installed, numba-cuda first)",
    )


def add_consumer(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the options that say which toolkit or PTX to *what* for."""
    consumer = parser.add_mutually_exclusive_group()
    consumer.add_argument(
        "--cuda",
        type=text,
        metavar="RELEASE",
        help=f'the oldest CUDA toolkit and driver to {what} for, such as "12.4"',
    )
    consumer.add_argument(
        "--ptx-isa", type=text, metavar="VERSION", help='the same by the newest PTX they read, such as "8.4"'
    )


@contextmanager
def messages_shown(verbose: int, *, quiet: bool) -> Iterator[None]:
    """Show as many messages as the number of -v asks for, on top of NUMBA_PTXLINK_LOG, or with -q fewer."""
    root, logger = logging.getLogger(), logging.getLogger("numba_ptxlink")
    level = logger.level
    if verbose:
        logger.setLevel(_LEVELS[min(verbose, len(_LEVELS)) - 1])
    elif quiet:
        logger.setLevel(max(level, logging.WARNING))
    handler = logging.StreamHandler()
    handler.setFormatter(_Messages() if config().log_level is None else logging.Formatter(LOG_FORMAT))
    # A package that the command imports gives the root logger a handler where it has none, with another form.
    if not root.handlers:
        root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        logger.setLevel(level)


class _Messages(logging.Formatter):
    """Warnings as the command prints errors, and other messages without the level."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        if record.levelno < logging.WARNING or record.name.partition(".")[0] != "numba_ptxlink":
            return text
        return f"numba-ptxlink: {record.levelname.lower()}: {text}"


def path(text: str) -> Path:
    """Return the path of an argument; an empty one, of an unset variable, would be the working directory."""
    if not text:
        raise argparse.ArgumentTypeError("the path is empty")
    return Path(text)


def arch(text: str) -> str:
    """Return an argument that names a GPU, or several with commas between them: at least one."""
    if not text.replace(",", "").strip():
        raise argparse.ArgumentTypeError('it names no GPU; write it like "sm_90"')
    return text


def known(text: str, choices: Sequence[str]) -> list[str]:
    """Return the parts of *text*, a list with commas: at least one, and all of them among *choices*."""
    given = [part.strip() for part in text.split(",") if part.strip()]
    if not given:
        raise argparse.ArgumentTypeError(f"the list is empty; choose from {', '.join(choices)}")
    for each in given:
        if each not in choices:
            raise argparse.ArgumentTypeError(_unknown(each, choices))
    return given


def text(text: str) -> str:
    """Return an argument that says nothing where it is empty, and is not left out silently."""
    if not text:
        raise argparse.ArgumentTypeError("the value is empty")
    return text


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


class Completion(argparse.Action):
    """Print the completion of a shell, which shtab makes of the parser."""

    def __init__(self, option_strings: Sequence[str], dest: str, **_: Any) -> None:
        super().__init__(
            option_strings, dest, choices=_SHELLS, help="print the completion of a shell (wants shtab)"
        )

    def __call__(self, parser: argparse.ArgumentParser, *given: Any) -> NoReturn:
        try:
            import shtab
        except ImportError:
            parser.error("shtab is not installed; install it with `pip install 'numba-ptxlink[completion]'`")
        _complete_paths(parser, shtab.FILE)
        print(shtab.complete(parser, given[1]), flush=True)
        parser.exit()


def _complete_paths(parser: argparse.ArgumentParser, files: Any) -> None:
    for action in parser._actions:
        if action.type is path:
            action.complete = files  # type: ignore[attr-defined]
    for command in commands_of(parser).values():
        _complete_paths(command, files)


def commands_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the commands of *parser*, by name."""
    actions = (action for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return {name: command for action in actions for name, command in action.choices.items()}
