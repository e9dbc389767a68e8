"""Kernels that call CCCL's cooperative primitives, one for each primitive and way of calling it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import cuda.coop._experimental as coop
import numba
from numba import cuda, types
from standin import Kernel

if TYPE_CHECKING:
    from collections.abc import Callable

ITEMS = 4
block, warp = coop.block, coop.warp


def minimum(a, b):
    return min(a, b)


def less(a, b):
    return a < b


@cuda.jit(device=True)
def thread():
    return cuda.threadIdx.x + cuda.blockDim.x * (cuda.threadIdx.y + cuda.blockDim.y * cuda.threadIdx.z)


def signature(dtype: Any) -> tuple[Any, Any]:
    return (dtype[::1], dtype[::1])


def of_value(make: Callable[[], Any], dtype: Any, *, storage: bool) -> Kernel:
    """Return a kernel that gives the primitive one value of each thread and keeps what comes back."""
    primitive = make()
    size = primitive.temp_storage_bytes

    if storage:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            room = cuda.shared.array(size, numba.uint8)
            target[thread()] = primitive(room, source[thread()])

    else:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            target[thread()] = primitive(source[thread()])

    return Kernel(kernel, signature(dtype))


def in_place(make: Callable[[], Any], dtype: Any, *, storage: bool) -> Kernel:
    """Return a kernel that sorts or exchanges the items of each thread where they are."""
    primitive = make()
    size = primitive.temp_storage_bytes

    if storage:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            room = cuda.shared.array(size, numba.uint8)
            items = cuda.local.array(ITEMS, dtype)
            for i in range(ITEMS):
                items[i] = source[thread() * ITEMS + i]
            primitive(room, items)
            for i in range(ITEMS):
                target[thread() * ITEMS + i] = items[i]

    else:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            items = cuda.local.array(ITEMS, dtype)
            for i in range(ITEMS):
                items[i] = source[thread() * ITEMS + i]
            primitive(items)
            for i in range(ITEMS):
                target[thread() * ITEMS + i] = items[i]

    return Kernel(kernel, signature(dtype))


def from_to(make: Callable[[], Any], dtype: Any, *, storage: bool = True) -> Kernel:
    """Return a kernel that scans or exchanges the items of each thread into others."""
    primitive = make()
    size = primitive.temp_storage_bytes

    if storage:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            room = cuda.shared.array(size, numba.uint8)
            items = cuda.local.array(ITEMS, dtype)
            others = cuda.local.array(ITEMS, dtype)
            for i in range(ITEMS):
                items[i] = source[thread() * ITEMS + i]
            primitive(room, items, others)
            for i in range(ITEMS):
                target[thread() * ITEMS + i] = others[i]

    else:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            items = cuda.local.array(ITEMS, dtype)
            others = cuda.local.array(ITEMS, dtype)
            for i in range(ITEMS):
                items[i] = source[thread() * ITEMS + i]
            primitive(items, others)
            for i in range(ITEMS):
                target[thread() * ITEMS + i] = others[i]

    return Kernel(kernel, signature(dtype))


def load_and_store(algorithm: str, dtype: Any, threads: Any, *, storage: bool) -> Kernel:
    """Return a kernel that loads and stores the items of each thread by two primitives."""
    load = block.make_load(dtype, threads, ITEMS, algorithm)
    store = block.make_store(dtype, threads, ITEMS, algorithm)
    sizes = load.temp_storage_bytes, store.temp_storage_bytes

    if storage:

        @cuda.jit(link=load.files + store.files)
        def kernel(source, target):
            items = cuda.local.array(ITEMS, dtype)
            load(cuda.shared.array(sizes[0], numba.uint8), source, items)
            store(cuda.shared.array(sizes[1], numba.uint8), target, items)

    else:

        @cuda.jit(link=load.files + store.files)
        def kernel(source, target):
            items = cuda.local.array(ITEMS, dtype)
            load(source, items)
            store(target, items)

    return Kernel(kernel, signature(dtype))


def two_primitives() -> Kernel:
    """Return a kernel that calls two primitives with static shared memory of their own."""
    total = block.make_sum(types.int32, 128)
    before = warp.make_exclusive_sum(types.int32)

    @cuda.jit(link=total.files + before.files)
    def kernel(source, target):
        value = source[thread()]
        target[thread()] = total(value) + before(value)

    return Kernel(kernel, signature(types.int32))


def _cases() -> dict[str, Callable[[], Kernel]]:
    cases: dict[str, Callable[[], Kernel]] = {"two primitives": two_primitives}
    for storage in (False, True):
        how = f"{'own' if storage else 'static'} storage"
        sums = {
            "block sum": partial(block.make_sum, types.uint32, 128),
            "block reduce": partial(block.make_reduce, types.uint32, (4, 16), minimum),
            "warp exclusive sum": partial(warp.make_exclusive_sum, types.uint32),
        }
        sorts = {
            "block merge sort": partial(block.make_merge_sort_keys, types.int32, 128, ITEMS, less),
            "block radix sort": partial(block.make_radix_sort_keys, types.int32, (2, 4, 8), ITEMS),
            "warp merge sort": partial(warp.make_merge_sort_keys, types.int32, ITEMS, less),
        }
        add = partial(block.make_inclusive_sum, types.float64, (4, 16), ITEMS)
        cases |= {
            **{
                f"{name}, {how}": partial(of_value, make, types.uint32, storage=storage)
                for name, make in sums.items()
            },
            **{
                f"{name}, {how}": partial(in_place, make, types.int32, storage=storage)
                for name, make in sorts.items()
            },
            f"block inclusive sum of items, {how}": partial(from_to, add, types.float64, storage=storage),
            f"block load and store, {how}": partial(
                load_and_store, "warp_transpose", types.int16, (8, 16), storage=storage
            ),
        }
    return cases


CASES = _cases()
