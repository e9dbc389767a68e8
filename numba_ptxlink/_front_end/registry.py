"""The front ends by name, each loaded when it is first asked for; and which one a value belongs to."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import sys
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink.errors import AbiError, ConfigError, ExportError

if TYPE_CHECKING:
    from .protocol import FrontEnd


def get(name: str) -> FrontEnd:
    """
    Return the front end *name*. Imports its package here, and nothing of its compiler.

    Raises:
        ConfigError: There is none of that name.
    """
    if name not in FRONT_ENDS:
        raise ConfigError(f"front_end={name!r} is unknown; choose {' or '.join(FRONT_ENDS)}.")
    home = _home(name)
    # A module that another thread is importing has none yet.
    there = getattr(sys.modules.get(home), "FRONT_END", None)
    front_end: FrontEnd = there or importlib.import_module(home).FRONT_END
    return front_end


def front_ends() -> tuple[FrontEnd, ...]:
    """Return all front ends, the preferred one first, whether or not they are installed."""
    return tuple(map(get, FRONT_ENDS))


def loaded() -> tuple[FrontEnd, ...]:
    """Return the front ends that have been asked for. Imports nothing."""
    there = (sys.modules.get(_home(name)) for name in FRONT_ENDS)
    return tuple(filter(None, (getattr(module, "FRONT_END", None) for module in there)))


def _home(name: str) -> str:
    # Another front end is a package beside the others, and its name in the list.
    return f"numba_ptxlink._{name.replace('-', '_')}.front_end"


def installed(front_end: FrontEnd) -> bool:
    """Return whether the compiler of *front_end* is installed. Imports nothing of it."""
    found = importlib.util.find_spec(front_end.module)
    # A folder of that name, which sys.path leads to, has a specification too, and no origin.
    return found is not None and found.origin is not None


def require(front_end: FrontEnd) -> FrontEnd:
    """
    Return *front_end* with its compiler imported.

    Raises:
        ExportError: It is not installed, or cannot be used or imported; with the cure.
    """
    from numba_ptxlink._tools import find

    package, reason = f"{front_end.root}.cuda", front_end.unsupported_reason()
    if reason is None:
        try:
            importlib.import_module(package)
        except Exception as error:
            said = find.explained(error) or (
                f"{type(error).__name__}: {error}. Install it with `pip install "
                f"'numba-ptxlink[{front_end.extra}]'`, and rename any {front_end.root}.py of your own."
            )
            raise ExportError(f"{package} could not be imported: {said}") from error
        reason = front_end.unsupported_reason()  # The import may have found the simulator switched on.
    if reason is not None:
        raise ExportError(f"{reason}.")
    return front_end


def owner(value: Any) -> FrontEnd | None:
    """
    Return the front end that *value* belongs to, None for none.

    It may be a type, a signature, a dispatcher, or a module, class or function of the front end's own.
    """
    if isinstance(value, ModuleType):
        homes = {value.__name__}
    elif isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        homes = {str(value.__module__)}
    else:
        homes = {str(cls.__module__) for cls in type(value).__mro__}
    return next(filter(None, map(of_module, homes)), None)


@functools.cache
def of_module(name: str) -> FrontEnd | None:
    """Return the front end that has the module *name*, None for none."""
    root = name.partition(".")[0]
    return next((front_end for front_end in front_ends() if front_end.root == root), None)


def of_type(ty: Any) -> FrontEnd:
    """
    Return the front end that the Numba type *ty* belongs to.

    Raises:
        AbiError: It is no Numba type.
    """
    front_end = owner(ty)
    if front_end is None:
        raise AbiError(f"{ty!r} is not a Numba type; use one of numba.types, such as float32.")
    return front_end
