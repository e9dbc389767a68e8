"""
Accesses of arrays and aligned records in packed records, which numba-cuda takes for aligned ones.

It reads members of a packed record itself by bytes. What it loads and stores in these two has the alignment
of its type, which holds only where the record happens to lie well.

It is imported once Numba is.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any

from numba.cuda import types

from numba_ptxlink import abi
from numba_ptxlink.errors import AbiError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

# A record that is passed by value is copied to such an address.
_SLOT = 16
# An access of a local value or of an argument; LLVM finds out where one of a variable is aligned.
_PLACE = r'%(?:"[^"]*"|[\w.$-]+)'


def unaligned_kinds(compiled: Any) -> set[str]:
    """Return the LLVM IR types of what a function, given as its CUDACompileResult, may find unaligned."""
    leads = (*compiled.signature.args, compiled.signature.return_type)
    kinds = [kind for ty in leads for kind in _kinds(compiled.target_context, ty, _SLOT)]
    return {str(kind) for kind, align, needed in kinds if align % needed}


def accessed_by_bytes(text: str, kinds: Collection[str]) -> str:
    """Return LLVM IR *text* in which no load or store of *kinds* is taken for an aligned one."""
    if not kinds:
        return text
    kind = "|".join(map(re.escape, sorted(kinds)))
    access = rf"load (?P<kind>{kind}), (?P=kind)\* {_PLACE}|store (?P<of>{kind}) [^\n]+, (?P=of)\* {_PLACE}"
    # What has an alignment already has it from Numba, or from this package.
    return re.sub(rf"^(  (?:{_PLACE} = )?(?:{access}))(?=$|, !)", r"\1, align 1", text, flags=re.MULTILINE)


def _kinds(context: Any, ty: Any, align: int, *, natural: bool = False) -> Iterator[tuple[Any, int, int]]:
    """
    Yield the LLVM IR types of numbers in records, each with the alignment it has and the one Numba relies on.

    Args:
        context: The target context.
        ty: The Numba type in which they are.
        align: What its address is a multiple of.
        natural: Whether Numba accesses a number there as an aligned one.
    """
    if isinstance(ty, types.BaseTuple):
        for member in ty.types:
            yield from _kinds(context, member, align)
    elif isinstance(ty, types.Optional):
        yield from _kinds(context, ty.type, align)
    elif isinstance(ty, types.NestedArray):
        yield from _kinds(context, ty.dtype, math.gcd(align, ty.size), natural=True)
    elif isinstance(ty, (types.CPointer, types.Array)):
        if isinstance(ty.dtype, types.Record):
            yield from _kinds(context, ty.dtype, math.gcd(_alignment(ty.dtype), ty.dtype.size))
    elif isinstance(ty, types.Record):
        for place in ty.fields.values():
            yield from _kinds(context, place.type, math.gcd(align, place.offset), natural=ty.aligned)
    elif natural:
        kind = context.get_data_type(ty)
        yield kind, align, context.get_abi_alignment(kind)


def _alignment(record: Any) -> int:
    """Return what the addresses of a *record* in memory are multiples of."""
    try:
        return abi.c_type(record).align
    except AbiError:
        return record.dtype.alignment if record.aligned else 1
