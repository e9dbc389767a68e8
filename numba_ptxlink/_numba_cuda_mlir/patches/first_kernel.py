"""Start the first kernel sooner: run MLIR's passes and NVVM once for equal MLIR, and link no unused cubin."""

from __future__ import annotations

import functools
import re
from importlib import metadata
from typing import Any

from numba_ptxlink import cache
from numba_ptxlink._config import config
from numba_ptxlink._front_end.nvvm_unit import compilation_unit
from numba_ptxlink._front_end.patch import PatchTable
from numba_ptxlink._numba_cuda_mlir.context import current_context, override, requested_cc

from . import c_abi

CODE_CACHE = PatchTable("first kernel")
"""
The patch that reads compiled code from the cache, and leaves callees as MLIR, which their callers contain.

Exports apply it, too.
"""
PATCHES = PatchTable("first kernel")
"""The patches that only the plugin applies."""

# The options that determine the passes and NVVM's options. Any other option either changes the MLIR itself,
# or has no effect on the code.
_CODE_OPTIONS = ("chip", "debug", "fastmath", "lineinfo", "opt", "opt_level")
# A definition in MLIR, such as `func.func @f(` and `memref.global "private" @constant_array_3`. Functions
# that are only declared are marked `private`.
_DEFINITION = re.compile(
    r"^\s*(?:(?:func|gpu|llvm)\.func (?!private)|llvm\.mlir\.global |memref\.global )[^@\n]*@([\w.$]+)",
    re.ASCII | re.MULTILINE,
)
# Names that contain an address, of at least 12 digits, or a counter of the process: "static_shared_memory_3".
_PROCESS_DEPENDENT_NAME = re.compile(
    r"\d{12}|^(?:constant_array|static_shared_memory|__numba_cuda_mlir_str)_\d+$", re.ASCII
)
_NAME = re.compile(r"[\w.$]+", re.ASCII)
# A module with a named struct gets no key for the cache: its text lacks the types to which pointers refer.
_NAMED_STRUCT = 'struct<"'
# Options that print intermediate results: a cached result would print nothing.
_PRINTING_OPTIONS = (
    "dump",
    "dump_mlir",
    "dump_llvmir",
    "dump_ptx",
    "dump_cubin",
    "print_before_all",
    "print_after_all",
)


@CODE_CACHE.around("numba_cuda_mlir.mlir_optimization", "optimize")
def _optimize(original: Any, cres: Any) -> None:
    """Read the output of MLIR and NVVM from the cache; name the Python function in errors."""
    from numba_ptxlink._tools import find

    # `cres`, the result of a compilation so far, has the MLIR in its metadata; the original adds the code.
    options = cres.metadata["targetoptions"]
    if current_context().is_lowering and options.get("device"):
        # Skip the step for a callee: its caller contains its MLIR, and compiles it.
        return
    declared_calls = tuple(cres.metadata.get(c_abi.CALLED_KEY, {}).items())
    changes = {
        "cc": requested_cc(options),
        "origin": _origin(cres),
        "parameter_names": _parameter_names(cres),
        "declared_calls": declared_calls,
    }
    with find.naming_missing_packages(), override(**changes):
        # Functions that need Numba's memory manager have callbacks, Python functions, which no entry can
        # contain.
        if not config().cache or _prints_results(options) or cres.metadata.get("needs_nrt"):
            original(cres)
        else:
            _optimize_cached(original, cres)


def _optimize_cached(original: Any, cres: Any) -> None:
    """Restore the results of the original from the cache, or run it; then link the cubin if it is needed."""
    from numba_cuda_mlir.mlir_lowering import get_mlir_module_str

    module = get_mlir_module_str(cres.metadata)
    if _NAMED_STRUCT in module:
        original(cres)
        return
    is_compiled_here = False

    def make() -> cache.Entry:
        nonlocal is_compiled_here
        is_compiled_here = True
        # The cubin is linked below, since links have cache entries of their own.
        with override(needs_cubin=False):
            original(cres)
        return _entry(cres)

    entry = cache.cached(_key(cres, module), make)
    if not is_compiled_here:
        _restore(cres, entry)
    if current_context().needs_cubin:
        cres.metadata["cubin"] = _linker(cres).complete().code


