"""`cuda.compile` and `compile_ptx` with the C ABI of this package: by value, by nvcc's prototypes."""

from __future__ import annotations

import functools
import inspect
import logging
import re
from typing import Any

from numba_ptxlink._formats.kinds import CUBIN, FATBIN, LTOIR, PTX
from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import NotLoweredError
from numba_ptxlink._numba_cuda_mlir.requests import requested_cc
from numba_ptxlink.errors import AbiError

log = logging.getLogger(__name__)

_OUTPUTS = (PTX, LTOIR, CUBIN, FATBIN)
# What only this package makes of `abi_info`: nothing else can stand in for it.
_OURS = ("aggregates", "on_error", "checked")


class _NoCTypeError(Exception):
    """A type of the function has no counterpart in C; the cause says which one."""


def _wrap_compile(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - numba-cuda-mlir's name for it
        from numba_ptxlink._tools import packages

        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        with packages.explaining():
            if _is_ours(given):
                try:
                    return _compile_c(given)
                except _NoCTypeError as error:
                    log.info("%s Compiled as numba-cuda-mlir passes values.", error.__cause__)
                    if given["output"] in (CUBIN, FATBIN):
                        return _assembled(original, given)
            return original(*args, **kwargs)

    return compile


def _is_ours(given: dict[str, Any]) -> bool:
    """Return whether the C ABI of this package is asked for; all else is numba-cuda-mlir's."""
    if given["abi"] != "c" or given["output"] not in _OUTPUTS or given["sig"] is None:
        return False
    if given["forceinline"] and given["output"] != LTOIR:
        return False
    abi_info = given["abi_info"]
    # Only callers of this package's C ABI set abi_info for a kernel: without it, that is refused.
    if not given["device"] and abi_info is None:
        return False
    flat = isinstance(abi_info, dict) and abi_info.get("aggregates") == "flat"
    if not (given["debug"] or flat):
        return True
    _check_alien(abi_info, 'aggregates="flat"' if flat else "debug=True")
    if given["debug"]:
        log.info("debug=True: numba-cuda-mlir passes and returns values in its own way")
    return False


def _check_alien(abi_info: Any, why: str) -> None:
    """Check that *abi_info* asks numba-cuda-mlir's own C ABI for nothing that it lacks."""
    from numba_ptxlink import abi

    info = abi.AbiOptions.of_compile(abi_info)
    asked = [key for key in ("on_error", "checked") if getattr(info, key) != getattr(abi.AbiOptions, key)]
    if asked:
        raise AbiError(
            f"abi_info asks for {' and '.join(asked)}, which numba-cuda-mlir lacks with {why}; leave one of "
            "them out."
        )


def _compile_c(given: dict[str, Any]) -> tuple[Any, Any]:
    from numba_ptxlink import abi
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.options import launch_bounds
    from numba_ptxlink._export import build
    from numba_ptxlink._export.signatures import record_names
    from numba_ptxlink._front_end import registry

    front_end = registry.get("numba-cuda-mlir")
    info, output = abi.AbiOptions.of_compile(given["abi_info"]), given["output"]
    function = getattr(given["pyfunc"], "py_func", given["pyfunc"])
    options = _options(given)
    arch = Arch.of(given["cc"] or _device_cc())
    args, result = front_end.normalize(given["sig"])
    name, kernel, bounds = info.abi_name or _default_name(function), not given["device"], None
    if kernel:
        bounds = launch_bounds(given["launch_bounds"], f"kernel {name}")
    else:
        # Its decorator checks what it does not use.
        front_end.dispatcher(function, launch_bounds=given["launch_bounds"], device=True)
    try:
        lowered = front_end.lower(function, args, result, arch=arch, options=options, abi=info)
    except NotLoweredError as error:
        error.report()
        raise
    labeled = list(zip(_labels(function, len(args)), lowered.args, strict=True))
    names = record_names(function, front_end)
    try:
        signature = abi.c_signature(name, lowered.result, labeled, kernel=kernel, names=names)
    except AbiError as error:
        if kernel or any(key in (given["abi_info"] or {}) for key in _OURS):
            raise
        raise _NoCTypeError from error
    if output != LTOIR:
        abi.check_ptx(signature, "output='ltoir'")
    front_end.wrap(lowered, signature, info, inline=options.opt or given["forceinline"], launch_bounds=bounds)
    portable = build.portable(front_end, lowered, signature, arch)
    compiled = build.Compiled(front_end, arch, (function,), (portable,))
    kinds = {PTX, LTOIR} if output == FATBIN and not kernel else {LTOIR if output == LTOIR else PTX}
    artifacts = build.build(compiled, kinds, options, dispensable={LTOIR} - {output}).artifacts
    if output in (CUBIN, FATBIN):
        return _binary(artifacts, arch, options, output, relocatable=not kernel), lowered.result
    code: bytes = artifacts[output]
    return (code.decode() if output == PTX else code), lowered.result


def _assembled(original: Any, given: dict[str, Any]) -> tuple[Any, Any]:
    """Return the PTX of numba-cuda-mlir, which makes no other code for drivers, as what is asked for."""
    from numba_ptxlink._arch import Arch

    cc = given["cc"] or _device_cc()
    ptx, result = original(**{**given, "cc": cc, "output": PTX})
    artifacts = {PTX: ptx.encode()}
    return _binary(artifacts, Arch.of(cc), _options(given), given["output"], relocatable=True), result


def _options(given: dict[str, Any]) -> Any:
    from numba_cuda_mlir.numba_cuda.core import config

    from numba_ptxlink._front_end.protocol import CompileOptions

    opt = config.OPT != 0 if given["opt"] is None else bool(given["opt"])
    return CompileOptions(opt, bool(given["fastmath"]), bool(given["lineinfo"]))


def _device_cc() -> tuple[int, int]:
    from numba_cuda_mlir import tools

    cc: tuple[int, int] = requested_cc({}) or tools.get_gpu_compute_capability(tuple)
    return cc


def _default_name(function: Any) -> str:
    # As numba-cuda escapes what is no identifier, such as <lambda>.
    name: str = re.sub(r"\W", lambda match: f"_{ord(match[0]):02x}", function.__name__, flags=re.ASCII)
    return name


def _labels(function: Any, count: int) -> list[str]:
    from numba_ptxlink._cabi import names as cnames

    labels: list[str] = []
    for label in list(inspect.signature(function).parameters)[:count]:
        labels.append(cnames.legal(label, labels))
    return labels


def _binary(artifacts: dict[str, bytes], arch: Any, options: Any, output: str, *, relocatable: bool) -> bytes:
    from numba_ptxlink._export import externs
    from numba_ptxlink._formats.ptx import parse
    from numba_ptxlink._link import single_ptx
    from numba_ptxlink._tools import nvfatbin
    from numba_ptxlink._tools.ptxas_options import AssembleOptions

    ptx = artifacts[PTX]
    asked = AssembleOptions(
        # A kernel without undefined symbols can be loaded without linking.
        relocatable=relocatable or bool(externs.undefined(parse(ptx.decode()))),
        opt_level=options.level,
        lineinfo=options.lineinfo,
    )
    cubin, _ = single_ptx.compile_ptx(ptx, arch, asked)
    if output == CUBIN:
        return cubin
    entries = [(PTX, arch, PTX, ptx), (CUBIN, arch, CUBIN, cubin)]
    entries += [(LTOIR, arch, LTOIR, artifacts[LTOIR])] if LTOIR in artifacts else []
    return nvfatbin.pack(entries)


COMPILE = (
    Substitution(
        "numba_cuda_mlir.compiler",
        "compile",
        _wrap_compile,
        '`abi="c"` makes functions, and kernels, with the prototype that C++ declares; as cubins, too.',
        bound="numba_cuda_mlir",
    ),
)
"""The row of `cuda.compile`."""
