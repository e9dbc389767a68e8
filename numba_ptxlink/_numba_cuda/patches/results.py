"""What an exported function returns becomes the declared type: halves, and members of a named tuple, too."""

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

            from numba_ptxlink._front_end.results import converts, holds

            bfloat = types.bfloat16
            number = (fromty == bfloat and isinstance(toty, (types.Boolean, types.Complex))) or (
                toty == bfloat and isinstance(fromty, types.Boolean)
            )
            if (number and holds(result, toty)) or converts(self, fromty, toty, result, types):
                return Conversion.unsafe
        return conversion

    return can_convert


def _wrap_cast(original: Any) -> Any:
    @functools.wraps(original)
    def cast(self: Any, builder: Any, val: Any, fromty: Any, toty: Any) -> Any:
        from numba.cuda import cgutils, types

        # Kernels that numba-cuda launches itself keep its conversions.
        if current().checked is not None:
            if fromty in (types.float16, types.bfloat16) and isinstance(toty, types.Boolean):
                return is_not_zero(builder, val)
            widened = _as_float32(builder, val, fromty, toty)
            if widened is not None:
                return original(self, builder, widened, types.float32, toty)
            if toty == types.bfloat16:
                return _as_bfloat16(self, builder, val, fromty, original)
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


def is_not_zero(builder: Any, half: Any) -> Any:
    """Return whether the bits of a float16 or bfloat16 are those of no zero."""
    # Without its sign, since zero has two.
    return builder.icmp_unsigned("!=", builder.and_(half, half.type(0x7FFF)), half.type(0))


def _as_float32(builder: Any, value: Any, fromty: Any, toty: Any) -> Any:
    """Return the float32 that *value* equals, None where numba-cuda converts it to *toty* rightly."""
    from llvmlite import ir
    from numba.cuda import types

    if fromty == types.float16 and isinstance(toty, types.Integer):
        return builder.fpext(builder.bitcast(value, ir.HalfType()), ir.FloatType())
    if fromty == types.bfloat16 and (toty == types.float16 or isinstance(toty, types.Complex)):
        bits = builder.shl(builder.zext(value, ir.IntType(32)), ir.IntType(32)(16))
        return builder.bitcast(bits, ir.FloatType())
    return None


def _as_bfloat16(context: Any, builder: Any, value: Any, fromty: Any, cast: Any) -> Any:
    """Convert *value* to bfloat16, by numba-cuda's *cast* where that is right."""
    from llvmlite import ir
    from numba.cuda import types

    if isinstance(fromty, types.Literal):
        # Of an integer that is written out it takes the lower half of a float32.
        value = cast(context, builder, value, fromty, fromty.literal_type)
        fromty = fromty.literal_type
    if fromty not in (types.boolean, types.int8, types.uint8):
        return cast(context, builder, value, fromty, types.bfloat16)
    # It has no more digits than a bfloat16: the lower half of the float32 is zero.
    bits = builder.bitcast(cast(context, builder, value, fromty, types.float32), ir.IntType(32))
    return builder.trunc(builder.lshr(bits, ir.IntType(32)(16)), ir.IntType(16))


RESULTS = (
    Substitution(
        "numba.cuda.typing.context",
        "BaseContext.can_convert",
        _wrap_can_convert,
        "The members of a named tuple that an exported function returns convert to the declared types, and "
        "bfloat16 to booleans and complex numbers.",
    ),
    Substitution(
        "numba.cuda.core.base",
        "BaseContext.cast",
        _wrap_cast,
        "So they do in its code, where numba-cuda converts plain tuples alone. In functions with the C ABI, "
        "float16 and bfloat16 convert as in C++, where numba-cuda rounds to integers, has the wrong bits of "
        "bfloat16 literals, or fails.",
    ),
)
"""The rows that an export applies."""
