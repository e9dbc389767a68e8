"""Parameters through which a function only reads, and those that nothing else leads to."""

from __future__ import annotations

import front_ends
import numpy as np
import pytest

import numba_ptxlink as pl
from numba_ptxlink._export import written
from numba_ptxlink._formats import ptx

pair = np.dtype([("x", "f4"), ("y", "f4")], align=True)
POINTERS = "void(CPointer(float32), CPointer(float32), int32)"
ARRAYS = "void(float32[:], float32[::1], int32)"
RECORDS = "void(CPointer(pair), CPointer(pair), int32)"


def add(a, b, n):
    """Add to one what is in the other."""
    for i in range(n):
        b[i] += a[i]


def backwards(a, b, n):
    """Copy in another order, by addresses that go down."""
    for i in range(n):
        b[n - 1 - i] = a[i]


def exchange(a, b, n):
    """Write to both."""
    for i in range(n):
        a[i], b[i] = b[i], a[i]


def either(a, b, n):
    """Write to one of them."""
    chosen = a if n > 3 else b
    chosen[0] = 1


def slices(a, b, n):
    """Copy between parts."""
    source, target = a[1:n], b[::2]
    for i in range(len(target)):
        target[i] = source[i]


def through_callee(a, b, n):
    """Write in a function of its own."""
    put(b, n, a[n])  # noqa: F821 - each front end has its own


def counted(a, b, n):
    """Add by an atomic operation, and read it."""
    cuda.atomic.add(b, n, a[0])  # noqa: F821 - each front end has its own


def member(a, b, n):
    """Write a whole element."""
    b[n] = a[n + 1]


def of(front_end, function):
    """Return *function* with what it calls of a front end."""
    from mlir_host import copied

    cuda = front_ends.cuda(front_end)

    @cuda.jit(device=True, inline="never")
    def put(target, i, value):
        target[i] = value

    return copied(function, cuda=cuda, put=put)


CASES = [
    (through_callee, POINTERS, (False, True)),
    *(
        pytest.param(*case, marks=pytest.mark.slow)
        for case in (
            (add, POINTERS, (False, True)),
            (add, ARRAYS, (False, True)),
            (backwards, POINTERS, (False, True)),
            (exchange, ARRAYS, (True, True)),
            (either, POINTERS, (True, True)),
            (slices, ARRAYS, (False, True)),
            (counted, ARRAYS, (False, True)),
            (member, RECORDS, (False, True)),
        )
    ),
]


@pytest.mark.parametrize("front_end", front_ends.NAMES)
@pytest.mark.parametrize("mark", [pl.udf, pl.kernel])
@pytest.mark.parametrize(
    ("function", "signature", "expected"), CASES, ids=lambda each: getattr(each, "__name__", "")
)
def test_writes_are_found_in_ptx(front_end, mark, function, signature, expected):
    """In loops, through callees and by atomics, in both dialects; reading is not writing."""
    marked = mark(signature, name="f", front_end=front_end)(of(front_end, function))
    exported = pl.export(marked, emit=["ptx"], archs=["sm_90", "sm_100"])
    for arch in ("sm_90", "sm_100"):
        module = ptx.parse(exported.read("ptx", arch).decode())
        assert expected == tuple(bool(written.through(module, "f", number)) for number in (0, 1))


@pytest.mark.parametrize("front_end", front_ends.NAMES)
@pytest.mark.parametrize("opt", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_const_is_declared_and_checked(front_end, opt):
    """It is `const` in C++; a function that may write through it is refused, with the instruction."""
    for signature, declared in (
        (POINTERS, "void f(const float* a, float* b, int32_t n)"),
        (ARRAYS, "void f(numba_ptxlink::array_view<const float, 1, numba_ptxlink::layout_any> a, "),
    ):
        good = pl.udf(signature, name="f", const="a", front_end=front_end)(add)
        front_ends.get(front_end)
        assert str(pl.export(good, emit=["ptx"], opt=opt).signatures[0]).startswith(declared)
        bad = pl.udf(signature, name="f", const=("a", "b"), front_end=front_end)(add)
        with pytest.raises(pl.AbiError, match=r"parameter 'b' is const, and its code may write.*`st\."):
            pl.export(bad, emit=["ptx"], opt=opt)


@pytest.mark.parametrize(
    ("signature", "declared"),
    [
        ("void(CPointer(CPointer(float32)))", "float* const* a"),
        ("void(CPointer(CPointer(CPointer(float32))))", "float** const* a"),
        (
            "void(Array(CPointer(float32), 1, 'C'))",
            "numba_ptxlink::array_view<float* const, 1, numba_ptxlink::layout_c> a",
        ),
    ],
)
def test_pointers_are_constant_and_not_what_they_lead_to(signature, declared):
    """What lies behind a pointer that is only read may be written: the pointers are const, C++ takes it."""

    def first(a):
        a[0]

    (made,) = pl.export(pl.udf(signature, const="a")(first), emit=["ptx"]).signatures
    assert f"void first({declared})" == str(made)


@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_restrict_is_a_promise_that_the_compiler_uses(front_end):
    """A kernel reads by the read-only cache what nothing else leads to; without the promise it must not."""
    front_ends.get(front_end)
    plain = pl.kernel(POINTERS, name="f", const="a", front_end=front_end)(add)
    promised = pl.kernel(POINTERS, name="f", const="a", restrict=("a", "b"), front_end=front_end)(add)
    text, faster = (pl.export(each, emit=["ptx"], archs=["sm_90"]) for each in (plain, promised))
    assert "void f(const float* __restrict__ a, float* __restrict__ b, int32_t n)" == str(
        faster.signatures[0]
    )
    assert (False, True) == tuple(b"ld.global.nc" in each.read("ptx") for each in (text, faster))


def test_an_address_that_c_writes_through_is_not_const():
    """What C++ defines may write through all that it is given."""
    from numba import cuda

    writes = cuda.declare_device("writes", "void(CPointer(float32))", abi="c")

    def calls(a):
        writes(a)

    with pytest.raises(pl.AbiError, match="passes it to writes, which is defined elsewhere"):
        pl.export(pl.udf("void(CPointer(float32))", const="a")(calls), emit=["ptx"])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"const": "n"}, "is a value, and const is for pointers and arrays"),
        ({"restrict": "b"}, "cannot be __restrict__"),
        ({"const": "z"}, "has no parameter 'z', which const names; it has a, b, n"),
        ({"restrict": 1}, "pass a name or several"),
    ],
)
def test_what_is_no_address_is_refused(options, reason):
    """Neither numbers nor names of nothing are const or restrict; no array is restrict."""
    with pytest.raises(pl.AbiError, match=reason):
        pl.export(pl.udf(ARRAYS, **options)(add), emit=["ptx"])
