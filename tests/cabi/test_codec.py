"""Signatures as JSON: what is read is what was written, with all that a header is made of."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numba.cuda import types

from numba_ptxlink import abi
from numba_ptxlink._cabi import codec
from numba_ptxlink._front_end import registry

RECORD = np.dtype([("a", np.int8), ("b", np.float64, (2, 3)), ("c", np.complex64)], align=True)
ARGUMENTS = (
    types.float32,
    types.boolean,
    types.float16,
    types.complex128,
    types.CPointer(types.int16),
    types.voidptr,
    types.Array(types.float32, 2, "A", readonly=True),
    types.Tuple((types.int8, types.UniTuple(types.float64, 2))),
    types.Optional(types.int64),
)


@pytest.mark.parametrize("ty", ARGUMENTS, ids=str)
def test_a_signature_survives(ty):
    """A signature that went through JSON equals the one before."""
    signature = abi.c_signature("f", ty, [("x", ty)])
    assert codec.decode(json.loads(json.dumps(codec.encode(signature)))) == signature


def test_a_record_survives():
    """A struct keeps its members, offsets, names and what is said about it."""
    record = registry.get("numba-cuda").from_dtype(RECORD)
    signature = abi.c_signature("f", record, [("x", record)], names={record: "Sample"})
    again = codec.decode(json.loads(json.dumps(codec.encode(signature))))
    assert again == signature
    assert again.prototype_for(modern=True) == signature.prototype_for(modern=True)


@pytest.mark.parametrize("value", [{"class": "str"}, {"class": "Scalar"}, {}])
def test_what_is_no_signature_is_refused(value):
    """A damaged entry is an error that its reader expects."""
    with pytest.raises((KeyError, TypeError, ValueError)):
        codec.decode(value)


def test_what_is_no_part_of_a_signature_is_not_written():
    """Nothing is written that would be read as something else."""
    with pytest.raises(TypeError, match="no part"):
        codec.encode((1.5,))
