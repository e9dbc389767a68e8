"""The members of a named tuple that an exported function returns become those of the declared type."""

from __future__ import annotations

import functools
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda_mlir.context import current


def _wrap_can_convert(original: Any) -> Any:
    @functools.wraps(original)
    def can_convert(self: Any, fromty: Any, toty: Any) -> Any:
        conversion = original(self, fromty, toty)
        program = current()
        if conversion is None and program is not None and program.returns is not None:
            from numba_cuda_mlir.numba_cuda import types
            from numba_cuda_mlir.numba_cuda.typeconv import Conversion

            from numba_ptxlink._front_end.results import converts

            if converts(self, fromty, toty, program.returns, types):
                return Conversion.unsafe
        return conversion

    return can_convert


RESULTS = (
    Substitution(
        "numba_cuda_mlir.numba_cuda.typing.context",
        "BaseContext.can_convert",
        _wrap_can_convert,
        "The members of a named tuple that an exported function returns convert to the declared types.",
    ),
)
"""The rows that an export applies."""
