"""Check Python values against the C types of a manifest, and make the bytes of them that a kernel reads."""

from __future__ import annotations

import cmath
import operator
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Complex, Real
from typing import Any, NamedTuple

from numba_ptxlink.errors import LaunchError, shown

from . import arrays
from .arrays import DeviceArguments, DeviceArray, Types, WrongArgumentError
from .results import Record, members_of

Pack = Callable[[Any, DeviceArguments], bytes]


class Formal(NamedTuple):
    """
    A parameter of a kernel or a function.

    Args:
        name: Its name.
        type: Its C type.
        pack: What makes the bytes of that type of a value, or raises `WrongArgumentError`.
        offset: Where it begins in the arguments of a kernel, in bytes.
    """

    name: str
    type: str
    pack: Pack
    offset: int


class Parameters:
    """
    The parameters of a kernel or a function, with which arguments are compared.

    Args:
        owner: Whose they are, for messages, such as "Kernel scale".
        described: The parameters, as a manifest describes them.
        types: The C types of the manifest.

    Raises:
        KeyError: *types* do not describe one of them.
    """

    def __init__(self, owner: str, described: Iterable[Mapping[str, Any]], types: Types) -> None:
        self.owner = owner
        self.formals = [
            Formal(each["name"], each["type"], packer(types, each["type"]), each.get("offset", 0))
            for each in described
        ]

    def read(
        self,
        args: Sequence[Any],
        memory: DeviceArguments,
        take: Callable[[Formal, Any, Any], Any] | None = None,
    ) -> list[Any]:
        """
        Return the bytes of each argument, or what *take* makes of it.

        Raises:
            LaunchError: There are more or fewer arguments, one is not what its parameter takes, or the code
                of its package failed.
        """
        if len(args) != len(self.formals):
            names = ", ".join(formal.name for formal in self.formals)
            raise LaunchError(f"{self.owner} takes ({names}), and was given {len(args)} arguments.")
        made = []
        for formal, value in zip(self.formals, args, strict=True):
            memory.parameter = formal.name
            place = f"{self.owner}: parameter {formal.name!r} is {formal.type}"
            try:
                made.append(take(formal, value, memory) if take else formal.pack(value, memory))
            except WrongArgumentError as error:
                raise LaunchError(f"{place}: {error}.") from error
            except Exception as error:
                raise LaunchError(
                    f"{place}: a {type(value).__name__} cannot be read: {type(error).__name__}: {error}; "
                    "detach or copy it, or pass another value."
                ) from error
        return made


def packer(types: Types, name: str) -> Pack:
    """Return what packs values of the type *name*."""
    entry = types[name]
    return _MAKERS[entry["kind"]](types, name, entry)


