"""
Parts of pages that Sphinx makes of the package, so that they cannot be out of date.

`messages` lists the message of each `raise` in the source, and `generated` shows the tables of `tables`.
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
VARIES = "…"
"""What is shown of a value that a message has in it."""

# A message of fewer words is one that another place puts together.
_FEWEST = 4
_FEWEST_OF_PART = 8
# A cause, and after a semicolon or a full stop a cure. Code has braces.
_SENTENCE = re.compile(r"[^{}\n]*\w[`')]*(; [a-z]|\. [A-Z])[^{}\n;]*\w[^{}\n;]*")
_MARKUP = re.compile(r"([\\`*_{}\[\]<>()#+\-.!|$])")


def messages() -> dict[str, list[str]]:
    """Return the messages of each exception class in the source of the package, sorted."""
    texts_by_class: dict[str, set[str]] = {name: set() for name in numba_ptxlink.errors.__all__}
    for path in sorted(PACKAGE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.func.id if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else ""
            if name in texts_by_class and node.args:
                text = _text(node.args[0])
                if len(_words(text).split()) >= _FEWEST:
                    texts_by_class[name].add(text)
    listed = "\n".join(text for texts in texts_by_class.values() for text in texts)
    texts_by_class["Parts of messages, and warnings"] = {text for text in _sentences() if text not in listed}
    return {name: sorted(texts, key=_words) for name, texts in texts_by_class.items() if texts}


def _sentences() -> set[str]:
    """Return the texts in the source that are a cause and a cure, and no docstrings."""
    sentences = set()
    # The descriptions of the command line are on a page of their own.
    for path in (
        path for path in PACKAGE.rglob("*.py") if not {"_cli", "cli"} & {path.parent.name, path.stem}
    ):
        tree = ast.parse(path.read_text())
        docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        docstrings |= {
            id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values
        }
        texts = (
            _text(node)
            for node in ast.walk(tree)
            if isinstance(node, (ast.Constant, ast.JoinedStr)) and id(node) not in docstrings
        )
        sentences |= {
            text for text in texts if _SENTENCE.fullmatch(text) and len(text.split()) >= _FEWEST_OF_PART
        }
    return sentences


def _text(node: ast.expr) -> str:
    if isinstance(node, ast.Constant):
        return re.sub("%[sdr]", VARIES, str(node.value))
    if isinstance(node, ast.JoinedStr):
        return re.sub(f"{VARIES}{{2,}}", VARIES, "".join(map(_text, node.values)))
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "with_location":
        return _text(node.args[1])
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _text(node.left) + _text(node.right)
    return VARIES


def _words(text: str) -> str:
    return text.replace(VARIES, " ").lstrip("'\",:;. ").lower()


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


class Table(SphinxDirective):
    """Shows one of the tables: its name, and the argument of its function if there is one."""

    required_arguments = 1
    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the table."""
        # Sphinx does not know the files that a table is made of.
        self.env.note_reread()
        name, *arguments = self.arguments
        return self.parse_text_to_nodes(getattr(tables, name)(*arguments))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives."""
    app.add_directive("messages", Messages)
    app.add_directive("generated", Table)
    return {"parallel_read_safe": True}
