"""Check Python values against the C types of a manifest, and make the bytes of them that a kernel reads."""

from __future__ import annotations

import cmath
import operator
import struct
from collections.abc import Callable, Mapping
from numbers import Complex, Real
from typing import Any, NamedTuple

from numba_ptxlink.errors import shown

from . import arrays
from .arrays import DeviceArray, Launch, RefusedError, Types

Pack = Callable[[Any, Launch], bytes]


class Layout(NamedTuple):
    """A C type: its size in bytes, and what makes its bytes of a value or raises `RefusedError`."""

    size: int
    pack: Pack


def layout(types: Types, name: str) -> Layout:
    """
    Return the layout of the type *name*.

    Raises:
        KeyError: *types* do not describe it.
    """
    entry = types[name]
    return Layout(entry["size"], _MAKERS[entry["kind"]](types, name, entry))


def _integer(_: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    size, signed = entry["size"], entry["kind"] == "int"
    allowed = range(-(1 << 8 * size - 1), 1 << 8 * size - 1) if signed else range(1 << 8 * size)

    def pack(value: Any, _: Launch) -> bytes:
        try:
            return operator.index(value).to_bytes(size, "little", signed=signed)
        except (TypeError, OverflowError) as error:
            raise RefusedError(
                f"it is {_shown(value)}, and no {name}; pass an integer from {allowed.start} to "
                f"{allowed.stop - 1}"
            ) from error

    return pack


def _bool(*_: Any) -> Pack:
    def pack(value: Any, _: Launch) -> bytes:
        if _is_bool(value) or (isinstance(value, int) and value in {0, 1}):
            return bytes([bool(value)])
        raise RefusedError(f"it is {_shown(value)}; pass True or False")

    return pack


def _float(_: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    encode = _bfloat16 if entry["kind"] == "bfloat16" else struct.Struct(_FLOATS[entry["size"]]).pack

    def pack(value: Any, _: Launch) -> bytes:
        number = _number(value, float, Real, "a number")
        try:
            return encode(number)
        except OverflowError as error:
            raise RefusedError(f"{number} is too large for {name}; pass less, or math.inf") from error

    return pack


_FLOATS = {2: "<e", 4: "<f", 8: "<d"}
_QUIET = 1 << 6


def _bfloat16(number: float) -> bytes:
    """Return the upper half of a float, rounded to the nearest and to even; a NaN stays one."""
    (bits,) = struct.unpack("<I", struct.pack("<f", number))
    if cmath.isnan(number):
        # Its mantissa may be all ones, which would be rounded to zeros.
        return struct.pack("<H", bits >> 16 | _QUIET)
    upper = bits + 0x7FFF + (bits >> 16 & 1) >> 16
    if upper & 0x7FFF == 0x7F80 and not cmath.isinf(number):
        raise OverflowError
    return struct.pack("<H", upper)


def _number(value: Any, kind: type[float | complex], accepted: type, article: str) -> Any:
    """Return *value* as a float or complex number, if its type is a number of Python or NumPy that is one."""
    if not (isinstance(value, accepted) or _is_bool(value)):
        raise RefusedError(f"it is {_shown(value)}; pass {article}")
    try:
        number = kind(value)
    except (OverflowError, TypeError) as error:
        raise RefusedError(f"{_shown(value)} cannot be {article} of C; pass less") from error
    # Numbers of a larger range become infinite without a word.
    if cmath.isinf(number) and not cmath.isnan(number) and value != number:
        raise RefusedError(f"{_shown(value)} is too large; pass less")
    return number


def _complex(types: Types, _: str, entry: Mapping[str, Any]) -> Pack:
    part = layout(types, entry["element"]).pack

    def pack(value: Any, launch: Launch) -> bytes:
        number = _number(value, complex, Complex, "a complex number")
        return part(number.real, launch) + part(number.imag, launch)

    return pack


def _elements(types: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    element, count, size = entry["element"], entry["count"], entry["size"]
    is_text, one = types[element]["kind"] == "char", layout(types, element).pack

    def pack(value: Any, launch: Launch) -> bytes:
        if is_text and isinstance(value, bytes) and len(value) <= size:
            return value.ljust(size, b"\0")
        parts = _sequence(value, count, name)
        return b"".join([one(part, launch) for part in parts]).ljust(size, b"\0")

    return pack


def _sequence(value: Any, count: int, name: str) -> list[Any]:
    # What has no order, or is used up, is none.
    is_sequence = isinstance(value, (tuple, list)) or (arrays.is_numpy(value, "ndarray") and value.shape)
    if not is_sequence or hasattr(value, "mask") or len(value) != count:
        raise RefusedError(f"it is {_shown(value)}; for {name} pass {count} values, such as a tuple")
    return list(value)


def _struct(types: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    size, members, names = entry["size"], entry["members"], arrays.fields(entry)
    layouts = [(member["offset"], *layout(types, member["type"])) for member in members]

    def pack(value: Any, launch: Launch) -> bytes:
        is_record = arrays.is_numpy(value, "void") or (arrays.is_numpy(value, "ndarray") and not value.shape)
        if is_record and not arrays.is_like(types, name, value.dtype):
            raise RefusedError(
                f"it is of {value.dtype}, of which other members are elsewhere or have other names; pass one "
                f"of the members of {name}, converted by .astype(), or a tuple"
            )
        if is_record or isinstance(value, bytes):
            content = value.tobytes() if is_record else value
            if len(content) != size or _has_view(types, name):
                raise RefusedError(f"it is {_shown(value)}; pass a tuple of the members of {name}")
            return bytes(content)
        packed = bytearray(size)
        for field, (offset, extent, one), part in zip(
            names, layouts, _parts(value, names, name), strict=True
        ):
            try:
                packed[offset : offset + extent] = one(part, launch)
            except RefusedError as error:
                raise RefusedError(f"member {field!r}: {error}") from error
        return bytes(packed)

    def pack_optional(value: Any, launch: Launch) -> bytes:
        return bytes(size) if value is None else pack((value, True), launch)

    return pack_optional if arrays.is_optional(types, name) else pack


def _has_view(types: Types, name: str) -> bool:
    entry = types[name]
    inner = [part["type"] for part in entry.get("members", ())]
    return entry["kind"] == "view" or any(_has_view(types, part) for part in inner)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or arrays.is_numpy(value, "bool_")


def _parts(value: Any, names: list[str], name: str) -> list[Any]:
    """Return the values of the members of a struct, which mappings and named tuples have by their names."""
    own = list(value) if isinstance(value, Mapping) else list(getattr(value, "_fields", names))
    differs = own != names if isinstance(value, tuple) else set(own) != set(names)
    # A tuple in C has no names.
    if differs and not (isinstance(value, tuple) and arrays.is_tuple(names)):
        raise RefusedError(f"it has {', '.join(map(str, own))}; pass {', '.join(names)}")
    return (
        [value[field] for field in names]
        if isinstance(value, Mapping)
        else _sequence(value, len(names), name)
    )


def _pointer(types: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    target = types[entry["target"]]

    def pack(value: Any, launch: Launch) -> bytes:
        if value is None:
            return bytes(8)
        # A buffer of cuda.core is known by its address alone.
        number = getattr(value, "handle", value) if hasattr(value, "memory_resource") else value
        address = _address(number)
        if address is None:
            array = launch.read(value)
            if array is None:
                raise RefusedError(f"it is {_shown(value)}; pass {launch.takes}, or an address")
            if target["kind"] not in {"void", "view"}:
                _check_elements(types, entry["target"], array)
            if array.readonly and not entry.get("readonly"):
                raise RefusedError(f"it is read-only, and a kernel may write through {name}; copy it")
            if not (arrays.is_contiguous(array, "c") or arrays.is_contiguous(array, "f")):
                raise RefusedError(
                    "it has gaps; copy it, for example by ascontiguousarray() of CuPy or NumPy"
                )
            address = array.address
        elif address % target["align"]:
            raise RefusedError(
                f"{shown(address)} is not a multiple of {target['align']}; pass an aligned address"
            )
        else:
            launch.leads_to(address)
        try:
            return address.to_bytes(8, "little")
        except OverflowError as error:
            reason = f"{_shown(address)} is no address; pass one of the device, or an array"
            raise RefusedError(reason) from error

    return pack


def _address(value: Any) -> int | None:
    # An array of one integer converts to its element.
    if hasattr(value, "__dlpack__"):
        return None
    try:
        return operator.index(value)
    except TypeError:
        # The address types of NVIDIA's bindings have an __int__ alone, as has a float.
        return int(value) if type(value).__name__ == "CUdeviceptr" else None


def _view(types: Types, _: str, entry: Mapping[str, Any]) -> Pack:
    element, ndim, order = entry["element"], entry["ndim"], entry["layout"]
    code = struct.Struct(f"<Q{2 * ndim}q")

    def pack(value: Any, launch: Launch) -> bytes:
        array = launch.read(value)
        if array is None:
            raise RefusedError(f"it is {_shown(value)}; pass {launch.takes}")
        if len(array.shape) != ndim:
            raise RefusedError(f"it has {len(array.shape)} dimensions; pass an array of {ndim}")
        _check_elements(types, element, array)
        if array.readonly and not entry["readonly"]:
            raise RefusedError("it is read-only, and the kernel may write to it; pass a copy")
        if order != "any" and not arrays.is_contiguous(array, order):
            raise RefusedError(
                f"it is not contiguous in {order.upper()} order; pass a copy that is, or export the kernel "
                "for arrays with any strides"
            )
        return code.pack(array.address, *array.shape, *array.strides)

    return pack


def _check_elements(types: Types, name: str, array: DeviceArray) -> None:
    entry = types[name]
    if not arrays.is_like(types, name, array.dtype):
        raise RefusedError(
            f"its elements are {array.dtype}; pass an array of {name}, of {entry['size']} bytes each, by "
            ".astype() for example"
        )
    if array.address % entry["align"] and 0 not in array.shape:
        raise RefusedError(f"its address is not a multiple of {entry['align']}; pass an aligned copy")


def _shown(value: Any) -> str:
    return f"{shown(value, 40)}, a {type(value).__name__}"


_MAKERS: dict[str, Callable[[Types, str, Mapping[str, Any]], Pack]] = {
    "bool": _bool,
    "int": _integer,
    "uint": _integer,
    "char": _integer,
    "float": _float,
    "float16": _float,
    "bfloat16": _float,
    "complex": _complex,
    "vector": _elements,
    "array": _elements,
    "struct": _struct,
    "pointer": _pointer,
    "view": _view,
}
