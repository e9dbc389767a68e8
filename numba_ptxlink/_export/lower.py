"""Lower marked functions: each to LLVM IR that depends on no other, with its C function around it."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi.header import CFunction
from numba_ptxlink.errors import ExportError

from . import reasons
from .signatures import describe

if TYPE_CHECKING:
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import LoweredFunction
    from numba_ptxlink._tools.options import Options

    from .signatures import ResolvedFunction


def lower(unit: ResolvedFunction, arch: Arch, options: Options) -> LoweredFunction:
    """
    Return the LLVM IR of *unit*.

    Raises:
        AbiError: Its name or types have no counterpart in C.
        ExportError: The front end refused it.
    """
    front_end, udf, result = unit.front_end, unit.udf, unit.result
    void = front_end.types.void
    if udf.is_kernel and result is None:
        result = void
    # Refused before the compiler runs, as far as the result is known.
    unit.c_signature(unit.args, void if result is None else result)
    accepted = False

    def declare(args: tuple[Any, ...], result: Any, /, *, raises: bool) -> CFunction:
        nonlocal accepted
        accepted = True
        return CFunction(
            signature=unit.c_signature(args, result),
            python=describe(unit),
            doc=inspect.getdoc(udf.function) or "",
            location=udf.location,
            errors=_errors(unit) if raises else "",
            namespace=udf.cxx.namespace,
            name=udf.function.__name__,
        )

    try:
        return front_end.lower(
            udf.function,
            unit.args,
            result,
            arch=arch,
            options=options,
            abi=udf.options,
            declare=declare,
            inline=options.opt_level > 0,
            launch_bounds=udf.launch_bounds,
        )
    except Exception as error:
        if accepted:
            raise
        reason = reasons.reason(udf.function, error)
        raise ExportError(f"{front_end.name} could not compile {udf.name} for {arch.sm}: {reason}") from error


def _errors(unit: ResolvedFunction) -> str:
    options = unit.udf.options
    does = "returns" if unit.udf.is_kernel else "returns zero"
    does = "stops the kernel" if options.on_error == "trap" else does
    checks = "are checked" if options.checked else "are not checked"
    return f"Where it raises, it {does}. Division by zero and indices {checks}."
