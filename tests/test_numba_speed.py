"""What the front end works out once instead of again and again is what numba-cuda would have worked out."""

from __future__ import annotations

import builtins
import collections
import functools
import inspect
import itertools
import math
import operator
import re
from types import BuiltinFunctionType

import numpy as np
import pytest
from numba import cuda, types
from numba.core.errors import TypingError
from numba.cuda import literal_unroll
from numba.cuda.typing.templates import AbstractTemplate, signature

import numba_ptxlink as pl
from numba_ptxlink import _numba, _numba_speed

SPEED = {each[1]: _numba.Substitution(*each) for each in _numba_speed.SPEED}


@pytest.fixture(autouse=True)
def stock():
    """Start from numba-cuda as it is, as if it compiled something."""
    from numba.core.target_extension import target_override
    from numba.cuda.core.targetconfig import ConfigStack
    from numba.cuda.flags import CUDAFlags

    pl.disable()
    flags = CUDAFlags()
    flags.compute_capability = (8, 0)
    with target_override("cuda"), ConfigStack().enter(flags), _numba.applied(_numba.DRIVERLESS):
        yield


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
    with _numba.applied((SPEED["types.BaseFunction.get_call_type"],)):
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
    with _numba.applied((SPEED["types.BaseFunction.get_call_type"],)):
        signature = context.resolve_function_type(operator.truediv, pair, {})
        function._impl_keys[signature.args] = None
        assert context.resolve_function_type(operator.truediv, pair, {}) is signature
    assert function.get_impl_key(signature) is operator.truediv


def test_other_targets_resolve_their_calls():
    """Numba's own target has the same types of functions; nothing is remembered for it."""
    from numba.core.registry import cpu_target
    from numba.core.target_extension import target_override

    context = cpu_target.typing_context
    context.refresh()
    pair = (types.int16, types.float32)
    with target_override("cpu"):
        expected = context.resolve_function_type(operator.add, pair, {})
        with _numba.applied((SPEED["types.BaseFunction.get_call_type"],)):
            assert context.resolve_function_type(operator.add, pair, {}) == expected
    assert "_ptxlink_signatures" not in vars(context)


def test_a_method_that_comes_later_is_found():
    """A function that resolves a method looks for it again once there are more methods."""
    from numba.cuda.descriptor import cuda_target
    from numba.cuda.extending import overload_method

    context = cuda_target.typing_context
    array = types.Array(types.int16, 3, "F")
    with _numba.applied(tuple(SPEED.values())):
        context.refresh()
        for _ in range(2):
            assert types.int64 == context.resolve_function_type(np.sum, (array,), {}).return_type
        overload_method(types.Array, "sum", target="cuda")(
            lambda each: (lambda each: 0.5) if each == array else None  # noqa: ARG005 - its name counts
        )
        context.refresh()
        assert types.float64 == context.resolve_function_type(np.sum, (array,), {}).return_type


def test_what_is_resolved_without_types_is_left_alone():
    """Keywords, values without a hash and equal values that are not the same get what they got."""
    from numba.cuda.descriptor import cuda_target

    context = cuda_target.typing_context
    context.refresh()
    seen = []

    class Template(AbstractTemplate):
        key = "values"

        def generic(self, args, kws):
            seen.append((args, kws))
            return signature(types.intp, types.literal(args[0]) if type(args[0]) is int else types.boolean)

    function = types.Function(Template)
    with _numba.applied((SPEED["types.BaseFunction.get_call_type"],)):
        for args, kws in (((1,), {}), ((True,), {}), (([],), {}), ((1,), {"a": types.intp})) * 2:
            found = function.get_call_type(context, args, kws)
            assert found.args == ((types.literal(1),) if type(args[0]) is int else (types.boolean,))
    assert 8 == len(seen)


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


def branches(x, y):
    """Have loops and branches."""
    total = 0
    for i in range(x.size):
        if x[i] > y:
            total += x[i]
        elif x[i] == 0:
            continue
        while total > 7:
            total -= x[i]
    x[0] = total
    return total


def yields(x, y):
    """Be a generator."""
    for i in range(x):
        yield i * y


def unrolls(x, y):
    """Be unrolled."""
    for each in literal_unroll((x, 1.5, y)):
        y += each
    return y


