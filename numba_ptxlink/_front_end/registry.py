"""Find front ends, Numba's compilers for CUDA: by name, each loaded on first use, or by a value of theirs."""

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
    from .base import FrontEnd


def get(name: str) -> FrontEnd:
    """
    Return the front end *name*. Imports this package's modules for it, and nothing of its compiler.

    Raises:
        ConfigError: There is no front end of that name.
    """
    if name not in FRONT_ENDS:
        raise ConfigError(f"front_end={name!r} is unknown; choose {' or '.join(FRONT_ENDS)}.")
    module_name = _module_name(name)
    # Not import_module first: it would wait for a thread that is importing the module, and the caller may
    # hold the plugin's lock.
    loaded_front_end = getattr(sys.modules.get(module_name), "FRONT_END", None)
    front_end: FrontEnd = loaded_front_end or importlib.import_module(module_name).FRONT_END
    return front_end


def front_ends() -> tuple[FrontEnd, ...]:
    """Return all front ends, the preferred one first, whether or not they are installed."""
    return tuple(map(get, FRONT_ENDS))


def loaded_front_ends() -> tuple[FrontEnd, ...]:
    """Return the front ends whose code in this package has been imported. Imports nothing."""
    modules = (sys.modules.get(_module_name(name)) for name in FRONT_ENDS)
    return tuple(filter(None, (getattr(module, "FRONT_END", None) for module in modules)))


def _module_name(name: str) -> str:
    """Return the module that defines a front end, such as "numba_ptxlink._numba_cuda.front_end"."""
    return f"numba_ptxlink._{name.replace('-', '_')}.front_end"


def is_installed(front_end: FrontEnd) -> bool:
    """Return whether the compiler of *front_end* is installed. Does not import it."""
    spec = importlib.util.find_spec(front_end.module)
    # A folder of that name on sys.path that is no package has a specification, too, but no origin.
    return spec is not None and spec.origin is not None


def require(front_end: FrontEnd) -> FrontEnd:
    """
    Return *front_end* with its compiler imported.

    Raises:
        ExportError: The compiler is not installed, cannot be imported, or does not support this environment.
            The message says how to correct that.
    """
    from numba_ptxlink._tools import find

    # The package that programs import: "numba.cuda" or "numba_cuda_mlir.cuda".
    cuda_package, reason = f"{front_end.root}.cuda", front_end.unsupported_reason()
    if reason is None:
        try:
            importlib.import_module(cuda_package)
        except Exception as error:
            message = find.missing_library_error(error) or (
                f"{type(error).__name__}: {error}. Install it with `pip install "
                f"'numba-ptxlink[{front_end.extra}]'`, and rename any {front_end.root}.py of your own."
            )
            raise ExportError(f"{cuda_package} could not be imported: {message}") from error
        reason = front_end.unsupported_reason()  # Again: the import may have switched to the simulator.
    if reason is not None:
        raise ExportError(f"{reason}.")
    return front_end


def owner(value: Any) -> FrontEnd | None:
    """
    Return the front end that *value* belongs to; None if it belongs to none.

    Types, signatures, dispatchers, modules, classes and functions belong to the front end that defines them.
    """
    if isinstance(value, ModuleType):
        modules = {value.__name__}
    elif isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        modules = {str(value.__module__)}
    else:
        # The class of an instance may be the program's own, and derive from a class of the front end.
        modules = {str(cls.__module__) for cls in type(value).__mro__}
    return next(filter(None, map(of_module, modules)), None)


@functools.cache
def of_module(name: str) -> FrontEnd | None:
    """Return the front end whose package contains the module *name*, None if there is none."""
    root = name.partition(".")[0]
    return next((front_end for front_end in front_ends() if front_end.root == root), None)


def of_type(ty: Any) -> FrontEnd:
    """
    Return the front end that the Numba type *ty* belongs to.

    Raises:
        AbiError: *ty* is not a Numba type.
    """
    front_end = owner(ty)
    if front_end is None:
        raise AbiError(f"{ty!r} is not a Numba type; use one of numba.types, such as float32.")
    return front_end
