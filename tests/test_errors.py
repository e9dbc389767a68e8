"""The exception tree."""

from __future__ import annotations

import copy
import pickle

import pytest

from numba_ptxlink import errors

BUILTINS = {"ConfigError": ValueError, "AbiError": ValueError, "MissingInputError": FileNotFoundError}


class StatusError(Exception):
    """An error of another package, constructed from a number alone."""

    def __init__(self, status):
        super().__init__(f"status {status:d}")
        self.status = status

    def __reduce__(self):
        return type(self), (self.status,)


class BothError(errors.PtxlinkError, StatusError):
    """An error that is caught as either."""


@pytest.mark.parametrize("kind", [*(getattr(errors, name) for name in errors.__all__), BothError])
def test_an_error_keeps_what_it_carries(kind):
    """Each error, also one that derives from another package's, is pickled with its message and fields."""
    error = kind("No. Do this.", flags=("-v", "-x"), inputs=("a.ptx",), log="line 1\nline 2\n")
    assert str(error) == "No. Do this."
    for twin in (pickle.loads(pickle.dumps(error)), copy.copy(error)):  # noqa: S301 - its own pickle
        assert type(error) is type(twin)
        assert (str(error), vars(error)) == (str(twin), vars(twin))


@pytest.mark.parametrize("name", sorted({*errors.__all__} - {"PtxlinkError"}))
def test_an_error_is_caught_as_a_builtin_one(name):
    """Each error is a PtxlinkError and the built-in one it calls for."""
    assert issubclass(getattr(errors, name), errors.PtxlinkError)
    assert issubclass(getattr(errors, name), BUILTINS.get(name, RuntimeError))


def test_attributes_default_to_empty():
    """An error without tool output has empty flags, inputs and log."""
    error = errors.PtxlinkError("No.")
    assert ((), (), "") == (error.flags, error.inputs, error.log)
