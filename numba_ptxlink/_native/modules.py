"""Where modules are, while other threads import them."""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from importlib.machinery import ModuleSpec

_ABSENT = object()


def find_module(name: str) -> ModuleSpec | None:
    """
    Return where the module *name* is, None where there is none. Loads nothing but its parents. Thread-safe.

    `importlib.util.find_spec` raises ValueError for a module that another thread is importing: a compiled one
    is in `sys.modules` before it has its spec. The finders tell of such a module.

    Raises:
        ImportError: A finder refuses it, or a parent cannot be imported.
    """
    module = sys.modules.get(name, _ABSENT)
    spec: ModuleSpec | None = getattr(module, "__spec__", None)
    # None there blocks the import.
    return spec if spec is not None or module is None else _ask_finders(name)


def _ask_finders(name: str) -> ModuleSpec | None:
    parent = name.rpartition(".")[0]
    path = importlib.import_module(parent).__path__ if parent else None
    for finder in sys.meta_path:
        find_spec = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = None if find_spec is None else find_spec(name, path)
        if spec is not None:
            return spec
    return None
