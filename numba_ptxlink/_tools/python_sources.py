"""Find the Python files that a module is made of: its own, and those of what it has imported."""

from __future__ import annotations

import sys
import sysconfig
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from .python_imports import PROTECTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


def of_modules(names: Iterable[str], former: Mapping[str, Any]) -> list[Path]:
    """
    Return the Python files that the modules *names* depend on, sorted.

    These are the files of the modules that are in `sys.modules` and were not in *former*, and of those that
    can be reached from *names* through global names. The standard library, and what compiles functions, such
    as Numba and NumPy, are left out.
    """
    modules, names = dict(sys.modules), list(names)
    new = [name for name, module in modules.items() if former.get(name) is not module]
    # The program counts where its own functions are exported, and not as what something else names.
    passed_over = PROTECTED | ({"__main__", "__mp_main__"} - set(names))
    reached: set[str] = set()
    pending = [*names, *new]
    while pending:
        name = pending.pop()
        if name in reached or name not in modules or name.partition(".")[0] in passed_over:
            continue
        reached.add(name)
        pending += _named_by(modules[name])
        # A package is run before what is in it.
        pending.append(name.rpartition(".")[0])
    files = (getattr(modules[name], "__file__", None) for name in reached)
    paths = {Path(file).absolute() for file in files if isinstance(file, str) and file.endswith(".py")}
    # Such as _sysconfigdata_..., which no list of the standard library has.
    return sorted(path for path in paths if path.parent != Path(sysconfig.get_path("stdlib")))


def _named_by(module: ModuleType) -> Iterable[str]:
    """Return the modules that global values of *module* are, or come from."""
    for value in list(getattr(module, "__dict__", {}).values()):
        try:
            # A function has it, and so has what decorators make of one, and an instance from its class.
            of = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", None)
        except Exception:  # noqa: BLE001, S112 - whatever a foreign module has put there
            continue
        if isinstance(of, str):
            yield of
