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
from .arrays import DeviceArguments, DeviceArray, Types, WrongArgumentError
from .results import Record, members_of

if TYPE_CHECKING:
    from numba_ptxlink._cabi.descriptions import TypeDescription
    from numba_ptxlink._link.manifests import Parameter

Pack = Callable[[Any, DeviceArguments], bytes]


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
        args: Sequence[Any],
        memory: DeviceArguments,
        convert: Callable[[Formal, Any, Any], Any] | None = None,
    ) -> list[Any]:
        """
        Return the bytes of each argument, or the result of *convert* for it.

        Raises:
            LaunchError: The number of arguments is wrong, one does not fit its parameter, or the code of its
                package failed.
        """
        if len(args) != len(self.formals):
            names = ", ".join(formal.name for formal in self.formals)
            raise LaunchError(f"{self.owner} takes ({names}), and {len(args)} arguments were passed.")
        read_values = []
        for formal, value in zip(self.formals, args, strict=True):
            memory.parameter = formal.name
            location = f"{self.owner}: parameter {formal.name!r} is {formal.type}"
            try:
                read_values.append(convert(formal, value, memory) if convert else formal.pack(value, memory))
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


def _integer(_: Types, name: str, entry: TypeDescription) -> Pack:
    size, signed = entry.size, entry.kind == "int"
    allowed = range(-(1 << 8 * size - 1), 1 << 8 * size - 1) if signed else range(1 << 8 * size)

    def pack(value: Any, _: DeviceArguments) -> bytes:
        try:
            return operator.index(value).to_bytes(size, "little", signed=signed)
        except (TypeError, OverflowError) as error:
            raise WrongArgumentError(
                f"it is {_describe_value(value)}, and not {name}; pass an integer from {allowed.start} to "
                f"{allowed.stop - 1}"
            ) from error

    return pack


def _bool(*_: Any) -> Pack:
    def pack(value: Any, _: DeviceArguments) -> bytes:
        if _is_bool(value) or (isinstance(value, int) and value in {0, 1}):
            return bytes([bool(value)])
        raise WrongArgumentError(f"it is {_describe_value(value)}; pass True or False")

    return pack


def _float(_: Types, name: str, entry: TypeDescription) -> Pack:
    encode = _bfloat16 if entry.kind == "bfloat16" else struct.Struct(_FLOATS[entry.size]).pack

    def pack(value: Any, _: DeviceArguments) -> bytes:
        number = _number(value, float, Real, "a number")
        try:
            return encode(number)
        except OverflowError as error:
            raise WrongArgumentError(f"{number} is too large for {name}; pass less, or math.inf") from error

    return pack


_FLOATS = {2: "<e", 4: "<f", 8: "<d"}
_QUIET_NAN_BIT = 1 << 6


