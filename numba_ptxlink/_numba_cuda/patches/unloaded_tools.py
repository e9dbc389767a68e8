"""What numba-cuda loads NVIDIA's libraries to ask, answered by their files: a cached kernel needs none."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._native.modules import find_module

if TYPE_CHECKING:
    from collections.abc import Callable

# numba-cuda wants nvJitLink 12.3. A file's name has the major version alone.
_SURE = 13


def _wrap_have_nvjitlink(original: Callable[[], bool]) -> Callable[[], bool]:
    """Tell by its file that nvJitLink is there, and ask numba-cuda where that does not tell."""

    @functools.wraps(original)
    def _have_nvjitlink() -> bool:
        from numba_ptxlink._tools import build_id

        try:
            major = int(build_id.library_path("nvJitLink").rpartition(".so.")[2].partition(".")[0])
        except Exception:  # noqa: BLE001 - pathfinder raises a different type for each way of not finding it
            return original()
        return (major >= _SURE and bool(find_module("cuda.bindings.nvjitlink"))) or original()

    return functools.cache(_have_nvjitlink)


def _wrap_magic_tuple(original: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Have the build of NVRTC where numba-cuda has its version."""

    @functools.wraps(original)
    def magic_tuple(self: Any) -> Any:
        from numba.cuda.cudadrv import devices

        from numba_ptxlink._tools import build_id

        try:
            build = build_id.of_library("nvrtc")
        except Exception:  # noqa: BLE001 - as above, and what cannot be read
            return original(self)
        return (build, devices.get_context().device.compute_capability)

    return magic_tuple


SUBSTITUTIONS = (
    Substitution(
        "numba.cuda.cudadrv.driver",
        "_have_nvjitlink",
        _wrap_have_nvjitlink,
        "`@cuda.jit` sees nvJitLink 13 and later by its file, without loading it.",
        bound="numba.cuda",
    ),
    Substitution(
        "numba.cuda.codegen",
        "JITCUDACodegen.magic_tuple",
        _wrap_magic_tuple,
        "A kernel on disk is found by the build of NVRTC, without loading it.",
    ),
)
