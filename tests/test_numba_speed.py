"""What the front end works out once instead of again and again is what numba-cuda would have worked out."""

from __future__ import annotations

import itertools
import math
import operator

import pytest
from numba import cuda, types
from numba.core.errors import TypingError

import numba_ptxlink as pl
from numba_ptxlink import _numba, _numba_speed

SPEED = {each[1]: _numba.Substitution(*each) for each in _numba_speed.SPEED}


@pytest.fixture(autouse=True)
def stock():
    """Start from numba-cuda as it is."""
    pl.disable()


def test_options_compare_as_before():
    """Values, equality and hash of compiler options, set and unset, are those of the original methods."""
    from numba.cuda.core.targetconfig import TargetConfig
    from numba.cuda.flags import CUDAFlags, Flags

    def make(cls, **options):
        flags = cls()
        for name, value in options.items():
            setattr(flags, name, value)
        return flags

    every = [
        make(CUDAFlags),
        make(CUDAFlags, fastmath=True),
        make(CUDAFlags, fastmath=True),
        make(CUDAFlags, fastmath=False),
        make(CUDAFlags, compute_capability=(9, 0), lto=True),
        make(Flags),
        make(Flags, nrt=True),
    ]

    def observe():
        values = [list(each.values().items()) for each in every]
        equal = [one == other for one, other in itertools.product(every, repeat=2)]
        return values, equal, [hash(each) for each in every], every[0] == 1, TargetConfig.__eq__(every[0], 1)

    expected = observe()
    with _numba.applied(tuple(each for path, each in SPEED.items() if path.startswith("TargetConfig"))):
        assert observe() == observe() == expected


def test_what_is_registered_later_is_seen(monkeypatch):
    """A refresh works while there is something new, and only then."""
    from numba.cuda.descriptor import cuda_target
    from numba.cuda.extending import overload

    context = cuda_target.target_context
    calls = []
    load = type(context).load_additional_registries
    monkeypatch.setattr(
        type(context), "load_additional_registries", lambda self: calls.append(self) or load(self)
    )

    def late(x):
        return x

    with _numba.applied(_numba.SUBSTITUTIONS):
        context.refresh()
        context.refresh()
        calls.clear()
        context.refresh()
        assert calls == []
        overload(late, target="cuda")(lambda x: lambda x: x + 41)  # noqa: ARG005 - its name counts
        context.refresh()
        assert calls == [context]

        def kernel(x):
            x[0] = late(x[0])

        text, _ = cuda.compile_ptx(kernel, (types.int32[::1],), cc=(8, 0))
        assert "41" in text


def test_calls_have_the_types_they_had():
    """Operators and functions of mathematics are typed as before, once more, and refused where they were."""
    from numba.cuda.descriptor import cuda_target

    context = cuda_target.typing_context
    context.refresh()
    kinds = [
        types.boolean,
        types.int8,
        types.uint64,
        types.literal(3),
        types.float16,
        types.float32,
        types.complex128,
        types.Optional(types.int32),
        types.UniTuple(types.int64, 2),
        types.NPTimedelta("s"),
        types.float64[::1],
        types.unicode_type,
    ]
    functions = [operator.add, operator.lt, operator.floordiv, operator.getitem, math.hypot, math.sin, bool]
    cases = [
        (function, args)
        for function in functions
        for args in itertools.product(kinds, repeat=1 if function in (math.sin, bool) else 2)
    ]

    def observe(function, args):
        try:
            signature = context.resolve_function_type(function, args, {})
        except TypingError as error:
            return type(error)
        return signature, context._lookup_global(function).get_impl_key(signature)

    def signatures():
        return [found if isinstance(found, type) else found[0] for found in itertools.starmap(observe, cases)]

    expected = signatures()
    with _numba.applied((SPEED["BaseContext._resolve_user_function_type"],)):
        assert signatures() == expected
        before = [observe(*case) for case in cases]
        assert [observe(*case) for case in cases] == before
    assert len(expected) > expected.count(TypingError) > 0


def test_a_call_that_is_remembered_leaves_its_implementation():
    """Resolved once more, a call is not typed anew, and finds its implementation."""
    from numba.cuda.descriptor import cuda_target

    context = cuda_target.typing_context
    context.refresh()
    pair = (types.uint16, types.float32)
    function = context._lookup_global(operator.truediv)
    with _numba.applied((SPEED["BaseContext._resolve_user_function_type"],)):
        signature = context.resolve_function_type(operator.truediv, pair, {})
        function._impl_keys[signature.args] = None
        assert context.resolve_function_type(operator.truediv, pair, {}) is signature
    assert function.get_impl_key(signature) is operator.truediv


def test_an_overload_that_comes_later_is_chosen():
    """Types that an operator refused are taken once there is an overload for them."""
    from numba.cuda.descriptor import cuda_target
    from numba.cuda.extending import overload

    context = cuda_target.typing_context
    triple = types.UniTuple(types.int8, 3)
    with _numba.applied(_numba.SUBSTITUTIONS):
        for _ in range(2):
            context.refresh()
            with pytest.raises(TypingError):
                context.resolve_function_type(operator.matmul, (triple, triple), {})
        overload(operator.matmul, target="cuda")(
            lambda x, y: (lambda x, y: x[0] * y[1] + 7919) if x == y == triple else None
        )

        def kernel(out, x):
            out[0] = x @ x

        text, _ = cuda.compile_ptx(kernel, (types.int64[::1], triple), cc=(8, 0))
    assert "7919" in text


def helper(x, y):
    """Mix integers and floats."""
    return math.hypot(x, y) if x > y else x**2 - y // 2


def calling(out, x, y):
    """Use shared memory, a device function, a loop over an array and complex numbers."""
    i = cuda.grid(1)
    shared = cuda.shared.array(32, types.float64)
    if i < out.size:
        shared[cuda.threadIdx.x] = device(x[i], y[i])
        cuda.syncthreads()
        for j, value in enumerate(shared):
            out[i] += value * math.exp(x[(i + j) % x.size]) + complex(y[i], j).imag


device = cuda.jit(device=True)(helper)


@pytest.mark.parametrize(
    ("function", "args", "result"),
    [
        (helper, (types.float32, types.float64), types.float64),
        (helper, (types.int64, types.int32), types.float64),
        (calling, (types.float64[::1], types.float32[:], types.int32[::1]), types.void),
    ],
)
def test_the_llvm_ir_is_the_same(function, args, result):
    """The front end ends where it ended: with the same LLVM IR, whoever compiles first."""

    def texts():
        made = _numba.compile_function(function, args, result, pl.Arch(9, 0))
        return _numba.ordered_modules([made.library])

    expected = texts()
    with _numba.applied(tuple(SPEED.values())):
        assert texts() == texts() == expected
    assert texts() == expected
