"""A function that calls itself: what is compiled is one that calls it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from . import reached

if TYPE_CHECKING:
    from .marks import Udf


def entry(udf: Udf) -> Any:
    """Return the function to compile for *udf*: one that calls it, if it calls itself."""
    function = udf.function
    callee = None if udf.is_kernel else reached.recursion(function)
    if callee is None:
        return function
    # Numba refuses to compile a function within its own compilation, except one of its own dispatchers.
    name, file = function.__name__, function.__code__.co_filename
    params = ", ".join(f"p{number}" for number, _ in enumerate(inspect.signature(function).parameters))
    source = f"def {name}({params}): return callee({params})"
    scope: dict[str, Any] = {"callee": callee, "__name__": function.__module__}
    exec(compile(source, file, "exec"), scope)  # noqa: S102 - only names are inserted
    caller = scope[name]
    caller.__code__ = caller.__code__.replace(co_firstlineno=function.__code__.co_firstlineno)
    return caller
