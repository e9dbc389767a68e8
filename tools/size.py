"""
Print the size of the code by folder in tokens: Python, and LLVM IR, C and C++ that people write.

Tokens of Python are those of its tokenizer, without comments, docstrings, line ends and indentation. Tokens
of the other languages are words, numbers, strings, and other visible characters, without comments.
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
# Files that cffi, the tools beside this one, and exports generate.
GENERATED = ("numba_ptxlink/_native/_nvptxcompiler.c", "numba_ptxlink/_native/cuda_driver/stubs.c")
GENERATED += ("numba_ptxlink/_native/cuda_runtime/stubs.c", "tests/golden/")
LANGUAGES = {
    ".py": "Python",
    ".ll": "LLVM IR",
    **dict.fromkeys((".c", ".h", ".hpp", ".cpp", ".cu"), "C and C++"),
}
COMMENTS = {"LLVM IR": r";[^\n]*", "C and C++": r"//[^\n]*|/\*.*?\*/"}
UNCOUNTED_TYPES = {
    tokenize.COMMENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
    tokenize.INDENT,
    tokenize.NEWLINE,
    tokenize.NL,
}
# From Python 3.12 on, an f-string is several tokens between a start and an end. It counts as one token, as in
# older releases, whose module has no such types.
F_START, F_END = (getattr(tokenize, f"FSTRING_{name}", -1) for name in ("START", "END"))


def count_python_tokens(text: str) -> int:
    """Return the number of tokens of the Python module *text*."""
    docstrings = {
        (body[0].lineno, body[0].col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if (body := node.body) and ast.get_docstring(node, clean=False) is not None
    }
    count = f_string_depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == F_END:
            f_string_depth -= 1
            continue
        is_counted = token.type not in UNCOUNTED_TYPES and token.start not in docstrings
        if is_counted and not f_string_depth:
            count += 1
        if token.type == F_START:
            f_string_depth += 1
    return count


def count_tokens(path: Path) -> int:
    """Return the number of tokens of the file *path*, which is in one of `LANGUAGES`."""
    text, language = path.read_text(), LANGUAGES[path.suffix]
    if language == "Python":
        return count_python_tokens(text)
    pattern = rf'(?P<comment>{COMMENTS[language]})|"(?:[^"\\\n]|\\.)*"|[\w.$%@]+|\S'
    return sum(match["comment"] is None for match in re.finditer(pattern, text, re.DOTALL))


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--most", type=int, default=0, metavar="N", help="show the N largest files")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to measure")
    args = parser.parse_args()
    for top_folder in FOLDERS:
        paths = (path for path in sorted((args.root / top_folder).rglob("*")) if path.suffix in LANGUAGES)
        sizes = {
            name: count_tokens(args.root / name)
            for path in paths
            if not (name := path.relative_to(args.root).as_posix()).startswith(GENERATED)
        }
        # The sums for each language and folder; the folder "" is for the whole language.
        sums: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for name, size in sizes.items():
            _, *folders, _ = name.split("/")
            language = LANGUAGES[Path(name).suffix]
            for folder in (folders[0] if folders else ".", ""):
                sums[language, folder].update(tokens=size, files=1)
        # By language: first the sum of the language, then its folders, the largest first.
        for (language, folder), counts in sorted(
            sums.items(), key=lambda item: (item[0][0], bool(item[0][1]), -item[1]["tokens"])
        ):
            title = f"{top_folder}/{folder}" if folder else f"{top_folder}, {language}"
            print(f"{title:42} {counts['tokens']:8,} tokens {counts['files']:5} files")
        print()
        for name, size in sorted(sizes.items(), key=lambda item: -item[1])[: args.most]:
            print(f"    {size:8,}  {name}")


if __name__ == "__main__":
    main()
