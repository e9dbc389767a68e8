"""Check Python values against the C types of a manifest, and pack them into the bytes that a kernel reads."""

from __future__ import annotations

import cmath
import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Complex, Real
from typing import TYPE_CHECKING, Any, NamedTuple

from numba_ptxlink.errors import LaunchError, short_repr

from . import arrays
from .arrays import DeviceArray, DeviceArrayReader, Types, WrongArgumentError
from .results import Record, members_of

if TYPE_CHECKING:
    from numba_ptxlink._cabi.descriptions import TypeDescription
    from numba_ptxlink._link.manifests import Parameter

Pack = Callable[[Any, DeviceArrayReader], bytes]
"""Converts a value to the bytes of a C type, and records its addresses and streams in the reader."""

_MAX_VALUE_CHARS = 40


class Formal(NamedTuple):
    """
    A parameter of a kernel or a function.

    Args:
        name: The name.
        type: The name of the C type.
        pack: Converts a value to the bytes of that type, or raises `WrongArgumentError`.
        offset: The offset in the arguments of a kernel, in bytes.
    """

    name: str
    type: str
    pack: Pack
    offset: int


class Parameters:
    """
    The parameters of a kernel or a function, against which arguments are checked.

    Args:
        owner: The kernel or function, for messages, such as "Kernel scale".
        parameters: The parameters, as a manifest describes them.
        types: The C types of the manifest.

    Raises:
        KeyError: *types* lack the type of a parameter.
    """

    def __init__(self, owner: str, parameters: Iterable[Parameter], types: Types) -> None:
        self.owner = owner
        self.formals = [
            Formal(name, ctype, packer(types, ctype), offset) for name, ctype, offset in parameters
        ]

    def read(
        self,
        passed_values: Sequence[Any],
        reader: DeviceArrayReader,
        convert: Callable[[Formal, Any, Any], Any] | None = None,
    ) -> list[Any]:
        """
        Return the bytes of each argument, or the result of *convert* for it.

        Args:
            passed_values: The arguments that the caller passes.
            reader: Reads the arrays among them, and records addresses and streams.
            convert: Converts an argument to something else than bytes; None for bytes.

        Raises:
            LaunchError: The number of arguments is wrong, an argument does not fit its parameter, or reading
                an argument by the code of its package failed.
        """
        if len(passed_values) != len(self.formals):
            names = ", ".join(formal.name for formal in self.formals)
            raise LaunchError(
                f"{self.owner} takes ({names}), and {len(passed_values)} arguments were passed."
            )
        read_values = []
        for formal, value in zip(self.formals, passed_values, strict=True):
            reader.parameter = formal.name
            location = f"{self.owner}: parameter {formal.name!r} is {formal.type}"
            try:
                if convert:
                    read_values.append(convert(formal, value, reader))
                else:
                    read_values.append(formal.pack(value, reader))
            except WrongArgumentError as error:
                raise LaunchError(f"{location}: {error}.") from error
            except Exception as error:
                raise LaunchError(
                    f"{location}: a {type(value).__name__} cannot be read: {type(error).__name__}: {error}; "
                    "detach or copy it, or pass another value."
                ) from error
        return read_values


def packer(types: Types, name: str) -> Pack:
    """Return a function that packs values of the type *name*."""
    entry = types[name]
    return _PACKERS[entry.kind](types, name, entry)