def _integer(_: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    size, signed = entry["size"], entry["kind"] == "int"
    allowed = range(-(1 << 8 * size - 1), 1 << 8 * size - 1) if signed else range(1 << 8 * size)

    def pack(value: Any, _: DeviceArguments) -> bytes:
        try:
            return operator.index(value).to_bytes(size, "little", signed=signed)
        except (TypeError, OverflowError) as error:
            raise WrongArgumentError(
                f"it is {_shown(value)}, and no {name}; pass an integer from {allowed.start} to "
                f"{allowed.stop - 1}"
            ) from error

    return pack


def _bool(*_: Any) -> Pack:
    def pack(value: Any, _: DeviceArguments) -> bytes:
        if _is_bool(value) or (isinstance(value, int) and value in {0, 1}):
            return bytes([bool(value)])
        raise WrongArgumentError(f"it is {_shown(value)}; pass True or False")

    return pack


def _float(_: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    encode = _bfloat16 if entry["kind"] == "bfloat16" else struct.Struct(_FLOATS[entry["size"]]).pack

    def pack(value: Any, _: DeviceArguments) -> bytes:
        number = _number(value, float, Real, "a number")
        try:
            return encode(number)
        except OverflowError as error:
            raise WrongArgumentError(f"{number} is too large for {name}; pass less, or math.inf") from error

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
        raise WrongArgumentError(f"it is {_shown(value)}; pass {article}")
    try:
        number = kind(value)
    except (OverflowError, TypeError) as error:
        raise WrongArgumentError(f"{_shown(value)} cannot be {article} of C; pass less") from error
    # Numbers of a larger range become infinite without a word.
    if cmath.isinf(number) and not cmath.isnan(number) and value != number:
        raise WrongArgumentError(f"{_shown(value)} is too large; pass less")
    return number


def _complex(types: Types, _: str, entry: Mapping[str, Any]) -> Pack:
    part = packer(types, entry["element"])

    def pack(value: Any, launch: DeviceArguments) -> bytes:
        number = _number(value, complex, Complex, "a complex number")
        return part(number.real, launch) + part(number.imag, launch)

    return pack


def _compound(types: Types, name: str, entry: Mapping[str, Any]) -> Pack:
    size, fields = entry["size"], arrays.fields(types, name)
    names = [field.name for field in fields]
    packers = [(field.offset, packer(types, field.type)) for field in fields]
    is_struct, is_named = entry["kind"] == "struct", entry.get("python_kind", "tuple") != "tuple"
    is_text = entry["kind"] == "array" and types[entry["element"]]["kind"] == "char"

    def pack(value: Any, launch: DeviceArguments) -> bytes:
        if is_text and isinstance(value, bytes) and len(value) <= size:
            return value.ljust(size, b"\0")
        is_record = arrays.is_numpy(value, "void") or (arrays.is_numpy(value, "ndarray") and not value.shape)
        if is_record and not arrays.is_like(types, name, value.dtype):
            raise WrongArgumentError(
                f"it is of {value.dtype}, of which other members are elsewhere or have other names; pass one "
                f"of the members of {name}, converted by .astype(), or a tuple"
            )
        if is_record or (is_struct and isinstance(value, bytes)):
            content = value.tobytes() if is_record else value
            if len(content) != size or _has_view(types, name):
                raise WrongArgumentError(f"it is {_shown(value)}; pass a tuple of the members of {name}")
            return bytes(content)
        packed = bytearray()
        parts = _parts(value, names, name, named=is_named)
        for own, (offset, one), part in zip(names, packers, parts, strict=True):
            try:
                packed += bytes(offset - len(packed)) + one(part, launch)
            except WrongArgumentError as error:
                raise WrongArgumentError(f"member {own!r}: {error}") from error
        return bytes(packed).ljust(size, b"\0")

    def pack_optional(value: Any, launch: DeviceArguments) -> bytes:
        if arrays.is_numpy(value, "void") and arrays.is_like(types, name, value.dtype):
            # An element of an array that a function returned.
            return pack(value, launch)
        return bytes(size) if value is None else pack((value, True), launch)

    return pack_optional if arrays.is_optional(types, name) else pack


def _has_view(types: Types, name: str) -> bool:
    entry = types[name]
    return entry["kind"] == "view" or any(
        _has_view(types, field.type) for field in arrays.fields(types, name)
    )


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or arrays.is_numpy(value, "bool_")


def _parts(value: Any, names: list[str], name: str, *, named: bool) -> list[Any]:
    """Return the values of members, by their names if they are *named* and *value* has names."""
    if isinstance(value, Record):
        value = members_of(value) if named else tuple(value)
    own = list(value) if isinstance(value, Mapping) else list(getattr(value, "_fields", names))
    differs = own != names if isinstance(value, tuple) else set(own) != set(names)
    # A tuple in C has no names, and neither have the elements of an array; those of vectors are C's own.
    if differs and (named or not isinstance(value, tuple)):
        raise WrongArgumentError(f"it has {', '.join(map(str, own))}; pass {', '.join(names)}")
    if isinstance(value, Mapping):
        return [value[field] for field in names]
    # What has no order, or is used up, is no sequence.
    is_sequence = isinstance(value, (tuple, list)) or (arrays.is_numpy(value, "ndarray") and value.shape)
    if not is_sequence or hasattr(value, "mask") or len(value) != len(names):
        raise WrongArgumentError(
            f"it is {_shown(value)}; for {name} pass {len(names)} values, such as a tuple"
        )
    return list(value)


def _pointer(types: Types, _: str, entry: Mapping[str, Any]) -> Pack:
    target = types[entry["target"]]

    def pack(value: Any, launch: DeviceArguments) -> bytes:
        if value is None:
            return bytes(8)
        # A buffer of cuda.core is known by its address alone.
        number = getattr(value, "handle", value) if hasattr(value, "memory_resource") else value
        address = _address(number)
        if address is None:
            array = _array(types, entry["target"], value, launch, readonly=entry.get("readonly", False))
            if not (arrays.is_contiguous(array, "c") or arrays.is_contiguous(array, "f")):
                raise WrongArgumentError(
                    "it is not contiguous; copy it, for example by ascontiguousarray() of CuPy or NumPy"
                )
            address = array.address
        elif address % target["align"]:
            raise WrongArgumentError(
                f"{shown(address)} is not a multiple of {target['align']}; pass an aligned address"
            )
        else:
            launch.leads_to(address)
        try:
            return address.to_bytes(8, "little")
        except OverflowError as error:
            reason = f"{_shown(address)} is no address; pass one of the device, or an array"
            raise WrongArgumentError(reason) from error

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
    ndim, order = entry["ndim"], entry["layout"]
    code = struct.Struct(f"<Q{2 * ndim}q")

    def pack(value: Any, launch: DeviceArguments) -> bytes:
        array = _array(types, entry["element"], value, launch, readonly=entry["readonly"])
        if len(array.shape) != ndim:
            raise WrongArgumentError(f"it has {len(array.shape)} dimensions; pass an array of {ndim}")
        if order != "any" and not arrays.is_contiguous(array, order):
            raise WrongArgumentError(
                f"it is not contiguous in {order.upper()} order; pass a copy that is, or export the kernel "
                "for arrays with any strides"
            )
        return code.pack(array.address, *array.shape, *array.strides)

    return pack


def _array(types: Types, name: str, value: Any, launch: DeviceArguments, *, readonly: bool) -> DeviceArray:
    """Return the array *value*, whose elements are of the type *name*; *readonly* if nobody writes to it."""
    entry, array = types[name], launch.read(value)
    if array is None:
        raise WrongArgumentError(f"it is {_shown(value)}; pass {launch.takes}")
    # Behind a pointer to void, or to views, is anything.
    if entry["kind"] not in {"void", "view"} and not arrays.is_like(types, name, array.dtype):
        raise WrongArgumentError(
            f"its elements are {array.dtype}; pass an array of {name}, of {entry['size']} bytes each, by "
            ".astype() for example"
        )
    if array.address % entry["align"] and 0 not in array.shape:
        raise WrongArgumentError(f"its address is not a multiple of {entry['align']}; pass an aligned copy")
    if array.readonly and not readonly:
        raise WrongArgumentError("it is read-only, and the kernel may write to it; pass a copy")
    return array


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
    "vector": _compound,
    "array": _compound,
    "struct": _compound,
    "pointer": _pointer,
    "view": _view,
}
