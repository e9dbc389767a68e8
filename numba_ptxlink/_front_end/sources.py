"""Digests of the functions that this package patches and calls in a front end, to compare releases."""

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
    """Return the folder that contains the package of *front_end*, which is installed. Imports nothing."""
    spec = importlib.util.find_spec(front_end.module)
    package = Path(str(spec and spec.origin)).parent
    return package.parent if front_end.module == front_end.root else package


def digest(target: str, site: Path) -> str:
    """
    Return a digest of a definition's source, found without an import.

    The result is "" if the definition is missing, and the defining module's name if the module merely imports
    the definition from another package.

    Args:
        target: A function or class, such as "package.module:Class.method".
        site: The folder that contains the package.
    """
    module, _, path = target.partition(":")
    outer_name, *inner_names = path.split(".")
    try:
        lines, definitions = _parse(site.joinpath(*module.split(".")))
        node = definitions[outer_name]
        # The module imports the name: follow the import to a module *outer_name*, or to its definition.
        if isinstance(node, ast.ImportFrom):
            package = module.split(".")[: -node.level] if node.level else []
            defining_module = ".".join([*package, *filter(None, [node.module])])
            submodule = f"{defining_module}.{outer_name}"
            member_digest = digest(f"{submodule}:{'.'.join(inner_names)}", site) if inner_names else ""
            return member_digest or digest(f"{defining_module}:{path}", site) or defining_module
        for name in inner_names:
            node = next(statement for statement in node.body if getattr(statement, "name", None) == name)
    except (OSError, SyntaxError, KeyError, StopIteration):
        return ""
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
    # Definitions at the top level come last, so that they take precedence over nested ones.
    for node in (*ast.walk(tree), *tree.body):
        if isinstance(node, ast.ImportFrom):
            definitions |= {alias.asname or alias.name: node for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            definitions[node.name] = node
    return text.split("\n"), definitions
