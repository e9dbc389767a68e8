"""
Map Numba types to C types.

A front end, numba-cuda or numba-cuda-mlir, has classes of its own for Numba types, with the same names in
each; `_front_end.registry` returns the front end of a type. `_cabi` contains the C types, their layouts and
the prototypes; `_front_end.codegen` generates the code that converts values between C and Numba.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ._cabi import aggregates
from ._cabi import names as cnames
from ._cabi.numbers import NUMBERS
from ._cabi.options import AbiOptions, ExistingStruct
from ._cabi.signatures import Signature, check_ptx, structs_of
from ._cabi.types import (
    CType,
    Member,
    Pointer,
    Struct,
    View,
    Void,
    array,
    number,
    pointer,
    vector,
    view,
)
from ._front_end.registry import of_type
from .errors import AbiError

__all__ = ["AbiOptions", "Names", "Parameter", "Signature", "c_signature", "c_type", "check_ptx"]

# The names in C of floats and complex numbers, by their names in Numba.
_C_NAMES_OF_FLOATS = {
    "float16": "__half",
    "__nv_bfloat16": "__nv_bfloat16",
    "float32": "float",
    "float64": "double",
    "complex64": "cuFloatComplex",
    "complex128": "cuDoubleComplex",
}
# The layouts of `_cabi.types.view`, by Numba's letters.
_LAYOUTS = {"C": "c", "F": "f", "A": "any"}

Names = Mapping[Any, str | ExistingStruct]
"""
A name or a struct for each of some Numba types.

For a record, a `str` is its name in C, since Numba has no name for it. For a record or a tuple, an
`ExistingStruct` is the C++ struct to use.
"""


class Parameter(NamedTuple):
    """
    A parameter of a function that C calls.

    Args:
        name: The requested name; C gets another one if this one is not legal there.
        ty: The Numba type.
        const: Whether the function only reads the memory of this pointer or array.
        restrict: Whether no other pointer of the function refers to the memory of this pointer.
    """

    name: str
    ty: Any
    const: bool = False
    restrict: bool = False


def c_signature(
    name: str,
    result: Any,
    params: Iterable[Parameter | tuple[str, Any]],
    *,
    kernel: bool = False,
    names: Names | None = None,
) -> Signature:
    """
    Return the C signature of a function with these Numba types.

    Args:
        name: The symbol.
        result: The Numba type of the return value.
        params: Each parameter: a `Parameter`, or its name and Numba type.
        kernel: Whether the function is a `__global__` function.
        names: See `Names`. The struct of a type without an entry gets a name made of its members or, for a
            named tuple, the name of its class.

    Raises:
        AbiError: A type has no counterpart in C, two structs would have the same name, or a const or restrict
            parameter is not an address. The message names the function and the types.
    """

    def translate(param: Parameter, title: str) -> CType:
        subject = f"Function {name}: {title}, of Numba type {param.ty},"
        try:
            ctype = _with_qualifiers(c_type(param.ty, names), const=param.const, restrict=param.restrict)
        except AbiError as error:
            raise AbiError(f"{subject} has no C type. {error}") from error
        # Only the result, which has no name here, may be void.
        if param.name and isinstance(ctype, Void):
            raise AbiError(f"{subject} has no C type. Leave the parameter out.")
        return ctype

    # An inferred result may have a literal type, which in C is the type of its value.
    result_type = translate(Parameter("", of_type(result).types.unliteral(result)), "the return value")
    parameters = [Parameter(*param) for param in params]
    types = [translate(param, f"parameter {param.name!r}") for param in parameters]
    # A name in Python may be a keyword of C, or hide a type that a later parameter uses.
    legal_names = aggregates.legal_names([param.name for param in parameters], [result_type, *types])
    signature = Signature(
        name=name,
        result=result_type,
        params=tuple(zip(legal_names, types, strict=True)),
        kernel=kernel,
    )
    if kernel and not isinstance(signature.result, Void):
        raise AbiError(f"Kernel {name} returns {result}; a kernel returns nothing: write void(...).")
    # Raises AbiError if two structs have the same name.
    structs_of([signature])
    return signature


def _with_qualifiers(ctype: CType, *, const: bool, restrict: bool) -> CType:
    """Return *ctype* as a const or restrict parameter."""
    if isinstance(ctype, Pointer):
        return pointer(ctype.target, readonly=const, restrict=restrict)
    if const and not restrict and isinstance(ctype, View):
        return view(ctype.element, ctype.ndim, ctype.layout, readonly=True)
    if const or restrict:
        raise AbiError(
            "Only pointers and arrays can be const, and only pointers restrict; leave the option out."
        )
    return ctype


def c_type(ty: Any, names: Names | None = None) -> CType:
    """
    Return the C type of the Numba type *ty*.

    Args:
        ty: A Numba type.
        names: See `Names`. The struct of a type without an entry gets a name made of its members or, for a
            named tuple, the name of its class.

    Raises:
        AbiError: The type has no counterpart in C.
    """
    types = of_type(ty).types
    if isinstance(ty, types.Literal) and types.unliteral(ty) != ty:
        raise AbiError(f"A literal type fixes the value; use {types.unliteral(ty)}.")
    ctype = _scalar_type(ty) or _composite_type(ty, names or {})
    if ctype is None:
        raise AbiError(
            "Types with a C type are booleans, integers, float16, bfloat16, float32, float64, complex64, "
            "complex128, pointers (CPointer, voidptr), tuples, records, vector types, arrays, Optional, "
            "IntEnum, datetime64 and timedelta64."
        )
    return ctype


def _scalar_type(ty: Any) -> CType | None:
    """Return the C type of Numba's `none`, a number or a vector of numbers; None for other types."""
    front_end = of_type(ty)
    if isinstance(ty, front_end.types.NoneType):
        return Void()
    vector_elements = front_end.vector_elements(ty)
    if vector_elements is not None:
        numba_element, count = vector_elements
        element = _scalar_type(numba_element)
        return vector(element, count) if element is not None else None
    name = _number_name(ty)
    # For example, int128_t is not in NUMBERS, since C has no such type.
    return number(name) if name in NUMBERS else None