def _entry(cres: Any) -> cache.Entry:
    """Return an entry of the cache: the optimised MLIR of a function, followed by its LTO-IR or PTX."""
    results = cres.metadata
    code = results["ltoir"] if _is_lto(cres) else results["ptx"].encode()
    optimized = results["mlir_module_optimized"].encode()
    return cache.Entry({"log": "", "mlir": len(optimized)}, optimized + code)


def _restore(cres: Any, entry: cache.Entry) -> None:
    """Set the results that the original sets, except for the cubin, from *entry*."""
    from numba_cuda_mlir import mlir_optimization

    results = cres.metadata
    mlir_size = entry.meta["mlir"]
    optimized, code = entry.code[:mlir_size].decode(), entry.code[mlir_size:]
    results["mlir_module_optimized"] = optimized
    results["cubin"] = None
    if _is_lto(cres):
        results["ltoir"], results["ptx"] = code, ""
    else:
        results["ptx"] = code.decode()
    fndesc = cres.fndesc
    results["func_name"] = mlir_optimization.generate_mangled_name(fndesc.qualname, fndesc.argtypes)
    cres.library._ptx, cres.library._mlir_str = results["ptx"], optimized


def _linker(cres: Any) -> Any:
    """Return a linker with the function's code and its link files, as the original creates it."""
    file_linker = cres.metadata["linker"]
    if _is_lto(cres):
        return file_linker.recreate_with_lto(kernel_ltoir=cres.metadata["ltoir"])
    # Copy the linker with its files. The method's default switches LTO on, even though the kernel is PTX;
    # the original calls it in the same way.
    linker = file_linker.recreate_with_lto()
    linker.add_ptx(cres.metadata["ptx"].encode())
    return linker


def _is_lto(cres: Any) -> bool:
    """Return whether the original compiles the function to LTO-IR, and not to PTX."""
    plan, options = cres.metadata.get("link_plan"), cres.metadata["targetoptions"]
    if plan is not None:
        return bool(plan.compile_new_inputs_as_ltoir)
    return bool(options.get("lto") or options.get("_compile_output") == "ltoir")


def _prints_results(options: dict[str, Any]) -> bool:
    """Return whether *options*, or settings of Numba, request that intermediate results are printed."""
    from numba_cuda_mlir.numba_cuda import config as settings

    dumps = any(options.get(name) for name in _PRINTING_OPTIONS)
    return dumps or bool(getattr(settings, "CUDA_DUMP_NVVM", "")) or bool(settings.DUMP_ASSEMBLY)


def _origin(cres: Any) -> str:
    """Return the name of the Python function, with file and line, for messages; "" if it is unknown."""
    func_id = getattr(getattr(cres, "type_annotation", None), "func_id", None)
    if func_id is None:
        return ""
    return f"{func_id.func_qualname} ({func_id.filename}:{func_id.firstlineno})"


def _parameter_names(cres: Any) -> tuple[str, ...]:
    """
    Return the Python argument of each parameter in PTX, for messages; () if they are unknown.

    Numbers, Booleans and arrays have known parameters. An array is a memref: two pointers, an offset,
    and for each dimension an extent and a stride.
    """
    from numba_cuda_mlir.mlir_lowering import _is_omitted_arg
    from numba_cuda_mlir.numba_cuda import types

    names: list[str] = []
    func_id = getattr(getattr(cres, "type_annotation", None), "func_id", None)
    for name, ty in zip(getattr(func_id, "arg_names", ()), cres.fndesc.argtypes, strict=False):
        if isinstance(ty, types.Array):
            names += [name] * (3 + 2 * ty.ndim)
        elif isinstance(ty, (types.Number, types.Boolean)):
            names.append(name)
        elif not _is_omitted_arg(ty):
            return ()
    return tuple(names)


