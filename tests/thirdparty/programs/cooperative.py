"""Kernels that call CCCL's cooperative primitives, one for each primitive and way of calling it."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import cuda.coop._experimental as coop
import numba
from numba import cuda, types
from numba.core import cgutils
from numba.core.extending import lower_builtin, make_attribute_wrapper, models, register_model, type_callable
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


def of_value(make: Callable[[], Any], dtype: Any, *, storage: bool, valid: int = 0) -> Kernel:
    """Return a kernel that gives the primitive one value of each thread and keeps what comes back."""
    primitive = make()
    size = primitive.temp_storage_bytes

    if storage and valid:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            room = cuda.shared.array(size, numba.uint8)
            target[thread()] = primitive(room, source[thread()], valid)

    elif storage:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            room = cuda.shared.array(size, numba.uint8)
            target[thread()] = primitive(room, source[thread()])

    elif valid:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            target[thread()] = primitive(source[thread()], valid)

    else:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            target[thread()] = primitive(source[thread()])

    return Kernel(kernel, signature(dtype))


def of_items(make: Callable[[], Any], dtype: Any, *, storage: bool) -> Kernel:
    """Return a kernel that reduces the items of each thread."""
    primitive = make()
    size = primitive.temp_storage_bytes

    if storage:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            room = cuda.shared.array(size, numba.uint8)
            items = cuda.local.array(ITEMS, dtype)
            for i in range(ITEMS):
                items[i] = source[thread() * ITEMS + i]
            target[thread()] = primitive(room, items)

    else:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            items = cuda.local.array(ITEMS, dtype)
            for i in range(ITEMS):
                items[i] = source[thread() * ITEMS + i]
            target[thread()] = primitive(items)

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


def sort_by_bits(dtype: Any, begin: int, end: int) -> Kernel:
    """Return a kernel that sorts the items of a block by some of their bits."""
    primitive = block.make_radix_sort_keys(dtype, 128, ITEMS)
    size = primitive.temp_storage_bytes
    first, last = numba.int32(begin), numba.int32(end)

    @cuda.jit(link=primitive.files)
    def kernel(source, target):
        room = cuda.shared.array(size, numba.uint8)
        items = cuda.local.array(ITEMS, dtype)
        for i in range(ITEMS):
            items[i] = source[thread() * ITEMS + i]
        primitive(room, items, first, last)
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


class Total:
    """What has been summed in the tiles before."""

    def __init__(self, value):
        self.value = value

    def __call__(self, aggregate):
        before = self[0].value
        self[0] = Total(before + aggregate)
        return before


class TotalType(types.Type):
    """Numba's type of `Total`."""

    def __init__(self):
        super().__init__(name="Total")


class Pair:
    """A type of the user's, of two integers."""

    def __init__(self, first, second):
        self.first = first
        self.second = second

    def construct(this):  # noqa: N805 - a pointer to one, which CCCL calls by position
        zero = numba.int32(0)
        this[0] = Pair(zero, zero)

    def assign(this, that):  # noqa: N805 - likewise
        this[0] = Pair(that[0].first, that[0].second)


class PairType(types.Type):
    """Numba's type of `Pair`."""

    def __init__(self):
        super().__init__(name="Pair")


total_type, pair_type = TotalType(), PairType()
METHODS = {"construct": Pair.construct, "assign": Pair.assign}


@type_callable(Total)
def type_total(_context):
    return lambda _value: total_type


@type_callable(Pair)
def type_pair(_context):
    return lambda _first, _second: pair_type


@register_model(TotalType)
class TotalModel(models.StructModel):
    """One integer."""

    def __init__(self, manager, kind):
        super().__init__(manager, kind, [("value", types.int64)])


@register_model(PairType)
class PairModel(models.StructModel):
    """Two integers."""

    def __init__(self, manager, kind):
        super().__init__(manager, kind, [("first", types.int32), ("second", types.int32)])


make_attribute_wrapper(TotalType, "value", "value")
make_attribute_wrapper(PairType, "first", "first")
make_attribute_wrapper(PairType, "second", "second")


@lower_builtin(Total, types.Integer)
def lower_total(context, builder, made, args):
    total = cgutils.create_struct_proxy(made.return_type)(context, builder)
    total.value = context.cast(builder, args[0], made.args[0], types.int64)
    return total._getvalue()


