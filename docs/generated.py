"""
Sphinx directives that generate parts of pages from the package, so that pages agree with the code.

The directive `messages` lists the messages of each exception class in the source, and `generated` shows a
table of the module `tables`.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

import tables
from sphinx.util.docutils import SphinxDirective

import numba_ptxlink.errors

if TYPE_CHECKING:
    from docutils import nodes
    from sphinx.application import Sphinx

PACKAGE = Path(__file__).parents[1] / "numba_ptxlink"
VALUE_MARK = "…"
"""The text that stands for a value in a message."""

# A call of an exception class may have fewer words in its message, such as "{reason}; {cure}.": `_sentences`
# finds the texts of such values elsewhere in the source.
_MIN_MESSAGE_WORDS = 4
_MIN_PART_WORDS = 8
# A cause, and after a semicolon or a full stop a cure: "there is no driver; install one". Code has braces.
_SENTENCE = re.compile(r"[^{}\n]*\w[`')]*(; [a-z]|\. [A-Z])[^{}\n;]*\w[^{}\n;]*")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|$])")


def messages() -> dict[str, list[str]]:
    """Return the messages of each exception class in the source of the package, sorted."""
    texts_by_class: dict[str, set[str]] = {name: set() for name in numba_ptxlink.errors.__all__}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if name in texts_by_class and node.args:
                text = _message_text(node.args[0])
                if len(_words_of(text).split()) >= _MIN_MESSAGE_WORDS:
                    texts_by_class[name].add(text)
    messages_text = "\n".join(text for texts in texts_by_class.values() for text in texts)
    texts_by_class["Parts of messages, and warnings"] = {
        text for text in _sentences() if text not in messages_text
    }
    return {name: sorted(texts, key=_words_of) for name, texts in texts_by_class.items() if texts}


def _sentences() -> set[str]:
    """Return the texts in the source, without docstrings, that consist of a cause and a cure."""
    sentences = set()
    for path in PACKAGE.rglob("*.py"):
        # The descriptions of the command line are on a page of their own.
        if {"_cli", "cli"} & {path.parent.name, path.stem}:
            continue
        tree = ast.parse(path.read_text())
        # Docstrings, and the parts of f-strings, which are read as a whole.
        skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        skipped |= {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
        }
        texts = (
            _message_text(node)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Constant, ast.JoinedStr)) and id(node) not in skipped
        )
        sentences |= {
            text for text in texts if _SENTENCE.fullmatch(text) and len(text.split()) >= _MIN_PART_WORDS
        }
    return sentences


def _message_text(node: ast.expr) -> str:
    """Return the text of an expression, with `VALUE_MARK` in place of values."""
    if isinstance(node, ast.Constant):
        return re.sub("%[sdr]", VALUE_MARK, str(node.value))
    if isinstance(node, ast.JoinedStr):
        return re.sub(f"{VALUE_MARK}{{2,}}", VALUE_MARK, "".join(map(_message_text, node.values)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "with_location":
        return _message_text(node.args[1])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _message_text(node.left) + _message_text(node.right)
    return VALUE_MARK


def _words_of(text: str) -> str:
    """Return the words of a message, to count them, and to sort messages by them."""
    return text.replace(VALUE_MARK, " ").lstrip("'\",:;. ").lower()


def _escape(text: str) -> str:
    """Return *text* for Markdown, in one line."""
    return _MARKUP.sub(r"\\\1", " ".join(text.split()))


class Messages(SphinxDirective):
    """The directive that lists the messages of each exception class."""

    def run(self) -> list[nodes.Node]:
        """Return the lists, each below its class."""
        lines: list[str] = []
        for name, texts in messages().items():
            lines += ["", f"### {name}", "", *(f"- {_escape(text)}" for text in texts)]
        return self.parse_text_to_nodes("\n".join(lines), allow_section_headings=True)


class Table(SphinxDirective):
    """The directive that shows a table, by the name of a function of `tables` and its argument, if any."""

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        # Read the page at each build, since Sphinx does not know the files that a table is made of.
        self.env.note_reread()
        name, *arguments = self.arguments
        return self.parse_text_to_nodes(getattr(tables, name)(*arguments))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("messages", Messages)
    app.add_directive("generated", Table)
    return {"parallel_read_safe": True}