def _key(cres: Any, module: str) -> cache.Key:
    from numba_cuda_mlir.numba_cuda.cudadrv.nvvm import LibDevice

    from numba_ptxlink._tools import find

    options = cres.metadata["targetoptions"]
    return cache.Key.of(
        "mlir",
        {
            "package": cache.package_version(),
            "numba-cuda-mlir": _release(),
            "tool": ("NVVM", find.library_build_id("nvvm")),
            # numba-cuda-mlir takes NVRTC's release for that of the toolkit, and chooses the version of PTX by
            # it.
            "nvrtc": find.library_build_id("nvrtc"),
            "libdevice": LibDevice().get(),
            "flags": [f"{name}={options.get(name)!r}" for name in _CODE_OPTIONS],
            "output": "ltoir" if _is_lto(cres) else "ptx",
            "module": _number_names(module, _symbol(cres)),
        },
    )


@functools.cache
def _release() -> str:
    return metadata.version("numba-cuda-mlir")


def _symbol(cres: Any) -> str:
    """Return the function's symbol in the compiled code."""
    from numba_cuda_mlir import mlir_lowering

    fndesc, abi_info = cres.fndesc, cres.metadata["targetoptions"].get("abi_info") or {}
    args = [ty for ty in fndesc.argtypes if not mlir_lowering._is_omitted_arg(ty)]
    name: str = abi_info.get("abi_name") or mlir_lowering.generate_mangled_name(fndesc.qualname, args)
    return name


def _number_names(module: str, stable_symbol: str) -> str:
    """
    Return the text of *module* with numbers in place of names that depend on the process, as a key.

    Such names contain addresses or counters. Names of declarations, and *stable_symbol*, stay: other code
    refers to them, so that the compiled code has to have the same names.
    """
    names = {
        name
        for name in _DEFINITION.findall(module)
        if name != stable_symbol and _PROCESS_DEPENDENT_NAME.search(name)
    }
    numbers: dict[str, str] = {}

    def number_name(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], f"#{len(numbers)}") if match[0] in names else match[0]

    # The pieces with odd indices are strings, which contain no names.
    pieces = module.split('"')
    pieces[::2] = [_NAME.sub(number_name, piece) for piece in pieces[::2]]
    return '"'.join(pieces)


@PATCHES.around("numba_cuda_mlir.compiler", "_compile")
def _compile(
    original: Any, pyfunc: Any, sig: Any = None, targetoptions: Any = None, optimized: bool = True
) -> Any:
    """Link no cubin in a compilation to PTX or LTO-IR."""
    needs_cubin = current_context().needs_cubin and _may_need_cubin(pyfunc, targetoptions or {})
    with override(needs_cubin=needs_cubin):
        return original(pyfunc, sig, targetoptions, optimized)


def _may_need_cubin(pyfunc: Any, options: dict[str, Any]) -> bool:
    """Return False if the result of the compilation is PTX or LTO-IR, and is never linked to a cubin."""
    output = options.get("_compile_output") or options.get("output")
    # The cubin may be among the results to print.
    if output not in ("ptx", "ltoir") or _prints_results(options):
        return True
    # A dispatcher in place of a Python function keeps the code. If it is a kernel, it may be launched later.
    dispatcher_options = getattr(pyfunc, "targetoptions", None)
    return dispatcher_options is not None and not dispatcher_options.get("device")


@PATCHES.replace("numba_cuda_mlir.mlir_optimization", "CompilationUnit")
def _compilation_unit(original: Any) -> Any:
    """
    Read NVVM's output from the cache, and show its warnings again.

    Unoptimised code is compiled in a child process: after such a call, NVVM generates other code for the rest
    of the process.
    """
    return compilation_unit(original, _fail)


def _fail(unit: Any, step: str, status: int) -> None:
    """Raise numba-cuda-mlir's error for the failed *step* and libNVVM's *status*, with the log of *unit*."""
    unit.driver.check_error(status, f"Failed to {step}\n\n{unit.get_log()}")
