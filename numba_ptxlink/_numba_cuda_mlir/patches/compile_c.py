"""`cuda.compile` and `compile_ptx` with the C ABI of this package: by value, by nvcc's prototypes."""

from __future__ import annotations

import functools
import inspect
import logging
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.kinds import CUBIN, FATBIN, LTOIR, PTX
from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import NotLoweredError
from numba_ptxlink._numba_cuda_mlir.requests import requested_cc
from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

_OUTPUTS = (PTX, LTOIR, CUBIN, FATBIN)
# What only this package makes of `abi_info`: nothing else can stand in for it.
_OURS = ("aggregates", "on_error", "checked")
# The arguments of `cuda.compile` that are options of `cuda.jit`: with values, and such that are on or off.
_VALUES = ("abi_info", "debug", "launch_bounds", "opt")
_SWITCHES = ("fastmath", "lineinfo")
_CHECKED = ("debug", "fastmath", "lineinfo", "opt")


class _NoCTypeError(Exception):
    """A type of the function has no counterpart in C; the cause says which one."""


def _wrap_compile(original: Any) -> Any:
    """Make the binaries and the kernels that numba-cuda-mlir refuses, before it does."""
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - numba-cuda-mlir's name for it
        from numba_ptxlink._tools import packages

        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        if given["output"] in (CUBIN, FATBIN) or not given["device"]:
            with packages.explaining():
                made = _made(given, functools.partial(_original_ptx, original, given))
            if made is not None:
                return made
        return original(*args, **kwargs)

    return compile


def _wrap_compile_and_optimize(original: Any) -> Any:
    """Make PTX and LTO-IR, for all that hold `cuda.compile`, wherever they have it from."""

    @functools.wraps(original)
    def _compile_and_optimize(pyfunc: Any, sig: Any = None, targetoptions: Any = None) -> Any:
        from numba_ptxlink._tools import packages

        options = targetoptions or {}
        # Without an output, the MLIR or a cubin is wanted.
        if "_compile_output" in options and "abi" not in options:
            names = ("abi_info", "cc", "debug", "fastmath", "launch_bounds", "lineinfo", "opt")
            given = {
                **{name: options.get(name) for name in names},
                "pyfunc": pyfunc,
                "sig": sig,
                "abi": "c",
                "device": options.get("device", False),
                "forceinline": options.get("inline") == "always",
                "output": options["_compile_output"],
            }
            with packages.explaining():
                made = _made(given)
            if made is not None:
                code, result = made
                signature = SimpleNamespace(return_type=result)
                return SimpleNamespace(ptx=code, metadata={"ltoir": code}, signature=signature)
        return original(pyfunc, sig, targetoptions)

    return _compile_and_optimize


def _made(given: dict[str, Any], stock: Callable[[tuple[int, int]], tuple[str, Any]] | None = None) -> Any:
    """
    Return the code of a function with the C ABI and the type of its result; None where it is stock's.

    Args:
        given: The arguments of `cuda.compile` by their names.
        stock: Returns the PTX of numba-cuda-mlir, and the type of the result, for an architecture.
    """
    if not _may_be_ours(given):
        return None
    asked = _asked(given)
    if not _is_ours(given, asked):
        return None
    try:
        return _compile_c(given, asked)
    except _NoCTypeError as error:
        log.info("%s Compiled as numba-cuda-mlir passes values.", error.__cause__)
        return None if stock is None else _assembled(stock, given, asked)


def _original_ptx(original: Any, given: dict[str, Any], cc: tuple[int, int]) -> tuple[str, Any]:
    ptx, result = original(**{**given, "cc": given["cc"] or cc, "output": PTX})
    return ptx, result


def _may_be_ours(given: dict[str, Any]) -> bool:
    """Return whether the C ABI is asked for; all else is numba-cuda-mlir's."""
    if given["abi"] != "c" or given["output"] not in _OUTPUTS or given["sig"] is None:
        return False
    return given["output"] == LTOIR or not given["forceinline"]


