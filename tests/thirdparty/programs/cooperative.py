"""Kernels that call CCCL's cooperative primitives, each with static shared memory."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import cuda.coop._experimental as coop
from numba import cuda, types
from standin import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS = 4
block, warp = coop.block, coop.warp
SIGNATURE = (types.uint32[::1], types.uint32[::1])


def of_value(make: Callable[[], Any]) -> Kernel:
    """Return a kernel that passes a value of each thread to the primitive and keeps the result."""
    primitive = make()

    @cuda.jit(link=primitive.files)
    def kernel(source, target):
        i = cuda.grid(1)
        target[i] = primitive(source[i])

    return Kernel(kernel, SIGNATURE)


def in_place(make: Callable[[], Any]) -> Kernel:
    """Return a kernel that sorts the items of each thread where they are."""
    primitive = make()

    @cuda.jit(link=primitive.files)
    def kernel(source, target):
        first = cuda.grid(1) * ITEMS
        items = cuda.local.array(ITEMS, types.uint32)
        for i in range(ITEMS):
            items[i] = source[first + i]
        primitive(items)
        for i in range(ITEMS):
            target[first + i] = items[i]

    return Kernel(kernel, SIGNATURE)


def two_primitives() -> Kernel:
    """Return a kernel that calls two primitives, each with static shared memory."""
    total = block.make_sum(types.uint32, 128)
    before = warp.make_exclusive_sum(types.uint32)

    @cuda.jit(link=total.files + before.files)
    def kernel(source, target):
        i = cuda.grid(1)
        target[i] = total(source[i]) + before(source[i])

    return Kernel(kernel, SIGNATURE)


CASES = {
    "two primitives": two_primitives,
    "block sum": partial(of_value, partial(block.make_sum, types.uint32, (2, 4, 16))),
    "warp exclusive sum": partial(of_value, partial(warp.make_exclusive_sum, types.uint32)),
    "block radix sort": partial(in_place, partial(block.make_radix_sort_keys, types.uint32, 64, ITEMS)),
}
