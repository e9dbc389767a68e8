"""The names of inputs in the log of nvJitLink."""

from __future__ import annotations

import pytest
from linkcases import KERNEL, function

import numba_ptxlink as pl
from numba_ptxlink._tools import nvjitlink

NAMES = ("first.ptx", "other.ptx", "Größe.ptx")


@pytest.mark.parametrize("asking", NAMES)
def test_an_error_names_the_input_it_is_about(asking):
    """Names of inputs stay valid until nvJitLink logs, since it keeps only their addresses."""
    codes = {name: function(name=f"g{number}") for number, name in enumerate(NAMES)}
    codes[asking] = KERNEL
    with pytest.raises(pl.LinkError) as caught:
        nvjitlink.link([("ptx", name, code.encode()) for name, code in codes.items()], ("-arch=sm_80",))
    assert f"Undefined reference to 'f' in '{asking}'" in caught.value.log


def test_an_input_that_is_refused_is_an_error():
    """The error names kind and file of the input, and quotes the cause."""
    with pytest.raises(pl.LinkError, match=r"failed to read the ptx Größe\.ptx: ptxas application ptx input"):
        nvjitlink.link([("ptx", "Größe.ptx", b".version 8.0\nnonsense")], ("-arch=sm_80",))
