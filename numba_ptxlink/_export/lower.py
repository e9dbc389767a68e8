"""Lower each marked function to a separate LLVM module, with a wrapper that has the C ABI."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from numba_ptxlink._cabi.header import CFunction
from numba_ptxlink.errors import ExportError

from . import reasons
from .signatures import spell_signature

if TYPE_CHECKING:
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.lowered import LoweredFunction
    from numba_ptxlink._tools.options import Options

    from .signatures import ResolvedFunction


def lower(resolved: ResolvedFunction, arch: Arch, options: Options) -> LoweredFunction:
    """
    Return the LLVM IR of *resolved* for one architecture.

    Raises:
        AbiError: The name or a type has no counterpart in C.
        ExportError: The front end refused the function.
    """
    front_end, udf, result = resolved.front_end, resolved.udf, resolved.result
    void = front_end.types.void
    if udf.is_kernel and result is None:
        result = void
    # Check the types before the compiler runs; a result type that it infers is checked by `declare`.
    resolved.c_signature(resolved.args, void if result is None else result)
    # A front end calls `declare` when it has accepted the function. The author of the function did not cause
    # later errors: raise these unchanged.
    was_accepted = False

    def declare(args: tuple[Any, ...], result: Any, /, *, raises: bool) -> CFunction:
        nonlocal was_accepted
        was_accepted = True
        return CFunction(
            signature=resolved.c_signature(args, result),
            python_signature=spell_signature(resolved),
            doc=inspect.getdoc(udf.function) or "",
            location=udf.location,
            errors=_describe_errors(resolved) if raises else "",
            namespace=udf.cxx.namespace,
            name=udf.function.__name__,
        )

    try:
        return front_end.lower(
            udf.function,
            resolved.args,
            result,
            arch=arch,
            options=options,
            abi=udf.abi_options,
            declare=declare,
            inline=options.opt_level > 0,  # Into the wrapper that has the C ABI.
            launch_bounds=udf.launch_bounds,
        )
    except Exception as error:
        if was_accepted:
            raise
        reason = reasons.explain(udf.function, error)
        raise ExportError(f"{front_end.name} could not compile {udf.name} for {arch.sm}: {reason}") from error


def _describe_errors(resolved: ResolvedFunction) -> str:
    """Return the sentences of the header's comment on what an exception in the function does."""
    options = resolved.udf.abi_options
    if options.on_error == "trap":
        effect = "stops the kernel"
    else:
        effect = "returns" if resolved.udf.is_kernel else "returns zero"
    checks = "are checked" if options.checked else "are not checked"
    return f"Where it raises, it {effect}. Division by zero and indices {checks}."
