"""Write `cli.md`, the reference of the command line, from its parser: `python docs/reference/cli.py`."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from numba_ptxlink.cli import make_parser

if TYPE_CHECKING:
    from collections.abc import Iterator

HEAD = """\
<!-- Written by docs/reference/cli.py. -->
# The command line

`python -m numba_ptxlink` is the same command.

| exit status | |
| --- | --- |
| 0 | success |
| 1 | an error, with a message on the standard error. With `doctor --strict` also a problem |
| 2 | wrong usage: the command was not run |
| 130 | Ctrl-C |

Each command takes these options after its name:

| option | effect |
| --- | --- |
| `-v`, `--verbose` | log decisions. Twice: each step |
| `-q`, `--quiet` | print only results, warnings and errors, whatever `NUMBA_PTXLINK_LOG` is |
| `--json` | print the result as JSON, and nothing if the command fails |

The output of an imported file, and of programs that it runs, goes to the standard error.

"""
# The options of all commands, which HEAD describes.
COMMON_OPTIONS = {"help", "verbose", "quiet", "json"}


def page() -> str:
    """Return the text of the page."""
    return HEAD + "\n".join(section(make_parser(), 2)).rstrip() + "\n"


def section(parser: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    """
    Yield the lines of a command, and those of the commands in it.

    Args:
        parser: The command's parser.
        depth: The number of "#" of its heading.
    """
    commands: dict[str, argparse.ArgumentParser] = {}
    summaries: dict[str, str] = {}
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            commands = dict(action.choices)
            summaries = {choice.dest: choice.help for choice in action._choices_actions}
        elif action.dest not in COMMON_OPTIONS:
            rows.append(row(action))
    yield f"{'#' * depth} `{parser.prog}`"
    yield ""
    if parser.description:
        yield from (parser.description, "")
    if parser.epilog:
        examples = map(str.strip, parser.epilog.splitlines()[1:])
        yield from ("<!-- shown: examples -->", "```bash", *examples, "```", "")
    if rows:
        yield from ("| | |", "| --- | --- |", *rows, "")
    for name, command in commands.items():
        summary = summaries[name]
        command.description = command.description or f"{summary[0].upper()}{summary[1:]}."
        yield from section(command, depth + 1)


def row(action: argparse.Action) -> str:
    """Return the row of one argument."""
    choices = ",".join(map(str, action.choices)) if action.choices else action.dest.upper()
    value = str(action.metavar or choices)
    if action.option_strings:
        usage = ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 else "")
    else:
        usage = f"{value} ..." if action.nargs == "+" else value
    # In HTML, text in angle brackets would be a tag: quote strings such as "<name>" as code.
    notes = [re.sub(r'"[^"]*<[^"]*"', "`\\g<0>`", action.help or "")]
    if action.required and action.option_strings:
        notes.append("required")
    return f"| `{usage}` | {'; '.join(filter(None, notes))} |".replace("%(prog)s", "numba-ptxlink")


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page())
