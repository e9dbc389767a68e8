"""
Tables of pages, made of the package and of data beside them. `generated` shows them.

Sphinx is not imported here, so that tests read the tables without it.
"""

from __future__ import annotations

import ast
import inspect
import json
import re
from pathlib import Path
from typing import Any

import numba_ptxlink.errors
from numba_ptxlink import _config

ROOT = Path(__file__).parents[1]
KNOWN = Path(__file__).parent / "known.toml"
SUITES = ROOT / "tests" / "thirdparty" / "suites.toml"
OUTCOMES = Path(__file__).parent / "reference"
_WORKS = "works"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |") for line in lines)


def known(page: str) -> str:
    """Return the table of the faults of other tools that belong to *page*."""
    import tomllib  # from Python 3.11 on

    rows = []
    for fault in tomllib.loads(KNOWN.read_text())["fault"]:
        issue = fault.get("issue", "")
        link = f"[{issue.rpartition('/')[2]}]({issue})" if issue else ""
        if fault["page"] == page:
            rows.append([fault["symptom"], fault["response"], f"{fault['tool']} {fault['releases']}", link])
    rows.sort(key=lambda row: row[2])
    return table(["fault", "this package, or you", "tool", "issue"], rows)


def errors() -> str:
    """Return the table of the classes of errors."""
    rows = []
    for name in numba_ptxlink.errors.__all__:
        error = getattr(numba_ptxlink.errors, name)
        bases = ", ".join(f"`{base.__name__}`" for base in error.__bases__)
        rows.append([f"`{name}`", (inspect.getdoc(error) or "").splitlines()[0], bases])
    return table(["class", "raised if", "is also"], rows)


def environment() -> str:
    """Return the table of environment variables, out of the docstring of the configuration."""
    text = inspect.getdoc(_config.Config) or ""
    variables = re.findall(r"^    \w+: (NUMBA_PTXLINK\w*): (.+(?:\n {8}.+)*)", text, re.MULTILINE)
    rows = [[f"`{name}`", *" ".join(meaning.split()).split(". ", 1)] for name, meaning in variables]
    return table(["variable", "values, the default first", "effect"], rows)


def gallery() -> str:
    """Return the table of examples, with the first sentence of each program."""
    rows = []
    for folder in sorted((ROOT / "examples").iterdir()):
        path = program(folder)
        rows.append([f"`{path.relative_to(ROOT)}`", _first_sentence(path)])
    return table(["program", "about"], rows)


def program(folder: Path) -> Path:
    """Return the program of an example."""
    named = [folder / name for name in ("main.cu", "main.cpp")]
    scripts = [path for path in sorted(folder.glob("*.py")) if "__main__" in path.read_text()]
    return next(path for path in (*named, *scripts) if path.exists())


def _first_sentence(path: Path) -> str:
    text = path.read_text()
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    else:
        text = " ".join(line.removeprefix("//").strip() for line in text.splitlines()[:3] if line[:2] == "//")
    return re.split(r"(?<=\w)[.:](?=\s|$)", " ".join(text.split("\n\n")[0].split()))[0] + "."


def outcomes(name: str) -> str:
    """Return the table of outcomes by column, with one row for each text that is no success."""
    columns: dict[str, dict[str, str]] = json.loads((OUTCOMES / f"{name}.json").read_text())
    rows = dict.fromkeys(row for column in columns.values() for row in column)
    works = [row for row in rows if all(column.get(row) == _WORKS for column in columns.values())]
    lines = []
    for row in (row for row in rows if row not in works):
        texts: dict[str, list[str]] = {}
        for column, cells in columns.items():
            # The release is in the second column.
            text = cells.get(row, "").replace(f"nvJitLink {column}", "nvJitLink")
            texts.setdefault(text, []).append(column)
        lines += [[row, ", ".join(names), text] for text, names in texts.items() if text != _WORKS]
    listed = "".join(f"- {row}\n" for row in works)
    rest = f"The other combinations work, and so do everywhere:\n\n{listed}"
    return f"{table(['step', 'with', 'outcome'], lines)}\n{rest}"


def suites() -> str:
    """Return the table of the counts of other projects' suites on the CPU device."""
    names = ["name", "release", "selection", "passed", "failed", "skipped", "xfailed"]
    rows = [[str(suite[name]) for name in names] for suite in _suites("suite")]
    return table(["suite", *names[1:]], rows)


def suite_failures() -> str:
    """Return the table of the failures of these suites, with their causes."""
    rows = []
    for failure in _suites("failure"):
        tests = ", ".join(f"`{test}`" for test in failure["tests"])
        rows.append([failure["suite"], tests, failure["kind"], failure["cause"]])
    return table(["suite", "tests", "kind", "cause"], rows)


def _suites(name: str) -> list[dict[str, Any]]:
    import tomllib  # from Python 3.11 on

    rows: list[dict[str, Any]] = tomllib.loads(SUITES.read_text())[name]
    return rows
