"""
Reads the blocks of a page of the documentation, and runs them in order in one folder.

What a block is for is told by its language and its first line:

- one that begins with the name of a file (`# udfs.py`, `// kernel.cu`) is that file;
- `bash` is run, and so is `python` that is no file;
- `console` is a transcript, whose commands begin with `$` and are not run;
- `text` is what the block before printed, with `...` for anything, also for any number of lines.

A comment before a block tells more:

- `<!-- needs: cupy gpu -->` has it run only where these are, and its syntax checked elsewhere;
- `<!-- shown: it installs -->` has its syntax checked alone, for that reason;
- `<!-- without: gpu -->` has an output compared only where that is missing;
- `<!-- excerpt: examples/jit/main.cpp -->` has each of its lines in that file;
- `<!-- fails -->` has it end with an error.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from devices import missing_device

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
# What a comment begins with, by language; "" for those without.
LANGUAGES = {
    **dict.fromkeys(("bash", "cmake", "dockerfile", "make", "python", "toml", "yaml"), "# "),
    **dict.fromkeys(("console", "json", "text"), ""),
    "cpp": "// ",
}
# These need be no files.
LOOSE = ("bash", "console", "dockerfile", "json", "python", "text")
WORDS = ("needs", "shown", "without", "excerpt", "fails")
_BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = r"([\w./-]+\.\w+|Makefile|Dockerfile)(?:: .*)?"
_TIMEOUT = 300


class Block(NamedTuple):
    """
    A block of a page.

    Args:
        language: What follows the fence.
        text: Its lines.
        marks: What the comment before it says, by its first word.
        line: Where it begins, from 1 on.
    """

    language: str
    text: str
    marks: dict[str, list[str]]
    line: int

    @property
    def file(self) -> str:
        """The name of the file that it is, "" for none."""
        start = LANGUAGES[self.language]
        match = re.match(f"{start}{_FILE}$", self.text, re.MULTILINE) if start else None
        return match[1] if match else ""

    @property
    def can_run(self) -> bool:
        """Whether this machine has what it needs."""
        return "shown" not in self.marks and all(map(_has, self.marks.get("needs", ())))


def pages() -> list[Path]:
    """Return the pages that have blocks, README included."""
    return [page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if blocks(page)]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of *page* in order, but for directives of Sphinx."""
    text = page.read_text()
    found = []
    for match in _BLOCK.finditer(text):
        mark, language, body = match.groups()
        if not language.startswith("{"):
            line = text.count("\n", 0, match.start(2)) + 1
            found.append(Block(language, body, _marks(mark or ""), line))
    return found


def _marks(comment: str) -> dict[str, list[str]]:
    word, _, rest = comment.partition(":")
    return {word: rest.split()} if word in WORDS else {}


def _has(need: str) -> bool:
    if need == "gpu":
        return not missing_device()
    return shutil.which(need) is not None or find_spec(need) is not None


class Runner:
    """
    Runs blocks in a folder, which is the home directory too.

    Args:
        folder: Where files are written and commands are run.
        environ: The environment of the commands.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.environ = {**environ, "COLUMNS": "100", "HOME": str(folder), "TMPDIR": str(folder)}
        self.said: str | None = None

    def run(self, block: Block) -> None:
        """Write, run or compare *block*; the error of a failure has its output."""
        if "excerpt" in block.marks:
            return
        if block.language == "text":
            elsewhere = any(map(_has, block.marks.get("without", ())))
            if self.said is not None and not elsewhere:
                assert matches(block.text, self.said), f"printed:\n{self.said}\nshown:\n{block.text}"
            return
        self.said = None
        if block.file:
            path = self.folder / block.file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text)
            if path.suffix == ".py":
                compile(block.text, block.file, "exec")
        elif block.language == "json":
            json.loads(block.text)
        elif block.language == "console":
            _check_syntax("".join(re.findall(r"^\$ (.*\n)", block.text, re.MULTILINE)))
        elif block.language in ("bash", "python"):
            self.said = self._execute(block)

    def _execute(self, block: Block) -> str | None:
        python = block.language == "python"
        if not block.can_run:
            if python:
                compile(block.text, "block", "exec")
            else:
                _check_syntax(block.text)
            return None
        command = [sys.executable, "-c"] if python else ["/bin/bash", "-euo", "pipefail", "-c"]
        done = subprocess.run(
            [*command, block.text],
            cwd=self.folder,
            env=self.environ,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_TIMEOUT,
        )
        assert (done.returncode != 0) is ("fails" in block.marks), done.stdout
        return done.stdout


def _check_syntax(commands: str) -> None:
    subprocess.run(["/bin/bash", "-n", "-c", commands], check=True)


def check_excerpt(block: Block) -> None:
    """Check that the file of an excerpt has each of its lines, but for comments."""
    (name,) = block.marks["excerpt"]
    source = {line.strip() for line in (ROOT / name).read_text().splitlines()}
    shown = [line.strip() for line in block.text.splitlines()]
    comment = LANGUAGES[block.language]
    assert [] == [line for line in shown if line not in source and not line.startswith(comment)]


def matches(shown: str, printed: str) -> bool:
    """Return whether *printed* is what a page shows, in which `...` stands for anything."""
    pattern = ""
    for line in shown.strip("\n").splitlines():
        if line.strip() == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += r".*?".join(re.escape(part) for part in line.rstrip().split("...")) + r"[ \t]*\n"
    return re.fullmatch(pattern, printed.strip("\n") + "\n") is not None


def environment(toolkit: Path, cache: Path) -> dict[str, str]:
    """Return the environment of the commands, with the toolkit at *toolkit* and a cache of its own."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{toolkit / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return {
        **os.environ,
        "PATH": path,
        # The tests keep the working directory off the path, which no reader is told to do.
        "PYTHONPATH": "",
        "PYTHONSAFEPATH": "",
        "CUDA": str(toolkit),
        "CUDACXX": str(toolkit / "bin" / "nvcc"),
        "LD_LIBRARY_PATH": f"{toolkit / 'lib'}{os.pathsep}{os.environ.get('LD_LIBRARY_PATH', '')}",
        "NUMBA_PTXLINK_CACHE": str(cache),
    }
