"""Check the calls of closures: functions that are defined within the compiled function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_closure(call: Any, callee: Any, loc: Any, args: Sequence[Any]) -> None:
    """
    Refuse a call of a closure that passes keyword arguments, or only some of the arguments with defaults.

    The compilers ignore keyword arguments, and append all defaults to the arguments of the call. With
    `def f(x, y=1, z=2)`, the call `f(5, 6)` passes 5, 6, 1 and 2, so that z would be 1 without an error.

    Args:
        call: The expression in Numba IR.
        callee: The called function: for a closure, an expression in Numba IR; else a Python function.
        loc: The location of the call.
        args: The arguments of the call, with the defaults that the compiler has appended.

    Raises:
        ExportError: The closure would get other values than in Python. The message names the line.
    """
    # Only the expression of a closure has this attribute.
    code = getattr(callee, "code", None)
    if call.op != "call" or code is None:
        return
    # The closure gets the right values if the call has all arguments, or lacks exactly those with defaults.
    if call.kws or code.co_argcount not in (len(call.args), len(args)):
        raise ExportError(
            f"{Path(loc.filename).name}:{loc.line}: the closure {code.co_name!r} is called with keyword "
            f"arguments, or with another number of arguments than its {code.co_argcount} parameters; pass a "
            "value for each parameter by position, or define the function outside with @cuda.jit(device=True)"
        )
