"""Replace the linker class."""

from __future__ import annotations

from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.linker import PtxLinker
from numba_ptxlink._numba_cuda.release import DRIVER


def _wrap_linker(_: Any) -> Any:
    return PtxLinker


SUBSTITUTIONS = (
    Substitution(
        DRIVER,
        "_Linker",
        _wrap_linker,
        "Kernels are assembled and linked in process, checked and cached; errors name the cure.",
        bound="numba.cuda",
    ),
)
