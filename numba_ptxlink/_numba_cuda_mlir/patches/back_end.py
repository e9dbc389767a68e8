"""The back end's output out of the cache: MLIR passes and NVVM run once for equal MLIR."""

from __future__ import annotations

import functools
import hashlib
import warnings
from typing import Any

from numba_ptxlink import cache
from numba_ptxlink._config import config
from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._locks import in_tool
from numba_ptxlink._numba_cuda_mlir.requests import current, entered, requested_cc

# The options that choose the passes and NVVM's options; what the others change is in the MLIR.
_OPTIONS = ("chip", "debug", "fastmath", "lineinfo", "opt", "opt_level")
_NAMED_STRUCT = 'struct<"'
# Options that print what happens: nothing is to be skipped then.
_SHOWN = ("dump", "dump_mlir", "dump_llvmir", "dump_ptx", "dump_cubin", "print_before_all", "print_after_all")


def _wrap_optimize(original: Any) -> Any:
    @functools.wraps(original)
    def optimize(cres: Any) -> None:
        from numba_ptxlink._tools import packages

        options = cres.metadata["targetoptions"]
        request = {"cc": requested_cc(options), "origin": _origin(cres), "called": _called(cres)}
        with packages.explaining(), entered(**request):
            module = _stabilised(cres)
            if not config().cache or _is_shown(options):
                original(cres)
            else:
                _optimize_once(original, cres, module)

    return optimize


def _optimize_once(original: Any, cres: Any, module: str) -> None:
    missed = False

    def make() -> cache.Entry:
        nonlocal missed
        missed = True
        remarks: list[str] = []
        # The link has entries of its own, which it would not get in here.
        with in_tool(), entered(remarks=remarks, links=False):
            original(cres)
        return _entry(cres, remarks)

    entry = cache.cached(_key(cres, module), make)
    if not missed:
        for remark in entry.meta["remarks"]:
            from numba_cuda_mlir.numba_cuda.cudadrv.error import NvvmWarning

            warnings.warn(remark, category=NvvmWarning, stacklevel=3)
        _restore(cres, entry)
    if current().links:
        cres.metadata["cubin"] = _linker(cres).complete().code


def _entry(cres: Any, remarks: list[str]) -> cache.Entry:
    metadata = cres.metadata
    code = metadata["ltoir"] if _is_lto(cres) else metadata["ptx"].encode()
    optimized = metadata["mlir_module_optimized"].encode()
    return cache.Entry({"log": "", "remarks": remarks, "mlir": len(optimized)}, optimized + code)


def _restore(cres: Any, entry: cache.Entry) -> None:
    """Note what the original notes, the cubin apart."""
    from numba_cuda_mlir import mlir_optimization

    metadata = cres.metadata
    at = entry.meta["mlir"]
    optimized, code = entry.code[:at].decode(), entry.code[at:]
    metadata["mlir_module_optimized"] = optimized
    metadata["cubin"] = None
    if _is_lto(cres):
        metadata["ltoir"], metadata["ptx"] = code, ""
    else:
        metadata["ptx"] = code.decode()
    if metadata.get("needs_nrt"):
        callbacks = metadata.setdefault("setup_callbacks", [])
        if mlir_optimization._nrt_memsys_setup_callback not in callbacks:
            callbacks.append(mlir_optimization._nrt_memsys_setup_callback)
    fndesc = cres.fndesc
    metadata["func_name"] = mlir_optimization.generate_mangled_name(fndesc.qualname, fndesc.argtypes)
    cres.library._ptx, cres.library._mlir_str = metadata["ptx"], optimized


def _linker(cres: Any) -> Any:
    """Return the linker that the original makes of the function's code and its link files."""
    base = cres.metadata["linker"]
    if _is_lto(cres):
        return base.recreate_with_lto(kernel_ltoir=cres.metadata["ltoir"])
    linker = base.recreate_with_lto()
    linker.add_ptx(cres.metadata["ptx"].encode())
    return linker


def _is_lto(cres: Any) -> bool:
    """Return what the original makes of the options."""
    plan, options = cres.metadata.get("link_plan"), cres.metadata["targetoptions"]
    if plan is not None:
        return bool(plan.compile_new_inputs_as_ltoir)
    return bool(options.get("lto") or options.get("_compile_output") == "ltoir")


