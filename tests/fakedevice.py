"""A stand-in for a device, with which kernels are compiled and linked on a machine that has none."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


class Loaded(Exception):  # noqa: N818 - it is no error
    """Raised where a driver would load the cubin."""


def install(monkeypatch: pytest.MonkeyPatch, cc: tuple[int, int] = (8, 0)) -> None:
    """Give numba-cuda a device of compute capability *cc* that loads nothing."""
    import numba.cuda.api
    import numba.cuda.cudadrv.devices
    import numba.cuda.dispatcher

    def load(*_: Any) -> None:
        raise Loaded

    device = SimpleNamespace(compute_capability=cc, id=0)
    context = SimpleNamespace(device=device, create_module_image=load)
    monkeypatch.setattr(numba.cuda.api, "get_current_device", lambda: device)
    monkeypatch.setattr(numba.cuda.dispatcher, "get_current_device", lambda: device)
    monkeypatch.setattr(numba.cuda.cudadrv.devices, "get_context", lambda *_: context)


def compile_kernel(function: Any, args: tuple[Any, ...], **options: Any) -> Any:
    """Return library and cubin of the kernel that `@cuda.jit(**options)` makes of *function*."""
    from numba import cuda
    from numba.cuda.dispatcher import _Kernel

    dispatcher = cuda.jit(**options)(function)
    library = _Kernel(function, args, **dispatcher.targetoptions)._codelibrary
    return library, library.get_cubin()
