"""The members of a named tuple that an exported function returns become those of the declared type."""

from __future__ import annotations

import functools
from typing import Any

from numba_ptxlink._front_end.substitution import Substitution
from numba_ptxlink._numba_cuda.context import current


def _wrap_can_convert(original: Any) -> Any:
    @functools.wraps(original)
    def can_convert(self: Any, fromty: Any, toty: Any) -> Any:
        conversion = original(self, fromty, toty)
        result = current().returns
        if conversion is None and result is not None:
            from numba.cuda import types
            from numba.cuda.typeconv import Conversion

            from numba_ptxlink._front_end.results import converts

            if converts(self, fromty, toty, result, types):
                return Conversion.unsafe
        return conversion

    return can_convert


def _wrap_cast(original: Any) -> Any:
    @functools.wraps(original)
    def cast(self: Any, builder: Any, val: Any, fromty: Any, toty: Any) -> Any:
        from numba.cuda import cgutils, types

        named = (types.NamedTuple, types.NamedUniTuple)
        if fromty == toty or not isinstance(toty, named) or not isinstance(fromty, types.BaseTuple):
            return original(self, builder, val, fromty, toty)
        members = [
            self.cast(builder, value, old, new)
            for value, old, new in zip(
                cgutils.unpack_tuple(builder, val, len(fromty)), fromty.types, toty.types, strict=True
            )
        ]
        return self.make_tuple(builder, toty, members)

    return cast


RESULTS = (
    Substitution(
        "numba.cuda.typing.context",
        "BaseContext.can_convert",
        _wrap_can_convert,
        "The members of a named tuple that an exported function returns convert to the declared types.",
    ),
    Substitution(
        "numba.cuda.core.base",
        "BaseContext.cast",
        _wrap_cast,
        "So they do in its code, where numba-cuda converts plain tuples alone.",
    ),
)
"""The rows that an export applies."""
