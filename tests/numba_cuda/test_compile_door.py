"""`cuda.compile` of each front end accepts the same names and keys of abi_info as without the plugin."""

from __future__ import annotations

import warnings

import front_ends
import pytest

import numba_ptxlink as pl
from numba_ptxlink._formats.ptx import parse
from numba_ptxlink._front_end.patch import applied

# OptiX calls programs by their prefixes, device libraries use __nv_, mangled and dotless module names.
NAMES = [
    "__raygen__f",
    "__direct_callable__f",
    "__nv_f",
    "__f",
    "_F",
    "mod$f",
    "$f",
    "max",
    "printf",
    "main",
    "for",
    "_ZN3mod1fEi",
    "_Z",
    # As Numba's own names, which the plugin replaces by others.
    "_Z1fB2v1i",
    "_ZN8__main__1fB2v3B4abcdEi",
]


@pytest.fixture(params=front_ends.NAMES)
def compiled(request):
    """Return the code of a function by `cuda.compile` of a front end."""
    cuda, table = front_ends.cuda(request.param), front_ends.get(request.param).table()
    pl.enable()
    # The second front end's replacements are there for a test alone.
    with applied(table if request.param != "numba-cuda" else ()):
        yield lambda function, **options: cuda.compile(function, "int32(int32)", cc=(9, 0), **options)[0]


def increment(value):
    """Add one."""
    return value + 1


def defined(ptx):
    """Return the names of the functions in *ptx*."""
    return [function.prototype.name for function in parse(ptx).functions if function.defined]


@pytest.mark.parametrize("name", NAMES)
def test_a_name_that_numba_takes_is_kept(compiled, name):
    """An identifier of PTX is the symbol, whether C++ has it or not, without a warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ptx = compiled(increment, abi_info={"abi_name": name})
    assert [name] == defined(ptx)
    assert name.encode() in pl.assemble(ptx, "sm_90", relocatable=True).code


def test_a_marked_function_is_compiled_as_its_function(compiled):
    """`compile` of a function marked by `udf` equals that of the Python function."""
    marked = pl.udf("int64(int64)")(increment)
    texts = [
        compiled(function, abi_info={"abi_name": "f", "on_error": "zero"}) for function in (marked, increment)
    ]
    assert texts[0] == texts[1]
    assert compiled(marked, abi="numba", device=True)


@pytest.mark.parametrize("key", ["on_error", "checked", "aggregates"])
def test_what_the_numba_abi_has_not_is_refused(compiled, key):
    """Options of the C ABI are errors with another ABI."""
    value = {"on_error": "trap", "checked": True, "aggregates": "value"}[key]
    with pytest.raises(pl.AbiError, match=f'^{key} in abi_info is for functions with abi="c"'):
        compiled(increment, abi="numba", device=True, abi_info={key: value})
