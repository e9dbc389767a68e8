"""
Generate the tables of pages, from the package and from files of data.

A page shows a table by the directive `generated`. Sphinx is not imported here, so that tests read the tables
without it.
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
OUTCOMES_FOLDER = Path(__file__).parent / "reference"
# The outcome of a step without an error.
_WORKS = "works"


def table(head: list[str], rows: list[list[str]]) -> str:
    """Return a table in Markdown; the text of empty cells is one space."""
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
    """Return the table of environment variables, from the docstring of `Config`."""
    text = inspect.getdoc(_config.Config) or ""
    # For example "    mode: NUMBA_PTXLINK: 1, 0 or auto. Whether ...", with continuation lines.
    entries = re.findall(r"^    \w+: (NUMBA_PTXLINK\w*): (.+(?:\n {8}.+)*)", text, re.MULTILINE)
    rows = [[f"`{name}`", *" ".join(description.split()).split(". ", 1)] for name, description in entries]
    return table(["variable", "values, the default first", "effect"], rows)


def gallery() -> str:
    """Return the table of examples, with the first sentence of each program."""
    rows = []
    for folder in sorted((ROOT / "examples").iterdir()):
        path = find_program(folder)
        rows.append([f"`{path.relative_to(ROOT)}`", _first_sentence(path)])
    return table(["program", "about"], rows)


def find_program(folder: Path) -> Path:
    """Return the program of the example in *folder*: main.cu, main.cpp, or the first script."""
    cxx_programs = [folder / name for name in ("main.cu", "main.cpp")]
    scripts = [path for path in sorted(folder.glob("*.py")) if "__main__" in path.read_text()]
    return next(path for path in (*cxx_programs, *scripts) if path.exists())


def _first_sentence(path: Path) -> str:
    """Return the first sentence of a docstring, or of the comment at the beginning of C++."""
    text = path.read_text()
    if path.suffix == ".py":
        text = ast.get_docstring(ast.parse(text)) or ""
    else:
        text = " ".join(line.removeprefix("//").strip() for line in text.splitlines()[:3] if line[:2] == "//")
    first_paragraph = " ".join(text.split("\n\n")[0].split())
    # A sentence ends with a full stop or a colon, unlike the point of "main.cu".
    return re.split(r"(?<=\w)[.:](?=\s|$)", first_paragraph)[0] + "."


def outcomes(name: str) -> str:
    """
    Return the table of outcomes that are no success, and the list of steps that work everywhere.

    Args:
        name: The file of outcomes: for each front end or toolkit, the outcome of each step.
    """
    columns: dict[str, dict[str, str]] = json.loads((OUTCOMES_FOLDER / f"{name}.json").read_text())
    steps = dict.fromkeys(step for column in columns.values() for step in column)
    working_steps = [step for step in steps if all(column.get(step) == _WORKS for column in columns.values())]
    rows = []
    for step in (step for step in steps if step not in working_steps):
        names_by_outcome: dict[str, list[str]] = {}
        for column_name, column in columns.items():
            # The release is in the second column of the table.
            outcome = column.get(step, "").replace(f"nvJitLink {column_name}", "nvJitLink")
            names_by_outcome.setdefault(outcome, []).append(column_name)
        rows += [
            [step, ", ".join(names), outcome]
            for outcome, names in names_by_outcome.items()
            if outcome != _WORKS
        ]
    step_list = "".join(f"- {step}\n" for step in working_steps)
    return (
        f"{table(['step', 'with', 'outcome'], rows)}\n"
        f"The other combinations work. Steps that work everywhere:\n\n{step_list}"
    )


def suites() -> str:
    """Return the table of the counts of other projects' suites on the CPU device."""
    names = ["name", "release", "selection", "passed", "failed", "skipped", "xfailed"]
    rows = [[str(suite[name]) for name in names] for suite in _suites("suite")]
    return table(["suite", *names[1:]], rows)


def suite_failures() -> str:
    """Return the table of the failures of other projects' suites, with their causes."""
    rows = []
    for failure in _suites("failure"):
        tests = ", ".join(f"`{test}`" for test in failure["tests"])
        rows.append([failure["suite"], tests, failure["kind"], failure["cause"]])
    return table(["suite", "tests", "kind", "cause"], rows)


def _suites(name: str) -> list[dict[str, Any]]:
    import tomllib  # from Python 3.11 on

    rows: list[dict[str, Any]] = tomllib.loads(SUITES.read_text())[name]
    return rows