@pytest.mark.parametrize("function", [branches, yields, unrolls])
@pytest.mark.parametrize(("emit_dels", "extend_lifetimes"), [(False, False), (True, False), (True, True)])
def test_variables_live_as_long_as_before(function, emit_dels, extend_lifetimes):
    """Deletions, lifetimes and the variables alive at the start of each block are the original ones."""
    from numba.cuda.compiler import run_frontend
    from numba.cuda.core.postproc import PostProcessor

    def observe():
        made = run_frontend(function)
        PostProcessor(made).run(emit_dels, extend_lifetimes)
        lifetime = made.variable_lifetime
        generator = made.generator_info
        return (
            {offset: [str(each) for each in block.body] for offset, block in made.blocks.items()},
            {offset: made.get_block_entry_vars(block) for offset, block in made.blocks.items()},
            lifetime.livemap,
            lifetime.usedefs,
            lifetime.deadmaps,
            generator and (generator.state_vars, [vars(each) for each in generator.get_yield_points()]),
        )

    def comparable(observed):
        *others, generator = observed
        return others, generator and (generator[0], [each["live_vars"] for each in generator[1]])

    expected = comparable(observe())
    with _numba.applied((SPEED["PostProcessor.run"],)):
        assert comparable(observe()) == expected
    assert (expected[1] is None) is (function is not yields)


def test_variables_of_a_block_that_is_not_there():
    """Asking for them says which block it was."""
    from numba.cuda.compiler import run_frontend

    with _numba.applied((SPEED["PostProcessor.run"],)):
        made = run_frontend(branches)
    for _ in range(2):
        with pytest.raises(KeyError, match="of another function"):
            made.get_block_entry_vars("of another function")


def test_variables_of_changed_and_copied_functions():
    """A copy has the variables of the original's blocks, and a block that is put in has none."""
    from numba.cuda.compiler import run_frontend

    with _numba.applied((SPEED["PostProcessor.run"],)):
        made = run_frontend(branches)
    first, last = min(made.blocks), max(made.blocks)
    copied = made.copy()
    expected = [made.get_block_entry_vars(made.blocks[offset]) for offset in (first, last)]
    assert expected == [copied.get_block_entry_vars(copied.blocks[offset]) for offset in (first, last)]
    with _numba.applied((SPEED["PostProcessor.run"],)):
        changed = run_frontend(branches)
    changed.blocks[last + 100] = changed.blocks[last].copy()
    assert expected[1] == changed.get_block_entry_vars(changed.blocks[last])
    assert changed.blocks[last + 100] not in changed.block_entry_vars


def test_a_loop_over_a_tuple_is_unrolled_as_before():
    """Unrolling asks for lifetimes after it has changed the blocks they were worked out for."""

    def kernel(out, x):
        for i in range(3):
            for each in literal_unroll((x, i, 2.5)):
                if each > i:
                    out[0] += each

    def compiled():
        text, _ = cuda.compile_ptx(kernel, (types.float64[::1], types.float32), cc=(8, 0))
        return re.sub(r"(?<=B\d)v\d+", "", text)

    expected = compiled()
    with _numba.applied(tuple(SPEED.values())):
        assert compiled() == expected


def test_variables_are_listed_as_before():
    """Those that a statement reads and writes, wherever they are in it."""
    from numba.cuda.compiler import run_frontend
    from numba.cuda.core import ir

    statements = [
        each
        for function in (branches, yields, unrolls)
        for block in run_frontend(function).blocks.values()
        for each in block.body
    ]
    names = [each for statement in statements for each in statement.list_vars()]
    nested = [
        names[:2],
        {"a": names[2], "b": (names[3], [statements[0]])},
        (),
        {},
        None,
        3,
        "x",
        ir.Loc("f", 1),
    ]
    values = [*statements, *nested, nested, tuple(nested), collections.OrderedDict(a=names[0]), names[0]]

    def observe():
        listed = [each.list_vars() for each in statements]
        return listed, [statements[0]._rec_list_vars(each) for each in values]

    expected = observe()
    with _numba.applied((SPEED["Inst._rec_list_vars"],)):
        assert observe() == expected
    assert len(names) > 50

    class Other(ir.Stmt):
        def _rec_list_vars(self, value):
            return [value] if isinstance(value, str) else super()._rec_list_vars(value)

    other = Other()
    other.name = "of another package"
    with _numba.applied((SPEED["Inst._rec_list_vars"],)):
        assert other.list_vars() == ["of another package"]


