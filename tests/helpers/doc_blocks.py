"""
Read the blocks of a page of the documentation, and run them in order in one folder.

The purpose of a block follows from its language and its first line:

- one that begins with the name of a file (`# udfs.py`, `// kernel.cu`) is that file;
- `bash` is run, and so is `python` that is no file;
- `console` is a transcript, whose commands begin with `$` and are not run;
- `text` is the output of the block before, with `...` for any text, also of several lines.

A comment before a block adds:

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
# The beginning of a comment, by language; "" for languages without comments.
LANGUAGES = {
    **dict.fromkeys(("bash", "cmake", "dockerfile", "make", "python", "toml", "yaml"), "# "),
    **dict.fromkeys(("console", "json", "text"), ""),
    "cpp": "// ",
}
# Languages whose blocks need not be files.
LOOSE = ("bash", "console", "dockerfile", "json", "python", "text")
WORDS = ("needs", "shown", "without", "excerpt", "fails")
_BLOCK = re.compile(r"(?:^<!-- ([^\n]*) -->\n)?^```([^`\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FILE = r"([\w./-]+\.\w+|Makefile|Dockerfile)(?:: .*)?"
_TIMEOUT = 300


class Block(NamedTuple):
    """
    A block of a page.

    Args:
        language: The word after the fence.
        text: The lines.
        marks: The words of the comment before the block, by the first word.
        line: The number of the first line, from 1 on.
    """

    language: str
    text: str
    marks: dict[str, list[str]]
    line: int

    @property
    def file(self) -> str:
        """The name of the file in the first line, "" if the block is no file."""
        start = LANGUAGES[self.language]
        match = re.match(f"{start}{_FILE}$", self.text, re.MULTILINE) if start else None
        return match[1] if match else ""

    @property
    def can_run(self) -> bool:
        """Whether the packages and programs that the block needs are here."""
        return "shown" not in self.marks and all(map(_is_available, self.marks.get("needs", ())))


def pages() -> list[Path]:
    """Return the pages that have blocks, README included."""
    return [page for page in (ROOT / "README.md", *sorted(DOCS.rglob("*.md"))) if blocks(page)]


def blocks(page: Path) -> list[Block]:
    """Return the blocks of *page* in order, but for directives of Sphinx."""
    text = page.read_text()
    page_blocks = []
    for match in _BLOCK.finditer(text):
        mark, language, body = match.groups()
        if not language.startswith("{"):
            line = text.count("\n", 0, match.start(2)) + 1
            page_blocks.append(Block(language, body, _marks(mark or ""), line))
    return page_blocks


def _marks(comment: str) -> dict[str, list[str]]:
    word, _, values = comment.partition(":")
    return {word: values.split()} if word in WORDS else {}


def _is_available(need: str) -> bool:
    if need == "gpu":
        return not missing_device()
    return shutil.which(need) is not None or find_spec(need) is not None


class Runner:
    """
    Runs blocks in a folder, which is also the home directory.

    Args:
        folder: The folder of files and commands.
        environ: The environment of the commands.
    """

    def __init__(self, folder: Path, environ: Mapping[str, str]) -> None:
        self.folder = folder
        self.environ = {**environ, "COLUMNS": "100", "HOME": str(folder), "TMPDIR": str(folder)}
        self.output: str | None = None

    def run(self, block: Block) -> None:
        """Write, run or compare *block*; the error of a failure has its output."""
        if "excerpt" in block.marks:
            return
        if block.language == "text":
            is_skipped = any(map(_is_available, block.marks.get("without", ())))
            if self.output is not None and not is_skipped:
                assert matches(block.text, self.output), f"printed:\n{self.output}\nshown:\n{block.text}"
            return
        self.output = None
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
            self.output = self._execute(block)

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
    excerpt = [line.strip() for line in block.text.splitlines()]
    comment = LANGUAGES[block.language]
    assert [] == [line for line in excerpt if line not in source and not line.startswith(comment)]


def matches(expected: str, printed: str) -> bool:
    """Return whether *printed* is the text *expected* on a page, in which `...` is any text."""
    pattern = ""
    for line in expected.strip("\n").splitlines():
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
        # The tests keep the working directory off the path; readers are not told to.
        "PYTHONPATH": "",
        "PYTHONSAFEPATH": "",
        "CUDA": str(toolkit),
        "CUDACXX": str(toolkit / "bin" / "nvcc"),
        "LD_LIBRARY_PATH": f"{toolkit / 'lib'}{os.pathsep}{os.environ.get('LD_LIBRARY_PATH', '')}",
        "NUMBA_PTXLINK_CACHE": str(cache),
    }
