"""Check Python values against the C types of a manifest, and make the bytes of them that a kernel reads."""

from __future__ import annotations

import cmath
import operator
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from numba_ptxlink._cabi import numbers
from numba_ptxlink._cabi.numbers import FloatFormat

from . import arrays, elements
from .arrays import DeviceArray, Launch
from .elements import Leaves, RefusedError, Types, shown

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
    number = numbers.of_kind(entry["kind"], entry["size"])
    if number is not None and number.format is not None:
        return Layout(entry["size"], _float(name, entry["size"], number.format))
    return Layout(entry["size"], _MAKERS[entry["kind"]](types, name, entry))


# What Python packs itself.
_PACKED = {FloatFormat(5, 10): "<e", FloatFormat(8, 23): "<f", FloatFormat(11, 52): "<d"}
_ADDRESSES = range(1 << 64)
_LONG = 256  # bits of an integer that is not written out


def _integer(_: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    size, signed = entry["size"], entry["kind"] == "int"
    allowed = range(-(1 << 8 * size - 1), 1 << 8 * size - 1) if signed else range(1 << 8 * size)

    def pack(value: Any, _: Launch) -> bytes:
        try:
            number = operator.index(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise RefusedError(f"it is {_shown(value)}; pass an integer") from error
        if number not in allowed:
            text = str(number) if number.bit_length() < _LONG else f"an integer of {number.bit_length()} bits"
            raise RefusedError(
                f"{text} is no {name}; pass an integer from {allowed.start} to {allowed.stop - 1}"
            )
        return number.to_bytes(size, "little", signed=signed)

    return pack


def _bool(*_: Any) -> Pack:
    def pack(value: Any, _: Launch) -> bytes:
        if _is_bool(value):
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


def _float(name: str, size: int, form: FloatFormat) -> Pack:
    code = struct.Struct(_PACKED[form]) if form in _PACKED else None

    def pack(value: Any, _: Launch) -> bytes:
        number = _REAL.read(value)
        try:
            return code.pack(number) if code else form.encode(number).to_bytes(size, "little")
        except OverflowError as error:
            hint = "pass less, or math.inf" if form.infinite else "pass less"
            raise RefusedError(f"{number} is too large for {name}; {hint}") from error

    return pack


class _Numbers(NamedTuple):
    """
    The numbers of Python that one of its types holds.

    Args:
        type: It.
        methods: What its numbers have, one or the other.
        never: NumPy's letters for the kinds of NumPy's types that have these, too, and are others.
        article: What they are called.
        larger: What ends the message about one that is larger than all of its values.
    """

    type: type[float | complex]
    methods: tuple[str, str]
    never: frozenset[str]
    article: str
    larger: str

    def read(self, value: Any) -> Any:
        """Return the number *value*, converted to the type."""
        if type(value) is self.type:
            return value
        one, other = self.methods
        is_number = hasattr(value, one) or hasattr(value, other)
        is_other = isinstance(value, (str, bytes)) or _dtype_kind(value) in self.never
        if not is_number or is_other or _shape(value):
            raise RefusedError(f"it is {_shown(value)}; pass {self.article}")
        try:
            number = self.type(value)
        except OverflowError as error:
            raise RefusedError(f"{_shown(value)} is too large for {self.larger}") from error
        except (TypeError, ValueError) as error:
            raise RefusedError(f"it is {_shown(value)}; pass {self.article}") from error
        # Numbers of a larger range become infinite without a word.
        if cmath.isinf(number) and not cmath.isnan(number) and value != number:
            raise RefusedError(f"{_shown(value)} is too large for {self.larger}")
        return number


_REAL = _Numbers(
    float, ("__float__", "__index__"), frozenset("cSUMmV"), "a number", "double; pass less, or math.inf"
)
_COMPLEX = _Numbers(
    complex, ("__complex__", "__float__"), frozenset("SUMmV"), "a complex number", "complex; pass less"
)


def _complex(types: Types, _: str, entry: Mapping[str, Any]) -> Pack:
    part = layout(types, entry["element"]).pack

    def pack(value: Any, launch: Launch) -> bytes:
        number = _COMPLEX.read(value)
        return part(number.real, launch) + part(number.imag, launch)

    return pack


def _elements(types: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    element, count = entry["element"], entry["count"]
    kind, size, one = types[element]["kind"], entry["size"], layout(types, element).pack
    axes = tuple("xyzw")[:count] if entry["kind"] == "vector" else None

    def pack(value: Any, launch: Launch) -> bytes:
        if kind == "char" and isinstance(value, (bytes, bytearray)) and len(value) <= size:
            return bytes(value).ljust(size, b"\0")
        if element == "uint32_t" and isinstance(value, str) and len(value) <= count:
            return value.encode("utf-32-le").ljust(size, b"\0")
        if axes and getattr(getattr(value, "dtype", None), "names", None) == axes:
            value = tuple(value[axis] for axis in axes)
        parts = _sequence(value, count, name)
        content = b"".join([one(part, launch) for part in parts])
        return content.ljust(size, b"\0")

    return pack


def _sequence(value: Any, count: int, name: str) -> list[Any]:
    # What has no order, or is used up, is none.
    is_sequence = isinstance(value, (tuple, list)) or (elements.is_numpy(value, "ndarray") and _shape(value))
    if not is_sequence or hasattr(value, "mask") or len(value) != count:
        raise RefusedError(f"it is {_shown(value)}; for {name} pass {count} values, such as a tuple")
    return list(value)


def _struct(types: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    size, expected = entry["size"], None
    if not _has_view(types, name):
        expected = elements.of_type(types, name)
    members = [(part["name"], part["offset"], *layout(types, part["type"])) for part in entry["members"]]
    names = [member[0] for member in members]

    def pack(value: Any, launch: Launch) -> bytes:
        content = _content(value, expected, size, name)
        if content is not None:
            return content
        packed = bytearray(size)
        for (member, offset, extent, one), part in zip(members, _parts(value, names, name), strict=True):
            try:
                packed[offset : offset + extent] = one(part, launch)
            except RefusedError as error:
                raise RefusedError(f"member {member!r}: {error}") from error
        return bytes(packed)

    return _optional(pack, size) if name.startswith("optional_") and names == _OPTIONAL else pack


_OPTIONAL = ["value", "has_value"]


def _optional(pack: Pack, size: int) -> Pack:
    def pack_optional(value: Any, launch: Launch) -> bytes:
        if value is None:
            return bytes(size)
        try:
            return pack((value, True), launch)
        except RefusedError:
            # The pair of its members is taken, too, where it is not a value itself.
            is_pair = isinstance(value, (tuple, list)) and len(value) == len(_OPTIONAL) and _is_bool(value[1])
            if is_pair or (isinstance(value, Mapping) and set(value) == set(_OPTIONAL)):
                return pack(value, launch)
            raise

    return pack_optional


def _has_view(types: Types, name: str) -> bool:
    entry = types[name]
    inner = [part["type"] for part in entry.get("members", ())]
    inner += [entry["element"]] if entry["kind"] == "array" else []
    return entry["kind"] == "view" or any(_has_view(types, part) for part in inner)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or (_dtype_kind(value) == "b" and not _shape(value))


def _parts(value: Any, names: list[str], name: str) -> list[Any]:
    """Return the values of the members of a struct, which a mapping has by their names."""
    if isinstance(value, Mapping):
        if set(value) != set(names):
            raise RefusedError(f"it has the keys {', '.join(map(str, value))}; pass {', '.join(names)}")
        return [value[member] for member in names]
    own = getattr(value, "_fields", None) if isinstance(value, tuple) else None
    if own is not None and len(own) == len(names) and not elements.is_tuple(names):
        for mine, member in zip(own, names, strict=True):
            if not elements.is_name(mine, member):
                raise RefusedError(f"it has the members {', '.join(own)}; pass {', '.join(names)}")
    return _sequence(value, len(names), name)


def _content(value: Any, expected: Leaves | None, size: int, name: str) -> bytes | None:
    """Return the bytes of *value* where it is a record of NumPy, or bytes; None for something else."""
    if isinstance(value, (bytes, bytearray)):
        if expected is None:
            raise RefusedError(f"it is {_shown(value)}, and {name} holds arrays; pass a tuple with them")
        if len(value) != size:
            raise RefusedError(f"it has {len(value)} bytes; pass the {size} of {name}")
        return bytes(value)
    dtype = getattr(value, "dtype", None)
    is_record = elements.is_numpy(value, "void") or (
        elements.is_numpy(value, "ndarray") and not _shape(value)
    )
    if not is_record or dtype is None:
        return None
    if expected is None:
        raise RefusedError(f"it is of {dtype}, and {name} holds arrays; pass a tuple with them")
    own = elements.of_dtype(dtype)
    if dtype.itemsize != size or not elements.is_alike(own, expected):
        raise RefusedError(
            f"it is of {dtype}, of which other members are elsewhere or have other names; pass one of the "
            f"members of {name}, converted by .astype(), or a tuple"
        )
    return bytes(value.tobytes())


def _pointer(types: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    target = types[entry["target"]]
    expected = None if target["kind"] in ("void", "view") else elements.of_type(types, entry["target"])

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
            if array.readonly and not entry.get("readonly"):
                raise RefusedError(f"it is read-only, and a kernel may write through {name}; copy it")
            if not (arrays.is_contiguous(array, "c") or arrays.is_contiguous(array, "f")):
                raise RefusedError("it has gaps; copy it, for example by cupy.ascontiguousarray()")
            address = array.address
        elif address % target["align"]:
            raise RefusedError(
                f"{shown(address)} is no multiple of {target['align']}; pass an aligned address"
            )
        if address not in _ADDRESSES:
            raise RefusedError(f"{_shown(address)} is no address; pass one of the device, or an array")
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
    expected, code = elements.of_type(types, element), struct.Struct(f"<Q{2 * ndim}q")

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
    alike = array.itemsize == entry["size"] and (
        array.leaves is None or elements.is_alike(array.leaves, expected)
    )
    if not alike:
        raise RefusedError(
            f"its elements are {array.dtype}; pass an array of {name}, of {entry['size']} bytes each"
        )
    if array.address % entry["align"] and 0 not in array.shape:
        raise RefusedError(f"its address is no multiple of {entry['align']}; pass an aligned copy")


def _shape(value: Any) -> Any:
    return getattr(value, "shape", None)


def _dtype_kind(value: Any) -> str:
    return str(getattr(getattr(value, "dtype", None), "kind", ""))


def _shown(value: Any) -> str:
    return f"{shown(value, 40)}, a {type(value).__name__}"


_MAKERS: dict[str, Callable[[Types, str, Mapping[str, Any]], Pack]] = {
    "bool": _bool,
    "int": _integer,
    "uint": _integer,
    "char": _char,
    "complex": _complex,
    "vector": _elements,
    "array": _elements,
    "struct": _struct,
    "pointer": _pointer,
    "view": _view,
}