def _asked(given: dict[str, Any]) -> dict[str, Any]:
    """
    Return the options that are asked for, by the names that `cuda.jit` has for them.

    What the call of `cuda.compile` gives wins over what a dispatcher has, and both over the defaults.
    """
    from numba_cuda_mlir import cuda
    from numba_cuda_mlir.descriptor import MLIRDispatcher

    function, asked = given["pyfunc"], {}
    if isinstance(function, MLIRDispatcher):
        asked = {**function.targetoptions, "opt": function.targetoptions["opt_level"] != 0}
    asked.update({name: given[name] for name in _VALUES if given[name] is not None})
    asked.update(dict.fromkeys((name for name in _SWITCHES if given[name]), True))
    if not asked.get("debug"):
        # Some defaults are settings, or depend on what the function uses. Annotations may be for readers.
        checked = {name: asked[name] for name in _CHECKED if name in asked}
        if given["device"] and "launch_bounds" in asked:
            # It checks what it does not use.
            checked["launch_bounds"] = asked["launch_bounds"]
        jit = cuda.jit(device=given["device"], annotations_as_signatures=False, **checked)
        defaults = jit(_python_function(function)).targetoptions
        asked = {**defaults, **asked, "opt": defaults["opt_level"] != 0}
    return {"abi_info": None, **asked, "arch": given["cc"] or asked.get("chip") or asked.get("cc")}


def _is_ours(given: dict[str, Any], asked: dict[str, Any]) -> bool:
    """Return whether the C ABI of this package serves what is asked for."""
    abi_info = asked["abi_info"]
    # Only callers of this package's C ABI set abi_info for a kernel: without it, that is refused.
    if not given["device"] and abi_info is None:
        return False
    flat = isinstance(abi_info, dict) and abi_info.get("aggregates") == "flat"
    if not (asked["debug"] or flat):
        return True
    _check_alien(abi_info, 'aggregates="flat"' if flat else "debug=True")
    if asked["debug"]:
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


def _compile_c(given: dict[str, Any], asked: dict[str, Any]) -> tuple[Any, Any]:
    from numba_ptxlink import abi
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.options import launch_bounds
    from numba_ptxlink._export import build
    from numba_ptxlink._front_end import registry
    from numba_ptxlink._numba_cuda_mlir.compile import lower

    front_end = registry.get("numba-cuda-mlir")
    info, output = abi.AbiOptions.of_compile(asked["abi_info"]), given["output"]
    function, kernel = _python_function(given["pyfunc"]), not given["device"]
    options, arch = _options(asked), Arch.of(asked["arch"] or _device_cc())
    args, result = front_end.normalize(given["sig"])
    compiled: list[tuple[Any, Any]] = []
    for name in _symbols(function, info.abi_name, asked.get("capi")):
        bounds = launch_bounds(asked["launch_bounds"], f"kernel {name}") if kernel else None
        try:
            lowered = lower(function, args, result, arch, options, info, asked)
        except NotLoweredError as error:
            error.report()
            raise
        try:
            signature = _signature(name, function, lowered, kernel=kernel)
        except AbiError as error:
            if kernel or any(key in (asked["abi_info"] or {}) for key in _OURS):
                raise
            raise _NoCTypeError from error
        if output != LTOIR:
            abi.check_ptx(signature, "output='ltoir'")
        inline = options.opt or given["forceinline"] or asked["inline"] == "always"
        front_end.wrap(lowered, signature, info, inline=inline, launch_bounds=bounds)
        compiled.append((lowered, signature))
    result = compiled[0][0].result
    portable = tuple(build.portable(front_end, *each, arch) for each in compiled)
    program = build.Compiled(front_end, arch, (function,) * len(portable), portable)
    kinds = {PTX, LTOIR} if output == FATBIN and not kernel else {LTOIR if output == LTOIR else PTX}
    artifacts = build.build(program, kinds, options, dispensable={LTOIR} - {output}).artifacts
    if output in (CUBIN, FATBIN):
        return _binary(artifacts, arch, asked, output, relocatable=not kernel), result
    code: bytes = artifacts[output]
    return (code.decode() if output == PTX else code), result


