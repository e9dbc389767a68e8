"""Names and sentences of the package, its tests and its tools follow CONTRIBUTING.md."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
sys.path.append(str(TOOLS))

words = pytest.importorskip("words", reason="a source distribution has no tools/")

FUNCTION = '''
def {name}({parameter}):
    """{docstring}"""
    # {comment}
    # This line continues the comment.
    return [{local} for {local} in {parameter}]  # {remark}
'''
PLAIN = {
    "name": "select",
    "parameter": "inputs",
    "local": "source",
    "docstring": "Return the inputs.",
    "comment": "Cause, then consequence.",
    "remark": "bytes",
}


def lines_of(**changes: str) -> list[int]:
    """Return the lines of violations in a function with *changes*."""
    return [line for line, _ in words.violations(FUNCTION.format(**PLAIN | changes))]


def test_plain_words_pass():
    """A function with nouns, verbs and subjects has no violation."""
    assert lines_of() == []
    assert lines_of(docstring="Return None if there is none.", comment="CUDA's One and Only.") == []


@pytest.mark.parametrize("word", sorted(words.VAGUE_NAMES))
def test_vague_names_are_rejected(word):
    """A listed word is rejected as the name of a function, a parameter and a local, private or not."""
    assert [2] == lines_of(name=word)
    assert [2] == lines_of(parameter=f"{word}_")
    assert [6] == lines_of(local=word)
    assert [1] == [line for line, _ in words.violations(f"_{word} = 1")]


@pytest.mark.parametrize("word", ["What", "Who", "Where", "Of", "Those", "It", "They", "One", "This", "None"])
def test_vague_beginnings_are_rejected(word):
    """A docstring, a comment, and a comment behind code have to begin with their subject."""
    assert [3] == lines_of(docstring=f"{word} is linked.")
    assert [4] == lines_of(comment=f"{word} is linked.")
    assert [6] == lines_of(remark=f"{word} is linked.")


def test_a_report_names_file_line_and_rule(tmp_path, capsys):
    """The command prints where a violation is and which rule it is against, and fails."""
    module = tmp_path / "module.py"
    module.write_text(FUNCTION.format(**PLAIN | {"name": "told", "comment": "What is linked."}))
    assert 1 == words.main([str(tmp_path)])
    assert [
        f"{module}:2: rule 3: 'told' can name any value; use a noun, or a verb for a function",
        f"{module}:4: rules 5 and 6: a comment begins with 'What'; begin with its subject or a verb",
    ] == capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("folder", words.FOLDERS)
def test_a_planted_violation_is_reported(folder, tmp_path, monkeypatch, capsys):
    """Without paths, the command finds a violation in each folder, also below another folder."""
    for name in words.FOLDERS:
        (tmp_path / name / "inner").mkdir(parents=True)
    module = tmp_path / folder / "inner" / "planted.py"
    module.write_text("found = 1\n")
    monkeypatch.setattr(words, "ROOT", tmp_path)
    assert 1 == words.main([])
    assert capsys.readouterr().out.startswith(f"{module}:1: rule 3: 'found' ")


@pytest.mark.parametrize("folder", words.FOLDERS)
def test_the_project_has_no_violation(folder):
    """Every module of the package, its tests, documentation, examples and tools follows the rules."""
    assert [] == words.report([words.ROOT / folder])
