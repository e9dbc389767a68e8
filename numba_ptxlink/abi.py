"""
The C ABI in one place: C types with their layout, and which of them each Numba type is.

A function's C signature fixes its PTX prototype; the rules are those that nvcc follows, read off its output:
scalars travel in 32 or 64 bits, everything else as an aligned byte array.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import _cnames, _ptx
from .errors import AbiError

__all__ = [
    "AbiOptions",
    "Array",
    "CType",
    "Complex",
    "Half",
    "Member",
    "Pointer",
    "Scalar",
    "Signature",
    "Struct",
    "Vector",
    "Void",
    "c_signature",
    "c_type",
]

AGGREGATES = ("value", "flat")
ON_ERROR = ("zero", "trap")


@dataclass(frozen=True)
class CType:
    """
    A C type as the device compiler lays it out.

    Args:
        name: Its spelling in C++.
        size: In bytes.
        align: In bytes.
    """

    name: str
    size: int
    align: int

    @property
    def include(self) -> str | None:
        """The CUDA header that declares the type, None for a type of the language."""
        return None

    def declare(self, name: str) -> str:
        """Return the declaration of a variable or member *name* of this type."""
        return f"{self.name} {name}"

    def param(self) -> _ptx.Param | None:
        """Return what the type is as a parameter or return value in PTX, None for void."""
        return _ptx.Param(align=self.align, size=self.size)


@dataclass(frozen=True)
class Void(CType):
    """No value."""

    name: str = "void"
    size: int = 0
    align: int = 1

    def param(self) -> _ptx.Param | None:
        """Return None: void is no parameter."""
        return None


@dataclass(frozen=True)
class Scalar(CType):
    """
    A boolean, an integer or a float of 32 or 64 bits.

    Args:
        kind: "bool", "int", "uint" or "float".
    """

    kind: str

    def param(self) -> _ptx.Param | None:
        """Return the 32 or 64 bits it travels in."""
        return _ptx.Param(bits=64 if self.size == 8 else 32)


@dataclass(frozen=True)
class Half(CType):
    """A 16-bit float, which CUDA C++ declares as a class: `__half` or `__nv_bfloat16`."""

    @property
    def include(self) -> str | None:
        """The CUDA header that declares the type."""
        return "cuda_fp16.h" if self.name == "__half" else "cuda_bf16.h"


@dataclass(frozen=True)
class Complex(CType):
    """`cuFloatComplex` or `cuDoubleComplex`, as aligned as it is large."""

    element: Scalar

    @property
    def include(self) -> str | None:
        """The CUDA header that declares the type."""
        return "cuComplex.h"


@dataclass(frozen=True)
class Vector(CType):
    """One of CUDA's vector types, such as `float4`."""

    element: Scalar
    count: int

    @property
    def include(self) -> str | None:
        """The CUDA header that declares the type."""
        return "vector_types.h"


@dataclass(frozen=True)
class Pointer(CType):
    """A generic address of a *target*."""

    target: CType

    def param(self) -> _ptx.Param | None:
        """Return the 32 or 64 bits it travels in."""
        return _ptx.Param(bits=64)


@dataclass(frozen=True)
class Array(CType):
    """An array inside a struct: *count* times *element*."""

    element: CType
    count: int

    def declare(self, name: str) -> str:
        """Return the declaration of a member *name*."""
        return self.element.declare(f"{name}[{self.count}]")


@dataclass(frozen=True)
class Member:
    """One member of a struct, *offset* bytes from its start."""

    name: str
    type: CType
    offset: int


@dataclass(frozen=True)
class Struct(CType):
    """
    A struct by value.

    Args:
        members: In the order of their offsets.
        packed: Whether the compiler has to be told not to align the members.
        declared_in: The header that declares it, None for one that the export defines.
    """

    members: tuple[Member, ...]
    packed: bool = False
    declared_in: str | None = None

    @property
    def include(self) -> str | None:
        """The CUDA header that declares the type."""
        return self.declared_in


@dataclass(frozen=True)
class Signature:
    """
    A C function: `result name(params)`.

    Args:
        name: The symbol.
        result: What it returns.
        params: Name and type of each parameter.
        kernel: Whether it is a `__global__` function.
    """

    name: str
    result: CType
    params: tuple[tuple[str, CType], ...]
    kernel: bool = False

    @property
    def prototype(self) -> _ptx.Prototype:
        """The PTX prototype that nvcc emits for the declaration."""
        params = (ctype.param() for _, ctype in self.params)
        return _ptx.Prototype(
            name=self.name,
            result=self.result.param(),
            params=tuple(param for param in params if param is not None),
            entry=self.kernel,
        )

    @property
    def types(self) -> Iterator[CType]:
        """Every type the declaration names, members before the structs that hold them."""
        seen: set[CType] = set()
        for ctype in (self.result, *(ctype for _, ctype in self.params)):
            yield from _walk(ctype, seen)

    def __str__(self) -> str:
        params = ", ".join(ctype.declare(name) for name, ctype in self.params) or "void"
        return self.result.declare(f"{self.name}({params})")