def _symbols(function: Any, abi_name: str | None, capi: Any) -> list[str]:
    """Return the names that the function gets; numba-cuda-mlir clones what has two."""
    own = _default_name(function)
    names = [name for name in (abi_name, own if capi is True else capi) if name]
    return list(dict.fromkeys(names)) or [own]


def _signature(name: str, function: Any, lowered: Any, *, kernel: bool) -> Any:
    from numba_ptxlink import abi
    from numba_ptxlink._export.signatures import record_names
    from numba_ptxlink._front_end import registry

    labeled = list(zip(_labels(function, len(lowered.args)), lowered.args, strict=True))
    names = record_names(function, registry.get("numba-cuda-mlir"))
    return abi.c_signature(name, lowered.result, labeled, kernel=kernel, names=names)


def _assembled(
    stock: Callable[[tuple[int, int]], tuple[str, Any]], given: dict[str, Any], asked: dict[str, Any]
) -> tuple[Any, Any]:
    """Return the PTX of numba-cuda-mlir, which makes no other code for drivers, as what is asked for."""
    from numba_ptxlink._arch import Arch

    arch = Arch.of(asked["arch"] or _device_cc())
    ptx, result = stock(arch.cc)
    return _binary({PTX: ptx.encode()}, arch, asked, given["output"], relocatable=True), result


def _options(asked: dict[str, Any]) -> Any:
    from numba_ptxlink._front_end.protocol import CompileOptions

    return CompileOptions(bool(asked["opt"]), bool(asked["fastmath"]), bool(asked["lineinfo"]))


def _python_function(function: Any) -> Any:
    return getattr(function, "py_func", function)


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


def _binary(
    artifacts: dict[str, bytes], arch: Any, asked: dict[str, Any], output: str, *, relocatable: bool
) -> bytes:
    from numba_ptxlink._export import externs
    from numba_ptxlink._formats.ptx import parse
    from numba_ptxlink._link import single_ptx
    from numba_ptxlink._tools import nvfatbin
    from numba_ptxlink._tools.ptxas_options import AssembleOptions, register_limit

    ptx, options = artifacts[PTX], _options(asked)
    assembly = AssembleOptions(
        # A kernel without undefined symbols can be loaded without linking.
        relocatable=relocatable or not externs.is_complete(parse(ptx.decode())),
        opt_level=options.level,
        lineinfo=options.lineinfo,
        max_registers=register_limit(asked.get("max_registers")),
        extra_flags=(asked["ptxas_options"],) if asked.get("ptxas_options") else (),
    )
    cubin, _ = single_ptx.compile_ptx(ptx, arch, assembly)
    if output == CUBIN:
        return cubin
    entries = [(PTX, arch, PTX, ptx), (CUBIN, arch, CUBIN, cubin)]
    entries += [(LTOIR, arch, LTOIR, artifacts[LTOIR])] if LTOIR in artifacts else []
    return nvfatbin.pack(entries)


_MODULE = "numba_cuda_mlir.compiler"

COMPILE = (
    Substitution(
        _MODULE,
        "_compile_and_optimize",
        _wrap_compile_and_optimize,
        '`cuda.compile` with `abi="c"` makes functions with the prototype that C++ declares.',
    ),
    Substitution(
        _MODULE,
        "compile",
        _wrap_compile,
        '`output="cubin"` and `"fatbin"`; with `abi="c"` and `abi_info`, kernels, too.',
        bound="numba_cuda_mlir",
    ),
)
"""The rows of `cuda.compile`."""
