"""
Kernels of numba-cuda as machine code for a GPU that this machine does not have.

Tests of what kernels compute use the CPU device, whose code is PTX.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

if TYPE_CHECKING:
    from collections.abc import Callable


def install(replace: Callable[[Any, str, Any], None] = setattr, cc: tuple[int, int] = (8, 0)) -> Any:
    """
    Give numba-cuda a device of compute capability *cc*, and return its context, which loads nothing.

    Args:
        replace: What sets an attribute: for one test `monkeypatch.setattr`.
        cc: The device's compute capability.
    """
    import numba.cuda.api
    import numba.cuda.dispatcher
    from numba import cuda
    from numba.cuda.cudadrv import devices

    device = SimpleNamespace(
        compute_capability=cc, id=0, supports_bfloat16=True, supports_float16=True, supports_fp8=False
    )
    context = MagicMock(device=device)
    for module in (cuda, numba.cuda.api, numba.cuda.dispatcher):
        replace(module, "get_current_device", lambda: device)
    for module in (devices, numba.cuda.dispatcher):
        replace(module, "get_context", lambda *_: context)
    for module in (cuda, numba.cuda.api):
        replace(module, "current_context", lambda *_: context)
    return context


def ignore_launches() -> None:
    """Let launches and transfers do nothing, for the rest of this process."""
    from numba import cuda
    from numba.cuda.dispatcher import _Kernel

    _Kernel.launch = lambda *_, **__: None
    cuda.to_device = lambda array, *_, **__: array
    cuda.synchronize = lambda: None


def build_kernel(function: Any, args: tuple[Any, ...], **options: Any) -> Any:
    """Return the kernel that `@cuda.jit(**options)` makes of *function* for arguments of the types *args*."""
    from numba import cuda
    from numba.cuda.dispatcher import _Kernel

    # The decorator forgets `lto`.
    return _Kernel(function, args, **{**cuda.jit(**options)(function).targetoptions, **options})


def compile_kernel(function: Any, args: tuple[Any, ...], **options: Any) -> tuple[Any, Any]:
    """Return library and cubin of such a kernel."""
    library = build_kernel(function, args, **options)._codelibrary
    return library, library.get_cubin()