def _walk(ctype: CType, seen: set[CType]) -> Iterator[CType]:
    if ctype in seen:
        return
    seen.add(ctype)
    inner: Iterable[CType] = ()
    if isinstance(ctype, Struct):
        inner = (member.type for member in ctype.members)
    elif isinstance(ctype, Pointer):
        inner = (ctype.target,)
    elif isinstance(ctype, (Array, Vector, Complex)):
        inner = (ctype.element,)
    for part in inner:
        yield from _walk(part, seen)
    yield ctype


@dataclass(frozen=True)
class AbiOptions:
    """
    What `abi_info` may hold.

    Args:
        abi_name: The symbol, None for the Python function's `__name__`.
        aggregates: "value" passes structs as C does, "flat" spreads their members over the parameters.
        on_error: What the function does where Python would raise: "zero" returns a zero-initialised value,
            "trap" stops the kernel.
    """

    abi_name: str | None = None
    aggregates: str = "value"
    on_error: str = "zero"

    @classmethod
    def of(cls, abi_info: object) -> AbiOptions:
        """
        Read and check an `abi_info` mapping.

        Raises:
            AbiError: It is no mapping, or has an unknown key or value.
        """
        if abi_info is None:
            return cls()
        if not isinstance(abi_info, Mapping):
            raise AbiError(
                f'abi_info must be a dict such as {{"abi_name": "f"}}, not {type(abi_info).__name__}: '
                f"{abi_info!r}."
            )
        known = [field.name for field in dataclasses.fields(cls)]
        for key in abi_info:
            if key not in known:
                raise AbiError(f"abi_info has the unknown key {key!r}; the keys are {', '.join(known)}.")
        options = cls(**abi_info)
        for key, choices in (("aggregates", AGGREGATES), ("on_error", ON_ERROR)):
            if getattr(options, key) not in choices:
                raise AbiError(
                    f"abi_info[{key!r}] is {getattr(options, key)!r}; the choices are {', '.join(choices)}."
                )
        if options.abi_name is not None:
            _cnames.check(options.abi_name, "the function")
        return options


_BOOL = Scalar("bool", 1, 1, "bool")
_FLOATS = {32: Scalar("float", 4, 4, "float"), 64: Scalar("double", 8, 8, "float")}


def _integer(bits: int, *, signed: bool) -> Scalar:
    return Scalar(f"{'' if signed else 'u'}int{bits}_t", bits // 8, bits // 8, "int" if signed else "uint")


def c_signature(
    name: str, result: Any, params: Iterable[tuple[str, Any]], *, kernel: bool = False
) -> Signature:
    """
    Return the C signature of a function with these Numba types.

    Args:
        name: The symbol.
        result: The Numba type of the return value.
        params: Name and Numba type of each parameter.
        kernel: Whether it is a `__global__` function.

    Raises:
        AbiError: A type has no counterpart in C. Names the function, the parameter and the type.
    """

    def translate(ty: Any, where: str) -> CType:
        try:
            return c_type(ty)
        except AbiError as error:
            raise AbiError(f"Function {name}: {where} has no C type. {error}") from error

    return Signature(
        name=name,
        result=translate(result, f"the return value, of Numba type {result},"),
        params=tuple(
            (param, translate(ty, f"parameter {param!r}, of Numba type {ty},")) for param, ty in params
        ),
        kernel=kernel,
    )


def c_type(ty: Any) -> CType:
    """
    Return the C type of the Numba type *ty*.

    Raises:
        AbiError: There is none.
    """
    from numba.cuda import types

    if isinstance(ty, types.Boolean):
        return _BOOL
    if isinstance(ty, types.Integer):
        return _integer(ty.bitwidth, signed=ty.signed)
    if isinstance(ty, types.Float) and ty.bitwidth in _FLOATS:
        return _FLOATS[ty.bitwidth]
    if isinstance(ty, types.NoneType):
        return Void()
    if ty == types.voidptr:
        return Pointer("void*", 8, 8, Void())
    if isinstance(ty, types.CPointer):
        target = c_type(ty.dtype)
        return Pointer(f"{target.name}*", 8, 8, target)
    raise AbiError(
        "Use booleans, integers, float32, float64, pointers (CPointer, voidptr) or none; "
        "pass anything else by pointer."
    )
