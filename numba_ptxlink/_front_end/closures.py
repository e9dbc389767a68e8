"""Check calls of functions that are defined within the compiled function."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from numba_ptxlink.errors import ExportError

if TYPE_CHECKING:
    from collections.abc import Sequence


def check_closure(call: Any, callee: Any, loc: Any, args: Sequence[Any]) -> None:
    """
    Refuse a call of a closure that has keyword arguments, or that leaves parameters to their defaults.

    The compilers match arguments and defaults only by position, so that such a call would silently pass other
    values.

    Args:
        call: The expression in Numba IR.
        callee: The called function.
        loc: The location of the call.
        args: The arguments that the compiler passes to the closure.

    Raises:
        ExportError: The call has keyword arguments, or lacks arguments. Names its line.
    """
    code = getattr(callee, "code", None)
    if call.op != "call" or code is None:
        return
    if call.kws or code.co_argcount not in (len(call.args), len(args)):
        raise ExportError(
            f"{Path(loc.filename).name}:{loc.line}: the closure {code.co_name!r} is called with keyword "
            f"arguments, or with another number of arguments than its {code.co_argcount} parameters; pass a "
            "value for each parameter by position, or define the function outside with @cuda.jit(device=True)"
        )
