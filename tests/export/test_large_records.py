"""Records that C++ passes by address in LLVM IR: not copied member by member."""

from __future__ import annotations

import re

import abi_rows
import numpy as np
import pytest
from front_ends import get as front_end_of

import numba_ptxlink as pl
from numba_ptxlink._config import FRONT_ENDS
from numba_ptxlink._tools.options import Options

# A whole struct, but not one of zeros.
COPY = re.compile(r'store %"?struct\.\S+ %')


def lowered(members: int, name: str, arch: str) -> str:
    """Return the LLVM IR of a function over a record of floats, as *name* makes it."""
    front_end = front_end_of(name)
    fields = [("first", np.int8), *((f"m{number}", np.float32) for number in range(members))]
    record = front_end.from_dtype(np.dtype(fields, align=True))

    def changed(big, x):
        return x + big.first

    udf = pl.udf((record, front_end.types.float32), name="changed", front_end=name)(changed)
    compiled = abi_rows.program([udf], name, pl.Arch.of(arch), Options())
    return "\n".join(compiled.functions[0].modules)


@pytest.mark.parametrize("arch", ["sm_80", "sm_100"])
@pytest.mark.parametrize("name", FRONT_ENDS)
def test_a_large_record_is_used_where_it_is(name, arch):
    """NVVM's time for a copy grows with the cube of the size, and the parameter is the function's own."""
    assert " byval" in lowered(200, name, arch)
    assert not COPY.search(lowered(200, name, arch))
    # A small one is a value, and Numba takes an address.
    assert COPY.search(lowered(8, name, arch))
