"""The exception tree."""

from __future__ import annotations

import copy
import pickle

import pytest

from numba_ptxlink import errors

BUILTINS = {"ConfigError": ValueError, "AbiError": ValueError, "MissingInputError": FileNotFoundError}


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_keeps_what_it_carries(name):
    """Each error is a PtxlinkError and the built-in one it calls for, and crosses processes as it is."""
    error = getattr(errors, name)(
        "No. Do this.", flags=("-v", "-x"), inputs=("a.ptx",), log="line 1\nline 2\n"
    )
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - its own pickle
        assert type(error) is type(twin)
        assert (str(error), vars(error)) == (str(twin), vars(twin))
    assert isinstance(error, errors.PtxlinkError)
    assert name == "PtxlinkError" or isinstance(error, BUILTINS.get(name, RuntimeError))


def test_attributes_default_to_empty():
    """An error without tool output has empty flags, inputs and log."""
    error = errors.PtxlinkError("No.")
    assert ((), (), "") == (error.flags, error.inputs, error.log)
