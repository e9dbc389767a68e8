"""Values that numba-cuda-mlir would misread: arrays, targets of pointers, records that are not aligned."""

from __future__ import annotations

import re

import front_ends
import numpy as np
import pytest
from front_ends import on_cpu
from mlir_replaced import no_device, replaced  # noqa: F401 - fixtures

import numba_ptxlink as pl

NAME = "numba-cuda-mlir"
cuda, types = front_ends.cuda(NAME), front_ends.get(NAME).types
RECORD = front_ends.get(NAME).from_dtype(np.dtype([("x", "f4"), ("y", "f4"), ("z", "i4")], align=True))
pytestmark = pytest.mark.usefixtures("replaced", "no_device")


def chosen(arrays, index):
    """Read an element of an array that is chosen at run time."""
    return arrays[index][1]


def compiled(function, ty, result):
    """Return the PTX of a function of one argument."""
    return cuda.compile(function, result(ty), cc=(9, 0), abi_info={"abi_name": "f"})[0]


def tail(array):
    """Return all but the first element."""
    return array[1:]


def test_a_slice_begins_at_its_first_element():
    """An offset that numba-cuda-mlir counts in elements becomes an address in bytes."""
    array = types.float32[::1]
    assert re.search(r"add\.s64\s+%rd\d+, %rd\d+, 4;", compiled(tail, array, array))


def same(value):
    """Return *value*."""
    return value


PACKED = front_ends.get(NAME).from_dtype(np.dtype([("a", "i1"), ("b", "f8")]))
THREE = cuda.float32x3
MISREAD = {
    RECORD[:]: "with strides, of records, .* in C order",
    RECORD[::1, :]: "with strides, of records, .* in C order",
    cuda.float64x4[:]: "or long vectors, .* in C order",
    types.complex64[:]: r"complex numbers or long vectors, .* such as complex64\[::1\]",
    THREE[::1]: "vectors of three.* take a pointer to the elements",
    PACKED: "laid out otherwise than in C[+]{2}, .* with align=True or, if",
    types.Optional(RECORD): "an Optional of a record; pass a flag",
    PACKED[::1]: "laid out otherwise than in C[+]{2}, .* with align=True or, if",
    types.CPointer(RECORD): r"points to records or tuples, .* take an array, record\[::1\]",
    types.CPointer(types.CPointer(RECORD)): r"points to records or tuples, .* take an array, record\[::1\]",
    types.CPointer(types.UniTuple(types.float32, 2)): "points to records or tuples, .* take an array",
    types.CPointer(THREE): "vectors of three.* take a pointer to the elements",
}


@pytest.mark.parametrize("around", [lambda ty: ty, lambda ty: types.Tuple((types.int32, ty))], ids=["", "in"])
@pytest.mark.parametrize("ty", MISREAD, ids=str)
def test_what_would_be_misread_is_refused(ty, around, tmp_path):
    """The error names function, parameter, type and cure; nothing is converted."""
    udf = pl.udf(types.int32(around(ty)), name="f", front_end=NAME)(lambda value: 1)  # noqa: ARG005
    cure = rf"Function f: parameter 'value', of Numba type .*{MISREAD[ty]}.*, or choose front_end"
    with pytest.raises(pl.AbiError, match=cure):
        pl.export([udf], tmp_path, arch="sm_90", emit=["ltoir"])


def test_a_misread_type_explains_a_failed_compilation():
    """The error of a function that numba-cuda-mlir cannot compile names the parameter that it misreads."""
    pointer = types.CPointer(types.UniTuple(types.float32, 2))
    udf = pl.udf(types.float32(pointer), name="f", front_end=NAME)(lambda pointer: pointer[0][1])
    with pytest.raises(pl.ExportError, match=r"parameter 'pointer', of .* reads addresses; take an array"):
        pl.export([udf], arch="sm_90", emit=["ltoir"])


@pytest.mark.parametrize(
    "ty", [types.CPointer(cuda.float32x4), types.CPointer(types.CPointer(types.float32)), RECORD], ids=str
)
def test_what_is_read_as_c_lays_it_out_is_not(ty, tmp_path):
    """Other pointers, and records that are aligned, are taken."""
    udf = pl.udf(ty(ty), name="f", front_end=NAME)(same)
    assert pl.export([udf], tmp_path, arch="sm_90", emit=["ptx"]).artifacts


def test_an_array_of_a_tuple_is_chosen_at_run_time():
    """The element is that of the array at the index, and an index out of the tuple is an error."""
    signature = types.float32(types.UniTuple(types.float32[::1], 2), types.int32)
    arrays = tuple(np.array([[1, 2], [3, 4]], np.float32))
    call = on_cpu(pl.udf(signature, name="f", front_end=NAME)(chosen), NAME)
    assert [2, 4, 0] == [call(arrays, index) for index in (0, 1, 2)]
    # Below sm_100, the tuple is compiled to another form.
    ptx, _ = cuda.compile(chosen, signature, cc=(9, 0), abi_info={"abi_name": "f"})
    assert ".visible .func  (.param .b32 func_retval0) f(" in ptx


def measure(a, out):
    """Write lengths of slices of an array, one of their elements, and those of dynamic shared memory."""
    rows, shared = a[::2, :], cuda.shared.array(0, types.int32)
    out[0], out[1], out[2] = rows.shape[0], rows.size, rows[1, 0]
    out[3], out[4], out[5] = a[:, ::2].shape[1], shared.size, len(shared)


def test_lengths_are_those_of_the_page_about_compilers():
    """A step leaves the length of an array of two dimensions, and dynamic shared memory has none."""
    kernel = pl.kernel((types.int32[:, ::1], types.int32[::1]), front_end=NAME)(measure)
    out = np.full(6, -1, np.int32)
    on_cpu(kernel, NAME)[1, 1, 0, 32](np.arange(32, dtype=np.int32).reshape(8, 4), out)
    assert [8, 32, 8, 4, 0, 0] == out.tolist()