def _number_name(ty: Any) -> str:
    """Return the C name of the number *ty*, such as "int128_t", even if C lacks it; "" if it is no number."""
    types = of_type(ty).types
    if isinstance(ty, types.Boolean):
        return "bool"
    if isinstance(ty, (types.NPDatetime, types.NPTimedelta)):
        return "int64_t"
    if isinstance(ty, types.IntEnumMember):
        return _number_name(ty.dtype)
    if isinstance(ty, types.Integer):
        return f"{'' if ty.signed else 'u'}int{ty.bitwidth}_t"
    return _C_NAMES_OF_FLOATS.get(ty.name, "")


def _composite_type(ty: Any, names: Names) -> CType | None:
    """Return the C type of a pointer, tuple, Optional, record or array; None for other types."""
    types = of_type(ty).types
    if ty == types.voidptr:
        return pointer(Void())
    # A nested array is an `Array` for Numba, and in C only a member of a struct: `_field_type` translates it.
    if isinstance(ty, types.NestedArray):
        return None
    for class_name, translate in _COMPOSITES:
        if isinstance(ty, getattr(types, class_name)):
            return translate(ty, names)
    return None


def _pointer_type(ty: Any, names: Names) -> CType:
    """Return the C type of a CPointer."""
    target = c_type(ty.dtype, names)
    _check_in_memory(target)
    return pointer(target)


def _view_type(ty: Any, names: Names) -> CType:
    """Return the C type of an array: an `array_view`."""
    element = _member_type(ty.dtype, "Its element", names)
    _check_in_memory(element)
    # Numba distinguishes the layouts C and F even if they are equal: for an array that has no dimensions, or
    # one dimension and no gaps.
    is_also_c_layout = ty.ndim == 0 or (ty.ndim == 1 and ty.layout == "F")
    return view(element, ty.ndim, "c" if is_also_c_layout else _LAYOUTS[ty.layout], readonly=not ty.mutable)