def _is_shown(options: dict[str, Any]) -> bool:
    from numba_cuda_mlir.numba_cuda import config as settings

    dumps = any(options.get(name) for name in _SHOWN)
    return dumps or bool(getattr(settings, "CUDA_DUMP_NVVM", "")) or bool(settings.DUMP_ASSEMBLY)


def _origin(cres: Any) -> str:
    """Return the name of the Python function, with file and line."""
    func_id = getattr(getattr(cres, "type_annotation", None), "func_id", None)
    if func_id is None:
        return ""
    return f"{func_id.func_qualname} ({func_id.filename}:{func_id.firstlineno})"


def _called(cres: Any) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the C functions that the function calls, and with which C types."""
    from numba_cuda_mlir.mlir_lowering import get_mlir_module_str

    from numba_ptxlink._numba_cuda_mlir.codegen import externs

    return externs.declared_in(get_mlir_module_str(cres.metadata)) if externs.used() else ()


def _stabilised(cres: Any) -> str:
    """Give what the function needs names that depend on the program alone; return the MLIR."""
    from numba_cuda_mlir.lowering_utilities import context
    from numba_cuda_mlir.mlir_lowering import get_mlir_module_str

    from numba_ptxlink._numba_cuda_mlir import symbols

    metadata = cres.metadata
    # Callers look for the function by the names in this text, which is kept.
    get_mlir_module_str(metadata)
    with context.get_context():
        debug = bool(metadata.get("_mlir_has_debug_info"))
        return symbols.stabilise(metadata["mlir_module"], _symbol(cres), debug=debug)


def _symbol(cres: Any) -> str:
    """Return the symbol that others know the function by; "" where they want no more than its MLIR."""
    from numba_cuda_mlir import mlir_lowering

    if current().lowering:
        return ""
    fndesc, abi_info = cres.fndesc, cres.metadata["targetoptions"].get("abi_info") or {}
    args = [each for each in fndesc.argtypes if not mlir_lowering._is_omitted_arg(each)]
    name: str = abi_info.get("abi_name") or mlir_lowering.generate_mangled_name(fndesc.qualname, args)
    return name


def _key(cres: Any, module: str) -> cache.Key:
    from numba_ptxlink._tools import build_id

    options = cres.metadata["targetoptions"]
    return cache.Key.of(
        "mlir",
        {
            "package": cache.package_version(),
            "numba-cuda-mlir": _release(),
            "tool": ("NVVM", build_id.of_library("nvvm")),
            # Its release, which stands for the toolkit's, chooses the version of PTX.
            "nvrtc": build_id.of_library("nvrtc"),
            "libdevice": _libdevice(),
            "flags": [f"{name}={options.get(name)!r}" for name in _OPTIONS],
            "output": "ltoir" if _is_lto(cres) else "ptx",
            "pointees": _pointees(cres) if _NAMED_STRUCT in module else "",
            "module": module,
        },
    )


def _pointees(cres: Any) -> str:
    """Return what numba-cuda-mlir knows of pointers in structs, which is not in the MLIR."""
    from numba_cuda_mlir import mlir_optimization
    from numba_cuda_mlir.lowering_utilities import context

    with context.get_context():
        module = mlir_optimization._get_single_gpu_module(cres.metadata["mlir_module"])
        return str(mlir_optimization.struct_pointees_attr(module.operation))


@functools.cache
def _release() -> str:
    from importlib import metadata

    return metadata.version("numba-cuda-mlir")


@functools.cache
def _libdevice() -> str:
    from numba_cuda_mlir.numba_cuda.cudadrv.nvvm import LibDevice

    return hashlib.sha256(LibDevice().get()).hexdigest()


def _wrap_get_log(original: Any) -> Any:
    @functools.wraps(original)
    def get_log(self: Any) -> str:
        log: str = original(self)
        remarks = current().remarks
        if remarks is not None and log:
            remarks.append(log)
        return log

    return get_log


BACK_END = (
    Substitution(
        "numba_cuda_mlir.mlir_optimization",
        "optimize",
        _wrap_optimize,
        "What MLIR and NVVM made before comes out of the cache; errors name the Python function.",
    ),
    Substitution(
        "numba_cuda_mlir.mlir_optimization",
        "CompilationUnit.get_log",
        _wrap_get_log,
        "NVVM's warnings are kept beside its output, and shown again.",
    ),
)
