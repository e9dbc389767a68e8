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

`python -m numba_ptxlink` is the same command. A mistyped command or option, or value of a fixed list, is
answered with the one that may have been meant, where one is near.

| exit status | |
| --- | --- |
| 0 | success |
| 1 | an error, told on the standard error without a traceback; with `--strict`, a problem that was found |
| 2 | arguments that the command does not take, so that it was not run |
| 130 | Ctrl-C |

Status 2 is that of values outside of a fixed list too, as of `--emit` or `--checks`, of what is no number
where one belongs, and of empty values, lists and paths. What only the run can judge, as of `--arch` or
`--cuda`, has status 1.

After its name, each command takes `-v` (`--verbose`: log decisions; twice, each step), `-q` (`--quiet`:
results alone, warnings and errors, as builds want it, whatever `NUMBA_PTXLINK_LOG` is) and `--json`,
which prints what the command has done or found for programs, and nothing where it ends with an error: the
exit status and the standard error tell of that. What an imported file prints, and the programs that it
runs, goes to the standard error; not what it
prints at the end of the process, by `atexit`.

"""
# Described once, above.
COMMON = {"help", "verbose", "quiet", "json"}


def page() -> str:
    """Return the text of the page."""
    return HEAD + "\n".join(section(make_parser(), 2)).rstrip() + "\n"


def section(parser: argparse.ArgumentParser, depth: int) -> Iterator[str]:
    """Yield the lines of one command, and those of its own commands."""
    commands: dict[str, argparse.ArgumentParser] = {}
    rows = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            commands = dict(action.choices)
            described = {choice.dest: choice.help for choice in action._choices_actions}
        elif action.dest not in COMMON:
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
        command.description = command.description or f"{described[name][0].upper()}{described[name][1:]}."
        yield from section(command, depth + 1)


def row(action: argparse.Action) -> str:
    """Return the row of one argument."""
    value = action.metavar or (",".join(map(str, action.choices)) if action.choices else action.dest.upper())
    value = str(value)
    if action.option_strings:
        shown = ", ".join(action.option_strings) + (f" {value}" if action.nargs != 0 else "")
    else:
        shown = f"{value} ..." if action.nargs == "+" else value
    # HTML would take what stands between angle brackets for a tag.
    notes = [re.sub(r'"[^"]*<[^"]*"', "`\\g<0>`", action.help or "")]
    if action.required and action.option_strings:
        notes.append("required")
    return f"| `{shown}` | {'; '.join(filter(None, notes))} |".replace("%(prog)s", "numba-ptxlink")


if __name__ == "__main__":
    Path(__file__).with_suffix(".md").write_text(page())