def _check_in_memory(ctype: CType) -> None:
    """Raise AbiError if Numba and C lay out the target of a pointer differently in memory."""
    if isinstance(ctype, View) or (isinstance(ctype, Struct) and not ctype.is_numba_layout):
        description = ctype.python_type if isinstance(ctype, Struct) else ctype.name
        raise AbiError(
            f"Numba's memory layout of {description} differs from that of C; point to a record instead, or "
            "pass it by value."
        )


def _member_type(ty: Any, title: str, names: Names) -> CType:
    """Return the C type of an element, value or member; *title* names it in errors, such as "Its element"."""
    try:
        ctype = c_type(ty, names)
    except AbiError as error:
        raise AbiError(f"{title}, of Numba type {ty}, has no C type. {error}") from error
    if isinstance(ctype, Void):
        raise AbiError(f"{title} is None, which has no value in C; leave it out.")
    return ctype


def _optional_type(ty: Any, names: Names) -> CType:
    return aggregates.optional_struct(_member_type(ty.type, "Its value", names), str(ty))


def _tuple_type(ty: Any, names: Names) -> CType:
    """Return the struct of a tuple or a named tuple."""
    types = of_type(ty).types
    if not len(ty):
        raise AbiError("C has no empty struct; leave the empty tuple out.")
    fields = getattr(ty, "fields", None) or [f"f{index}" for index in range(len(ty))]
    members = [
        _member_type(member_ty, f"Its member {field}", names)
        for field, member_ty in zip(fields, ty.types, strict=True)
    ]
    existing_struct = names.get(ty)
    is_named = isinstance(ty, (types.NamedTuple, types.NamedUniTuple))
    python_kind = "namedtuple" if is_named else "tuple"
    if isinstance(existing_struct, ExistingStruct):
        layout = aggregates.tuple_struct(fields, members, existing_struct.name, python_kind, str(ty))
        return aggregates.as_existing(layout, existing_struct)
    # A struct without a name gets one made of its members.
    name = cnames.legal_struct_name(ty.instance_class.__name__) if is_named else None
    return aggregates.tuple_struct(fields, members, name, python_kind, str(ty))


def _record_type(ty: Any, names: Names) -> CType:
    """Return the struct of a record."""
    fields = [
        Member(field, _field_type(description.type, f"Its field {field!r}", names), description.offset)
        for field, description in ty.fields.items()
        # NumPy lists a field with a title twice: by its name and by its title.
        if field != description.title
    ]
    name_or_struct = names.get(ty)
    name = cnames.legal_struct_name(name_or_struct) if isinstance(name_or_struct, str) else ""
    python_type = (
        f"Record({', '.join(f'{field}: {description.type}' for field, description in ty.fields.items())})"
    )
    layout = aggregates.record_struct(name, fields, ty.size, python_type)
    if isinstance(name_or_struct, ExistingStruct):
        return aggregates.as_existing(layout, name_or_struct)
    # A packed struct, whose offsets are not those of C, has alignment 1. If NumPy aligns the record to more,
    # C++ has to align the struct, too.
    if layout.packed and ty.aligned:
        layout = dataclasses.replace(layout, align=ty.dtype.alignment)
    return aggregates.complete_record(layout)


def _field_type(ty: Any, title: str, names: Names) -> CType:
    """Return the C type of a field of a record, which, unlike other types, may be an array or characters."""
    types = of_type(ty).types
    if isinstance(ty, types.NestedArray):
        ctype = _field_type(ty.dtype, title, names)
        for count in reversed(ty.shape):
            ctype = array(ctype, count)
        return ctype
    if isinstance(ty, types.CharSeq):
        return array(number("char"), ty.count)
    if isinstance(ty, types.UnicodeCharSeq):
        return array(number("uint32_t"), ty.count)
    return _member_type(ty, title, names)


# Classes of Numba types, by their names, and the functions that translate them; the first match is used.
_COMPOSITES: tuple[tuple[str, Callable[[Any, Names], CType]], ...] = (
    ("CPointer", _pointer_type),
    ("BaseTuple", _tuple_type),
    ("Optional", _optional_type),
    ("Record", _record_type),
    ("Array", _view_type),
)
