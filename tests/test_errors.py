"""The exception tree."""

from __future__ import annotations

import copy
import pickle

import pytest

from numba_ptxlink import errors

CLASSES = [getattr(errors, name) for name in errors.__all__]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("cls", CLASSES)
def test_pickles_with_its_attributes(cls: type[errors.PtxlinkError], protocol: int) -> None:
    """An error that crosses processes keeps its class, message, flags, inputs and log."""
    error = cls("No. Do this.", flags=("-v", "-x"), inputs=("a.ptx",), log="line 1\nline 2\n")
    twin = pickle.loads(pickle.dumps(error, protocol))  # noqa: S301 (its own pickle)
    assert cls is type(twin)
    assert ("No. Do this.", ("-v", "-x"), ("a.ptx",), "line 1\nline 2\n") == (
        str(twin),
        twin.flags,
        twin.inputs,
        twin.log,
    )


@pytest.mark.parametrize("cls", CLASSES)
def test_copies_with_its_attributes(cls: type[errors.PtxlinkError]) -> None:
    """A copied error keeps its attributes."""
    assert ("-v",) == copy.copy(cls("No.", flags=("-v",))).flags


@pytest.mark.parametrize("cls", CLASSES)
def test_derives_from_the_base(cls: type[errors.PtxlinkError]) -> None:
    """Every error is a PtxlinkError, so one except clause catches all of them."""
    assert issubclass(cls, errors.PtxlinkError)


@pytest.mark.parametrize(
    ("cls", "builtin"),
    [
        (errors.ConfigError, ValueError),
        (errors.AbiError, ValueError),
        (errors.AssembleError, RuntimeError),
        (errors.LinkError, RuntimeError),
        (errors.ExportError, RuntimeError),
        (errors.ActivationError, RuntimeError),
    ],
)
def test_is_also_the_builtin(cls: type[errors.PtxlinkError], builtin: type[Exception]) -> None:
    """Each error is also the built-in exception that its situation calls for."""
    assert issubclass(cls, builtin)


def test_attributes_default_to_empty() -> None:
    """An error without tool output has empty flags, inputs and log."""
    error = errors.PtxlinkError("No.")
    assert ((), (), "") == (error.flags, error.inputs, error.log)
