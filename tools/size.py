"""
Print the size of the code by folder: Python, and LLVM IR, C and C++ that people write.

A token of Python is one of its tokenizer; comments, docstrings, line ends and indentation do not count. In
the other languages it is a word, a number, a string or another visible character; comments do not count.
`--most N` prints the N largest files as well.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("numba_ptxlink", "tests")
# Files that cffi, tools and exports have generated.
GENERATED = ("numba_ptxlink/_native/_nvptxcompiler.c", "numba_ptxlink/_native/cuda_driver/stubs.c")
GENERATED += ("numba_ptxlink/_native/cuda_runtime/stubs.c", "tests/golden/")
LANGUAGES = {
    ".py": "Python",
    ".ll": "LLVM IR",
    **dict.fromkeys((".c", ".h", ".hpp", ".cpp", ".cu"), "C and C++"),
}
COMMENTS = {"LLVM IR": r";[^\n]*", "C and C++": r"//[^\n]*|/\*.*?\*/"}
FREE = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
# From Python 3.12 on an f-string is many tokens; here it is one, as before.
F_START, F_END = (getattr(tokenize, f"FSTRING_{name}", -1) for name in ("START", "END"))


def python_tokens(text: str) -> int:
    """Return the number of tokens of the Python module *text*."""
    docstrings = {
        (body[0].lineno, body[0].col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if (body := node.body) and ast.get_docstring(node, clean=False) is not None
    }
    count = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        depth -= token.type == F_END
        count += not (depth or token.type in FREE or token.type == F_END or token.start in docstrings)
        depth += token.type == F_START
    return count


def tokens(path: Path) -> int:
    """Return the number of tokens of the file *path*, which is in one of `LANGUAGES`."""
    text, language = path.read_text(), LANGUAGES[path.suffix]
    if language == "Python":
        return python_tokens(text)
    pattern = rf'(?P<comment>{COMMENTS[language]})|"(?:[^"\\\n]|\\.)*"|[\w.$%@]+|\S'
    return sum(match["comment"] is None for match in re.finditer(pattern, text, re.DOTALL))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--most", type=int, default=0, metavar="N", help="show the N largest files")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to measure")
    args = parser.parse_args()
    for top in FOLDERS:
        paths = (path for path in sorted((args.root / top).rglob("*")) if path.suffix in LANGUAGES)
        sizes = {
            name: tokens(args.root / name)
            for path in paths
            if not (name := path.relative_to(args.root).as_posix()).startswith(GENERATED)
        }
        rows: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for name, size in sizes.items():
            _, *folders, _ = name.split("/")
            language = LANGUAGES[Path(name).suffix]
            for row in ((language, folders[0] if folders else "."), (language, "")):
                rows[row].update(tokens=size, files=1)
        for (language, folder), row in sorted(
            rows.items(), key=lambda item: (item[0][0], bool(item[0][1]), -item[1]["tokens"])
        ):
            title = f"{top}/{folder}" if folder else f"{top}, {language}"
            print(f"{title:42} {row['tokens']:8,} tokens {row['files']:5} files")
        print()
        for name, size in sorted(sizes.items(), key=lambda item: -item[1])[: args.most]:
            print(f"    {size:8,}  {name}")


if __name__ == "__main__":
    main()
