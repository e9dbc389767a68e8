"""
Compute digests of the source of functions in a front end's compiler, without importing it.

If the functions that the plugin patches and calls have equal digests in two releases, both are supported.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .base import FrontEnd


def site_folder(front_end: FrontEnd) -> Path:
    """
    Return the folder in which the modules of *front_end*, which is installed, are found. Imports nothing.

    numba-cuda-mlir has `numba_cuda_mlir` in site-packages, numba-cuda has `numba/cuda` in `numba_cuda`.
    """
    spec = importlib.util.find_spec(front_end.module)
    package = Path(str(spec and spec.origin)).parent
    return package.parent if front_end.module == front_end.root else package


def digest(target: str, site: Path) -> str:
    """
    Return a digest of the source of a function or class.

    An import of the name is followed, unless it leads to another folder: then the result is the name of the
    module that is imported from. If the definition is missing, the result is "".

    Args:
        target: The function or class, such as "package.module:Class.method".
        site: The folder that contains the package.
    """
    module, _, path = target.partition(":")
    outer_name, *inner_names = path.split(".")
    try:
        lines, definitions = _parse(site.joinpath(*module.split(".")))
        node = definitions[outer_name]
        # Follow `from source import name`, where *name* is a module or a definition. In `from .b import c` of
        # the module p.a, the level is 1, and the source p.b.
        if isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            source = ".".join([*package, *filter(None, [node.module])])
            digest_in_module = ""
            if inner_names:
                digest_in_module = digest(f"{source}.{outer_name}:{'.'.join(inner_names)}", site)
            return digest_in_module or digest(f"{source}:{path}", site) or source
        for name in inner_names:
            node = next(statement for statement in node.body if getattr(statement, "name", None) == name)
    except (OSError, SyntaxError, KeyError, StopIteration):
        return ""
    # A definition's own line number is that of `def` or `class`, which decorators precede.
    start = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
    text = textwrap.dedent("\n".join(lines[start - 1 : node.end_lineno]) + "\n")
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _parse(path: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the lines of the module at *path*, and the last definition or import of each name."""
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    text = file.read_text()
    tree = ast.parse(text)
    definitions: dict[str, Any] = {}
    # `walk` also yields definitions inside of `if`, `try` and functions. Those of the top level follow, and
    # replace nested ones of the same name.
    for node in (*ast.walk(tree), *tree.body):
        if isinstance(node, ast.ImportFrom):
            definitions |= {alias.asname or alias.name: node for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            definitions[node.name] = node
    return text.split("\n"), definitions
