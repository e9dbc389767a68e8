"""
Tell what a program adds to a front end, by `@overload` for one.

No function tells which of it Numba uses, and what was added runs while Numba compiles: it may read files and
the environment, and import whatever it wants then. So where a module of the program adds anything, functions
are lowered again by each export. Installed packages are taken to add the same as long as their source is.
"""

from __future__ import annotations

import hashlib
import logging
import sys
from typing import TYPE_CHECKING

from numba_ptxlink._imports import import_state, python_sources

from . import described

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numba_ptxlink._front_end.protocol import FrontEnd

log = logging.getLogger(__name__)

# What no other export has begins so.
ONCE = "export "


def of_program(front_end: FrontEnd, modules: Iterable[str], export: str) -> Iterator[str]:
    """
    Yield what extends *front_end* as text: nothing where nothing does.

    Args:
        front_end: What compiles.
        modules: The names of the modules that define the functions of the program.
        export: A name that no other export has.
    """
    extending = {name for name in front_end.extensions() if not described.is_versioned(name)}
    if not extending:
        return
    paths = python_sources.of_modules({*modules, *extending}, {})
    own = sorted(name for name in extending if not _is_known(name))
    try:
        yield from (f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()}" for path in paths)
    except OSError as error:
        own = [*own, str(error)]
    if own:
        log.debug("cache: functions are lowered again by each export: %s extends Numba", ", ".join(own))
        yield f"{ONCE}{export}"


def _is_known(name: str) -> bool:
    """Return whether the source of the module *name*, which extends a front end, tells what it adds."""
    if name.partition(".")[0] in import_state.PROTECTED:
        # Such as a package below `cuda`, whose source is not looked for.
        return False
    module = sys.modules.get(name)
    # What another export has imported, and nothing finds now, is no part of this program.
    return module is None or import_state.is_installed(module)