def test_parameters_are_found_as_before():
    """Whether a function takes `loc`, however its parameters are spelled, is what its signature says."""
    from numba.cuda.core import base

    def takes(context, builder, loc=None):
        pass

    def not_quite(*args, **kwargs):
        loc = args, kwargs
        loc += args
        return loc

    def only_by_name(*, loc):
        pass

    def all_of_them(*loc):
        pass

    def others_by_name(a, **loc):
        pass

    @functools.wraps(takes)
    def wraps(*args):
        pass

    def claims(a):
        pass

    claims.__signature__ = inspect.signature(takes)

    class Callable:
        def __call__(self, loc):
            pass

    class Bound:
        method = functools.partialmethod(takes)

    functions = [
        takes,
        Bound.method,
        not_quite,
        only_by_name,
        all_of_them,
        others_by_name,
        wraps,
        claims,
        Callable(),
    ]
    functions += [
        functools.partial(takes, loc=1),
        functools.partial(not_quite),
        lambda loc, /: loc,
        lambda: 0,
    ]
    expected = [base._has_loc(each) for each in functions]
    with _numba.applied((SPEED["_has_loc"],)):
        assert [base._has_loc(each) for each in functions] == expected
    assert {True, False} == set(expected)


def test_sizes_are_those_of_the_types():
    """Sizes of LLVM types, asked for twice; a structure known by name alone has none, nor has a string."""
    from llvmlite import ir
    from numba.cuda.descriptor import cuda_target

    context = cuda_target.target_context
    contexts = [ir.Context(), ir.Context()]
    named = [each.get_identified_type("point") for each in contexts]
    named[0].set_body(ir.IntType(8))
    named[1].set_body(ir.IntType(64), ir.IntType(64))
    plain = [
        ir.IntType(1),
        ir.IntType(64),
        ir.DoubleType(),
        ir.IntType(8).as_pointer(),
        ir.ArrayType(ir.IntType(16), 3),
        ir.LiteralStructType([ir.IntType(8), ir.IntType(64)]),
        ir.LiteralStructType([ir.IntType(8), ir.IntType(64)], packed=True),
    ]
    with _numba.applied((SPEED["BaseContext.get_abi_sizeof"],)):
        for _ in range(2):
            assert [context.get_abi_sizeof(each) for each in plain] == [1, 8, 8, 8, 6, 16, 9]
            for kind in named:
                with pytest.raises(RuntimeError):
                    context.get_abi_sizeof(kind)
            with pytest.raises(AssertionError):
                context.get_abi_sizeof("i64")


def test_values_have_the_types_they_had():
    """Built-in functions that Numba knows and those it does not, and values that are something else."""
    from numba.cuda.descriptor import cuda_target

    context = cuda_target.typing_context
    context.refresh()
    values = [*vars(operator).values(), *vars(math).values(), *vars(builtins).values(), 3, None, "text"]

    def observe():
        found = []
        for value in values:
            try:
                found.append(context.resolve_value_type(value))
            except ValueError:
                found.append(ValueError)
        return found

    expected = observe()
    with _numba.applied((SPEED["BaseContext.resolve_value_type"],)):
        assert observe() == expected
    assert len(expected) - 50 > expected.count(ValueError) > 10


def test_built_in_functions_that_somebody_gives_a_type():
    """A type registered for all built-in functions goes before the names that Numba knows."""

    def typeof(value, purpose):
        return value, purpose

    math_typeof, typeof = functools.singledispatch(typeof), functools.singledispatch(typeof)

    assert _numba_speed._unknown(typeof)
    assert _numba_speed._unknown(typeof, typeof)
    typeof.register(BuiltinFunctionType)(lambda value, purpose: types.intp)  # noqa: ARG005 - its signature
    assert not _numba_speed._unknown(typeof)
    assert not _numba_speed._unknown(math_typeof, typeof)
