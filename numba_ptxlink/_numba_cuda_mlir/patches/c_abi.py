"""`cuda.compile` and `compile_ptx` with the C ABI of this package, where `abi_info` asks for it."""

from __future__ import annotations

import functools
import inspect
import logging
import re
from typing import Any

from numba_ptxlink._formats.kinds import CUBIN, FATBIN, LTOIR, PTX
from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import requested_cc
from numba_ptxlink.errors import AbiError, ExportError

log = logging.getLogger(__name__)

# What only this package makes of `abi_info`: nothing else can stand in for it.
_OURS = ("on_error", "checked")
# Options with which numba-cuda-mlir compiles alone: for a debugger, and under a name of its dispatcher.
_STOCKS = ("debug", "capi")


def _wrap_compile(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - numba-cuda-mlir's name for it
        from numba_ptxlink._tools import find

        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        if bound.arguments["abi_info"] is not None and bound.arguments["abi"] == "c":
            with find.explaining():
                made = _made(bound.arguments)
            if made is not None:
                return made
        return original(*args, **kwargs)

    return compile


def _made(given: dict[str, Any]) -> tuple[Any, Any] | None:
    """
    Return the code of a function with the C ABI and the type of its result; None where it is stock's.

    Args:
        given: The arguments of `cuda.compile` by their names.
    """
    from numba_ptxlink import abi

    if given["output"] not in (PTX, LTOIR, CUBIN, FATBIN) or given["sig"] is None:
        return None
    if given["forceinline"] and given["output"] != LTOIR:
        return None
    info = abi.AbiOptions.of_compile(given["abi_info"])
    options = getattr(given["pyfunc"], "targetoptions", {})
    # numba-cuda-mlir has no word for these, and refuses these outputs itself.
    ours = given["output"] in (CUBIN, FATBIN) or not given["device"]
    ours |= any(key in given["abi_info"] for key in _OURS) or given["abi_info"].get("aggregates") == "value"
    stocks = [name for name in _STOCKS if options.get(name) or given.get(name)]
    if given["abi_info"].get("aggregates") == "flat":
        stocks.append('aggregates="flat"')
    if stocks and ours:
        raise AbiError(
            f"abi_info does not go with {', '.join(stocks)}, with which numba-cuda-mlir passes values in its "
            "own way; leave one of them out."
        )
    if stocks:
        return None
    try:
        return _compile_c(given, options, info)
    except (AbiError, ExportError) as error:
        if ours:
            raise
        log.info("%s Compiled as numba-cuda-mlir passes values.", error)
        return None


def _compile_c(given: dict[str, Any], options: dict[str, Any], info: Any) -> tuple[Any, Any]:
    from numba_cuda_mlir import tools

    from numba_ptxlink import abi
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.options import launch_bounds
    from numba_ptxlink._export import build, marks
    from numba_ptxlink._export.binary import binary
    from numba_ptxlink._export.signatures import record_names
    from numba_ptxlink._front_end import registry
    from numba_ptxlink._front_end.protocol import CompileOptions
    from numba_ptxlink._tools.options import register_limit

    front_end, output, kernel = registry.get("numba-cuda-mlir"), given["output"], not given["device"]
    function = getattr(given["pyfunc"], "py_func", given["pyfunc"])
    requested = given["cc"] or options.get("chip") or options.get("cc")
    arch = Arch.of(requested or requested_cc({}) or tools.get_gpu_compute_capability(tuple))
    optimised = options.get("opt_level", 3) != 0 if given["opt"] is None else bool(given["opt"])
    how = CompileOptions(
        optimised,
        bool(given["fastmath"] or options.get("fastmath")),
        bool(given["lineinfo"] or options.get("lineinfo")),
    )
    args, result = front_end.normalize(given["sig"])
    name = info.abi_name or _default_name(function)
    bounds = options.get("launch_bounds") if given["launch_bounds"] is None else given["launch_bounds"]
    bounds = launch_bounds(bounds, f"kernel {name}") if kernel else None
    lowered = front_end.lower(function, args, result, arch=arch, options=how, abi=info)
    signature = abi.c_signature(
        name,
        lowered.result,
        zip(marks.parameters(function), lowered.args, strict=False),
        kernel=kernel,
        names=record_names(function, front_end),
    )
    if output != LTOIR:
        abi.check_ptx(signature, "output='ltoir'")
    inline = optimised or given["forceinline"] or options.get("inline") == "always"
    front_end.wrap(lowered, signature, info, inline=inline, launch_bounds=bounds)
    portable = (build.portable(front_end, lowered, signature, arch),)
    program = build.Compiled(front_end, arch, (function,), portable)
    kinds = {PTX, LTOIR} if output == FATBIN and not kernel else {LTOIR if output == LTOIR else PTX}
    artifacts = build.build(program, kinds, how, dispensable={LTOIR} - {output}).artifacts
    if output in (CUBIN, FATBIN):
        flags = options.get("ptxas_options")
        code = binary(
            artifacts[PTX],
            arch,
            output,
            device=not kernel,
            ltoir=artifacts.get(LTOIR),
            opt_level=how.level,
            lineinfo=how.lineinfo,
            max_registers=register_limit(options.get("max_registers")),
            extra_flags=(flags,) if flags else (),
        )
        return code, lowered.result
    code = artifacts[output]
    return (code.decode() if output == PTX else code), lowered.result


def _default_name(function: Any) -> str:
    # As numba-cuda escapes what is no identifier, such as <lambda>.
    name: str = re.sub(r"\W", lambda match: f"_{ord(match[0]):02x}", function.__name__, flags=re.ASCII)
    return name


SUBSTITUTIONS = (
    Substitution(
        "numba_cuda_mlir.compiler",
        "compile",
        _wrap_compile,
        "With `abi_info`, functions have the prototype that C++ declares; kernels, cubins and fat binaries "
        "are made, too.",
        bound="numba_cuda_mlir",
        purpose="C ABI",
    ),
)
