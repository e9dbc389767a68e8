"""What `cuda.compile` of a front end makes with the C ABI of this package, where `abi_info` asks for it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numba_ptxlink import abi
from numba_ptxlink._cabi.header import CFunction
from numba_ptxlink._cabi.options import MARKED, launch_bounds
from numba_ptxlink._formats.kinds import LTOIR, PTX
from numba_ptxlink._front_end import registry
from numba_ptxlink._tools import find
from numba_ptxlink._tools.options import DEFAULT_LEVEL, Options
from numba_ptxlink.errors import AbiError, ExportError

from . import link_files, marks
from .choice import decorated, location_of
from .compile import build, compile_functions
from .signatures import record_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._front_end.protocol import FrontEnd

log = logging.getLogger(__name__)

# Options with which a front end compiles alone: for a debugger, and under a name of its dispatcher.
_STOCKS = ("debug", "capi")


def compile_c_abi(
    name: str, given: Mapping[str, Any], arch: Callable[[Mapping[str, Any]], Arch], *, always: bool
) -> tuple[Any, Any] | None:
    """
    Return the code of a function with the C ABI and the type of its result; None where it is stock's.

    Args:
        name: The front end.
        given: The arguments of its `cuda.compile`, by their names.
        arch: Returns the GPU to compile for, by the options of the function's dispatcher.
        always: Whether a name in `abi_info` asks for it, too, as far as there is a C type for each value.

    Raises:
        AbiError: A value of `abi_info` is wrong or goes with no other option, or a type has no C counterpart.
        ExportError: A compiler refused the function.
    """
    info, output = given["abi_info"], given["output"]
    asked = [key for key in (*MARKED, "aggregates") if isinstance(info, Mapping) and key in info]
    if asked and (given["abi"] != "c" or given["sig"] is None):
        raise AbiError(
            f'{asked[0]} in abi_info is for functions with abi="c" and a signature; pass these, or drop it.'
        )
    if given["abi"] != "c" or info is None or output not in (PTX, LTOIR):
        return None
    checked = abi.AbiOptions.of(info)
    # Compilers have no word for these.
    ours = not given["device"] or any(key in info for key in MARKED) or info.get("aggregates") == "value"
    if given["sig"] is None or (given["forceinline"] and output != LTOIR) or not (ours or always):
        return None
    front_end, options = registry.get(name), getattr(given["pyfunc"], "targetoptions", {})
    stocks = [name for name in _STOCKS if options.get(name) or given.get(name)]
    if info.get("aggregates") == "flat":
        stocks.append('aggregates="flat"')
    if stocks and ours:
        raise AbiError(
            f"abi_info does not go with {', '.join(stocks)}, with which {name} passes values in its own way; "
            "leave one of them out."
        )
    if stocks:
        return None
    try:
        with find.explaining():
            return _compiled(front_end, given, options, arch(options), checked)
    except (AbiError, ExportError) as error:
        if ours:
            raise
        log.info("%s Compiled as %s passes values.", error, name)
        return None


def _compiled(
    front_end: FrontEnd,
    given: Mapping[str, Any],
    options: Mapping[str, Any],
    arch: Arch,
    info: abi.AbiOptions,
) -> tuple[Any, Any]:
    output, kernel = given["output"], not given["device"]
    function = decorated(given["pyfunc"]) or given["pyfunc"]
    optimised = options.get("opt_level", 3) != 0 if given["opt"] is None else bool(given["opt"])
    how = Options(
        opt_level=DEFAULT_LEVEL if optimised else 0,
        lineinfo=bool(given["lineinfo"] or options.get("lineinfo")),
        fast_math=bool(given["fastmath"] or options.get("fastmath")),
    )
    args, result = front_end.normalize(given["sig"])
    name = info.abi_name or _default_name(function)
    bounds = options.get("launch_bounds") if given["launch_bounds"] is None else given["launch_bounds"]
    bounds = launch_bounds(bounds, f"kernel {name}") if kernel else None
    inferred = None

    def declare(args: tuple[Any, ...], result: Any, /, *, raises: bool) -> CFunction:  # noqa: ARG001 - as it is called
        nonlocal inferred
        inferred = result
        signature = abi.c_signature(
            name,
            result,
            map(abi.Parameter, marks.parameters(function), args),
            kernel=kernel,
            names=record_names(function, front_end),
        )
        if output != LTOIR:
            abi.check_ptx(signature, "output='ltoir'")
        return CFunction(signature, location=location_of(function))

    ir = front_end.lower(
        function,
        args,
        result,
        arch=arch,
        options=how,
        abi=info,
        declare=declare,
        inline=optimised or given["forceinline"] or options.get("inline") == "always",
        launch_bounds=bounds,
    )
    # What the user's files define is left to the linker: their variables are there once in a program.
    ir = replace(ir, links=tuple(filter(link_files.is_shims, ir.links)))
    code = build(compile_functions(front_end, arch, (ir,), how), {output}, how).artifacts[output]
    return (code.decode() if output == PTX else code), inferred


def _default_name(function: Any) -> str:
    # As compilers escape what is no identifier, such as <lambda>.
    name: str = re.sub(r"\W", lambda match: f"_{ord(match[0]):02x}", function.__name__, flags=re.ASCII)
    return name
