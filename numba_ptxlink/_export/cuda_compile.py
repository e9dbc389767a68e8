"""Compile for a front end's `cuda.compile` with this package's C ABI, if `abi_info` or the caller asks."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._cabi.header import CFunction
from numba_ptxlink._cabi.options import DECORATOR_OPTIONS, checked_launch_bounds
from numba_ptxlink._formats.kinds import LTOIR, PTX
from numba_ptxlink._front_end import registry
from numba_ptxlink._tools import find
from numba_ptxlink._tools.options import DEFAULT_LEVEL, Options
from numba_ptxlink.errors import AbiError, ExportError

from . import link_files, marks
from .choice import location_of, wrapped_function
from .compile import build, compile_lowered
from .signatures import record_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.base import FrontEnd

log = logging.getLogger(__name__)

# Options that only the front end's own `cuda.compile` implements.
_STOCK_OPTIONS = ("debug", "capi")


def compile_c_abi(
    name: str, arguments: Mapping[str, Any], arch_for: Callable[[Mapping[str, Any]], Arch], *, always: bool
) -> tuple[Any, Any] | None:
    """
    Return a function's code with the C ABI and its result type; None to use the front end's own compiler.

    Args:
        name: The name of the front end: "numba-cuda" or "numba-cuda-mlir".
        arguments: The arguments of the front end's `cuda.compile`, by the names of the parameters.
        arch_for: Returns the GPU to compile for, given the options of the function's dispatcher.
        always: Whether to use the C ABI of this package for any `abi_info`. If it then refuses the function,
            for example for a type that C lacks, the front end's own compiler is used.

    Raises:
        AbiError: A value of `abi_info` is wrong or contradicts another option, or a type has no C
            counterpart.
        ExportError: A compiler refused the function.
    """
    abi_info, output = arguments["abi_info"], arguments["output"]
    # The keys of `abi_info` that Numba does not have.
    package_keys = [
        key for key in (*DECORATOR_OPTIONS, "aggregates") if isinstance(abi_info, Mapping) and key in abi_info
    ]
    if package_keys and (arguments["abi"] != "c" or arguments["sig"] is None):
        raise AbiError(
            f'{package_keys[0]} in abi_info is for functions with abi="c" and a signature; pass these, or '
            f"drop {package_keys[0]}."
        )
    if arguments["abi"] != "c" or abi_info is None or output not in (PTX, LTOIR):
        return None
    abi_options = abi.AbiOptions.of(abi_info)
    # Front ends themselves have no kernels with the C ABI, do not know `DECORATOR_OPTIONS` in abi_info, and
    # pass structs as aggregates="flat" does.
    needs_package = (
        not arguments["device"]
        or any(key in abi_info for key in DECORATOR_OPTIONS)
        or abi_info.get("aggregates") == "value"
    )
    # Forced inlining in PTX is left to the front end's own compiler, which raises an error for it.
    if (
        arguments["sig"] is None
        or (arguments["forceinline"] and output != LTOIR)
        or not (needs_package or always)
    ):
        return None
    front_end = registry.get(name)
    dispatcher_options = getattr(arguments["pyfunc"], "targetoptions", {})
    stock_options = [
        option for option in _STOCK_OPTIONS if dispatcher_options.get(option) or arguments.get(option)
    ]
    if abi_info.get("aggregates") == "flat":
        stock_options.append('aggregates="flat"')
    if stock_options and needs_package:
        raise AbiError(
            f"The options in abi_info cannot be combined with {', '.join(stock_options)}, for which {name} "
            "uses its own calling convention; remove one of them."
        )
    if stock_options:
        return None
    try:
        with find.naming_missing_packages():
            arch = arch_for(dispatcher_options)
            return _compile(front_end, arguments, dispatcher_options, arch, abi_options)
    except (AbiError, ExportError) as error:
        if needs_package:
            raise
        log.info("%s Compiled with the calling convention of %s.", error, name)
        return None


def _compile(
    front_end: FrontEnd,
    arguments: Mapping[str, Any],
    dispatcher_options: Mapping[str, Any],
    arch: Arch,
    abi_options: abi.AbiOptions,
) -> tuple[Any, Any]:
    """Return the code, as text or bytes, and the result type; *arguments* is as in `compile_c_abi`."""
    output, is_kernel = arguments["output"], not arguments["device"]
    function = wrapped_function(arguments["pyfunc"]) or arguments["pyfunc"]
    # `opt` of the call decides, or else `opt_level` of the dispatcher, whose default in Numba is 3.
    is_optimised = (
        dispatcher_options.get("opt_level", 3) != 0 if arguments["opt"] is None else bool(arguments["opt"])
    )
    compile_options = Options(
        opt_level=DEFAULT_LEVEL if is_optimised else 0,
        lineinfo=bool(arguments["lineinfo"] or dispatcher_options.get("lineinfo")),
        fast_math=bool(arguments["fastmath"] or dispatcher_options.get("fastmath")),
    )
    args, result = front_end.normalize(arguments["sig"])
    name = abi_options.abi_name or _default_name(function)
    requested_bounds = (
        dispatcher_options.get("launch_bounds")
        if arguments["launch_bounds"] is None
        else arguments["launch_bounds"]
    )
    bounds = checked_launch_bounds(requested_bounds, f"kernel {name}") if is_kernel else None
    result_type = None

    def declare(args: tuple[Any, ...], result: Any, /, *, raises: bool) -> CFunction:  # noqa: ARG001 - as in `Declare`
        nonlocal result_type
        result_type = result
        signature = abi.c_signature(
            name,
            result,
            map(abi.Parameter, marks.parameters(function), args),
            kernel=is_kernel,
            names=record_names(function, front_end),
        )
        if output != LTOIR:
            abi.check_ptx(signature, "output='ltoir'")
        return CFunction(signature, location=location_of(function))

    lowered = front_end.lower(
        function,
        args,
        result,
        arch=arch,
        options=compile_options,
        abi=abi_options,
        declare=declare,
        inline=is_optimised or arguments["forceinline"] or dispatcher_options.get("inline") == "always",
        launch_bounds=bounds,
    )
    # Only shims (functions of Numba that are written in C++) are compiled in. A link file of the user is not:
    # if several functions of a program link it, its variables would exist several times.
    lowered = replace(lowered, links=tuple(filter(link_files.is_shims, lowered.links)))
    code = build(
        compile_lowered(front_end, arch, (lowered,), compile_options), {output}, compile_options
    ).artifacts[output]
    return (code.decode() if output == PTX else code), result_type


def _default_name(function: Any) -> str:
    # Escape characters as the front ends do: "<lambda>" becomes "_3clambda_3e".
    name: str = re.sub(r"\W", lambda match: f"_{ord(match[0]):02x}", function.__name__, flags=re.ASCII)
    return name
