"""
Numba's own entry points with the C ABI of this package: `numba.cuda.compile` and its relatives.

Aggregates default to "flat" here, which keeps the prototypes that existing callers rely on.
"""

from __future__ import annotations

import functools
import inspect
import logging
from typing import TYPE_CHECKING, Any

from numba_ptxlink._formats.kinds import CUBIN, FATBIN, LTOIR, PTX
from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import LibraryNotes, Result, current, entered, notes
from numba_ptxlink.errors import AbiError, ExportError, PtxlinkError

from .driverless import current_cc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numba_ptxlink.abi import AbiOptions

log = logging.getLogger(__name__)

_BINARY = (CUBIN, FATBIN)


def _arguments(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _wrap_compile_pyfunc(original: Any) -> Any:
    @functools.wraps(original)
    def _compile_pyfunc_with_fixup(*args: Any, **kwargs: Any) -> Any:
        from numba.cuda.core.compiler_lock import global_compiler_lock

        from numba_ptxlink.abi import AbiOptions

        arguments = _arguments(original, args, kwargs)
        abi_info = arguments["abi_info"]
        options = AbiOptions.of_compile(abi_info)
        arguments["cc"] = arguments["cc"] or current_cc()
        # Stock numba-cuda rejects kernels with the C ABI; only callers of this package's C ABI set abi_info.
        kernel = not arguments["device"] and abi_info is not None
        if arguments["abi"] != "c" or not (arguments["device"] or kernel):
            library, result = original(**arguments)
            _note(library, arguments["cc"], ())
            return library, result
        # What it relies on, compile_cuda for one, is not restored before it is done.
        with global_compiler_lock:
            return _compile_c(original, arguments, options, kernel=kernel)

    return _compile_pyfunc_with_fixup


def _compile_c(original: Any, given: dict[str, Any], options: AbiOptions, *, kernel: bool) -> Any:
    from llvmlite.ir._utils import DuplicatedNameError
    from numba.cuda.core import config

    from numba_ptxlink._arch import Arch
    from numba_ptxlink._cabi.options import launch_bounds
    from numba_ptxlink._formats.llvm_ir import in_dialect
    from numba_ptxlink._numba_cuda.modules import ordered_modules

    if kernel and given["forceinline"]:
        raise ValueError("Cannot force-inline kernels")
    name = options.abi_name or _default_name(given["pyfunc"])
    bounds = launch_bounds(given["launch_bounds"], f"kernel {name}") if kernel else None
    inner = Result()
    with entered(result=inner, checked=options.checked):
        library, result = original(
            **{**given, "abi": "numba", "abi_info": None, "device": True, "launch_bounds": None}
        )
    compiled = inner.compiled
    if compiled is None:
        # disable() came between the call and the lock.
        return original(**given)
    debug = config.CUDA_DEBUGINFO_DEFAULT if given["debug"] is None else given["debug"]
    opt = (config.OPT != 0) if given["opt"] is None else given["opt"]
    given = {**given, "launch_bounds": bounds}
    try:
        function = _emit(compiled, name, given, options, inline=bool(opt and not debug), kernel=kernel)
    except DuplicatedNameError:
        raise AbiError(f"The function uses another symbol {name!r}; choose another abi_name.") from None
    if given["forceinline"]:
        function.attributes.add("alwaysinline")
    if kernel:
        library._entry_name = name
    library._llvm_strs = in_dialect(ordered_modules([library], [name]), Arch.of(given["cc"]))
    _note(library, given["cc"], () if kernel else (name,))
    return library, result


def _note(library: Any, cc: tuple[Any, ...], symbols: tuple[str, ...]) -> None:
    notes(library, LibraryNotes).cc = cc
    outer = current().result
    if outer is not None:
        outer.library, outer.cc, outer.symbols = library, cc, symbols


def _emit(
    compiled: Any, name: str, given: Mapping[str, Any], options: AbiOptions, *, inline: bool, kernel: bool
) -> Any:
    from numba_ptxlink import abi
    from numba_ptxlink._export import marks
    from numba_ptxlink._export.signatures import record_names
    from numba_ptxlink._front_end import registry
    from numba_ptxlink._numba_cuda.codegen import wrapper

    aggregates = (given["abi_info"] or {}).get("aggregates")
    # No caller relies on the flat prototype of a kernel: stock numba-cuda rejects kernels with the C ABI.
    if aggregates == "value" or (kernel and aggregates is None):
        function = getattr(given["pyfunc"], "py_func", given["pyfunc"])
        signature = abi.c_signature(
            name,
            compiled.signature.return_type,
            zip(marks.parameters(function), compiled.signature.args, strict=True),
            kernel=kernel,
            names=record_names(function, registry.get("numba-cuda")),
        )
        if not given["lto"]:
            abi.check_ptx(signature, "output='ltoir'")
        bounds = given["launch_bounds"]
        return wrapper.emit(compiled, signature, options, inline=inline, launch_bounds=bounds)
    if kernel:
        raise AbiError(f'Kernel {name} cannot have aggregates="flat"; leave it out, or say "value".')
    return wrapper.emit_flat(compiled, name, options, inline=inline)


def _default_name(function: Any) -> str:
    from numba.cuda import itanium_mangler

    name: str = itanium_mangler.escape_string(function.__qualname__.rpartition(".")[2])
    return name


def _wrap_compile(original: Any) -> Any:
    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - Numba's name for it
        from numba_ptxlink._tools import find

        arguments = _arguments(original, args, kwargs)
        output, outcome = arguments["output"], Result()
        with find.explaining(), entered(result=outcome):
            code, result = original(**{**arguments, "output": PTX if output in _BINARY else output})
            if arguments["abi"] == "c":
                code = _resolved(code, outcome) if output in _BINARY else _resolved_if_possible(code, outcome)
        if output not in _BINARY:
            return code, result
        ltoir, again = b"", Result()
        if output == FATBIN and arguments["device"]:
            with entered(result=again):
                ltoir, _ = original(**{**arguments, "output": LTOIR})
                ltoir = _ltoir_for_fatbin(ltoir, again) if arguments["abi"] == "c" else ltoir
        if outcome.library is None or (ltoir and again.library is None):
            # disable() has restored the functions that this one calls: numba-cuda's answer is due.
            return original(**arguments)
        return _binary(code, arguments, output, ltoir, outcome.cc), result

    return compile


def _resolved(code: Any, made: Result) -> Any:
    """Return PTX or LTO-IR with what Numba brings for it merged in."""
    from numba_ptxlink._numba_cuda.resolve import resolve

    if made.library is None or not made.library._linking_files:
        return code
    return resolve(made.library, code, made.cc, made.symbols)


def _resolved_if_possible(code: Any, made: Result) -> Any:
    """Return the same, or numba-cuda's own answer, with a warning, where the toolkit cannot merge it."""
    try:
        return _resolved(code, made)
    except PtxlinkError as error:
        log.warning(
            "%s is left as numba-cuda compiles it, without the CUDA C++ of Numba that it calls: %s",
            ", ".join(made.symbols) or "the kernel",
            error,
        )
        return code


def _ltoir_for_fatbin(ltoir: bytes, made: Result) -> bytes:
    """Return the same of LTO-IR, or nothing, with a warning, where the toolkit cannot merge it."""
    from numba_ptxlink._tools import nvjitlink

    try:
        merged: bytes = _resolved(ltoir, made)
    except ExportError as error:
        if nvjitlink.merges_ltoir():
            raise
        log.warning("the fat binary has no LTO-IR: %s", error)
        return b""
    return merged


def _binary(ptx: str, given: Mapping[str, Any], output: str, ltoir: bytes, cc: tuple[Any, ...]) -> bytes:
    from numba_ptxlink._arch import Arch
    from numba_ptxlink._export.binary import binary

    level = 0 if given["debug"] or given["opt"] is False else 3
    options = {"opt_level": level, "debug": bool(given["debug"]), "lineinfo": given["lineinfo"]}
    return binary(ptx.encode(), Arch.of(cc), output, device=given["device"], ltoir=ltoir, **options)


def _wrap_compile_cuda(original: Any) -> Any:
    @functools.wraps(original)
    def compile_cuda(*args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)
        result = current().result
        if result is not None:
            # Its device functions are compiled earlier, so the last assignment is the outermost function.
            result.compiled = compiled
        return compiled

    return compile_cuda


SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.compiler",
        "compile_cuda",
        _wrap_compile_cuda,
        "What Numba compiled is handed to the functions around it, which add a C function to it.",
        purpose="C ABI",
    ),
    Substitution(
        "numba.cuda.compiler",
        "_compile_pyfunc_with_fixup",
        _wrap_compile_pyfunc,
        '`abi="c"` makes functions, and with `abi_info` kernels, with the prototype that C++ declares.',
        purpose="C ABI",
    ),
    Substitution(
        "numba.cuda.compiler",
        "compile",
        _wrap_compile,
        '`output="cubin"` and `"fatbin"`; the arithmetic of halves is part of code with `abi="c"`.',
        bound="numba.cuda",
        purpose="C ABI",
    ),
)
