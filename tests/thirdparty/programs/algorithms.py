"""Device-wide algorithms of `cuda.compute`, built ahead of time with operators that Numba compiles."""

from __future__ import annotations

import struct
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
from cuda import compute
from cuda.compute import ProxyArray, ProxyValue

if TYPE_CHECKING:
    from collections.abc import Callable

# The compiler of operators in cuda.compute.
if find_spec("numba_cuda_mlir"):
    from numba_cuda_mlir import cuda
else:
    from numba import cuda

CAPABILITY = 80


def built(make: Callable[..., Any], **options: Any) -> bytes:
    """Return the only cubin in the result of *make*, which links the operator by itself."""
    return embedded(compute.serialize(make(compute_capability=CAPABILITY, **options)))


def embedded(serialized: bytes) -> bytes:
    """Return the ELF file within *serialized*, up to the end of its tables of sections and segments."""
    at = serialized.index(b"\x7fELF")
    assert serialized.find(b"\x7fELF", at + 4) < 0
    segments, sections = struct.unpack_from("<QQ", serialized, at + 32)
    segment, segment_count, section, section_count = struct.unpack_from("<4H", serialized, at + 54)
    end = max(segments + segment * segment_count, sections + section * section_count)
    return serialized[at : at + end]


@cuda.jit(device=True)
def clamped(value):
    return min(max(value, -100), 100)


SCALE = 3
INTS, DOUBLES, COUNT = ProxyArray(np.int32), ProxyArray(np.float64), ProxyArray(np.int64)

CASES = {
    "reduce": partial(
        built,
        compute.make_reduce_into,
        d_in=INTS,
        d_out=INTS,
        op=lambda a, b: max(a, 2 * b),
        h_init=ProxyValue(np.int32),
    ),
    "unary transform": partial(
        built, compute.make_unary_transform, d_in=INTS, d_out=INTS, op=lambda a: clamped(a) * SCALE
    ),
    "select": partial(
        built, compute.make_select, d_in=INTS, d_out=INTS, d_num_selected_out=COUNT, cond=lambda a: a % 2 == 0
    ),
    "unique by key": partial(
        built,
        compute.make_unique_by_key,
        d_in_keys=INTS,
        d_in_items=DOUBLES,
        d_out_keys=INTS,
        d_out_items=DOUBLES,
        d_out_num_selected=COUNT,
        op=lambda a, b: a == b,
    ),
}
