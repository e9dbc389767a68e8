"""Check Python values against the C types of a manifest, and make the bytes of them that a kernel reads."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from . import arrays
from .arrays import DeviceArray, Launch, Leaves, RefusedError

Types = Mapping[str, Mapping[str, Any]]
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


def leaves(types: Types, name: str, offset: int = 0) -> Leaves:
    """Return the numbers in a value of the type *name* that lies at *offset*."""
    entry = types[name]
    if entry["kind"] == "struct":
        inner = [leaves(types, part["type"], offset + part["offset"]) for part in entry["members"]]
    elif entry["kind"] in ("array", "vector"):
        step = types[entry["element"]]["size"]
        inner = [leaves(types, entry["element"], offset + step * number) for number in range(entry["count"])]
    else:
        return ((offset, f"{_CODES[entry['kind']]}{entry['size']}"),)
    return tuple(leaf for part in inner for leaf in part)


# NumPy's codes. It has none for bfloat16, which is a void of 2 bytes to ml_dtypes and PyTorch.
_CODES = {
    "bool": "b",
    "int": "i",
    "uint": "u",
    "char": "S",
    "float": "f",
    "float16": "f",
    "bfloat16": "V",
    "complex": "c",
    "pointer": "u",
    "void": "V",
}
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}
_ADDRESSES = range(1 << 64)


def _integer(_: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    size, signed = entry["size"], entry["kind"] == "int"
    allowed = range(-(1 << 8 * size - 1), 1 << 8 * size - 1) if signed else range(1 << 8 * size)

    def pack(value: Any, _: Launch) -> bytes:
        try:
            number = operator.index(value)
        except TypeError as error:
            raise RefusedError(f"it is {_shown(value)}; pass an integer") from error
        if number not in allowed:
            raise RefusedError(
                f"{number} is no {name}; pass an integer from {allowed.start} to {allowed.stop - 1}"
            )
        return number.to_bytes(size, "little", signed=signed)

    return pack


def _bool(*_: Any) -> Pack:
    def pack(value: Any, _: Launch) -> bytes:
        if isinstance(value, bool) or _dtype_kind(value) == "b":
            return bytes([bool(value)])
        if isinstance(value, int) and value in {0, 1}:
            return bytes([value])
        raise RefusedError(f"it is {_shown(value)}; pass True or False")

    return pack


def _char(*_: Any) -> Pack:
    def pack(value: Any, _: Launch) -> bytes:
        if isinstance(value, (bytes, bytearray)) and len(value) == 1:
            return bytes(value)
        raise RefusedError(f"it is {_shown(value)}; pass one byte, such as b'x'")

    return pack


def _float(_: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    code = struct.Struct(_FLOATS[entry["size"]])

    def pack(value: Any, _: Launch) -> bytes:
        number = _real(value)
        try:
            return code.pack(number)
        except OverflowError as error:
            raise RefusedError(f"{number} is too large for {name}; pass less, or math.inf") from error

    return pack


def _bfloat16(*_: Any) -> Pack:
    def pack(value: Any, _: Launch) -> bytes:
        number = _real(value)
        try:
            (bits,) = struct.unpack("<I", struct.pack("<f", number))
        except OverflowError as error:
            raise RefusedError(f"{number} is too large for bfloat16; pass less, or math.inf") from error
        if number == number:  # noqa: PLR0124 - it is not a NaN, which rounding up could make infinite
            bits += 0x7FFF + (bits >> 16 & 1)
        return int(bits >> 16).to_bytes(2, "little")

    return pack


def _real(value: Any) -> float:
    if isinstance(value, (float, int)):
        return float(value)
    is_number = hasattr(value, "__float__") or hasattr(value, "__index__")
    if not is_number or isinstance(value, complex) or _dtype_kind(value) in tuple("cSUMmV"):
        raise RefusedError(f"it is {_shown(value)}; pass a number")
    return float(value)


def _complex(types: Types, _: str, entry: Mapping[str, Any]) -> Pack:
    part = layout(types, entry["element"]).pack

    def pack(value: Any, launch: Launch) -> bytes:
        if not hasattr(value, "__complex__") and not hasattr(value, "__float__"):
            raise RefusedError(f"it is {_shown(value)}; pass a complex number")
        number = complex(value)
        return part(number.real, launch) + part(number.imag, launch)

    return pack


def _elements(types: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    element, count = entry["element"], entry["count"]
    kind, size, one = types[element]["kind"], entry["size"], layout(types, element).pack

    def pack(value: Any, launch: Launch) -> bytes:
        if kind == "char" and isinstance(value, (bytes, bytearray)) and len(value) <= size:
            return bytes(value).ljust(size, b"\0")
        if element == "uint32_t" and isinstance(value, str) and len(value) <= count:
            return value.encode("utf-32-le").ljust(size, b"\0")
        parts = _sequence(value, count, name)
        content = b"".join([one(part, launch) for part in parts])
        return content.ljust(size, b"\0")

    return pack


def _sequence(value: Any, count: int, name: str) -> list[Any]:
    try:
        parts = None if isinstance(value, (str, bytes, Mapping)) else list(value)
    except TypeError:
        parts = None
    if parts is None or len(parts) != count:
        raise RefusedError(f"it is {_shown(value)}; for {name} pass {count} values, such as a tuple")
    return parts


def _struct(types: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    size, expected = entry["size"], None
    if not any(types[part["type"]]["kind"] == "view" for part in entry["members"]):
        expected = leaves(types, name)
    members = [(part["name"], part["offset"], *layout(types, part["type"])) for part in entry["members"]]
    names = [member[0] for member in members]
    optional = name.startswith("optional_") and names == ["value", "has_value"]

    def pack(value: Any, launch: Launch) -> bytes:
        if optional and value is None:
            return bytes(size)
        if optional and not isinstance(value, (tuple, Mapping)):
            value = (value, True)
        content = None if isinstance(value, (tuple, list, Mapping)) else _content(value, expected)
        if content is not None:
            if len(content) != size:
                raise RefusedError(f"it has {len(content)} bytes; pass the {size} of {name}")
            return content
        packed = bytearray(size)
        for (member, offset, extent, one), part in zip(members, _parts(value, names, name), strict=True):
            try:
                packed[offset : offset + extent] = one(part, launch)
            except RefusedError as error:
                raise RefusedError(f"member {member!r}: {error}") from error
        return bytes(packed)

    return pack


def _parts(value: Any, names: list[str], name: str) -> list[Any]:
    """Return the values of the members of a struct, which a mapping has by their names."""
    if not isinstance(value, Mapping):
        return _sequence(value, len(names), name)
    if sorted(names) != sorted(map(str, value)):
        raise RefusedError(f"it has the keys {', '.join(map(str, value))}; pass {', '.join(names)}")
    return [value[member] for member in names]


def _content(value: Any, expected: Leaves | None) -> bytes | None:
    """Return the bytes of *value*, a NumPy record or anything with a buffer; None for something else."""
    dtype = getattr(value, "dtype", None)
    if dtype is not None and hasattr(dtype, "itemsize") and hasattr(value, "tobytes"):
        try:
            own = arrays.of_descr(dtype.descr, dtype.itemsize)
        except ValueError:
            # NumPy does not describe fields that overlap or are not in order.
            own = None
        if None not in (own, expected) and own != expected:
            raise RefusedError(
                f"it is of {dtype}, of which other members are elsewhere; convert it by .astype()"
            )
        content = value.tobytes()
        return bytes(content)
    try:
        return bytes(memoryview(value))
    except TypeError:
        return None


def _pointer(types: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    target = types[entry["target"]]
    expected = None if target["kind"] in ("void", "view") else leaves(types, entry["target"])

    def pack(value: Any, launch: Launch) -> bytes:
        if value is None:
            return bytes(8)
        # A buffer of cuda.core is known by its address alone.
        number = getattr(value, "handle", value) if hasattr(value, "memory_resource") else value
        address = _address(number)
        if address is None:
            array = arrays.read(value, launch)
            if array is None:
                raise RefusedError(f"it is {_shown(value)}; pass an array on the device, or an address")
            if expected is not None:
                _check_elements(array, expected, target, entry["target"])
            if array.readonly:
                raise RefusedError(f"it is read-only, and a kernel may write through {name}; copy it")
            if not (arrays.is_contiguous(array, "c") or arrays.is_contiguous(array, "f")):
                raise RefusedError("it has gaps; copy it, for example by cupy.ascontiguousarray()")
            address = array.address
        if address not in _ADDRESSES:
            raise RefusedError(f"{address} is no address; pass one of the device, or an array")
        return address.to_bytes(8, "little")

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
    expected, code = leaves(types, element), struct.Struct(f"<Q{2 * ndim}q")

    def pack(value: Any, launch: Launch) -> bytes:
        array = arrays.read(value, launch)
        if array is None:
            raise RefusedError(
                f"it is {_shown(value)}; pass an array on the device, with __cuda_array_interface__ or DLPack"
            )
        if len(array.shape) != ndim:
            raise RefusedError(f"it has {len(array.shape)} dimensions; pass an array of {ndim}")
        _check_elements(array, expected, types[element], element)
        if array.readonly and not entry["readonly"]:
            raise RefusedError("it is read-only, and the kernel may write to it; pass a copy")
        if order != "any" and not arrays.is_contiguous(array, order):
            raise RefusedError(
                f"it is not contiguous in {order.upper()} order; pass a copy that is, or export the kernel "
                "for arrays with any strides"
            )
        return code.pack(array.address, *array.shape, *array.strides)

    return pack


def _check_elements(array: DeviceArray, expected: Leaves, entry: Mapping[str, Any], name: str) -> None:
    alike = array.itemsize == entry["size"] and array.leaves in (None, expected)
    if not alike:
        raise RefusedError(
            f"its elements are {array.dtype}; pass an array of {name}, of {entry['size']} bytes each"
        )
    if array.address % entry["align"] and 0 not in array.shape:
        raise RefusedError(f"its address is no multiple of {entry['align']}; pass an aligned copy")


def _dtype_kind(value: Any) -> str:
    return str(getattr(getattr(value, "dtype", None), "kind", ""))


def _shown(value: Any) -> str:
    text = repr(value)
    return f"{text if len(text) < 40 else text[:36] + ' ...'}, a {type(value).__name__}"


_MAKERS: dict[str, Callable[[Types, str, Mapping[str, Any]], Pack]] = {
    "bool": _bool,
    "int": _integer,
    "uint": _integer,
    "char": _char,
    "float": _float,
    "float16": _float,
    "bfloat16": _bfloat16,
    "complex": _complex,
    "vector": _elements,
    "array": _elements,
    "struct": _struct,
    "pointer": _pointer,
    "view": _view,
}