@lower_builtin(Pair, types.Integer, types.Integer)
def lower_pair(context, builder, made, args):
    pair = cgutils.create_struct_proxy(made.return_type)(context, builder)
    pair.first, pair.second = (
        context.cast(builder, value, kind, types.int32) for value, kind in zip(args, made.args, strict=True)
    )
    return pair._getvalue()


def add_pairs(result, a, b):
    result[0] = Pair(numba.int32(a[0].first + b[0].first), numba.int32(a[0].second + b[0].second))


def less_pairs(a, b):
    return a[0].first < b[0].first


def scan_with_prefix(make: Callable[..., Any]) -> Kernel:
    """Return a kernel that scans tiles one after another, with a running total."""
    primitive = make(
        dtype=types.int32,
        threads_per_block=64,
        items_per_thread=1,
        prefix_op=coop.StatefulFunction(Total, total_type),
        algorithm="raking",
    )
    size = primitive.temp_storage_bytes

    @cuda.jit(link=primitive.files)
    def kernel(source, target):
        room = cuda.shared.array(size, numba.uint8)
        total = cuda.local.array(1, total_type)
        total[0] = Total(0)
        for at in range(thread(), 1024, 64):
            target[at] = primitive(room, source[at], total)

    return Kernel(kernel, signature(types.int32))


def reduce_pairs(*, storage: bool) -> Kernel:
    """Return a kernel that reduces values of a user's type."""
    primitive = block.make_reduce(
        dtype=pair_type, threads_per_block=128, binary_op=add_pairs, algorithm="raking", methods=METHODS
    )
    size = primitive.temp_storage_bytes

    if storage:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            room = cuda.shared.array(size, numba.uint8)
            made = primitive(room, Pair(source[thread()], source[thread() + 128]))
            target[thread()] = made.first + made.second

    else:

        @cuda.jit(link=primitive.files)
        def kernel(source, target):
            made = primitive(Pair(source[thread()], source[thread() + 128]))
            target[thread()] = made.first + made.second

    return Kernel(kernel, signature(types.int32))


def move_pairs(make: Callable[[], Any]) -> Kernel:
    """Return a kernel that sorts or exchanges one value of a user's type of each thread."""
    primitive = make()
    size = primitive.temp_storage_bytes

    @cuda.jit(link=primitive.files)
    def kernel(source, target):
        room = cuda.shared.array(size, numba.uint8)
        items = cuda.local.array(1, pair_type)
        items[0] = Pair(source[thread()], source[thread() + 128])
        primitive(room, items)
        target[thread()] = items[0].first + items[0].second

    return Kernel(kernel, signature(types.int32))


def two_primitives() -> Kernel:
    """Return a kernel that calls two primitives with static shared memory of their own."""
    total = block.make_sum(types.int32, 128)
    before = warp.make_exclusive_sum(types.int32)

    @cuda.jit(link=total.files + before.files)
    def kernel(source, target):
        value = source[thread()]
        target[thread()] = total(value) + before(value)

    return Kernel(kernel, signature(types.int32))


REDUCTIONS = ("raking", "raking_commutative_only", "warp_reductions")
SCANS = ("raking", "raking_memoize", "warp_scans")
MOVES = ("direct", "striped", "vectorize", "transpose", "warp_transpose", "warp_transpose_timesliced")
STRIPED = block.BlockExchangeType.StripedToBlocked


def _reductions() -> dict[str, Callable[[], Kernel]]:
    cases: dict[str, Callable[[], Kernel]] = {}
    for algorithm in REDUCTIONS:
        total = partial(block.make_sum, algorithm=algorithm)
        reduce = partial(block.make_reduce, binary_op=minimum, algorithm=algorithm)
        for storage in (False, True):
            how = f"{algorithm}, {'own' if storage else 'static'} storage"
            cases |= {
                f"block sum, {how}": partial(
                    of_value, partial(total, types.uint32, 128), types.uint32, storage=storage
                ),
                f"block reduce, {how}": partial(
                    of_value, partial(reduce, types.float64, (4, 16)), types.float64, storage=storage
                ),
            }
        cases |= {
            f"block sum of items, {algorithm}": partial(
                of_items, partial(total, types.int64, 128, ITEMS), types.int64, storage=True
            ),
            f"block reduce of valid, {algorithm}": partial(
                of_value, partial(reduce, types.int32, (2, 4, 8)), types.int32, storage=True, valid=50
            ),
        }
    return cases | {
        "block reduce of items, static storage": partial(
            of_items,
            partial(block.make_reduce, types.float32, 256, minimum, ITEMS),
            types.float32,
            storage=False,
        ),
        "block sum of valid, static storage": partial(
            of_value, partial(block.make_sum, types.int32, 64), types.int32, storage=False, valid=50
        ),
        "block reduce of a user's type, static storage": partial(reduce_pairs, storage=False),
        "block reduce of a user's type, own storage": partial(reduce_pairs, storage=True),
        "two primitives": two_primitives,
    }


