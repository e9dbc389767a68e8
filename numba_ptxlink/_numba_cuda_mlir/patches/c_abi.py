"""`cuda.compile` and `compile_ptx` with the C ABI of this package, where `abi_info` asks for it."""

from __future__ import annotations

import functools
import inspect
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import requested_cc

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numba_ptxlink._arch import Arch


def _wrap_compile(original: Any) -> Any:
    signature = inspect.signature(original)

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:  # noqa: A001 - numba-cuda-mlir's name for it
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        given = bound.arguments
        if given["abi_info"] is not None:
            from numba_ptxlink._export import cuda_compile

            code = cuda_compile.by_value(
                "numba-cuda-mlir", given, functools.partial(_arch, given), always=True
            )
            if code is not None:
                return code
        return original(*args, **kwargs)

    return compile


def _arch(given: Mapping[str, Any], options: Mapping[str, Any]) -> Arch:
    from numba_cuda_mlir import tools

    from numba_ptxlink._arch import Arch

    requested = given["cc"] or options.get("chip") or options.get("cc")
    return Arch.of(requested or requested_cc({}) or tools.get_gpu_compute_capability(tuple))


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
