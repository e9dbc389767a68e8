"""
List the number types of C and CUDA, and their vectors, in a table.

Layouts, prototypes, headers, LLVM IR of all front ends, manifests and the bytes of arguments are derived from
the rows of the table. The module `numba_ptxlink.abi` maps Numba types to rows. Loading an export imports this
module, so it imports nothing of the package.
"""

from __future__ import annotations

import functools
import itertools
from typing import NamedTuple


class NumberType(NamedTuple):
    """
    A type of number, or of several numbers of one kind in a struct that CUDA declares.

    Args:
        name: The type in C++.
        kind: The kind in manifests, whose readers treat all numbers of one kind and size in the same way.
        size: The size in bytes.
        align: The alignment in bytes.
        code: The abbreviation in generated names of structs.
        ir: The type in LLVM IR of the number, or of each element: such as "i8" or "float".
        numpy: The letter of the dtype's kind in NumPy; "V" (void) for bfloat16, which NumPy lacks; "" for
            vectors.
        dlpack: The `DLDataTypeCode`; None if DLPack has no code.
        element: The name of the elements' row, for complex numbers and vectors; "" for a number.
        element_count: The number of elements.
        header: The header of CUDA that declares it; "" for a number of the language.
        in_c: Whether the header declares it in C, too.
        raw: For a C++ class, the C struct of the same bits that replaces it in packed structs, since
            compilers refuse to pack classes; otherwise "".
    """

    name: str
    kind: str
    size: int
    align: int
    code: str
    ir: str
    numpy: str = ""
    dlpack: int | None = None
    element: str = ""
    element_count: int = 1
    header: str = ""
    in_c: bool = True
    raw: str = ""

    @property
    def is_float(self) -> bool:
        """Whether the type is one floating-point number."""
        return "float" in self.kind


# The columns are name, kind, size, align, code, ir, numpy and dlpack.
_ROWS = (
    NumberType("bool", "bool", 1, 1, "b", "i8", "b", 6),
    NumberType("char", "char", 1, 1, "char", "i8", "S"),
    NumberType("int8_t", "int", 1, 1, "i8", "i8", "i", 0),
    NumberType("int16_t", "int", 2, 2, "i16", "i16", "i", 0),
    NumberType("int32_t", "int", 4, 4, "i32", "i32", "i", 0),
    NumberType("int64_t", "int", 8, 8, "i64", "i64", "i", 0),
    NumberType("uint8_t", "uint", 1, 1, "u8", "i8", "u", 1),
    NumberType("uint16_t", "uint", 2, 2, "u16", "i16", "u", 1),
    NumberType("uint32_t", "uint", 4, 4, "u32", "i32", "u", 1),
    NumberType("uint64_t", "uint", 8, 8, "u64", "i64", "u", 1),
    NumberType("float", "float", 4, 4, "f32", "float", "f", 2),
    NumberType("double", "float", 8, 8, "f64", "double", "f", 2),
    # Floats that CUDA declares: each a class of C++, and a struct of C with the same bits.
    NumberType(
        "__half", "float16", 2, 2, "f16", "i16", "f", 2, header="cuda_fp16.h", in_c=False,
        raw="__half_raw",
    ),
    NumberType("__half_raw", "float16", 2, 2, "f16", "i16", "f", 2, header="cuda_fp16.h"),
    NumberType(
        "__nv_bfloat16", "bfloat16", 2, 2, "bf16", "i16", "V", 4, header="cuda_bf16.h", in_c=False,
        raw="__nv_bfloat16_raw",
    ),
    NumberType("__nv_bfloat16_raw", "bfloat16", 2, 2, "bf16", "i16", "V", 4, header="cuda_bf16.h"),
    # CUDA aligns complex numbers to their size.
    NumberType(
        "cuFloatComplex", "complex", 8, 8, "c64", "float", "c", 5, element="float", element_count=2,
        header="cuComplex.h",
    ),
    NumberType(
        "cuDoubleComplex", "complex", 16, 16, "c128", "double", "c", 5, element="double", element_count=2,
        header="cuComplex.h",
    ),
)  # fmt: skip
# The names of vectors in vector_types.h, without the number of elements: int4 has elements of int32_t.
_VECTOR_STEMS = {
    "int8_t": "char",
    "uint8_t": "uchar",
    "int16_t": "short",
    "uint16_t": "ushort",
    "int32_t": "int",
    "uint32_t": "uint",
    "int64_t": "longlong",
    "uint64_t": "ulonglong",
    "float": "float",
    "double": "double",
}
# In bytes: vector_types.h aligns double4, of 32 bytes, to 16.
_MAX_VECTOR_ALIGN = 16


def _vector(element: NumberType, count: int) -> NumberType:
    """Return the row of the vector of *count* elements, such as int4."""
    size = count * element.size
    # CUDA aligns vectors of two or four elements to their size, and those of one or three like an element.
    align = min(size, _MAX_VECTOR_ALIGN) if count in (2, 4) else element.align
    name = f"{_VECTOR_STEMS[element.name]}{count}"
    # CUDA 13 replaces the names of vectors of 32 bytes, such as double4 by double4_16a, which CUDA 12 lacks.
    # In the generated header, numba_ptxlink_double4 is an alias of double4_16a from CUDA 13 on, and of
    # double4 before.
    cxx_name = f"numba_ptxlink_{name}" if size == 32 else name
    return NumberType(
        cxx_name, "vector", size, align, name, element.ir, element=element.name, element_count=count,
        header="vector_types.h",
    )  # fmt: skip


NUMBERS = {row.name: row for row in _ROWS}
"""The rows by their names."""

NUMBERS |= {
    row.name: row
    for row in (
        _vector(NUMBERS[element], count) for element, count in itertools.product(_VECTOR_STEMS, range(1, 5))
    )
}


@functools.cache
def of_kind(kind: str, size: int) -> NumberType | None:
    """Return the first row of a *kind*, as manifests name it, and of *size* bytes; None if there is none."""
    return next((row for row in NUMBERS.values() if (row.kind, row.size) == (kind, size)), None)