def _scans() -> dict[str, Callable[[], Kernel]]:
    cases: dict[str, Callable[[], Kernel]] = {}
    for mode in ("inclusive", "exclusive"):
        add = getattr(block, f"make_{mode}_sum")
        scan = getattr(block, f"make_{mode}_scan")
        for algorithm in SCANS:
            cases[f"block {mode} sum, {algorithm}"] = partial(
                of_value, partial(add, types.uint32, 128, 1, algorithm=algorithm), types.uint32, storage=True
            )
        cases |= {
            f"block {mode} sum of items": partial(
                from_to, partial(add, types.int64, (4, 16), ITEMS), types.int64
            ),
            f"block {mode} sum of items, static storage": partial(
                from_to, partial(add, types.float32, 64, ITEMS), types.float32, storage=False
            ),
            f"block {mode} scan by name": partial(
                of_value, partial(scan, types.int32, 128, "max", 1), types.int32, storage=True
            ),
            f"block {mode} scan by function": partial(
                of_value, partial(scan, types.int32, 128, minimum, 1), types.int32, storage=True
            ),
            f"block {mode} sum with a prefix": partial(scan_with_prefix, add),
        }
    return cases


def _moves() -> dict[str, Callable[[], Kernel]]:
    cases: dict[str, Callable[[], Kernel]] = {}
    for number, algorithm in enumerate(MOVES):
        dtype = (types.int8, types.int16, types.uint32, types.float64)[number % 4]
        cases[f"block load and store, {algorithm}"] = partial(
            load_and_store, algorithm, dtype, (8, 16), storage=True
        )
    cases["block load and store, static storage"] = partial(
        load_and_store, "warp_transpose", types.int32, 128, storage=False
    )
    for sliced in (False, True):
        exchange = partial(block.make_exchange, STRIPED, types.float64, 128, ITEMS, sliced)
        cases |= {
            f"block exchange in place, sliced {sliced}": partial(
                in_place, exchange, types.float64, storage=False
            ),
            f"block exchange, sliced {sliced}": partial(from_to, exchange, types.float64),
        }
    return cases | {
        "block exchange of a user's type": partial(
            move_pairs, partial(block.make_exchange, STRIPED, pair_type, 128, 1, methods=METHODS)
        ),
    }


def _sorts() -> dict[str, Callable[[], Kernel]]:
    cases: dict[str, Callable[[], Kernel]] = {}
    for storage in (False, True):
        how = f"{'own' if storage else 'static'} storage"
        up, down = block.make_radix_sort_keys, block.make_radix_sort_keys_descending
        cases |= {
            f"block merge sort, {how}": partial(
                in_place,
                partial(block.make_merge_sort_keys, types.int32, 128, ITEMS, less),
                types.int32,
                storage=storage,
            ),
            f"block radix sort, {how}": partial(
                in_place, partial(up, types.uint32, 128, ITEMS), types.uint32, storage=storage
            ),
            f"block radix sort downwards, {how}": partial(
                in_place, partial(down, types.uint64, (2, 4, 8), ITEMS), types.uint64, storage=storage
            ),
            f"warp merge sort, {how}": partial(
                in_place,
                partial(warp.make_merge_sort_keys, types.int16, ITEMS, less),
                types.int16,
                storage=storage,
            ),
            f"warp sum, {how}": partial(
                of_value, partial(warp.make_sum, types.uint64), types.uint64, storage=storage
            ),
            f"warp reduce, {how}": partial(
                of_value, partial(warp.make_reduce, types.int32, minimum), types.int32, storage=storage
            ),
            f"warp exclusive sum, {how}": partial(
                of_value, partial(warp.make_exclusive_sum, types.uint32), types.uint32, storage=storage
            ),
        }
    return cases | {
        "block radix sort by bits": partial(sort_by_bits, types.uint32, 4, 20),
        "block merge sort of a user's type": partial(
            move_pairs, partial(block.make_merge_sort_keys, pair_type, 128, 1, less_pairs, METHODS)
        ),
    }


CASES = {**_reductions(), **_scans(), **_moves(), **_sorts()}
