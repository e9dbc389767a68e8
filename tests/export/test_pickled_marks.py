"""Marked functions as Python objects: pickled and copied like the functions that they are."""

from __future__ import annotations

import copy
import multiprocessing
import pickle

import cloudpickle
import front_ends
import pytest

import numba_ptxlink as pl


class Shapes:
    """A class with a marked function."""

    @staticmethod
    @pl.udf("int32(int32)")
    def successor(x):
        """Add one."""
        return x + 1


@pl.udf("float64(float64)", name="twice_as_double")
@pl.udf("int32(int32)")
def twice(x):
    """Double *x*."""
    return x * 2


@pl.kernel("void(int32[::1])")
def store(out):
    """Write one number."""
    out[0] = 1


def make(offset):
    """Return a marked function that no module has by its name."""

    @pl.udf("int32(int32)")
    def added(x):
        return x + offset

    return added


@pytest.mark.parametrize("marked", [Shapes.successor, twice, store], ids=lambda marked: marked.name)
@pytest.mark.parametrize(
    "copied",
    [lambda marked: pickle.loads(pickle.dumps(marked)), copy.copy, copy.deepcopy],  # noqa: S301
)
def test_it_is_known_by_its_qualified_name(marked, copied):
    """The copy is the object itself, as for a plain function, with its signatures and compiled code."""
    assert copied(marked) is marked
    assert copied([marked]) == [marked]


def test_a_pool_of_processes_calls_it():
    """Its name goes to the other process, which imports its module."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert [2, 4] == pool.map(twice, [1, 2])


def test_cloudpickle_sends_the_content():
    """A worker that cannot import the function calls and exports it: Dask sends those of a notebook so."""
    received = pickle.loads(cloudpickle.dumps(make(5)))  # noqa: S301
    assert (6, "added") == (received(1), received.name)
    exported = pl.export(received, arch="sm_90", emit="ptx")
    assert ["int32_t added(int32_t x)"] == [str(signature) for signature in exported.signatures]


@pytest.mark.parametrize("front_end", front_ends.NAMES)
def test_its_content_stays_when_it_is_compiled(front_end):
    """Numba finds a kernel on disk by the content of its closure, from before the compilation."""
    marked, cuda = make(5), front_ends.cuda(front_end)
    types = front_ends.get(front_end).types

    def calls(out):
        out[0] = marked(out[0])

    before = cloudpickle.dumps(marked)
    assert cuda.compile_ptx(calls, (types.int32[::1],), cc=(9, 0))[0]
    assert before == cloudpickle.dumps(marked)


def test_a_local_function_has_no_name_for_pickle():
    """The error is that of Python for any local function."""
    with pytest.raises((AttributeError, pickle.PicklingError), match=r"local object .*make\.<locals>\.added"):
        pickle.dumps(make(5))
