"""
Parts of pages that Sphinx makes of the package, so that they cannot be out of date.

`messages` lists what each `raise` in the source says, and `commands` what the parser of the command takes.
"""

from __future__ import annotations

import argparse
import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from sphinx.util.docutils import SphinxDirective

import numba_ptxlink.errors
from numba_ptxlink import cli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from docutils import nodes
    from sphinx.application import Sphinx

PACKAGE = Path(__file__).parents[1] / "numba_ptxlink"
VARIES = "…"
"""What is shown of a value that a message has in it."""

# A message of fewer words is one that another place puts together.
_FEWEST = 4
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|$])")


def messages() -> dict[str, list[str]]:
    """Return the messages of each exception class in the source of the package, sorted."""
    found: dict[str, set[str]] = {name: set() for name in numba_ptxlink.errors.__all__}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if name in found and node.args:
                text = _text(node.args[0])
                if len(_words(text).split()) >= _FEWEST:
                    found[name].add(text)
    return {name: sorted(texts, key=_words) for name, texts in found.items() if texts}


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return re.sub(f"{VARIES}{{2,}}", VARIES, "".join(map(_text, node.values)))
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return VARIES


def _words(text: str) -> str:
    return text.replace(VARIES, " ").lstrip("'\",:;. ").lower()


def commands(parser: argparse.ArgumentParser, level: int = 2) -> Iterator[str]:
    """Yield the lines of Markdown about *parser*'s commands and theirs, from headings of *level* on."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        helps = {choice.dest: choice.help or "" for choice in action._choices_actions}
        for name, command in action.choices.items():
            command.formatter_class = _Usage
            yield from ("", f"{'#' * level} {command.prog}", "", _sentence(helps.get(name, "")), "")
            yield from ("```text", command.format_usage().removeprefix("usage: ").strip(), "```", "")
            yield from _arguments(command)
            yield from commands(command, level + 1)


class _Usage(argparse.HelpFormatter):
    """Breaks lines in the same places on every machine."""

    def __init__(self, prog: str, **_: object) -> None:
        super().__init__(prog, width=72)


def _arguments(parser: argparse.ArgumentParser) -> Iterator[str]:
    kinds = (argparse._HelpAction, argparse._SubParsersAction)
    actions = [action for action in parser._actions if not isinstance(action, kinds)]
    if actions:
        yield from ("| argument | what it is |", "| --- | --- |")
    for action in actions:
        value = ", ".join(map(str, action.choices or ())) or str(action.metavar or action.dest.upper())
        names = ", ".join(f"`{each}`" for each in action.option_strings or (action.metavar or action.dest,))
        takes = f" `{value}`" if action.option_strings and action.nargs != 0 else ""
        required = "required" if action.required and action.option_strings else ""
        about = "; ".join(filter(None, (required, action.help)))
        yield f"| {names}{takes} | {_escaped(_sentence(about))} |"
    yield ""


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:].rstrip(".") + "." if text else ""


def _escaped(text: str) -> str:
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


class Messages(SphinxDirective):
    """Lists the messages of each exception class."""

    def run(self) -> list[nodes.Node]:
        """Return the lists, each below its class."""
        lines: list[str] = []
        for name, texts in messages().items():
            lines += ["", f"### {name}", "", *(f"- {_escaped(text)}" for text in texts)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class Commands(SphinxDirective):
    """Lists the commands, and what each takes."""

    def run(self) -> list[nodes.Node]:
        """Return a section for each command."""
        return self.parse_text_to_nodes("\n".join(commands(cli._parser())), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("messages", Messages)
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True}
