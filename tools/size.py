"""
Print the size of the code by package, and fail above the budget.

A token is one of Python's own; comments, docstrings, line ends and indentation do not count.
`python tools/size.py` prints the tables, `--most N` the N largest modules as well.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUDGET = {"numba_ptxlink": 167_500, "tests": 184_900}
MODULES = {"numba_ptxlink": 174, "tests": 231}
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


def tokens(text: str) -> int:
    """Return how many tokens the code in *text* has."""
    docstrings = {
        (body[0].lineno, body[0].col_offset)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef))
        if (body := node.body) and ast.get_docstring(node, clean=False) is not None
    }
    found = inside = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        inside -= token.type == F_END
        found += not (inside or token.type in FREE or token.type == F_END or token.start in docstrings)
        inside += token.type == F_START
    return found


def main() -> int:
    """Print the tables; return 1 where a folder is above its budget."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument("--most", type=int, default=0, metavar="N", help="show the N largest modules")
    parser.add_argument("--root", type=Path, default=ROOT, help="the checkout to measure")
    args = parser.parse_args()
    above = False
    for top, budget in BUDGET.items():
        sizes = {path: tokens(path.read_text()) for path in sorted((args.root / top).rglob("*.py"))}
        packages: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for path, size in sizes.items():
            inner = path.relative_to(args.root / top).parts
            package = inner[0] if len(inner) > 1 else "."
            packages[package] += size
            counts[package] += 1
        for package, size in packages.most_common():
            print(f"{top}/{package:28} {size:8,} {counts[package]:5} modules")
        total, count = sum(sizes.values()), len(sizes)
        most = MODULES.get(top, count)
        print(f"{top:{len(top) + 29}} {total:8,} {count:5} modules, of {budget:,} and {most}\n")
        for path, size in sorted(sizes.items(), key=lambda row: -row[1])[: args.most]:
            print(f"    {size:8,}  {path.relative_to(args.root)}")
        above |= total > budget or count > most
    return int(above)


if __name__ == "__main__":
    sys.exit(main())