def _integer_packer(_: Types, name: str, entry: TypeDescription) -> Pack:
    """Return the packer of an integer or a character."""
    size, is_signed = entry.size, entry.kind == "int"
    value_count = 1 << (8 * size)
    allowed = range(-(value_count // 2), value_count // 2) if is_signed else range(value_count)

    def pack(value: Any, _: DeviceArrayReader) -> bytes:
        try:
            return operator.index(value).to_bytes(size, "little", signed=is_signed)
        except (TypeError, OverflowError) as error:
            raise WrongArgumentError(
                f"it is {_describe_value(value)}, and not {name}; pass an integer from {allowed.start} to "
                f"{allowed.stop - 1}"
            ) from error

    return pack


def _bool_packer(*_: Any) -> Pack:
    """Return the packer of a bool, which also accepts 0 and 1."""

    def pack(value: Any, _: DeviceArrayReader) -> bytes:
        if _is_bool(value) or (isinstance(value, int) and value in {0, 1}):
            return bytes([bool(value)])
        raise WrongArgumentError(f"it is {_describe_value(value)}; pass True or False")

    return pack


def _float_packer(_: Types, name: str, entry: TypeDescription) -> Pack:
    """Return the packer of a floating-point number of any precision."""
    encode = _encode_bfloat16 if entry.kind == "bfloat16" else struct.Struct(_FLOAT_FORMATS[entry.size]).pack

    def pack(value: Any, _: DeviceArrayReader) -> bytes:
        number = _to_number(value, float, Real, "a number")
        try:
            return encode(number)
        except OverflowError as error:
            raise WrongArgumentError(f"{number} is too large for {name}; pass less, or math.inf") from error

    return pack


_FLOAT_FORMATS = {2: "<e", 4: "<f", 8: "<d"}
# In a bfloat16: the bit of the mantissa that makes a NaN quiet; infinity, and all bits but the sign.
_QUIET_NAN_BIT = 1 << 6
_INFINITY, _WITHOUT_SIGN = 0x7F80, 0x7FFF


def _encode_bfloat16(number: float) -> bytes:
    """Return the upper half of a float, rounded to nearest even; a NaN stays a NaN."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    if cmath.isnan(number):
        # A NaN is not rounded, as the carry could change the sign. A mantissa of zeros would mean infinity:
        # set one of its bits.
        return struct.pack("<H", (bits >> 16) | _QUIET_NAN_BIT)
    # Add just less than half of the last bit that is kept, or half of it if that bit is 1: exact halves are
    # then rounded to an even number.
    last_bit = (bits >> 16) & 1
    upper_half = (bits + 0x7FFF + last_bit) >> 16
    if upper_half & _WITHOUT_SIGN == _INFINITY and not cmath.isinf(number):
        raise OverflowError
    return struct.pack("<H", upper_half)


def _to_number(value: Any, number_type: type[float | complex], accepted_type: type, description: str) -> Any:
    """
    Return a number of Python or NumPy as a number of *number_type*.

    Args:
        value: The number.
        number_type: float or complex.
        accepted_type: The abstract class of the numbers to accept, beside booleans.
        description: The expected number in messages, such as "a number".
    """
    if not (isinstance(value, accepted_type) or _is_bool(value)):
        raise WrongArgumentError(f"it is {_describe_value(value)}; pass {description}")
    try:
        number = number_type(value)
    except (OverflowError, TypeError) as error:
        raise WrongArgumentError(
            f"{_describe_value(value)}, cannot be converted to {number_type.__name__}: {error}; pass another "
            "value"
        ) from error
    # A larger number of another type, such as numpy.longdouble, becomes infinite without an error. A complex
    # number with a NaN is left out here, since it is equal to no number.
    if cmath.isinf(number) and not cmath.isnan(number) and value != number:
        raise WrongArgumentError(f"{_describe_value(value)} is too large; pass less")
    return number


def _complex_packer(types: Types, _: str, entry: TypeDescription) -> Pack:
    """Return the packer of a complex number: its real and its imaginary part."""
    pack_part = packer(types, entry.element)

    def pack(value: Any, reader: DeviceArrayReader) -> bytes:
        number = _to_number(value, complex, Complex, "a complex number")
        return pack_part(number.real, reader) + pack_part(number.imag, reader)

    return pack


def _compound_packer(types: Types, name: str, entry: TypeDescription) -> Pack:
    """Return the packer of a struct, vector or array; it accepts records of NumPy, tuples and the like."""
    size, fields = entry.size, arrays.describe_members(types, name)
    names = [field.name for field in fields]
    packers = [(field.offset, packer(types, field.type)) for field in fields]
    # Members of a tuple have no names in Python, and neither have those of vectors and arrays, whose
    # `python_kind` is "".
    is_struct, is_named = entry.kind == "struct", entry.python_kind not in {"", "tuple"}
    is_text = entry.kind == "array" and types[entry.element].kind == "char"

    def pack(value: Any, reader: DeviceArrayReader) -> bytes:
        if is_text and isinstance(value, bytes) and len(value) <= size:
            return value.ljust(size, b"\0")
        # A record of NumPy is an element of an array of records, or an array without dimensions.
        is_record = arrays.is_numpy(value, "void") or (arrays.is_numpy(value, "ndarray") and not value.shape)
        if is_record and not arrays.matches_type(types, name, value.dtype):
            raise WrongArgumentError(
                f"its dtype {value.dtype} does not match struct {name} (names or offsets of members differ); "
                "convert it by .astype(), or pass a tuple"
            )
        if is_record or (is_struct and isinstance(value, bytes)):
            content = value.tobytes() if is_record else value
            if len(content) != size or _has_view(types, name):
                raise WrongArgumentError(
                    f"it is {_describe_value(value)}; pass a tuple of the members of {name}"
                )
            return bytes(content)
        packed = bytearray()
        member_values = _member_values(value, names, name, named=is_named)
        for member_name, (offset, pack_member), member in zip(names, packers, member_values, strict=True):
            try:
                # Padding fills the gap before the member.
                packed += bytes(offset - len(packed)) + pack_member(member, reader)
            except WrongArgumentError as error:
                raise WrongArgumentError(f"member {member_name!r}: {error}") from error
        return bytes(packed).ljust(size, b"\0")

    def pack_optional(value: Any, reader: DeviceArrayReader) -> bytes:
        # The struct of an Optional has two members: `value` and `has_value`.
        if arrays.is_numpy(value, "void") and arrays.matches_type(types, name, value.dtype):
            # The value may be an element of an array that a function has returned.
            return pack(value, reader)
        return bytes(size) if value is None else pack((value, True), reader)

    return pack_optional if arrays.is_optional(types, name) else pack


def _has_view(types: Types, name: str) -> bool:
    """Return whether a type contains an array_view, whose address is not checked if bytes are passed."""
    entry = types[name]
    return entry.kind == "view" or any(
        _has_view(types, field.type) for field in arrays.describe_members(types, name)
    )


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or arrays.is_numpy(value, "bool_")


def _member_values(value: Any, names: list[str], name: str, *, named: bool) -> list[Any]:
    """
    Return the values of the members of a struct, vector or array.

    Args:
        value: A mapping, a tuple, a list or an array of the values, or a `Record`.
        names: The names of the members.
        name: The name of the C type, for messages.
        named: Whether the members have names in Python, which names in *value* have to match.
    """
    if isinstance(value, Record):
        value = members_of(value) if named else tuple(value)
    value_names = list(value) if isinstance(value, Mapping) else list(getattr(value, "_fields", names))
    names_differ = value_names != names if isinstance(value, tuple) else set(value_names) != set(names)
    # If the members have no names in Python, names in a NamedTuple do not matter, but keys of a mapping do.
    if names_differ and (named or not isinstance(value, tuple)):
        raise WrongArgumentError(f"it has {', '.join(map(str, value_names))}; pass {', '.join(names)}")
    if isinstance(value, Mapping):
        return [value[field] for field in names]
    # Sets have no order, and iterators are exhausted after one use: neither is accepted.
    is_sequence = isinstance(value, (tuple, list)) or (arrays.is_numpy(value, "ndarray") and value.shape)
    if not is_sequence or hasattr(value, "mask") or len(value) != len(names):
        raise WrongArgumentError(
            f"it is {_describe_value(value)}; for {name} pass {len(names)} values, such as a tuple"
        )
    return list(value)


def _pointer_packer(types: Types, _: str, entry: TypeDescription) -> Pack:
    """Return the packer of a pointer; it accepts None, addresses, buffers of cuda.core and arrays."""
    target = types[entry.target]

    def pack(value: Any, reader: DeviceArrayReader) -> bytes:
        if value is None:
            return bytes(8)  # A null pointer.
        # A buffer of cuda.core is no array; its handle is its address.
        is_buffer = hasattr(value, "memory_resource")
        address = _address(getattr(value, "handle", value) if is_buffer else value)
        if address is None:
            array = _read_array(types, entry.target, value, reader, readonly=entry.readonly)
            if not (arrays.is_contiguous(array, "c") or arrays.is_contiguous(array, "f")):
                raise WrongArgumentError(
                    "it is not contiguous; copy it, for example by ascontiguousarray() of CuPy or NumPy"
                )
            address = array.address
        elif address % target.align:
            raise WrongArgumentError(
                f"{short_repr(address)} is not a multiple of {target.align}; pass an aligned address"
            )
        else:
            reader.add_address(address)
        try:
            return address.to_bytes(8, "little")
        except OverflowError as error:
            reason = f"{_describe_value(address)} is not an address; pass one of the device, or an array"
            raise WrongArgumentError(reason) from error

    return pack


def _address(value: Any) -> int | None:
    """Return *value* as an address if it is a number; None otherwise."""
    # An array of one integer would be converted to its element.
    if hasattr(value, "__dlpack__"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        # The address type of NVIDIA's bindings has only __int__, which floats have, too.
        return int(value) if type(value).__name__ == "CUdeviceptr" else None


def _view_packer(types: Types, _: str, entry: TypeDescription) -> Pack:
    """Return the packer of an `array_view`; it accepts arrays with the right number of dimensions."""
    ndim, order = entry.ndim, entry.layout
    # An `array_view`: the address, the shape and the strides.
    view_layout = struct.Struct(f"<Q{2 * ndim}q")

    def pack(value: Any, reader: DeviceArrayReader) -> bytes:
        array = _read_array(types, entry.element, value, reader, readonly=entry.readonly)
        if len(array.shape) != ndim:
            raise WrongArgumentError(f"it has {len(array.shape)} dimensions; pass an array of {ndim}")
        if order != "any" and not arrays.is_contiguous(array, order):
            raise WrongArgumentError(
                f"it is not contiguous in {order.upper()} order; pass a copy that is, or export the kernel "
                "for arrays with any strides"
            )
        return view_layout.pack(array.address, *array.shape, *array.strides)

    return pack


def _read_array(
    types: Types, name: str, value: Any, reader: DeviceArrayReader, *, readonly: bool
) -> DeviceArray:
    """
    Return the array *value* after a check of its elements, which have the type *name*.

    A read-only array is refused unless *readonly*: whether the kernel only reads through the parameter.
    """
    entry, array = types[name], reader.read(value)
    if array is None:
        raise WrongArgumentError(f"it is {_describe_value(value)}; pass {reader.accepted_arrays}")
    # A pointer to void, or to views, accepts arrays of any type.
    if entry.kind not in {"void", "view"} and not arrays.matches_type(types, name, array.dtype):
        raise WrongArgumentError(
            f"its elements are {array.dtype}; pass an array of {name}, of {entry.size} bytes each, by "
            ".astype() for example"
        )
    if array.address % entry.align and 0 not in array.shape:
        raise WrongArgumentError(f"its address is not a multiple of {entry.align}; pass an aligned copy")
    if array.readonly and not readonly:
        raise WrongArgumentError("it is read-only, and the kernel may write to it; pass a copy")
    return array


def _describe_value(value: Any) -> str:
    return f"{short_repr(value, _MAX_VALUE_CHARS)}, a {type(value).__name__}"


_PACKERS: dict[str, Callable[[Types, str, TypeDescription], Pack]] = {
    "bool": _bool_packer,
    "int": _integer_packer,
    "uint": _integer_packer,
    "char": _integer_packer,
    "float": _float_packer,
    "float16": _float_packer,
    "bfloat16": _float_packer,
    "complex": _complex_packer,
    "vector": _compound_packer,
    "array": _compound_packer,
    "struct": _compound_packer,
    "pointer": _pointer_packer,
    "view": _view_packer,
}
