"""
Check names and sentences of Python code by rules of CONTRIBUTING.md, section "Names and sentences".

`python tools/words.py [PATH ...]` prints file, line and rule of each violation, and fails if there is one.
By default it reads the package, its tests, and all other folders with Python code.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import sys
import tokenize
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("numba_ptxlink", "tests", "benchmarks", "cmake", "docs", "examples", "hook", "tools")

# Participles, pronouns and adjectives: in each function they would name another value.
VAGUE_NAMES = {
    *("asked", "each", "found", "given", "how", "left", "made", "others", "own", "place", "said", "told"),
    *("wanted", "what"),
}
# Fields that are keys of reports in JSON, whose names are an interface.
PUBLIC_FIELDS = {"Problem.what"}
VAGUE_BEGINNING = re.compile(r"#*\s*(What|Who|Whose|Which|Where|Of|Those|These|It|They|One|This|None)\b")


def violations(text: str) -> list[tuple[int, str]]:
    """Return the line and the rule of each violation in the module *text*, in order."""
    tree = ast.parse(text)
    return sorted((*_vague_names(tree), *_vague_docstrings(tree), *_vague_comments(text)))


def _vague_names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield a violation for each function, parameter and variable with a vague name."""
    public_targets = {
        id(field.target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for field in node.body
        if isinstance(field, ast.AnnAssign) and f"{node.name}.{ast.unparse(field.target)}" in PUBLIC_FIELDS
    }
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ExceptHandler)):
            name = node.name
        elif isinstance(node, ast.arg):
            name = node.arg
        else:
            is_bound = isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
            name = node.id if is_bound and id(node) not in public_targets else ""
        if name and name.strip("_") in VAGUE_NAMES:
            yield node.lineno, f"rule 3: {name!r} can name any value; use a noun, or a verb for a function"


def _vague_docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield a violation for each docstring with a vague beginning."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            match = VAGUE_BEGINNING.match(ast.get_docstring(node) or "")
            if match:
                yield node.body[0].lineno, _sentence_rule("docstring", match)


def _vague_comments(text: str) -> Iterator[tuple[int, str]]:
    """Yield a violation for each comment with a vague beginning."""
    previous_line = 0  # The number of the last line that is only a comment; 0 if code has followed.
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            line, column = token.start
            stands_alone = not token.line[:column].strip()
            match = VAGUE_BEGINNING.match(token.string)
            # A line below another comment may continue its sentence.
            if match and not (stands_alone and previous_line == line - 1):
                yield line, _sentence_rule("comment", match)
            previous_line = line if stands_alone else 0


def _sentence_rule(text_type: str, match: re.Match[str]) -> str:
    return f"rules 5 and 6: a {text_type} begins with {match[1]!r}; begin with its subject or a verb"


def report(paths: Iterable[Path]) -> list[str]:
    """Return a line for each violation in the modules and folders *paths*."""
    modules = sorted(module for path in paths for module in (path.rglob("*.py") if path.is_dir() else [path]))
    return [f"{module}:{line}: {rule}" for module in modules for line, rule in violations(module.read_text())]


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the violations; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument(
        "paths", nargs="*", type=Path, help="modules and folders; by default all of the project"
    )
    lines = report(parser.parse_args(arguments).paths or [ROOT / folder for folder in FOLDERS])
    print("\n".join(lines) or "no violation")
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
