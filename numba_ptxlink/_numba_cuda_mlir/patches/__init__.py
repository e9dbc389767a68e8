"""
The table of all patches of numba-cuda-mlir, joined from the tables of the modules here.

The plugin applies each patch once the patched module of numba-cuda-mlir is imported. The documentation lists
the patches. A release in which a patched or called function has changed is not supported, until it was
tested.
"""

from __future__ import annotations

from numba_ptxlink._numba_cuda_mlir import linker

from . import c_abi, cpu_device, disk_cache, driverless, first_kernel

TABLE = (
    *linker.PATCHES,
    *driverless.DRIVERLESS,
    *first_kernel.CODE_CACHE,
    *first_kernel.PATCHES,
    *disk_cache.PATCHES,
    *cpu_device.PATCHES,
    *c_abi.C_ABI,
    *c_abi.PATCHES,
)
"""The patches, grouped by purpose."""

_LOWERING, _OPTIMIZATION = "numba_cuda_mlir.mlir_lowering", "numba_cuda_mlir.mlir_optimization"
_CUDA = "numba_cuda_mlir.numba_cuda"
CALLED = (
    f"{_LOWERING}:MLIRLower._create_resolved_linker",
    f"{_LOWERING}:MLIRLower.load_var",
    f"{_LOWERING}:MLIRLower.set_error_code",
    f"{_LOWERING}:_is_omitted_arg",
    f"{_LOWERING}:get_mlir_module_str",
    "numba_cuda_mlir.linker:Linker.recreate_with_lto",
    "numba_cuda_mlir.lowering_utilities.context:get_context",
    f"{_OPTIMIZATION}:_prepare_llvm_ir",
    f"{_OPTIMIZATION}:generate_mangled_name",
    f"{_OPTIMIZATION}:get_base_pipeline",
    f"{_OPTIMIZATION}:run_pre_codegen_patterns",
    f"{_CUDA}.core.caching:Cache._load_overload",
    f"{_CUDA}.core.caching:Cache._save_overload",
    f"{_CUDA}.core.sigutils:normalize_signature",
    f"{_CUDA}.cudadrv.nvrtc:_verify_cc_tuple",
    f"{_CUDA}.cudadrv.nvvm:LibDevice",
    f"{_CUDA}.np.numpy_support:from_dtype",
)
"""
The private functions of numba-cuda-mlir that this package calls, as "module:path".

To support a newer release, `front_end` compares their sources and those of patched functions.
"""