def _bfloat16(number: float) -> bytes:
    """Return the upper half of a float, rounded to nearest even; a NaN stays a NaN."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    if cmath.isnan(number):
        # A mantissa of only ones would be rounded to zeros.
        return struct.pack("<H", bits >> 16 | _QUIET_NAN_BIT)
    upper = bits + 0x7FFF + (bits >> 16 & 1) >> 16
    if upper & 0x7FFF == 0x7F80 and not cmath.isinf(number):
        raise OverflowError
    return struct.pack("<H", upper)


def _number(value: Any, kind: type[float | complex], accepted: type, article: str) -> Any:
    """Return *value*, a number of Python or NumPy of the type *accepted*, as a float or complex number."""
    if not (isinstance(value, accepted) or _is_bool(value)):
        raise WrongArgumentError(f"it is {_describe_value(value)}; pass {article}")
    try:
        number = kind(value)
    except (OverflowError, TypeError) as error:
        raise WrongArgumentError(f"{_describe_value(value)} cannot be {article} of C; pass less") from error
    # Numbers of a type with a larger range silently become infinite.
    if cmath.isinf(number) and not cmath.isnan(number) and value != number:
        raise WrongArgumentError(f"{_describe_value(value)} is too large; pass less")
    return number


def _complex(types: Types, _: str, entry: TypeDescription) -> Pack:
    part = packer(types, entry.element)

    def pack(value: Any, arguments: DeviceArguments) -> bytes:
        number = _number(value, complex, Complex, "a complex number")
        return part(number.real, arguments) + part(number.imag, arguments)

    return pack


def _compound(types: Types, name: str, entry: TypeDescription) -> Pack:
    size, fields = entry.size, arrays.fields(types, name)
    names = [field.name for field in fields]
    packers = [(field.offset, packer(types, field.type)) for field in fields]
    is_struct, is_named = entry.kind == "struct", entry.python_kind not in {"", "tuple"}
    is_text = entry.kind == "array" and types[entry.element].kind == "char"

    def pack(value: Any, arguments: DeviceArguments) -> bytes:
        if is_text and isinstance(value, bytes) and len(value) <= size:
            return value.ljust(size, b"\0")
        is_record = arrays.is_numpy(value, "void") or (arrays.is_numpy(value, "ndarray") and not value.shape)
        if is_record and not arrays.is_like(types, name, value.dtype):
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
        parts = _parts(value, names, name, named=is_named)
        for member_name, (offset, pack_member), part in zip(names, packers, parts, strict=True):
            try:
                packed += bytes(offset - len(packed)) + pack_member(part, arguments)
            except WrongArgumentError as error:
                raise WrongArgumentError(f"member {member_name!r}: {error}") from error
        return bytes(packed).ljust(size, b"\0")

    def pack_optional(value: Any, arguments: DeviceArguments) -> bytes:
        if arrays.is_numpy(value, "void") and arrays.is_like(types, name, value.dtype):
            # The value may be an element of an array that a function has returned.
            return pack(value, arguments)
        return bytes(size) if value is None else pack((value, True), arguments)

    return pack_optional if arrays.is_optional(types, name) else pack


def _has_view(types: Types, name: str) -> bool:
    entry = types[name]
    return entry.kind == "view" or any(_has_view(types, field.type) for field in arrays.fields(types, name))


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or arrays.is_numpy(value, "bool_")


def _parts(value: Any, names: list[str], name: str, *, named: bool) -> list[Any]:
    """Return the values of members, by their names if they are *named* and *value* has names."""
    if isinstance(value, Record):
        value = members_of(value) if named else tuple(value)
    given_names = list(value) if isinstance(value, Mapping) else list(getattr(value, "_fields", names))
    differs = given_names != names if isinstance(value, tuple) else set(given_names) != set(names)
    # Members of tuples and arrays have no names in Python; those of vectors have C's names.
    if differs and (named or not isinstance(value, tuple)):
        raise WrongArgumentError(f"it has {', '.join(map(str, given_names))}; pass {', '.join(names)}")
    if isinstance(value, Mapping):
        return [value[field] for field in names]
    # Sets have no order, and iterators are exhausted after one use: neither is accepted.
    is_sequence = isinstance(value, (tuple, list)) or (arrays.is_numpy(value, "ndarray") and value.shape)
    if not is_sequence or hasattr(value, "mask") or len(value) != len(names):
        raise WrongArgumentError(
            f"it is {_describe_value(value)}; for {name} pass {len(names)} values, such as a tuple"
        )
    return list(value)


def _pointer(types: Types, _: str, entry: TypeDescription) -> Pack:
    target = types[entry.target]

    def pack(value: Any, arguments: DeviceArguments) -> bytes:
        if value is None:
            return bytes(8)
        # A buffer of cuda.core has only an address.
        number = getattr(value, "handle", value) if hasattr(value, "memory_resource") else value
        address = _address(number)
        if address is None:
            array = _array(types, entry.target, value, arguments, readonly=entry.readonly)
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
            arguments.add_address(address)
        try:
            return address.to_bytes(8, "little")
        except OverflowError as error:
            reason = f"{_describe_value(address)} is not an address; pass one of the device, or an array"
            raise WrongArgumentError(reason) from error

    return pack


def _address(value: Any) -> int | None:
    # Not operator.index for arrays: an array of one integer would convert to its element.
    if hasattr(value, "__dlpack__"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        # The address type of NVIDIA's bindings has only __int__, which floats have, too.
        return int(value) if type(value).__name__ == "CUdeviceptr" else None


def _view(types: Types, _: str, entry: TypeDescription) -> Pack:
    ndim, order = entry.ndim, entry.layout
    code = struct.Struct(f"<Q{2 * ndim}q")

    def pack(value: Any, arguments: DeviceArguments) -> bytes:
        array = _array(types, entry.element, value, arguments, readonly=entry.readonly)
        if len(array.shape) != ndim:
            raise WrongArgumentError(f"it has {len(array.shape)} dimensions; pass an array of {ndim}")
        if order != "any" and not arrays.is_contiguous(array, order):
            raise WrongArgumentError(
                f"it is not contiguous in {order.upper()} order; pass a copy that is, or export the kernel "
                "for arrays with any strides"
            )
        return code.pack(array.address, *array.shape, *array.strides)

    return pack


def _array(types: Types, name: str, value: Any, arguments: DeviceArguments, *, readonly: bool) -> DeviceArray:
    """Return the array *value*, whose elements have the type *name*; *readonly* if it is only read."""
    entry, array = types[name], arguments.read(value)
    if array is None:
        raise WrongArgumentError(f"it is {_describe_value(value)}; pass {arguments.accepted_arrays}")
    # A pointer to void, or to views, accepts arrays of any type.
    if entry.kind not in {"void", "view"} and not arrays.is_like(types, name, array.dtype):
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
    return f"{short_repr(value, 40)}, a {type(value).__name__}"


_PACKERS: dict[str, Callable[[Types, str, TypeDescription], Pack]] = {
    "bool": _bool,
    "int": _integer,
    "uint": _integer,
    "char": _integer,
    "float": _float,
    "float16": _float,
    "bfloat16": _float,
    "complex": _complex,
    "vector": _compound,
    "array": _compound,
    "struct": _compound,
    "pointer": _pointer,
    "view": _view,
}
